//! The metadata lane on a real PostgreSQL, with a fake store.

// The whole crate is a test, so that lints treat its helpers as test code.
#![cfg(test)]

mod captured_log;
mod dead_letters;
mod fixture;
mod old_primary;
mod poison;
mod slow_stores;

use symphony_relay::store::Written;

use fixture::Fixture;

#[tokio::test]
async fn a_committed_entry_is_written_once_and_published() {
    let fixture = Fixture::new().await;
    let relayer = fixture.start("document");
    let id = fixture.create("document", "7", 3).await;
    fixture.until_ended(1).await;
    let written = fixture.store.written();
    assert_eq!(written.len(), 1);
    let record = &written[0];
    assert_eq!((record.entry_id.as_str(), record.entity_type.as_str()), (id.to_string().as_str(), "document"));
    assert_eq!(record.entity_id, "7");
    assert_eq!(record.metadata.parse::<serde_json::Value>().unwrap(), serde_json::json!({ "title": "A" }));
    let state = fixture.entry(id).await;
    assert_eq!(record.version, state.created_at.as_microsecond());
    assert_eq!(state.status.as_str(), "PUBLISHED");
    relayer.stop().await;
}

#[tokio::test]
async fn a_write_that_failed_or_was_refused_is_retried_and_records_why() {
    let fixture = Fixture::new().await;
    fixture.store.answer_next(Written::Failed("the store is down".into()));
    fixture.store.answer_next(Written::Refused("ann@example.org is too large".into()));
    fixture.store.answer_next(Written::Superseded);
    let relayer = fixture.start("*");
    let id = fixture.create("document", "7", 5).await;
    fixture.until_skipping_backoff("the entry is published", async || fixture.ended().await == 1).await;
    let state = fixture.entry(id).await;
    assert_eq!((state.status.as_str(), state.retry_count), ("PUBLISHED", 2));
    assert_eq!(state.last_error.as_deref(), Some("[e-mail] is too large"));
    assert_eq!(fixture.store.written().len(), 3);
    relayer.stop().await;
}

#[tokio::test]
async fn a_failure_without_a_reason_is_recorded_as_a_failure() {
    let fixture = Fixture::new().await;
    fixture.store.answer_next(Written::Failed(" \0".into()));
    let relayer = fixture.start("*");
    let id = fixture.create("document", "7", 1).await;
    fixture.until_ended(1).await;
    let state = fixture.entry(id).await;
    assert_eq!((state.status.as_str(), state.last_error.as_deref()), ("DLQ", Some("the store gave no reason")));
    relayer.stop().await;
}

#[tokio::test]
async fn entries_of_one_entity_are_written_by_version_one_at_a_time() {
    let fixture = Fixture::new().await;
    for number in 0..30 {
        fixture.create("document", &(number % 3).to_string(), 3).await;
    }
    let relayer = fixture.start("*");
    fixture.until_ended(30).await;
    relayer.stop().await;
    assert_eq!(fixture.store.max_concurrent_per_key(), 1);
    let written = fixture.store.written();
    for entity in ["0", "1", "2"] {
        let versions: Vec<_> =
            written.iter().filter(|record| record.entity_id == entity).map(|record| record.version).collect();
        assert!(versions.len() == 10 && versions.is_sorted(), "{entity}: {versions:?}");
    }
}

#[tokio::test]
async fn an_entry_without_a_route_fails_and_blocks_no_other() {
    let fixture = Fixture::new().await;
    let relayer = fixture.start("document");
    let unrouted = fixture.create("picture", "7", 5).await;
    fixture.create("document", "7", 3).await;
    fixture.until_ended(1).await;
    fixture.until("it failed", async || fixture.entry(unrouted).await.retry_count > 0).await;
    assert_eq!(
        fixture.entry(unrouted).await.last_error.as_deref(),
        Some("no route matches the type of the entity")
    );
    relayer.stop().await;
}

#[tokio::test]
async fn while_the_only_store_is_down_entries_stay_pending_except_one_probe_at_a_time() {
    let fixture = Fixture::new().await;
    for _ in 0..100 {
        fixture.store.answer_next(Written::Failed("the store is down".into()));
    }
    for number in 0..8 {
        fixture.create("document", &number.to_string(), 100).await;
    }
    // They exist before the relayer starts, so one claim returns them all: none is in flight when the breaker opens.
    let relayer = fixture.start("*");
    fixture.until("all have failed", async || fixture.count("retry_count > 0").await == 8).await;
    let attempts = fixture.store.written().len();
    for number in 8..60 {
        fixture.create("document", &number.to_string(), 100).await;
    }
    fixture.until_skipping_backoff("two probes", async || fixture.store.written().len() >= attempts + 2).await;
    assert_eq!(fixture.count("last_error <> 'the store is down'").await, 0);
    fixture.store.store_all();
    fixture.until_skipping_backoff("all are published", async || fixture.ended().await == 60).await;
    relayer.stop().await;
}

#[tokio::test]
async fn a_relayer_that_stops_completes_its_claims() {
    let fixture = Fixture::new().await;
    fixture.store.block();
    let relayer = fixture.start("*");
    for number in 0..20 {
        fixture.create("document", &number.to_string(), 3).await;
    }
    fixture.until("a write has started", async || fixture.store.max_concurrent_per_key() > 0).await;
    let stopped = relayer.stop();
    fixture.store.unblock();
    stopped.await;
    assert_eq!(fixture.count("status = 'PROCESSING'").await, 0);
    assert!(fixture.ended().await > 0);
}
