//! Producers of events: several sessions, each with its own aggregates, one transaction after the other.
//!
//! An aggregate belongs to one session, so its event ids are in the order of its commits. The producers stay a bounded
//! number of events ahead of the relayers, so that events are pending whenever a process is killed.

use std::sync::{Arc, Mutex};

use serde_json::json;
use symphony_client::event::tokio_postgres as client_api;
use symphony_db::connect::Target;
use symphony_db::event::Event;
use symphony_testkit::reconciliation::events::Event as Committed;
use tokio::sync::watch;
use tokio::task::JoinSet;

const SESSIONS: usize = 2;
/// Events of one transaction.
const BATCH: usize = 5;
/// The approximate number of events of one aggregate.
const EVENTS_PER_AGGREGATE: usize = 20;
/// Every ninth transaction is rolled back: its event ids are never used again.
const ROLLBACK_EVERY: usize = 9;

/// Running producers.
pub(crate) struct Producers {
    committed: Arc<Mutex<Vec<Committed>>>,
    processed: watch::Sender<usize>,
    tasks: JoinSet<()>,
}

impl Producers {
    /// Starts to publish this many events, at most `ahead` more than are processed.
    pub(crate) fn start(url: &str, events: usize, ahead: usize) -> Self {
        let committed = Arc::new(Mutex::new(Vec::new()));
        let (processed, known) = watch::channel(0);
        let mut tasks = JoinSet::new();
        for session in 0..SESSIONS {
            let target = Target::parse(url).unwrap();
            let (committed, known) = (Arc::clone(&committed), known.clone());
            tasks.spawn(publish(target, session, events / SESSIONS, ahead / SESSIONS, committed, known));
        }
        Self { committed, processed, tasks }
    }

    /// How many events are committed.
    pub(crate) fn count(&self) -> usize {
        self.committed.lock().unwrap().len()
    }

    /// Tells the producers how many events are processed.
    pub(crate) fn set_processed(&self, processed: usize) {
        self.processed.send_replace(processed);
    }

    /// Waits until all events are committed, and returns them.
    pub(crate) async fn finish(mut self) -> Vec<Committed> {
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        std::mem::take(&mut *self.committed.lock().unwrap())
    }
}

async fn publish(
    target: Target,
    session: usize,
    events: usize,
    ahead: usize,
    committed: Arc<Mutex<Vec<Committed>>>,
    mut processed: watch::Receiver<usize>,
) {
    let mut client = target.connect().await.unwrap();
    let aggregates = (events / EVENTS_PER_AGGREGATE).max(1);
    let (mut published, mut transactions) = (0, 0_usize);
    while published < events {
        // Each session counts an equal share of the processed events as its own.
        let may_continue = |processed: &usize| published < processed / SESSIONS + ahead;
        processed.wait_for(may_continue).await.unwrap();
        let transaction = client.transaction().await.unwrap();
        let mut batch = Vec::new();
        for number in published..(published + BATCH).min(events) {
            // Two consecutive events belong to one aggregate, so that a transaction has several events of it.
            let aggregate_id = format!("{session}-{}", number / 2 % aggregates);
            let event = Event::new("order", aggregate_id.clone(), "Changed", json!({ "number": number }));
            let id = client_api::publish(&transaction, &event).await.unwrap().0;
            batch.push(Committed { id, key: format!("order/{aggregate_id}") });
        }
        transactions += 1;
        if transactions.is_multiple_of(ROLLBACK_EVERY) {
            transaction.rollback().await.unwrap();
            continue;
        }
        transaction.commit().await.unwrap();
        published += batch.len();
        committed.lock().unwrap().append(&mut batch);
    }
}
