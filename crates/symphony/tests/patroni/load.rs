//! Producers of payments, events and metadata that go on through every outage.
//!
//! A producer of payments repeats an enqueue under its key until it is acknowledged, as producers must. Producers of
//! events and metadata do not repeat what was not acknowledged: it may be committed or not.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use symphony_client::event::tokio_postgres as event_api;
use symphony_client::metadata::tokio_postgres as metadata_api;
use symphony_client::payment::tokio_postgres as payment_api;
use symphony_db::connect::Target;
use symphony_db::event::Event;
use symphony_db::metadata::{Entity, Entry, EntryId};
use symphony_testkit::reconciliation::events::Event as Published;
use symphony_testkit::wait::until;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::producers::instruction;

/// Producers of payments. Each kind of the others has one.
const PAYMENT_PRODUCERS: usize = 2;
/// Leaves CPU time to the servers.
const PAUSE: Duration = Duration::from_millis(20);
/// A server that is paused does not answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than an outage on a slow machine.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(300);
const AGGREGATES: usize = 10;
pub(crate) const ENTITIES: usize = 10;
/// More retries than any outage of these tests uses up.
const MAX_RETRIES: i32 = 100;

/// What was acknowledged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acknowledged {
    /// Instructions.
    pub(crate) payments: BTreeSet<String>,
    pub(crate) events: Vec<Published>,
    pub(crate) metadata: BTreeSet<EntryId>,
    last: Option<Instant>,
    /// The longest time without an acknowledged payment.
    pub(crate) longest_outage: Duration,
}

impl Acknowledged {
    fn payment(&mut self, instruction_id: String) {
        let now = Instant::now();
        let outage = self.last.replace(now).map_or(Duration::ZERO, |last| now - last);
        self.longest_outage = outage.max(self.longest_outage);
        self.payments.insert(instruction_id);
    }
}

type Shared = Arc<Mutex<Acknowledged>>;

/// Running producers.
pub(crate) struct Load {
    stop: watch::Sender<bool>,
    acknowledged: Shared,
    tasks: JoinSet<()>,
}

impl Load {
    /// Starts producers with this login. Payments go to these rails in turn.
    pub(crate) fn start(url: &str, rails: &[&str]) -> Self {
        let (stop, stopped) = watch::channel(false);
        let acknowledged = Shared::default();
        let session = || Session { target: Target::parse(url).unwrap(), client: None, stopped: stopped.clone() };
        let mut tasks = JoinSet::new();
        for index in 0..PAYMENT_PRODUCERS {
            let rails = rails.iter().map(|rail| (*rail).to_owned()).collect();
            tasks.spawn(pay(session(), index, rails, Arc::clone(&acknowledged)));
        }
        tasks.spawn(publish(session(), Arc::clone(&acknowledged)));
        tasks.spawn(update(session(), Arc::clone(&acknowledged)));
        Self { stop, acknowledged, tasks }
    }

    /// Waits until this many more payments, events and metadata entries were acknowledged.
    pub(crate) async fn wait_for_more(&self, more: usize) {
        let counts = || {
            let acknowledged = self.acknowledged.lock().unwrap();
            [acknowledged.payments.len(), acknowledged.events.len(), acknowledged.metadata.len()]
        };
        let before = counts();
        let condition = async || counts().iter().zip(before).all(|(now, before)| *now >= before + more);
        until(format!("{more} more of each are acknowledged"), OUTAGE_TIMEOUT, condition).await.unwrap();
    }

    /// Stops the producers after their current call, and returns what was acknowledged.
    pub(crate) async fn stop(mut self) -> Acknowledged {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.acknowledged.lock().unwrap().clone()
    }
}

/// A session that is opened again when it is lost.
struct Session {
    target: Target,
    client: Option<Client>,
    stopped: watch::Receiver<bool>,
}

impl Session {
    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Makes a call. Returns nothing if it was not acknowledged, and the next call takes a new session.
    async fn call<T, E>(&mut self, call: impl AsyncFnOnce(&Client) -> Result<T, E>) -> Option<T> {
        let called = async {
            let client = match self.client.take() {
                Some(client) if !client.is_closed() => client,
                _ => self.target.connect().await.ok()?,
            };
            let answer = call(&client).await.ok()?;
            Some((client, answer))
        };
        let called = tokio::time::timeout(CALL_TIMEOUT, called).await.ok().flatten();
        tokio::time::sleep(PAUSE).await;
        let (client, answer) = called?;
        self.client = Some(client);
        Some(answer)
    }
}

async fn pay(mut session: Session, index: usize, rails: Vec<String>, acknowledged: Shared) {
    for number in 0.. {
        let instruction = instruction(&format!("producer{index}"), number, &rails[number % rails.len()]);
        // It repeats the call until the database answers, even if it is told to stop.
        let enqueue = async |client: &Client| payment_api::enqueue(client, &instruction).await;
        while session.call(enqueue).await.is_none() {}
        acknowledged.lock().unwrap().payment(instruction.instruction_id.clone());
        if session.is_stopped() {
            return;
        }
    }
}

async fn publish(mut session: Session, acknowledged: Shared) {
    for number in 0.. {
        if session.is_stopped() {
            return;
        }
        let aggregate_id = (number % AGGREGATES).to_string();
        let event = Event::new("order", aggregate_id.clone(), "Changed", json!({ "number": number }));
        let published = session.call(async |client: &Client| event_api::publish(client, &event).await).await;
        if let Some(id) = published {
            acknowledged.lock().unwrap().events.push(Published { id: id.0, key: format!("order/{aggregate_id}") });
        }
    }
}

async fn update(mut session: Session, acknowledged: Shared) {
    for number in 0.. {
        // The last update of each entity is one after the last outage.
        if session.is_stopped() && number % ENTITIES == 0 {
            break;
        }
        update_one(&mut session, number, &acknowledged).await;
    }
    for number in 0..ENTITIES {
        while update_one(&mut session, number, &acknowledged).await.is_none() {}
    }
}

async fn update_one(session: &mut Session, number: usize, acknowledged: &Shared) -> Option<()> {
    let entity = Entity::new("document", (number % ENTITIES).to_string()).unwrap();
    let entry = Entry::new(entity, json!({ "number": number })).with_max_retries(MAX_RETRIES);
    let id = session.call(async |client: &Client| metadata_api::create(client, &entry).await).await?;
    acknowledged.lock().unwrap().metadata.insert(id);
    Some(())
}
