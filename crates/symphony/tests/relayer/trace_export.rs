//! Trace export: which trace a dispatch continues, what its spans and requests hold, and that no collector delays a
//! payment.

use serde_json::{Value, json};
use symphony_client::payment::tokio_postgres as producer;
use symphony_db::connect::Target;
use symphony_testkit::process::Launch;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tokio::net::TcpListener;

use crate::harness::{Harness, RAIL};
use crate::producers::instruction;
use crate::recording_server::{RecordingServer, Response, Span};
use crate::relayer::{Relayer, Settings};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const CLIENT: i32 = 3;
const PRODUCER: i32 = 4;

/// Enqueues the nth instruction with this trace context. Returns the outbox id.
async fn enqueue(harness: &Harness, number: usize, traceparent: &str) -> String {
    let mut client = Target::parse(&harness.producer_url).unwrap().connect().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    producer::set_traceparent(&transaction, traceparent).await.unwrap();
    let enqueued = producer::enqueue(&transaction, &instruction("traced", number, RAIL)).await.unwrap();
    transaction.commit().await.unwrap();
    enqueued.outbox_id.to_string()
}

/// Settings of a relayer with this bank and this `[traces]` section.
fn settings(harness: &Harness, bank: &RecordingServer, traces: String) -> Settings {
    let mut settings = harness.settings();
    for section in settings.rails.values_mut() {
        *section = section.replace(&harness.bank.address().to_string(), &bank.address().to_string());
    }
    settings.extra = traces;
    settings
}

/// The only span of this outbox.
fn span_of<'a>(spans: &'a [Span], outbox: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.attribute("messaging.message.id") == outbox);
    let span = found.next().unwrap_or_else(|| panic!("no span of {outbox} in {spans:?}"));
    assert!(found.next().is_none(), "{outbox} has two spans");
    span
}

#[tokio::test]
async fn a_dispatch_continues_the_trace_of_its_producer_and_the_request_propagates_it() {
    let harness = Harness::start().await;
    let (bank, collector) = (RecordingServer::start().await, RecordingServer::start().await);
    let mut settings =
        settings(&harness, &bank, collector.traces_section("headers = { 'x-key' = { env = 'KEY' } }"));
    settings.variables =
        vec![("KEY", "open-sesame".to_owned()), ("OTEL_SERVICE_NAME", "payments-relayer".to_owned())];
    let relayer = harness.start_relayer(&settings).await;

    let zeros = "0".repeat(32);
    let continued = enqueue(&harness, 0, &format!("00-{TRACE}-{CALLER}-01")).await;
    let without = enqueue(&harness, 1, "").await;
    let no_header = enqueue(&harness, 2, "nonsense").await;
    // It has the right format and is stored, but it is not a valid context.
    let no_context = enqueue(&harness, 3, &format!("00-{zeros}-{CALLER}-01")).await;
    let unsampled = enqueue(&harness, 4, &format!("00-{}-{CALLER}-00", TRACE.replace('4', "5"))).await;
    // One statement: the row may move from one table to the other between two.
    let stored = format!(
        "select (select count(*) from symphony.payment_outbox_pending where traceparent like '00-{zeros}-%')
              + (select count(*) from symphony.payment_outbox_attempts where outbox_id = '{no_context}')"
    );
    assert_eq!(harness.query_number(&stored).await, 1);
    harness.wait_until_drained().await;
    let spans = collector.wait_for_spans(4).await;
    assert_eq!(spans.len(), 4, "{spans:?}");

    let span = span_of(&spans, &continued);
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
    assert_eq!(span.resource["service.name"], "payments-relayer");
    assert_eq!(span.resource["service.instance.id"], relayer.worker);

    for outbox in [&without, &no_header, &no_context] {
        let span = span_of(&spans, outbox);
        assert!(span.parent_id.is_empty() && span.links.is_empty(), "{span:?}");
        assert!(span.trace_id != TRACE && span.trace_id != zeros, "{span:?}");
    }
    assert!(spans.iter().all(|span| span.attribute("messaging.message.id") != unsampled), "{spans:?}");

    // Each request to the bank names its span; that of the unsampled trace does so too, with the flag 00.
    let mut propagated: Vec<_> = bank.requests().iter().map(|request| request.header("traceparent")).collect();
    let index = propagated.iter().position(|header| header.contains(&TRACE.replace('4', "5"))).unwrap();
    let unsampled = propagated.remove(index);
    assert!(unsampled.ends_with("-00") && !unsampled.contains(CALLER), "{unsampled}");
    let mut expected: Vec<_> = spans.iter().map(Span::traceparent).collect();
    propagated.sort();
    expected.sort();
    assert_eq!(propagated, expected);

    for request in collector.requests() {
        assert_eq!(request.header("x-key"), "open-sesame");
        let text = String::from_utf8_lossy(&request.body).into_owned();
        for personal in ["traced-", "DE02120300000000202051", "EUR"] {
            assert!(!text.contains(personal), "{personal} is in {text}");
        }
    }
    relayer.stop().await;
    assert!(relayer.log_lines().await.iter().all(|line| !line.contains("open-sesame")));
}

#[tokio::test]
async fn an_unknown_outcome_is_an_error_and_the_inquiry_has_its_own_span() {
    let harness = Harness::start().await;
    let collector = RecordingServer::start().await;
    let mut settings = harness.settings();
    settings.extra = collector.traces_section("");
    harness.bank.set_faults(&json!({"seed": 1, "cut_after": "1.0"})).await;
    let relayer = harness.start_relayer(&settings).await;
    let outbox = enqueue_by_command(&harness, &format!("00-{TRACE}-{CALLER}-01")).await;
    let unknown = collector.wait_for_spans(1).await.remove(0);
    assert_eq!((unknown.attribute("symphony.state"), unknown.failed), ("RETRYABLE", true));
    assert_eq!(unknown.attribute("error.type"), "OUTCOME_UNKNOWN");
    harness.bank.set_faults(&json!({})).await;
    harness.wait_until_drained().await;

    let settled = async || {
        let spans = collector.spans();
        spans.iter().any(|span| span.attribute("symphony.state") == "DISPATCHED")
            && spans.iter().any(|span| span.name == "inquire sepa" && !span.failed)
    };
    until("the inquiry and the dispatch have spans", DEFAULT_TIMEOUT, settled).await.unwrap();
    let spans = collector.spans();
    let last = spans.iter().find(|span| span.attribute("symphony.state") == "DISPATCHED").unwrap();
    let inquiry = spans.iter().find(|span| span.parent_id == last.span_id).unwrap();
    assert_eq!((&*last.trace_id, &*last.parent_id), (TRACE, CALLER));
    assert_eq!(last.attribute("messaging.message.id"), outbox);
    assert!(last.attribute("symphony.attempt").parse::<u32>().unwrap() > 1);
    assert_eq!((&*inquiry.trace_id, &*inquiry.name), (TRACE, "inquire sepa"));
    assert_eq!(inquiry.attribute("symphony.state"), "EXECUTED");
    relayer.stop().await;
}

#[tokio::test]
async fn a_dispatch_that_is_cut_off_says_so_in_its_span_and_names_its_trace_in_the_log() {
    let harness = Harness::start().await;
    let (bank, collector) = (RecordingServer::start().await, RecordingServer::start().await);
    bank.respond_with(Response::Hang);
    let relayer = harness.start_relayer(&settings(&harness, &bank, collector.traces_section(""))).await;
    enqueue(&harness, 0, &format!("00-{TRACE}-{CALLER}-01")).await;
    bank.wait_for_requests(1).await;
    // The first request is never answered; later ones are.
    bank.respond_with(Response::Status(200));
    harness.expire_leases().await;
    let line: Value = serde_json::from_str(&relayer.wait_for_log("the lease was lost").await).unwrap();
    assert_eq!(line["trace_id"], TRACE, "{line}");
    let cut_off = |span: &Span| span.attribute("symphony.state") == "CUT_OFF";
    let condition = async || collector.spans().iter().any(cut_off);
    until("the span of the dispatch that was cut off has arrived", DEFAULT_TIMEOUT, condition).await.unwrap();
    let span = collector.spans().into_iter().find(cut_off).unwrap();
    assert_eq!((&*span.trace_id, &*span.parent_id, span.failed), (TRACE, CALLER, true));
    relayer.stop().await;
}

/// Enqueues with `symphony enqueue`. Returns the outbox id.
async fn enqueue_by_command(harness: &Harness, traceparent: &str) -> String {
    let arguments =
        ["enqueue", "--instruction", "i-1", "--participant", "p-1", "--key", "k-1", "--rail", RAIL, "--json"];
    let payload = r#"{"amount": "1.00", "currency": "EUR", "destination": {"iban": "DE02120300000000202051"}}"#;
    let launch = |traceparent: &str| {
        Launch::new(env!("CARGO_BIN_EXE_symphony"))
            .args(arguments)
            .args(["--payload", payload, "--traceparent", traceparent])
            .env("DATABASE_URL", &harness.producer_url)
            .start()
            .unwrap()
    };
    let refused = launch("nonsense");
    assert_eq!(refused.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 2, "{}", refused.tail());
    assert!(refused.tail().contains("write it as 00-"), "{}", refused.tail());
    let program = launch(traceparent);
    assert_eq!(program.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", program.tail());
    let printed: Value = serde_json::from_str(&program.tail()).unwrap();
    printed["outbox_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_event_begins_a_trace_and_its_request_carries_it() {
    let harness = Harness::start().await;
    let (hook, collector) = (RecordingServer::start().await, RecordingServer::start().await);
    let mut settings = harness.settings();
    settings.extra = format!(
        "{}[event]\nsource = '//shop.example'\n[[event.routes]]\naggregate_type = '*'\nevent_type = '*'\nsink = 'hook'\n\
         destination = 'x'\n[sinks.hook]\nkind = 'http'\nurl = 'http://{}/'\nallow_plain = true\nallow_private = ['127.0.0.1']\n",
        collector.traces_section(""),
        hook.address()
    );
    let relayer = harness.start_relayer(&settings).await;
    let publish = "select m10_recovery.publish_outbox('order', '7', 'order.paid', '{}')";
    harness.superuser().await.execute(publish, &[]).await.unwrap();
    let span = collector.wait_for_spans(1).await.remove(0);
    assert_eq!((&*span.name, span.kind, &*span.parent_id), ("send hook", PRODUCER, ""));
    assert_eq!((span.attribute("symphony.lane"), span.attribute("symphony.state")), ("event", "DELIVERED"));
    let request = hook.wait_for_requests(1).await.remove(0);
    assert_eq!(request.header("traceparent"), span.traceparent());
    // The event's own trace is not known, so the event carries none.
    assert_eq!(request.header("ce-traceparent"), "");
    relayer.stop().await;
}

#[tokio::test]
async fn with_traces_off_no_context_is_read_and_none_is_propagated() {
    let harness = Harness::start().await;
    let (bank, collector) = (RecordingServer::start().await, RecordingServer::start().await);
    let off = harness.start_relayer(&settings(&harness, &bank, String::new())).await;
    // From now on the database refuses to return trace contexts.
    let refuse = "revoke execute on function symphony.outbox_trace_contexts from symphony_executor";
    harness.superuser().await.batch_execute(refuse).await.unwrap();
    enqueue(&harness, 0, &format!("00-{TRACE}-{CALLER}-01")).await;
    harness.wait_until_drained().await;
    assert_eq!(bank.requests()[0].header("traceparent"), "");
    assert!(!off.metrics().await.contains("trace_spans"));
    off.stop().await;
    assert_eq!(off.log_count("traces are not known").await, 0);

    // With traces on the relayer dispatches without the contexts.
    let grant = "grant execute on function symphony.outbox_trace_contexts to symphony_executor";
    harness.superuser().await.batch_execute(grant).await.unwrap();
    let on = harness.start_relayer(&settings(&harness, &bank, collector.traces_section(""))).await;
    harness.superuser().await.batch_execute(refuse).await.unwrap();
    for number in 1..4 {
        enqueue(&harness, number, &format!("00-{TRACE}-{CALLER}-01")).await;
        harness.wait_until_drained().await;
    }
    let spans = collector.wait_for_spans(3).await;
    assert!(spans.iter().all(|span| span.parent_id.is_empty() && span.trace_id != TRACE), "{spans:?}");
    on.stop().await;
    assert_eq!(on.log_count("traces are not known").await, 1);
}

/// Enqueues this many payments and checks that each is paid.
async fn pay(harness: &Harness, producer: &str, count: usize) {
    harness.enqueue(producer, count).await;
    harness.reconcile().await;
}

async fn relayer_with(harness: &Harness, traces: String) -> Relayer {
    let mut settings = harness.settings();
    settings.extra = traces;
    harness.start_relayer(&settings).await
}

async fn wait_for_metric(relayer: &Relayer, metric: &str, count: u64) {
    let condition = async || relayer.metric_sum(metric).await >= count;
    until(format!("{metric} is {count}"), DEFAULT_TIMEOUT, condition).await.unwrap();
    assert_eq!(relayer.metric_sum(metric).await, count, "{metric}");
}

#[tokio::test]
async fn a_collector_that_stalls_delays_nothing_and_its_span_queue_is_bounded() {
    let harness = Harness::start().await;
    let collector = RecordingServer::start().await;
    collector.respond_with(Response::Hang);
    let relayer = relayer_with(&harness, collector.traces_section("queue = 8\ntimeout = '5m'")).await;
    pay(&harness, "first", 10).await;
    collector.wait_for_requests(1).await;
    // One batch is in flight and never answered; eight more spans fit into the queue.
    let in_flight = collector.spans().len();
    pay(&harness, "second", 40).await;
    let (metric, lost) = ("symphony_trace_spans_dropped_total", u64::try_from(50 - in_flight - 8).unwrap());
    wait_for_metric(&relayer, metric, lost).await;
    let full = format!("{metric}{{reason=\"queue_full\"}} {lost}");
    assert!(relayer.metrics().await.contains(&full), "{full}");
    // At shutdown the last spans get two seconds, although the collector's timeout is five minutes.
    relayer.stop().await;
    assert_eq!(relayer.log_count("spans come faster than the collector takes them").await, 1);
    assert_eq!(relayer.log_count("did not take the last spans in time").await, 1);
}

#[tokio::test]
async fn a_collector_that_refuses_is_logged_once_and_used_again_when_it_accepts() {
    let harness = Harness::start().await;
    let collector = RecordingServer::start().await;
    collector.respond_with(Response::Status(500));
    let relayer = relayer_with(&harness, collector.traces_section("")).await;
    for (round, producer) in ["first", "second", "third"].into_iter().enumerate() {
        pay(&harness, producer, 4).await;
        let dropped = u64::try_from(4 * (round + 1)).unwrap();
        wait_for_metric(&relayer, "symphony_trace_spans_dropped_total", dropped).await;
    }
    let before = collector.spans().len();
    collector.respond_with(Response::Status(200));
    pay(&harness, "fourth", 4).await;
    wait_for_metric(&relayer, "symphony_trace_spans_exported_total", 4).await;
    assert_eq!(collector.spans().len(), before + 4);
    relayer.wait_for_log("the collector takes spans again").await;
    // Shutdown exports the queued spans.
    pay(&harness, "fifth", 4).await;
    relayer.stop().await;
    assert_eq!(collector.spans().len(), before + 8);
    assert_eq!(relayer.log_count("the collector does not take spans").await, 1);
}

#[tokio::test]
async fn a_collector_that_is_down_delays_neither_payments_nor_shutdown() {
    let harness = Harness::start().await;
    let unused_address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let traces = format!("[traces]\nendpoint = 'http://{unused_address}/v1/traces'\nallow_plain = true\n");
    let relayer = relayer_with(&harness, traces).await;
    pay(&harness, "first", 20).await;
    relayer.wait_for_log("the collector does not take spans").await;
    pay(&harness, "second", 20).await;
    relayer.stop().await;
    assert_eq!(relayer.log_count("the collector does not take spans").await, 1);
}
