//! Searches and counts of the metadata lane: each page continues where the last one ended, and counts agree with the
//! totals.

use symphony_db::error::DatabaseError;
use symphony_db::metadata::reader::{self, MetadataSearch};
use symphony_db::metadata::{EntryId, Status};
use tokio_postgres::Client;

use crate::fixture::{Fixture, entity, reason};

/// Everything that a search finds, two at a time.
async fn all(client: &Client, mut search: MetadataSearch) -> Vec<EntryId> {
    let mut found = Vec::new();
    loop {
        let page = reader::search(client, &search, 2).await.unwrap();
        assert!(page.rows.len() <= 2);
        found.extend(page.rows.iter().map(|entry| entry.id));
        search.cursor = page.next;
        if search.cursor.is_none() {
            return found;
        }
    }
}

fn in_status(status: Status) -> MetadataSearch {
    MetadataSearch { status: Some(status), ..MetadataSearch::default() }
}

/// Eleven entries: two PUBLISHED, three in the DLQ, two FAILED, one FAILED without retries, two PROCESSING, one
/// PENDING.
async fn entries_in_every_status() -> (Fixture, Vec<EntryId>) {
    let fixture = Fixture::new().await;
    let mut ids = Vec::new();
    for number in 1..=10 {
        ids.push(fixture.create(number).await);
    }
    let mut claimed = fixture.claim().await;
    claimed.sort_by_key(|claimed| ids.iter().position(|id| *id == claimed.id()));
    for (position, claimed) in claimed.into_iter().enumerate() {
        match position {
            0 | 1 => claimed.published(&fixture.root).await.unwrap(),
            2..=4 => {
                let failed = claimed.failed(&fixture.root, &reason("NO_SUCH_KEY: a test")).await.unwrap();
                failed.dead_letter(&fixture.root, &reason("NO_SUCH_KEY: given up")).await.unwrap();
            }
            5 | 6 => drop(claimed.failed(&fixture.root, &reason("AWAY")).await.unwrap()),
            7 => {
                claimed.failed(&fixture.root, &reason("AWAY")).await.unwrap();
                let spend = "update symphony.metadata_outbox set retry_count = max_retries, next_retry_at = null where id = $1";
                fixture.root.execute(spend, &[&ids[7].0]).await.unwrap();
            }
            _ => drop(claimed),
        }
    }
    ids.push(fixture.create(1).await);
    (fixture, ids)
}

#[tokio::test]
async fn every_entry_is_found_by_its_entity_its_status_its_error_and_its_time_page_by_page() {
    let (fixture, ids) = entries_in_every_status().await;
    let readonly = fixture.login("symphony_readonly").await;
    let newest_first: Vec<_> = ids.iter().rev().copied().collect();
    assert_eq!(all(&readonly, MetadataSearch::default()).await, newest_first);
    for (status, expected) in [
        (Status::Published, vec![ids[1], ids[0]]),
        (Status::Dlq, vec![ids[4], ids[3], ids[2]]),
        (Status::Failed, vec![ids[7], ids[5], ids[6]]),
        (Status::Pending, vec![ids[10]]),
    ] {
        assert_eq!(all(&readonly, in_status(status)).await, expected, "{status}");
    }
    // Claimed in one statement, so that their ids alone put them in order.
    assert_eq!(all(&readonly, in_status(Status::Processing)).await, [ids[8], ids[9]]);

    let (entity_type, entity_id) =
        (Some(entity(1).entity_type().to_owned()), Some(entity(1).entity_id().to_owned()));
    let of_entity = MetadataSearch { entity_type, entity_id, ..MetadataSearch::default() };
    assert_eq!(all(&readonly, of_entity.clone()).await, [ids[10], ids[0]]);
    let published = MetadataSearch { status: Some(Status::Published), ..of_entity.clone() };
    assert_eq!(all(&readonly, published).await, [ids[0]]);
    let error = |error: &str| MetadataSearch { error: Some(error.to_owned()), ..MetadataSearch::default() };
    assert_eq!(all(&readonly, error("NO_SUCH_KEY")).await, [ids[4], ids[3], ids[2]]);
    assert_eq!(all(&readonly, error("given up")).await, []);
    let first = reader::entry(&readonly, ids[0]).await.unwrap().unwrap();
    let last = reader::entry(&readonly, ids[10]).await.unwrap().unwrap();
    let before = MetadataSearch { to: Some(last.created_at), ..of_entity.clone() };
    assert_eq!(all(&readonly, before).await, [ids[0]]);
    let from = MetadataSearch { from: Some(last.created_at), ..MetadataSearch::default() };
    assert_eq!(all(&readonly, from).await, [ids[10]]);
    let nowhere = MetadataSearch { to: Some(first.created_at), ..MetadataSearch::default() };
    assert_eq!(all(&readonly, nowhere).await, []);

    let fault = reader::search(&readonly, &MetadataSearch::default(), 201).await.unwrap_err();
    assert!(matches!(&fault, DatabaseError::Other(report) if report.sqlstate() == Some("P7005")), "{fault:?}");
}

#[tokio::test]
async fn the_backlog_agrees_with_the_totals_and_the_recent_stats_count_what_ended() {
    let (fixture, ids) = entries_in_every_status().await;
    let operator = fixture.login("symphony_operator").await;
    let (backlog, totals) = (reader::backlog(&operator).await.unwrap(), reader::totals(&operator).await.unwrap());
    assert_eq!(
        (backlog.due, backlog.processing, backlog.stuck, backlog.scheduled, backlog.dlq),
        (totals.due, totals.processing, totals.stuck, totals.scheduled, totals.dlq)
    );
    assert!(!totals.is_capped() && !backlog.more_due && !backlog.more_dlq);
    assert_eq!(totals.estimate, 6, "all pending entries, and those in the DLQ are not pending");
    assert_eq!((totals.due, totals.processing, totals.stuck, totals.scheduled, totals.dlq), (1, 2, 1, 2, 3));
    let stats = reader::recent_stats(&operator).await.unwrap();
    assert_eq!((stats.done, stats.failed, stats.retried), (2, 3, None));
    assert!(stats.latency_p99_ms.unwrap() >= 0 && stats.total_p95_ms >= stats.latency_p50_ms, "{stats:?}");
    fixture.expire_claims().await;
    assert_eq!(reader::backlog(&operator).await.unwrap().stuck, 3);

    let auditor = fixture.login("symphony_auditor").await;
    let metadata = reader::metadata(&auditor, ids[0]).await.unwrap().unwrap();
    assert!(metadata.as_json().contains("Contract"));
    assert!(reader::metadata(&auditor, EntryId(uuid::Uuid::max())).await.unwrap().is_none());
    for reader in [&operator, &fixture.login("symphony_readonly").await] {
        let refused = reader::metadata(reader, ids[0]).await.unwrap_err();
        assert!(matches!(refused, DatabaseError::MissingRole { role: "symphony_auditor", .. }), "{refused:?}");
    }
}
