//! Searches and counts of the event lane: each page continues where the last one ended, and counts agree with the
//! totals.

use symphony_db::error::DatabaseError;
use symphony_db::event::EventId;
use symphony_db::event::reader::{self, EventSearch, EventState};
use symphony_db::event::worker::{Outcome, complete};
use symphony_db::{BatchSize, Page};

use crate::fixture::Fixture;

#[tokio::test]
async fn events_are_paged_and_filtered_and_the_backlog_agrees_with_the_totals() {
    let fixture = Fixture::new().await;
    let readonly = fixture.login("symphony_readonly").await;
    for number in 1..=3 {
        fixture.publish(number).await;
    }
    let held = fixture.claim().await;
    complete(&fixture.root, &held.processor, held.events[0].id, &Outcome::Delivered).await.unwrap();
    complete(&fixture.root, &held.processor, held.events[1].id, &Outcome::Failed { error: None }).await.unwrap();
    for number in 4..=5 {
        fixture.publish(number).await;
    }
    let numbers = |page: &Page<EventState, EventId>| page.rows.iter().map(|event| event.id.0).collect::<Vec<_>>();
    let two = BatchSize::try_from(2).unwrap();
    let (mut all, mut search) = (Vec::new(), EventSearch::default());
    loop {
        let page = reader::list(&readonly, &search, two).await.unwrap();
        all.extend(numbers(&page));
        search.before = page.next;
        if search.before.is_none() {
            break;
        }
    }
    assert_eq!(all, [5, 4, 3, 2, 1]);
    let ended = EventSearch { unprocessed: Some(false), ..EventSearch::default() };
    assert_eq!(numbers(&reader::list(&readonly, &ended, two).await.unwrap()), [held.events[0].id.0]);
    let open = EventSearch { unprocessed: Some(true), ..EventSearch::default() };
    let page = reader::list(&readonly, &open, two).await.unwrap();
    assert_eq!((numbers(&page), page.next.map(|id| id.0)), (vec![5, 4], Some(4)));

    let (backlog, status) = (reader::backlog(&readonly).await.unwrap(), reader::status(&readonly).await.unwrap());
    assert_eq!(
        (backlog.due, backlog.claimed, backlog.stuck, backlog.scheduled),
        (status.due, status.claimed, status.stuck, status.scheduled)
    );
    assert!(!status.is_capped() && !backlog.more_due);
    assert_eq!((status.due, status.claimed, status.scheduled), (2, 1, 1));
    let stats = reader::recent_stats(&readonly).await.unwrap();
    assert_eq!(
        (stats.done, stats.failed, stats.retried),
        (1, 0, Some(0)),
        "a failure without an error text is not recorded"
    );
    let why = Outcome::Failed { error: Some("away".to_owned()) };
    complete(&fixture.root, &held.processor, held.events[2].id, &why).await.unwrap();
    let stats = reader::recent_stats(&readonly).await.unwrap();
    assert_eq!((stats.done, stats.retried, stats.span_seconds), (1, Some(1), 900.0));
    assert!(stats.latency_p95_ms.unwrap() >= 0 && stats.total_p50_ms >= stats.latency_p50_ms, "{stats:?}");
    fixture.claim().await;
    fixture.expire_claims().await;
    assert_eq!(reader::backlog(&readonly).await.unwrap().stuck, 2);
    let auditor = fixture.login("symphony_auditor").await;
    assert!(reader::payload(&auditor, held.events[0].id).await.unwrap().is_some());
    let refused = reader::payload(&readonly, held.events[0].id).await.unwrap_err();
    assert!(matches!(refused, DatabaseError::MissingRole { role: "symphony_auditor", .. }), "{refused}");
}
