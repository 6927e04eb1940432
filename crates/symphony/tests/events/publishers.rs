//! Those who publish: several sessions, each with aggregates of its own, one transaction after the other.
//!
//! An aggregate belongs to one session, so its numbers are in the order of its commits. They run ahead of what was processed by so
//! much and no more, so that there is always something to publish when something is killed.

use std::sync::{Arc, Mutex};

use serde_json::json;
use symphony_outbox::connect::Target;
use symphony_outbox::event::{Event, publisher};
use symphony_proof::kit::audit::events::Event as Committed;
use tokio::sync::watch;
use tokio::task::JoinSet;

const SESSIONS: usize = 2;
/// Events of one transaction; they belong to as many aggregates, or to fewer.
const TOGETHER: usize = 5;
/// Events of one aggregate, about.
const OF_ONE: usize = 20;
/// One in so many transactions is rolled back: its numbers are never used again.
const ROLLED_BACK: usize = 9;

/// Publishers at work.
pub(crate) struct Publishers {
    committed: Arc<Mutex<Vec<Committed>>>,
    processed: watch::Sender<usize>,
    tasks: JoinSet<()>,
}

impl Publishers {
    /// Begins to publish so many events, at most `ahead` more than are known to be processed.
    pub(crate) fn begin(url: &str, events: usize, ahead: usize) -> Self {
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

    /// How many are committed.
    pub(crate) fn count(&self) -> usize {
        self.committed.lock().unwrap().len()
    }

    /// Lets them go on: so many are processed.
    pub(crate) fn go_on(&self, processed: usize) {
        self.processed.send_replace(processed);
    }

    /// What was committed, once they are done.
    pub(crate) async fn end(mut self) -> Vec<Committed> {
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
    let aggregates = (events / OF_ONE).max(1);
    let (mut published, mut transactions) = (0, 0_usize);
    while published < events {
        // Of all that is processed, a fair share was ours.
        let near = |processed: &usize| published < processed / SESSIONS + ahead;
        processed.wait_for(near).await.unwrap();
        let transaction = client.transaction().await.unwrap();
        let mut together = Vec::new();
        for number in published..(published + TOGETHER).min(events) {
            // Two in a row belong to the same aggregate, so that a transaction has several of one.
            let aggregate_id = format!("{session}-{}", number / 2 % aggregates);
            let event = Event {
                aggregate_type: "order".into(),
                aggregate_id: aggregate_id.clone(),
                event_type: "Changed".into(),
                payload: json!({ "number": number }).into(),
            };
            let id = publisher::publish(&transaction, &event).await.unwrap().0;
            together.push(Committed { id, key: format!("order/{aggregate_id}") });
        }
        transactions += 1;
        if transactions.is_multiple_of(ROLLED_BACK) {
            transaction.rollback().await.unwrap();
            continue;
        }
        transaction.commit().await.unwrap();
        published += together.len();
        committed.lock().unwrap().append(&mut together);
    }
}
