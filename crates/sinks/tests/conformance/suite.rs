//! The tests that every sink must pass.

use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_relay::sink::{Message, Published, Sink};
use symphony_relay::trace::{self, Context};
use symphony_testkit::wait::{self, DEFAULT_TIMEOUT};

use crate::certificate_authority::CertificateAuthority;
use crate::fixture::{Files, ReceivedEvent, SinkFixture, event, received, sink_to, sink_with};

const CONFIRMED: Published = Published::Confirmed { repeat: false };
/// Short, so that an outage fails soon. MAX_FAILURE_TIME adds what a busy machine may need.
const SHORT_TIMEOUT: &str = "timeout = '2s'\nconnect_timeout = '1500ms'";
const MAX_FAILURE_TIME: Duration = Duration::from_secs(20);

pub(crate) async fn delivery<P: SinkFixture>() {
    let fixture = P::start(None).await.unwrap();
    let files = Files::new();
    let sink = sink_to(&fixture, &files, "timeout = '60s'");
    arrives_whole(&fixture, sink.as_ref()).await;
    a_repeat_is_dropped_or_can_be_detected(&fixture, sink.as_ref()).await;
    order_is_kept(&fixture, sink.as_ref()).await;
    many_at_once_arrive(&fixture, &sink).await;
    an_event_above_max_bytes_is_refused(&fixture, &files).await;
    a_refused_destination_is_refused(&fixture, sink.as_ref()).await;
    wrong_credentials_publish_nothing(&fixture, &files).await;
    sink.close().await;
    // A sink that was closed can be used again.
    assert_eq!(sink.publish(&event("after-close", "1")).await, CONFIRMED);
}

async fn arrives_whole<P: SinkFixture>(fixture: &P, sink: &dyn Sink) {
    let mut message = event("whole-1", "4 2/\u{20ac}%\"x\"");
    message.source = "https://shop.example/eu".to_owned();
    message.event_type = "order.paid.v1".to_owned();
    message.data =
        "{\"text\": \"\u{1f600} \\u0000 \\r\\n\", \"amount\": 10.00, \"big\": 12345678901234567890}".to_owned();
    // Only this message has a span: a message without one has no traceparent.
    let span = Context::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
    assert_eq!(trace::in_context(span, sink.publish(&message)).await, CONFIRMED);
    let traceparent = P::HAS_HEADERS.then(|| span.to_string());
    assert_eq!(fixture.read().await, [ReceivedEvent { traceparent, ..received(&message) }]);
}

async fn a_repeat_is_dropped_or_can_be_detected<P: SinkFixture>(fixture: &P, sink: &dyn Sink) {
    let before = fixture.read().await.len();
    let message = event("repeat-1", "1");
    assert_eq!(sink.publish(&message).await, CONFIRMED);
    assert_eq!(sink.publish(&message).await, Published::Confirmed { repeat: P::DEDUPLICATES });
    // Ids are unique per source only.
    let mut other = message.clone();
    other.source = "/bank".to_owned();
    assert_eq!(sink.publish(&other).await, CONFIRMED);
    let copies = if P::DEDUPLICATES { 1 } else { 2 };
    let mut expected = vec![received(&message); copies];
    expected.push(received(&other));
    assert_eq!(fixture.read().await.len() - before, expected.len());
    assert_eq!(matching(fixture, |found| found.id == "repeat-1").await, expected);
}

async fn order_is_kept<P: SinkFixture>(fixture: &P, sink: &dyn Sink) {
    let messages: Vec<Message> = (0..20).map(|n| event(&format!("order-{n}"), "in-order")).collect();
    for message in &messages {
        assert_eq!(sink.publish(message).await, CONFIRMED);
    }
    let expected: Vec<_> = messages.iter().map(received).collect();
    assert_eq!(matching(fixture, |found| found.key == "order/in-order").await, expected);
}

async fn many_at_once_arrive<P: SinkFixture>(fixture: &P, sink: &Arc<dyn Sink>) {
    let publish = |n: usize| {
        let sink = Arc::clone(sink);
        // One in eight is refused: confirmations must not be mixed up.
        let mut message = event(&format!("many-{n}"), &n.to_string());
        if n.is_multiple_of(8) {
            message.destination = P::REFUSED_DESTINATION.to_owned();
        }
        tokio::spawn(async move { sink.publish(&message).await })
    };
    let running: Vec<_> = (0..64).map(publish).collect();
    for (n, outcome) in running.into_iter().enumerate() {
        let outcome = outcome.await.unwrap();
        let refused = matches!(outcome, Published::Refused(_));
        assert!(if n.is_multiple_of(8) { refused } else { outcome == CONFIRMED }, "{n}: {outcome:?}");
    }
    assert_eq!(matching(fixture, |found| found.id.starts_with("many-")).await.len(), 56);
}

async fn an_event_above_max_bytes_is_refused<P: SinkFixture>(fixture: &P, files: &Files) {
    let sink = sink_to(fixture, files, "timeout = '60s'\nmax_bytes = 2000");
    let mut message = event("large", "1");
    message.data = format!("{{\"x\": \"{}\"}}", "a".repeat(2000 - 9));
    assert_eq!(message.data.len(), 2000);
    assert_eq!(sink.publish(&message).await, CONFIRMED);
    assert_eq!(matching(fixture, |found| found.id == "large").await, [received(&message)]);
    message.id = "larger".to_owned();
    message.data = format!("{{\"x\": \"{}\"}}", "a".repeat(2001 - 9));
    assert_refused(&sink.publish(&message).await, "max_bytes");
    assert!(matching(fixture, |found| found.id == "larger").await.is_empty());
}

async fn a_refused_destination_is_refused<P: SinkFixture>(fixture: &P, sink: &dyn Sink) {
    let mut message = event("refused", "1");
    message.destination = P::REFUSED_DESTINATION.to_owned();
    assert_refused(&sink.publish(&message).await, "");
    // A refusal does not break the sink.
    assert_eq!(sink.publish(&event("after-refusal", "1")).await, CONFIRMED);
    assert!(matching(fixture, |found| found.id == "refused").await.is_empty());
}

async fn wrong_credentials_publish_nothing<P: SinkFixture>(fixture: &P, files: &Files) {
    if fixture.password_setting().is_none() {
        return;
    }
    let wrong = fixture.passwords()[1];
    let sink = sink_with(fixture, files, "allow_plain = true\ntimeout = '30s'", wrong);
    match sink.publish(&event("unauthorized", "1")).await {
        Published::Failed(why) | Published::Refused(why) => {
            assert!(why.contains("credentials") || why.contains("401"), "{why}");
            assert!(!why.contains(wrong), "{why}");
        }
        Published::Confirmed { .. } => panic!("confirmed with wrong credentials"),
    }
    assert!(matching(fixture, |found| found.id == "unauthorized").await.is_empty());
}

pub(crate) async fn outage<P: SinkFixture>() {
    let mut fixture = P::start(None).await.unwrap();
    let files = Files::new();
    let sink = sink_to(&fixture, &files, SHORT_TIMEOUT);
    assert_eventually_confirmed(sink.as_ref(), &event("before", "1")).await;

    fixture.kill().await;
    assert_fails_in_time(sink.as_ref(), &event("while-down", "1")).await;
    fixture.restart().await;
    assert_eventually_confirmed(sink.as_ref(), &event("after-down", "1")).await;

    fixture.pause();
    assert_fails_in_time(sink.as_ref(), &event("while-paused", "1")).await;
    fixture.resume();
    assert_eventually_confirmed(sink.as_ref(), &event("after-pause", "1")).await;

    // A producer publishes one event after another with retries, while the server is killed and restarted.
    let (sent, mut progress) = tokio::sync::watch::channel(0);
    let publisher = async {
        for n in 0..40 {
            assert_eventually_confirmed(sink.as_ref(), &event(&format!("on-{n}"), "on")).await;
            sent.send_replace(n);
        }
    };
    let restart = async {
        tokio::time::timeout(DEFAULT_TIMEOUT, progress.wait_for(|n| *n >= 10)).await.unwrap().unwrap();
        fixture.kill().await;
        fixture.restart().await;
    };
    tokio::join!(publisher, restart);
    let mut first_copies = Vec::new();
    for found in matching(&fixture, |found| found.key == "order/on").await {
        if !first_copies.contains(&found.id) {
            first_copies.push(found.id);
        }
    }
    let expected: Vec<_> = (0..40).map(|n| format!("on-{n}")).collect();
    assert_eq!(first_copies, expected, "what was confirmed must be there, in the order in which it was confirmed");
    for id in ["before", "after-down", "after-pause"] {
        assert!(
            !matching(&fixture, |found| found.id == id).await.is_empty(),
            "{id} was confirmed and is not there"
        );
    }
}

pub(crate) async fn tls<P: SinkFixture>() {
    let (authority, other) = (CertificateAuthority::new(), CertificateAuthority::new());
    let fixture = P::start(Some(&authority)).await.unwrap();
    let files = Files::new();
    let [right, wrong] = [("right.pem", &authority), ("wrong.pem", &other)]
        .map(|(name, authority)| files.write(name, &authority.pem()));
    let sink_trusting = |path: &std::path::Path| {
        let more = format!("root_ca_file = {path:?}\nsystem_roots = false\ntimeout = '60s'");
        sink_with(&fixture, &files, &more, fixture.passwords()[0])
    };
    let outcome = sink_trusting(&right).publish(&event("trusted", "1")).await;
    assert_eq!(outcome, CONFIRMED);
    let outcome = sink_trusting(&wrong).publish(&event("unauthorized", "1")).await;
    assert!(matches!(outcome, Published::Failed(_)), "{outcome:?}");
}

async fn matching<P: SinkFixture>(
    fixture: &P,
    wanted: impl Fn(&crate::fixture::ReceivedEvent) -> bool,
) -> Vec<crate::fixture::ReceivedEvent> {
    fixture.read().await.into_iter().filter(|found| wanted(found)).collect()
}

#[track_caller]
fn assert_refused(outcome: &Published, because: &str) {
    match outcome {
        Published::Refused(why) => assert!(why.contains(because), "{why}"),
        Published::Confirmed { .. } | Published::Failed(_) => panic!("not refused: {outcome:?}"),
    }
}

async fn assert_fails_in_time(sink: &dyn Sink, message: &Message) {
    let began = Instant::now();
    let outcome = sink.publish(message).await;
    assert!(matches!(outcome, Published::Failed(_)), "{outcome:?}");
    assert!(began.elapsed() < MAX_FAILURE_TIME, "it took {:?} to fail", began.elapsed());
}

async fn assert_eventually_confirmed(sink: &dyn Sink, message: &Message) {
    let confirmed = async || matches!(sink.publish(message).await, Published::Confirmed { .. });
    wait::until(format!("{} is confirmed", message.id), DEFAULT_TIMEOUT, confirmed).await.unwrap();
}
