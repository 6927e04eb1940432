//! The metadata lane over a real PostgreSQL, with a store in this process that remembers what it was given.

// All of it is a test, also what is not marked as one: the lints may know.
#![cfg(test)]

mod dead;
mod log;
mod stage;

use symphony_relay::store::Written;

use stage::Stage;

#[tokio::test]
async fn a_committed_entry_is_written_once_and_published() {
    let stage = Stage::set().await;
    let work = stage.start("document");
    let id = stage.create("document", "7", 3).await;
    stage.until_ended(1).await;
    let written = stage.store.written();
    assert_eq!(written.len(), 1);
    let record = &written[0];
    assert_eq!((record.entry_id.as_str(), record.entity_type.as_str()), (id.to_string().as_str(), "document"));
    assert_eq!(record.entity_id, "7");
    assert_eq!(record.metadata.parse::<serde_json::Value>().unwrap(), serde_json::json!({ "title": "A" }));
    let state = stage.entry(id).await;
    assert_eq!(record.version, state.created_at.as_microsecond());
    assert_eq!(state.status.as_str(), "PUBLISHED");
    work.end().await;
}

#[tokio::test]
async fn what_the_store_did_not_take_is_tried_again_and_says_why() {
    let stage = Stage::set().await;
    stage.store.answer_next(Written::Failed("the store is away".into()));
    stage.store.answer_next(Written::Refused("ann@example.org is too large".into()));
    stage.store.answer_next(Written::Superseded);
    let work = stage.start("*");
    let id = stage.create("document", "7", 5).await;
    stage.until_hastened("the entry is published", async || stage.ended().await == 1).await;
    let state = stage.entry(id).await;
    assert_eq!((state.status.as_str(), state.retry_count), ("PUBLISHED", 2));
    assert_eq!(state.last_error.as_deref(), Some("[e-mail] is too large"));
    assert_eq!(stage.store.written().len(), 3);
    work.end().await;
}

#[tokio::test]
async fn an_answer_without_words_is_a_failure_all_the_same() {
    let stage = Stage::set().await;
    stage.store.answer_next(Written::Failed(" \0".into()));
    let work = stage.start("*");
    let id = stage.create("document", "7", 1).await;
    stage.until_ended(1).await;
    let state = stage.entry(id).await;
    assert_eq!((state.status.as_str(), state.last_error.as_deref()), ("DLQ", Some("the store does not say why")));
    work.end().await;
}

#[tokio::test]
async fn entries_of_one_entity_are_written_by_version_one_at_a_time() {
    let stage = Stage::set().await;
    for number in 0..30 {
        stage.create("document", &(number % 3).to_string(), 3).await;
    }
    let work = stage.start("*");
    stage.until_ended(30).await;
    work.end().await;
    assert_eq!(stage.store.most_of_one(), 1);
    let written = stage.store.written();
    for entity in ["0", "1", "2"] {
        let versions: Vec<_> =
            written.iter().filter(|record| record.entity_id == entity).map(|record| record.version).collect();
        assert!(versions.len() == 10 && versions.is_sorted(), "{entity}: {versions:?}");
    }
}

#[tokio::test]
async fn an_entry_that_no_route_fits_waits_and_holds_up_nobody() {
    let stage = Stage::set().await;
    let work = stage.start("document");
    let lost = stage.create("picture", "7", 5).await;
    stage.create("document", "7", 3).await;
    stage.until_ended(1).await;
    stage.until("it failed", async || stage.entry(lost).await.retry_count > 0).await;
    assert_eq!(stage.entry(lost).await.last_error.as_deref(), Some("no route fits the type of the entity"));
    work.end().await;
}

#[tokio::test]
async fn while_the_only_store_is_away_entries_are_left_alone_but_for_one_at_a_time() {
    let stage = Stage::set().await;
    for _ in 0..100 {
        stage.store.answer_next(Written::Failed("the store is away".into()));
    }
    for number in 0..8 {
        stage.create("document", &number.to_string(), 100).await;
    }
    // They are there before the relayer is, so one claim brings them all: none is under way when the breaker opens.
    let work = stage.start("*");
    stage.until("all have failed", async || stage.count("retry_count > 0").await == 8).await;
    let tried = stage.store.written().len();
    for number in 8..60 {
        stage.create("document", &number.to_string(), 100).await;
    }
    stage
        .until_hastened("the store is tried again, twice", async || stage.store.written().len() >= tried + 2)
        .await;
    assert_eq!(stage.count("last_error <> 'the store is away'").await, 0);
    stage.store.take_all();
    stage.until_hastened("all are published", async || stage.ended().await == 60).await;
    work.end().await;
}

#[tokio::test]
async fn a_relayer_that_stops_finishes_what_it_holds() {
    let stage = Stage::set().await;
    stage.store.hold();
    let work = stage.start("*");
    for number in 0..20 {
        stage.create("document", &number.to_string(), 3).await;
    }
    stage.until("the store has one", async || stage.store.most_of_one() > 0).await;
    let ending = work.end();
    stage.store.let_go();
    ending.await;
    assert_eq!(stage.count("status = 'PROCESSING'").await, 0);
    assert!(stage.ended().await > 0);
}
