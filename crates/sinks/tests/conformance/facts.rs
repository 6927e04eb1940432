//! The facts. Each is told of any place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_proof::kit::wait::{self, BOUND};
use symphony_relay::sink::{Message, Published, Sink};
use symphony_relay::trace::{self, Context};

use crate::authority::Authority;
use crate::place::{Files, Place, Seen, event, seen, sink_to, sink_with};

const CONFIRMED: Published = Published::Confirmed { repeat: false };
/// What a sink is given to confirm in the facts about outages, and what a busy machine may add to it.
const TIMEOUT: &str = "timeout = '2s'\nconnect_timeout = '1500ms'";
const IN_TIME: Duration = Duration::from_secs(20);

pub(crate) async fn delivery<P: Place>() {
    let place = P::start(None).await.unwrap();
    let files = Files::new();
    let sink = sink_to(&place, &files, "timeout = '60s'");
    arrives_whole(&place, sink.as_ref()).await;
    a_repeat_is_dropped_or_can_be_told(&place, sink.as_ref()).await;
    order_is_kept(&place, sink.as_ref()).await;
    many_at_once_arrive(&place, &sink).await;
    what_is_too_large_is_refused(&place, &files).await;
    what_leads_nowhere_is_refused(&place, sink.as_ref()).await;
    wrong_credentials_publish_nothing(&place, &files).await;
    sink.close().await;
    // A sink that was closed can be used again.
    assert_eq!(sink.publish(&event("after-close", "1")).await, CONFIRMED);
}

async fn arrives_whole<P: Place>(place: &P, sink: &dyn Sink) {
    let mut message = event("whole-1", "4 2/\u{20ac}%\"x\"");
    message.source = "https://shop.example/eu".to_owned();
    message.event_type = "order.paid.v1".to_owned();
    message.data =
        "{\"text\": \"\u{1f600} \\u0000 \\r\\n\", \"amount\": 10.00, \"big\": 12345678901234567890}".to_owned();
    // A context that only this message carries: what leaves on nobody's behalf names nobody.
    let span = Context::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
    assert_eq!(trace::on_behalf_of(span, sink.publish(&message)).await, CONFIRMED);
    let traceparent = P::HAS_HEADERS.then(|| span.to_string());
    assert_eq!(place.read().await, [Seen { traceparent, ..seen(&message) }]);
}

async fn a_repeat_is_dropped_or_can_be_told<P: Place>(place: &P, sink: &dyn Sink) {
    let before = place.read().await.len();
    let message = event("repeat-1", "1");
    assert_eq!(sink.publish(&message).await, CONFIRMED);
    assert_eq!(sink.publish(&message).await, Published::Confirmed { repeat: P::DROPS_REPEATS });
    // Another source has ids of its own.
    let mut other = message.clone();
    other.source = "/bank".to_owned();
    assert_eq!(sink.publish(&other).await, CONFIRMED);
    let copies = if P::DROPS_REPEATS { 1 } else { 2 };
    let mut expected = vec![seen(&message); copies];
    expected.push(seen(&other));
    assert_eq!(place.read().await.len() - before, expected.len());
    assert_eq!(tail(place, |found| found.id == "repeat-1").await, expected);
}

async fn order_is_kept<P: Place>(place: &P, sink: &dyn Sink) {
    let messages: Vec<Message> = (0..20).map(|n| event(&format!("order-{n}"), "in-order")).collect();
    for message in &messages {
        assert_eq!(sink.publish(message).await, CONFIRMED);
    }
    let expected: Vec<_> = messages.iter().map(seen).collect();
    assert_eq!(tail(place, |found| found.key == "order/in-order").await, expected);
}

async fn many_at_once_arrive<P: Place>(place: &P, sink: &Arc<dyn Sink>) {
    let publish = |n: usize| {
        let sink = Arc::clone(sink);
        // One in eight leads nowhere: the answers must not be mixed up.
        let mut message = event(&format!("many-{n}"), &n.to_string());
        if n.is_multiple_of(8) {
            message.destination = P::NOWHERE.to_owned();
        }
        tokio::spawn(async move { sink.publish(&message).await })
    };
    let running: Vec<_> = (0..64).map(publish).collect();
    for (n, outcome) in running.into_iter().enumerate() {
        let outcome = outcome.await.unwrap();
        let refused = matches!(outcome, Published::Refused(_));
        assert!(if n.is_multiple_of(8) { refused } else { outcome == CONFIRMED }, "{n}: {outcome:?}");
    }
    assert_eq!(tail(place, |found| found.id.starts_with("many-")).await.len(), 56);
}

async fn what_is_too_large_is_refused<P: Place>(place: &P, files: &Files) {
    let sink = sink_to(place, files, "timeout = '60s'\nmax_bytes = 2000");
    let mut message = event("large", "1");
    message.data = format!("{{\"x\": \"{}\"}}", "a".repeat(2000 - 9));
    assert_eq!(message.data.len(), 2000);
    assert_eq!(sink.publish(&message).await, CONFIRMED);
    assert_eq!(tail(place, |found| found.id == "large").await, [seen(&message)]);
    message.id = "larger".to_owned();
    message.data = format!("{{\"x\": \"{}\"}}", "a".repeat(2001 - 9));
    assert_refused(&sink.publish(&message).await, "max_bytes");
    assert!(tail(place, |found| found.id == "larger").await.is_empty());
}

async fn what_leads_nowhere_is_refused<P: Place>(place: &P, sink: &dyn Sink) {
    let mut message = event("nowhere", "1");
    message.destination = P::NOWHERE.to_owned();
    assert_refused(&sink.publish(&message).await, "");
    // The sink is as good as before.
    assert_eq!(sink.publish(&event("after-nowhere", "1")).await, CONFIRMED);
    assert!(tail(place, |found| found.id == "nowhere").await.is_empty());
}

async fn wrong_credentials_publish_nothing<P: Place>(place: &P, files: &Files) {
    if place.password_setting().is_none() {
        return;
    }
    let wrong = place.passwords()[1];
    let sink = sink_with(place, files, "allow_plain = true\ntimeout = '30s'", wrong);
    match sink.publish(&event("uninvited", "1")).await {
        Published::Failed(why) | Published::Refused(why) => {
            assert!(why.contains("credentials") || why.contains("401"), "{why}");
            assert!(!why.contains(wrong), "{why}");
        }
        Published::Confirmed { .. } => panic!("confirmed with wrong credentials"),
    }
    assert!(tail(place, |found| found.id == "uninvited").await.is_empty());
}

pub(crate) async fn outage<P: Place>() {
    let mut place = P::start(None).await.unwrap();
    let files = Files::new();
    let sink = sink_to(&place, &files, TIMEOUT);
    assert_eventually_confirmed(sink.as_ref(), &event("before", "1")).await;

    place.down().await;
    assert_fails_in_time(sink.as_ref(), &event("while-down", "1")).await;
    place.up().await;
    assert_eventually_confirmed(sink.as_ref(), &event("after-down", "1")).await;

    place.pause();
    assert_fails_in_time(sink.as_ref(), &event("while-paused", "1")).await;
    place.resume();
    assert_eventually_confirmed(sink.as_ref(), &event("after-pause", "1")).await;

    // Somebody publishes one after another, as often as it takes, while the server dies and comes back.
    let (tell, mut told) = tokio::sync::watch::channel(0);
    let publisher = async {
        for n in 0..40 {
            assert_eventually_confirmed(sink.as_ref(), &event(&format!("on-{n}"), "on")).await;
            tell.send_replace(n);
        }
    };
    let restart = async {
        tokio::time::timeout(BOUND, told.wait_for(|n| *n >= 10)).await.unwrap().unwrap();
        place.down().await;
        place.up().await;
    };
    tokio::join!(publisher, restart);
    let mut first_copies = Vec::new();
    for found in tail(&place, |found| found.key == "order/on").await {
        if !first_copies.contains(&found.id) {
            first_copies.push(found.id);
        }
    }
    let expected: Vec<_> = (0..40).map(|n| format!("on-{n}")).collect();
    assert_eq!(first_copies, expected, "what was confirmed must be there, in the order in which it was confirmed");
    for id in ["before", "after-down", "after-pause"] {
        assert!(!tail(&place, |found| found.id == id).await.is_empty(), "{id} was confirmed and is not there");
    }
}

pub(crate) async fn tls<P: Place>() {
    let (authority, other) = (Authority::new(), Authority::new());
    let place = P::start(Some(&authority)).await.unwrap();
    let files = Files::new();
    let [right, wrong] = [("right.pem", &authority), ("wrong.pem", &other)]
        .map(|(name, authority)| files.write(name, &authority.pem()));
    let trusting = |path: &std::path::Path| {
        let more = format!("root_ca_file = {path:?}\nsystem_roots = false\ntimeout = '60s'");
        sink_with(&place, &files, &more, place.passwords()[0])
    };
    let outcome = trusting(&right).publish(&event("secret", "1")).await;
    assert_eq!(outcome, CONFIRMED);
    let outcome = trusting(&wrong).publish(&event("uninvited", "1")).await;
    assert!(matches!(outcome, Published::Failed(_)), "{outcome:?}");
}

async fn tail<P: Place>(place: &P, wanted: impl Fn(&crate::place::Seen) -> bool) -> Vec<crate::place::Seen> {
    place.read().await.into_iter().filter(|found| wanted(found)).collect()
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
    assert!(began.elapsed() < IN_TIME, "it took {:?} to fail", began.elapsed());
}

async fn assert_eventually_confirmed(sink: &dyn Sink, message: &Message) {
    let confirmed = async || matches!(sink.publish(message).await, Published::Confirmed { .. });
    wait::until(format!("{} is confirmed", message.id), BOUND, confirmed).await.unwrap();
}
