//! Where these tests play: a database with the event lane, a sink that remembers, and relayers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use symphony_outbox::connect::Target;
use symphony_outbox::event::{Event, publisher};
use symphony_outbox::listener::Channel;
use symphony_proof::kit::scratch::{Database, Server};
use symphony_proof::kit::wait;
use symphony_relay::event::order::Order;
use symphony_relay::event::routing::{Route, Routes};
use symphony_relay::event::{EventLane, Publishing};
use symphony_relay::listener::PostgresListener;
use symphony_relay::rail::BoxFuture;
use symphony_relay::sink::{Message, Published, Sink};
use symphony_relay::stop::StopHandle;
use symphony_relay::{Engine, Settings, Summary};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// As many as the program gives to events by default.
const SLOTS: usize = 64;

/// Remembers what it was given, and answers to order.
#[derive(Default)]
pub(crate) struct Memory {
    sent: Mutex<Vec<Message>>,
    answers: Mutex<VecDeque<Published>>,
    takes: Mutex<Duration>,
    away: AtomicBool,
    /// While it is true, whatever is given is kept without an answer.
    holds: watch::Sender<bool>,
    /// How many of an aggregate are on their way now, and the most there ever were.
    running: Mutex<BTreeMap<String, usize>>,
    most: Mutex<usize>,
}

impl Memory {
    pub(crate) fn sent(&self) -> Vec<Message> {
        self.sent.lock().unwrap().clone()
    }

    /// The next one is answered with this; after that all are confirmed.
    pub(crate) fn answer_next(&self, answer: Published) {
        self.answers.lock().unwrap().push_back(answer);
    }

    /// From now on all are confirmed.
    pub(crate) fn confirm_all(&self) {
        self.answers.lock().unwrap().clear();
    }

    /// From now on nothing is confirmed, or all is again.
    pub(crate) fn go_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// From now on nothing is answered, or all is again.
    pub(crate) fn hold(&self, holds: bool) {
        self.holds.send_replace(holds);
    }

    /// How many are on their way now.
    pub(crate) fn running(&self) -> usize {
        self.running.lock().unwrap().values().sum()
    }

    /// How long publishing takes.
    pub(crate) fn take(&self, time: Duration) {
        *self.takes.lock().unwrap() = time;
    }

    /// The most of one aggregate that were on their way at the same time.
    pub(crate) fn most_of_one(&self) -> usize {
        *self.most.lock().unwrap()
    }
}

impl Sink for Memory {
    fn publish<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Published> {
        let key = message.ordering_key();
        {
            let mut running = self.running.lock().unwrap();
            let count = running.entry(key.clone()).or_default();
            *count += 1;
            let mut most = self.most.lock().unwrap();
            *most = (*most).max(*count);
        }
        let takes = *self.takes.lock().unwrap();
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            self.holds.subscribe().wait_for(|holds| !holds).await.unwrap();
            let gone = self.away.load(Ordering::SeqCst).then(|| Published::Failed("the broker is away".into()));
            let answer = gone.or_else(|| self.answers.lock().unwrap().pop_front());
            self.sent.lock().unwrap().push(message.clone());
            if let Some(count) = self.running.lock().unwrap().get_mut(&key) {
                *count -= 1;
            }
            answer.unwrap_or(Published::Confirmed { repeat: false })
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

pub(crate) fn route(aggregate_type: &str, event_type: &str, sink: &str, destination: &str) -> Route {
    Route::new(aggregate_type, event_type, sink, destination).unwrap()
}

pub(crate) struct Stage {
    database: Database,
    pub(crate) owner: Client,
    pub(crate) sink: Arc<Memory>,
    target: Arc<Target>,
}

/// A relayer at work.
pub(crate) struct Work {
    stop: StopHandle,
    task: JoinHandle<Summary>,
}

impl Work {
    pub(crate) async fn end(self) -> Summary {
        self.stop.signal();
        self.task.await.unwrap()
    }
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let database = Server::from_env().await.unwrap().database().await.unwrap();
        let owner = database.connect().await.unwrap();
        let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
        let target = Arc::new(Target::parse(&url).unwrap());
        Self { database, owner, sink: Arc::default(), target }
    }

    pub(crate) fn start(&self, order: Order, routes: Vec<Route>) -> Work {
        let publishing = Publishing {
            source: "//test".to_owned(),
            routes: Routes::new(routes),
            sinks: BTreeMap::from([("memory".to_owned(), Arc::clone(&self.sink) as Arc<dyn Sink>)]),
            order,
        };
        let lane = EventLane::new(Arc::clone(&self.target), "test".into(), publishing);
        let listener = PostgresListener::new(Arc::clone(&self.target), Channel::EVENT);
        let (stop, signal) = StopHandle::new();
        let engine = Engine::new(Arc::new(lane), Settings { slots: SLOTS, ..Settings::default() }).unwrap();
        Work { stop, task: tokio::spawn(engine.run(Some(listener), signal)) }
    }

    pub(crate) async fn publish(&self, aggregate_type: &str, aggregate_id: &str, event_type: &str) -> i64 {
        let event = Event {
            aggregate_type: aggregate_type.into(),
            aggregate_id: aggregate_id.into(),
            event_type: event_type.into(),
            payload: serde_json::json!({ "n": 1 }).into(),
        };
        publisher::publish(&self.owner, &event).await.unwrap().0
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        self.owner.query_one(sql, &[]).await.unwrap().get(0)
    }

    async fn processed(&self) -> i64 {
        self.count("select count(*) from m10_recovery.outbox where processed_at is not null").await
    }

    /// Waits for something.
    pub(crate) async fn until(&self, what: &str, so: impl AsyncFnMut() -> bool) {
        wait::until(what, wait::BOUND, so).await.unwrap();
    }

    pub(crate) async fn until_processed(&self, count: i64) {
        self.until("events to be processed", async || self.processed().await >= count).await;
    }

    /// The same, and what failed need not wait for its time.
    pub(crate) async fn until_processed_hastened(&self, count: i64) {
        self.until_hastened("events to be processed", async || self.processed().await >= count).await;
    }

    /// Waits for something, and what failed need not wait for its time.
    pub(crate) async fn until_hastened(&self, what: &str, mut so: impl AsyncFnMut() -> bool) {
        let hasten = "update m10_recovery.outbox set process_after = now() where processed_at is null and process_after > now()";
        wait::until(what, wait::BOUND, async || {
            self.owner.execute(hasten, &[]).await.unwrap();
            so().await
        })
        .await
        .unwrap();
    }

    /// Waits until so many failures are recorded.
    pub(crate) async fn until_failures(&self, count: i64) {
        let failures = "select count(*) from m10_recovery.outbox_errors";
        wait::until("failures", wait::BOUND, async || self.count(failures).await >= count).await.unwrap();
    }

    pub(crate) async fn until_sent(&self, count: usize) {
        wait::until("events to be sent", wait::BOUND, async || self.sink.sent().len() >= count).await.unwrap();
    }

    /// What was said about an event, in order.
    pub(crate) async fn errors(&self, id: i64) -> Vec<String> {
        let sql = "select error from m10_recovery.outbox_errors where event_id = $1 order by error_id";
        self.owner.query(sql, &[&id]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }

    pub(crate) async fn until_errors(&self, id: i64, count: usize) {
        wait::until("errors", wait::BOUND, async || self.errors(id).await.len() >= count).await.unwrap();
    }

    /// Another session of the owner.
    pub(crate) async fn another(&self) -> Client {
        self.database.connect().await.unwrap()
    }
}
