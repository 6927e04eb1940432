//! What a console may rely on: pages of events that go on where they ended, and counts that agree with the totals.

use symphony_outbox::BatchSize;
use symphony_outbox::error::Fault;
use symphony_outbox::event::reading::{self, EventSearch};
use symphony_outbox::event::worker::{Outcome, complete};

use crate::stage::Stage;

#[tokio::test]
async fn events_are_paged_and_filtered_and_the_backlog_agrees_with_the_totals() {
    let stage = Stage::set().await;
    let readonly = stage.login("symphony_readonly").await;
    for number in 1..=3 {
        stage.publish(number).await;
    }
    let held = stage.claim().await;
    complete(&stage.root, &held.processor, held.events[0].id, &Outcome::Delivered).await.unwrap();
    complete(&stage.root, &held.processor, held.events[1].id, &Outcome::Failed { error: None }).await.unwrap();
    for number in 4..=5 {
        stage.publish(number).await;
    }
    let numbers = |page: &reading::EventPage| page.events.iter().map(|event| event.id.0).collect::<Vec<_>>();
    let two = BatchSize::try_from(2).unwrap();
    let (mut all, mut search) = (Vec::new(), EventSearch::default());
    loop {
        let page = reading::list(&readonly, &search, two).await.unwrap();
        all.extend(numbers(&page));
        search.before = page.next_before;
        if search.before.is_none() {
            break;
        }
    }
    assert_eq!(all, [5, 4, 3, 2, 1]);
    let ended = EventSearch { unprocessed: Some(false), ..EventSearch::default() };
    assert_eq!(numbers(&reading::list(&readonly, &ended, two).await.unwrap()), [held.events[0].id.0]);
    let open = EventSearch { unprocessed: Some(true), ..EventSearch::default() };
    let page = reading::list(&readonly, &open, two).await.unwrap();
    assert_eq!((numbers(&page), page.next_before.map(|id| id.0)), (vec![5, 4], Some(4)));

    let (backlog, status) =
        (reading::backlog(&readonly).await.unwrap(), reading::status(&readonly).await.unwrap());
    assert_eq!(
        (backlog.due, backlog.claimed, backlog.stuck, backlog.scheduled, backlog.more),
        (status.due, status.claimed, status.stuck, status.scheduled, false)
    );
    assert_eq!((status.due, status.claimed, status.scheduled), (2, 1, 1));
    let pulse = reading::pulse(&readonly).await.unwrap();
    assert_eq!(
        (pulse.done, pulse.failed, pulse.again),
        (1, 0, Some(0)),
        "a failure that said nothing is not kept"
    );
    let why = Outcome::Failed { error: Some("away".to_owned()) };
    complete(&stage.root, &held.processor, held.events[2].id, &why).await.unwrap();
    let pulse = reading::pulse(&readonly).await.unwrap();
    assert_eq!((pulse.done, pulse.again, pulse.span_seconds), (1, Some(1), 900.0));
    assert!(pulse.took_p95_ms.unwrap() >= 0 && pulse.total_p50_ms >= pulse.took_p50_ms, "{pulse:?}");
    stage.claim().await;
    stage.let_claims_age().await;
    assert_eq!(reading::backlog(&readonly).await.unwrap().stuck, 2);
    let auditor = stage.login("symphony_auditor").await;
    assert!(reading::payload(&auditor, held.events[0].id).await.unwrap().is_some());
    let refused = reading::payload(&readonly, held.events[0].id).await.unwrap_err();
    assert!(matches!(refused, Fault::MissingRole { role: "symphony_auditor", .. }), "{refused}");
}
