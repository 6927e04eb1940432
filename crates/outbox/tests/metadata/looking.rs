//! What a console may rely on: pages of entries that go on where they ended, and counts that agree with the totals.

use symphony_outbox::error::Fault;
use symphony_outbox::metadata::reading::{self, MetadataSearch};
use symphony_outbox::metadata::{EntryId, Status};
use tokio_postgres::Client;

use crate::stage::{Stage, entity, why};

/// Everything that a search finds, two at a time.
async fn all(client: &Client, mut search: MetadataSearch) -> Vec<EntryId> {
    let mut found = Vec::new();
    loop {
        let page = reading::search(client, &search, 2).await.unwrap();
        assert!(page.entries.len() <= 2);
        found.extend(page.entries.iter().map(|entry| entry.id));
        search.place = page.next;
        if search.place.is_none() {
            return found;
        }
    }
}

fn in_status(status: Status) -> MetadataSearch {
    MetadataSearch { status: Some(status), ..MetadataSearch::default() }
}

/// Eleven entries: two published, three dead, two that failed, one that failed and is given up next, two that are held, and one that waits.
async fn eleven() -> (Stage, Vec<EntryId>) {
    let stage = Stage::set().await;
    let mut ids = Vec::new();
    for number in 1..=10 {
        ids.push(stage.create(number).await);
    }
    let mut claimed = stage.claim().await;
    claimed.sort_by_key(|claimed| ids.iter().position(|id| *id == claimed.id()));
    for (place, claimed) in claimed.into_iter().enumerate() {
        match place {
            0 | 1 => claimed.published(&stage.root).await.unwrap(),
            2..=4 => {
                let failed = claimed.failed(&stage.root, &why("NO_SUCH_KEY: a test")).await.unwrap();
                failed.dead_letter(&stage.root, &why("NO_SUCH_KEY: given up")).await.unwrap();
            }
            5 | 6 => drop(claimed.failed(&stage.root, &why("AWAY")).await.unwrap()),
            7 => {
                claimed.failed(&stage.root, &why("AWAY")).await.unwrap();
                let spend = "update symphony.metadata_outbox set retry_count = max_retries, next_retry_at = null where id = $1";
                stage.root.execute(spend, &[&ids[7].0]).await.unwrap();
            }
            _ => drop(claimed),
        }
    }
    ids.push(stage.create(1).await);
    (stage, ids)
}

#[tokio::test]
async fn every_entry_is_found_by_its_entity_its_status_its_error_and_its_time_page_by_page() {
    let (stage, ids) = eleven().await;
    let readonly = stage.login("symphony_readonly").await;
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
    let first = reading::entry_of_entity(&readonly, ids[0]).await.unwrap().unwrap();
    let last = reading::entry_of_entity(&readonly, ids[10]).await.unwrap().unwrap();
    let before = MetadataSearch { to: Some(last.created_at), ..of_entity.clone() };
    assert_eq!(all(&readonly, before).await, [ids[0]]);
    let from = MetadataSearch { from: Some(last.created_at), ..MetadataSearch::default() };
    assert_eq!(all(&readonly, from).await, [ids[10]]);
    let nowhere = MetadataSearch { to: Some(first.created_at), ..MetadataSearch::default() };
    assert_eq!(all(&readonly, nowhere).await, []);

    let fault = reading::search(&readonly, &MetadataSearch::default(), 201).await.unwrap_err();
    assert!(matches!(&fault, Fault::Other(report) if report.sqlstate() == Some("P7005")), "{fault:?}");
}

#[tokio::test]
async fn the_backlog_agrees_with_the_totals_and_the_pulse_counts_what_ended_lately() {
    let (stage, ids) = eleven().await;
    let operator = stage.login("symphony_operator").await;
    let (backlog, totals) =
        (reading::backlog(&operator).await.unwrap(), reading::totals(&operator).await.unwrap());
    assert_eq!(
        (backlog.due, backlog.processing, backlog.stuck, backlog.scheduled, backlog.dlq, backlog.more),
        (totals.due, totals.processing, totals.stuck, totals.scheduled, totals.dlq, false)
    );
    assert_eq!((totals.due, totals.processing, totals.stuck, totals.scheduled, totals.dlq), (1, 2, 1, 2, 3));
    let pulse = reading::pulse(&operator).await.unwrap();
    assert_eq!((pulse.done, pulse.failed, pulse.again), (2, 3, None));
    assert!(pulse.took_p99_ms.unwrap() >= 0 && pulse.total_p95_ms >= pulse.took_p50_ms, "{pulse:?}");
    stage.let_claims_age().await;
    assert_eq!(reading::backlog(&operator).await.unwrap().stuck, 3);

    let auditor = stage.login("symphony_auditor").await;
    let metadata = reading::metadata(&auditor, ids[0]).await.unwrap().unwrap();
    assert!(metadata.as_json().contains("Contract"));
    assert!(reading::metadata(&auditor, EntryId(uuid::Uuid::max())).await.unwrap().is_none());
    for reader in [&operator, &stage.login("symphony_readonly").await] {
        let refused = reading::metadata(reader, ids[0]).await.unwrap_err();
        assert!(matches!(refused, Fault::MissingRole { role: "symphony_auditor", .. }), "{refused:?}");
    }
}
