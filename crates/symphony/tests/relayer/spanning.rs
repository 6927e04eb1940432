//! Spans: whose trace a dispatch continues, what leaves with it, and that nothing waits for whoever collects them.

use serde_json::{Value, json};
use symphony_outbox::connect::Target;
use symphony_outbox::payment::producer;
use symphony_proof::kit::process::Launch;
use symphony_proof::kit::wait::{BOUND, until};
use tokio::net::TcpListener;

use crate::collector::{Manner, Receiver, Span};
use crate::load::instruction;
use crate::relayer::{Orders, Relayer};
use crate::yard::{RAIL, Yard};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const CLIENT: i32 = 3;
const PRODUCER: i32 = 4;

/// Enqueues the nth instruction in a transaction with this in its setting; its outbox.
async fn enqueue(yard: &Yard, number: usize, traceparent: &str) -> String {
    let mut client = Target::parse(&yard.till_url).unwrap().connect().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    producer::set_traceparent(&transaction, traceparent).await.unwrap();
    let enqueued = producer::enqueue(&transaction, &instruction("traced", number, RAIL)).await.unwrap();
    transaction.commit().await.unwrap();
    enqueued.outbox_id.to_string()
}

/// What a relayer is told that pays at this bank and draws spans for this collector.
fn orders(yard: &Yard, bank: &Receiver, traces: String) -> Orders {
    let mut orders = yard.orders();
    for section in orders.rails.values_mut() {
        *section = section.replace(&yard.bank.address().to_string(), &bank.address().to_string());
    }
    orders.more = traces;
    orders
}

fn of<'a>(spans: &'a [Span], outbox: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.attribute("messaging.message.id") == outbox);
    let span = found.next().unwrap_or_else(|| panic!("no span of {outbox} in {spans:?}"));
    assert!(found.next().is_none(), "{outbox} has two spans");
    span
}

#[tokio::test]
async fn a_dispatch_continues_the_trace_of_who_enqueued_it_and_the_request_carries_it_on() {
    let yard = Yard::open().await;
    let (bank, collector) = (Receiver::start().await, Receiver::start().await);
    let mut orders = orders(&yard, &bank, collector.traces("headers = { 'x-key' = { env = 'KEY' } }"));
    orders.variables =
        vec![("KEY", "open-sesame".to_owned()), ("OTEL_SERVICE_NAME", "payments-of-the-house".to_owned())];
    let relayer = yard.relayer(&orders).await;

    let zeros = "0".repeat(32);
    let continued = enqueue(&yard, 0, &format!("00-{TRACE}-{CALLER}-01")).await;
    let without = enqueue(&yard, 1, "").await;
    let no_header = enqueue(&yard, 2, "nonsense").await;
    // It has the form, and is stored; it is none all the same.
    let no_context = enqueue(&yard, 3, &format!("00-{zeros}-{CALLER}-01")).await;
    let unsampled = enqueue(&yard, 4, &format!("00-{}-{CALLER}-00", TRACE.replace('4', "5"))).await;
    let stored =
        format!("select count(*) from symphony.payment_outbox_pending where traceparent like '00-{zeros}-%'");
    let ended = format!("select count(*) from symphony.payment_outbox_attempts where outbox_id = '{no_context}'");
    assert_eq!(yard.number(&stored).await + yard.number(&ended).await, 1);
    yard.is_done().await;
    let spans = collector.has_spans(4).await;
    assert_eq!(spans.len(), 4, "{spans:?}");

    let span = of(&spans, &continued);
    assert_eq!((&*span.trace_id, &*span.parent_id), (TRACE, CALLER));
    assert_eq!(span.links, [(TRACE.to_owned(), CALLER.to_owned())]);
    assert_eq!((&*span.name, span.kind, span.failed), ("send sepa", CLIENT, false));
    let expected = [
        ("messaging.system", "symphony"),
        ("messaging.operation.name", "send"),
        ("messaging.operation.type", "send"),
        ("messaging.destination.name", RAIL),
        ("messaging.message.id", &continued),
        ("symphony.lane", "payment"),
        ("symphony.worker", &relayer.worker),
        ("symphony.attempt", "1"),
        ("symphony.state", "DISPATCHED"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(span.attributes, expected.into());
    assert_eq!(span.resource["service.name"], "payments-of-the-house");
    assert_eq!(span.resource["service.instance.id"], relayer.worker);

    for outbox in [&without, &no_header, &no_context] {
        let span = of(&spans, outbox);
        assert!(span.parent_id.is_empty() && span.links.is_empty(), "{span:?}");
        assert!(span.trace_id != TRACE && span.trace_id != zeros, "{span:?}");
    }
    assert!(spans.iter().all(|span| span.attribute("messaging.message.id") != unsampled), "{spans:?}");

    // The bank was told of each which span asks; of the one that is not recorded too, with that said.
    let mut carried: Vec<_> = bank.requests().iter().map(|request| request.header("traceparent")).collect();
    let index = carried.iter().position(|header| header.contains(&TRACE.replace('4', "5"))).unwrap();
    let silent = carried.remove(index);
    assert!(silent.ends_with("-00") && !silent.contains(CALLER), "{silent}");
    let mut expected: Vec<_> = spans.iter().map(Span::traceparent).collect();
    carried.sort();
    expected.sort();
    assert_eq!(carried, expected);

    for request in collector.requests() {
        assert_eq!(request.header("x-key"), "open-sesame");
        let text = String::from_utf8_lossy(&request.body).into_owned();
        for personal in ["traced-", "DE02120300000000202051", "EUR"] {
            assert!(!text.contains(personal), "{personal} is in {text}");
        }
    }
    relayer.stop().await;
    assert!(relayer.lines().await.iter().all(|line| !line.contains("open-sesame")));
}

#[tokio::test]
async fn an_outcome_that_nobody_knows_is_an_error_and_the_question_has_a_span_of_its_own() {
    let yard = Yard::open().await;
    let collector = Receiver::start().await;
    let mut orders = yard.orders();
    orders.more = collector.traces("");
    yard.bank.order(&json!({"seed": 1, "cut_after": "1.0"})).await;
    let relayer = yard.relayer(&orders).await;
    let outbox = enqueue_by_program(&yard, &format!("00-{TRACE}-{CALLER}-01")).await;
    let unknown = collector.has_spans(1).await.remove(0);
    assert_eq!((unknown.attribute("symphony.state"), unknown.failed), ("RETRYABLE", true));
    assert_eq!(unknown.attribute("error.type"), "OUTCOME_UNKNOWN");
    yard.bank.order(&json!({})).await;
    yard.is_done().await;

    let settled = async || {
        let spans = collector.spans();
        spans.iter().any(|span| span.attribute("symphony.state") == "DISPATCHED")
            && spans.iter().any(|span| span.name == "inquire sepa" && !span.failed)
    };
    until("the answer has its spans", BOUND, settled).await.unwrap();
    let spans = collector.spans();
    let last = spans.iter().find(|span| span.attribute("symphony.state") == "DISPATCHED").unwrap();
    let question = spans.iter().find(|span| span.parent_id == last.span_id).unwrap();
    assert_eq!((&*last.trace_id, &*last.parent_id), (TRACE, CALLER));
    assert_eq!(last.attribute("messaging.message.id"), outbox);
    assert!(last.attribute("symphony.attempt").parse::<u32>().unwrap() > 1);
    assert_eq!((&*question.trace_id, &*question.name), (TRACE, "inquire sepa"));
    assert_eq!(question.attribute("symphony.state"), "EXECUTED");
    relayer.stop().await;
}

#[tokio::test]
async fn a_dispatch_that_is_cut_off_says_so_in_its_span_and_names_its_trace_in_the_log() {
    let yard = Yard::open().await;
    let (bank, collector) = (Receiver::start().await, Receiver::start().await);
    bank.behave(Manner::Stall);
    let relayer = yard.relayer(&orders(&yard, &bank, collector.traces(""))).await;
    enqueue(&yard, 0, &format!("00-{TRACE}-{CALLER}-01")).await;
    bank.has_requests(1).await;
    // That one is never answered; those that follow are.
    bank.behave(Manner::Answer(200));
    yard.expire_leases().await;
    let line: Value = serde_json::from_str(&relayer.says("the lease was lost").await).unwrap();
    assert_eq!(line["trace_id"], TRACE, "{line}");
    let cut_off = |span: &Span| span.attribute("symphony.state") == "CUT_OFF";
    let so = async || collector.spans().iter().any(cut_off);
    until("the span of the dispatch that was cut off is there", BOUND, so).await.unwrap();
    let span = collector.spans().into_iter().find(cut_off).unwrap();
    assert_eq!((&*span.trace_id, &*span.parent_id, span.failed), (TRACE, CALLER, true));
    relayer.stop().await;
}

/// Enqueues by the program's own command; the outbox.
async fn enqueue_by_program(yard: &Yard, traceparent: &str) -> String {
    let arguments =
        ["enqueue", "--instruction", "i-1", "--participant", "p-1", "--key", "k-1", "--rail", RAIL, "--json"];
    let payload = r#"{"amount": "1.00", "currency": "EUR", "destination": {"iban": "DE02120300000000202051"}}"#;
    let launch = |traceparent: &str| {
        Launch::new(env!("CARGO_BIN_EXE_symphony"))
            .args(arguments)
            .args(["--payload", payload, "--traceparent", traceparent])
            .env("DATABASE_URL", &yard.till_url)
            .start()
            .unwrap()
    };
    let refused = launch("nonsense");
    assert_eq!(refused.exit_code(BOUND).await.unwrap(), 2, "{}", refused.tail());
    assert!(refused.tail().contains("write it as 00-"), "{}", refused.tail());
    let program = launch(traceparent);
    assert_eq!(program.exit_code(BOUND).await.unwrap(), 0, "{}", program.tail());
    let printed: Value = serde_json::from_str(&program.tail()).unwrap();
    printed["outbox_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_event_begins_a_trace_and_its_request_carries_it() {
    let yard = Yard::open().await;
    let (hook, collector) = (Receiver::start().await, Receiver::start().await);
    let mut orders = yard.orders();
    orders.more = format!(
        "{}[event]\nsource = '//shop.example'\n[[event.routes]]\naggregate_type = '*'\nevent_type = '*'\nsink = 'hook'\n\
         destination = 'x'\n[sinks.hook]\nkind = 'http'\nurl = 'http://{}/'\nallow_plain = true\nallow_private = ['127.0.0.1']\n",
        collector.traces(""),
        hook.address()
    );
    let relayer = yard.relayer(&orders).await;
    let publish = "select m10_recovery.publish_outbox('order', '7', 'order.paid', '{}')";
    yard.owner().await.execute(publish, &[]).await.unwrap();
    let span = collector.has_spans(1).await.remove(0);
    assert_eq!((&*span.name, span.kind, &*span.parent_id), ("send hook", PRODUCER, ""));
    assert_eq!((span.attribute("symphony.lane"), span.attribute("symphony.state")), ("event", "DELIVERED"));
    let request = hook.has_requests(1).await.remove(0);
    assert_eq!(request.header("traceparent"), span.traceparent());
    // That would be the trace in which the event was made, which nobody knows.
    assert_eq!(request.header("ce-traceparent"), "");
    relayer.stop().await;
}

#[tokio::test]
async fn with_traces_off_nothing_is_asked_and_nothing_is_carried() {
    let yard = Yard::open().await;
    let (bank, collector) = (Receiver::start().await, Receiver::start().await);
    let off = yard.relayer(&orders(&yard, &bank, String::new())).await;
    // Who asks is refused from now on.
    let refuse = "revoke execute on function symphony.outbox_trace_contexts from symphony_executor";
    yard.owner().await.batch_execute(refuse).await.unwrap();
    enqueue(&yard, 0, &format!("00-{TRACE}-{CALLER}-01")).await;
    yard.is_done().await;
    assert_eq!(bank.requests()[0].header("traceparent"), "");
    assert!(!off.metrics().await.contains("trace_spans"));
    off.stop().await;
    assert_eq!(off.heard("traces are not known").await, 0);

    // Where it is asked for and not told, payments leave all the same.
    let grant = "grant execute on function symphony.outbox_trace_contexts to symphony_executor";
    yard.owner().await.batch_execute(grant).await.unwrap();
    let on = yard.relayer(&orders(&yard, &bank, collector.traces(""))).await;
    yard.owner().await.batch_execute(refuse).await.unwrap();
    for number in 1..4 {
        enqueue(&yard, number, &format!("00-{TRACE}-{CALLER}-01")).await;
        yard.is_done().await;
    }
    let spans = collector.has_spans(3).await;
    assert!(spans.iter().all(|span| span.parent_id.is_empty() && span.trace_id != TRACE), "{spans:?}");
    on.stop().await;
    assert_eq!(on.heard("traces are not known").await, 1);
}

/// Pays so many, and sees that each is paid.
async fn pays(yard: &Yard, producer: &str, count: usize) {
    yard.enqueue(producer, count).await;
    yard.audit().await;
}

async fn relayer_with(yard: &Yard, traces: String) -> Relayer {
    let mut orders = yard.orders();
    orders.more = traces;
    yard.relayer(&orders).await
}

async fn counts(relayer: &Relayer, metric: &str, count: u64) {
    let so = async || relayer.count(metric).await >= count;
    until(format!("{metric} is {count}"), BOUND, so).await.unwrap();
    assert_eq!(relayer.count(metric).await, count, "{metric}");
}

#[tokio::test]
async fn a_collector_that_stalls_holds_up_nothing_and_what_is_held_for_it_is_bounded() {
    let yard = Yard::open().await;
    let collector = Receiver::start().await;
    collector.behave(Manner::Stall);
    let relayer = relayer_with(&yard, collector.traces("queue = 8\ntimeout = '5m'")).await;
    pays(&yard, "first", 10).await;
    collector.has_requests(1).await;
    // One batch is on its way and is never answered; eight more have room.
    let on_its_way = collector.spans().len();
    pays(&yard, "second", 40).await;
    let (metric, lost) = ("symphony_trace_spans_dropped_total", u64::try_from(50 - on_its_way - 8).unwrap());
    counts(&relayer, metric, lost).await;
    let full = format!("{metric}{{reason=\"queue_full\"}} {lost}");
    assert!(relayer.metrics().await.contains(&full), "{full}");
    // Two seconds are given to the last spans; the collector would be given five minutes.
    relayer.stop().await;
    assert_eq!(relayer.heard("spans come faster than the collector takes them").await, 1);
    assert_eq!(relayer.heard("did not take the last spans in time").await, 1);
}

#[tokio::test]
async fn a_collector_that_refuses_is_mentioned_once_and_taken_up_again() {
    let yard = Yard::open().await;
    let collector = Receiver::start().await;
    collector.behave(Manner::Answer(500));
    let relayer = relayer_with(&yard, collector.traces("")).await;
    for (round, producer) in ["first", "second", "third"].into_iter().enumerate() {
        pays(&yard, producer, 4).await;
        let dropped = u64::try_from(4 * (round + 1)).unwrap();
        counts(&relayer, "symphony_trace_spans_dropped_total", dropped).await;
    }
    let before = collector.spans().len();
    collector.behave(Manner::Answer(200));
    pays(&yard, "fourth", 4).await;
    counts(&relayer, "symphony_trace_spans_exported_total", 4).await;
    assert_eq!(collector.spans().len(), before + 4);
    relayer.says("the collector takes spans again").await;
    // What it has when it is told to stop goes with it.
    pays(&yard, "fifth", 4).await;
    relayer.stop().await;
    assert_eq!(collector.spans().len(), before + 8);
    assert_eq!(relayer.heard("the collector does not take spans").await, 1);
}

#[tokio::test]
async fn a_collector_that_is_not_there_holds_up_neither_payments_nor_the_end() {
    let yard = Yard::open().await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let traces = format!("[traces]\nendpoint = 'http://{nobody}/v1/traces'\nallow_plain = true\n");
    let relayer = relayer_with(&yard, traces).await;
    pays(&yard, "first", 20).await;
    relayer.says("the collector does not take spans").await;
    pays(&yard, "second", 20).await;
    relayer.stop().await;
    assert_eq!(relayer.heard("the collector does not take spans").await, 1);
}
