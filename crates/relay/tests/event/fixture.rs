//! The fixture: a database with the event lane, a fake sink that records events, and relayers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use symphony_client::event::tokio_postgres as publisher;
use symphony_db::connect::Target;
use symphony_db::event::Event;
use symphony_db::listener::Channel;
use symphony_relay::epoch::EpochFence;
use symphony_relay::event::order::Order;
use symphony_relay::event::routing::{Route, Routes};
use symphony_relay::event::{EventConfig, EventLane};
use symphony_relay::listener::PostgresListener;
use symphony_relay::metrics::Meter;
use symphony_relay::rail::BoxFuture;
use symphony_relay::sink::{Message, Published, Sink};
use symphony_relay::stop::StopHandle;
use symphony_relay::{Engine, Settings, Summary};
use symphony_testkit::test_database::{Database, Server};
use symphony_testkit::wait;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// The program's default for events.
pub(crate) const SLOTS: usize = 64;

/// A fake sink that records events and returns scripted results.
#[derive(Default)]
pub(crate) struct FakeSink {
    sent: Mutex<Vec<Message>>,
    answers: Mutex<VecDeque<Published>>,
    latency: Mutex<Duration>,
    down: AtomicBool,
    /// Fails every event of this aggregate type.
    poison: Mutex<Option<String>>,
    /// While it is true, publishing blocks.
    blocked: watch::Sender<bool>,
    /// How many events of each aggregate are being published now, and the maximum so far.
    running: Mutex<BTreeMap<String, usize>>,
    max_running: Mutex<usize>,
}

impl FakeSink {
    pub(crate) fn sent(&self) -> Vec<Message> {
        self.sent.lock().unwrap().clone()
    }

    /// Queues a result; once the queue is empty, every event is confirmed.
    pub(crate) fn answer_next(&self, answer: Published) {
        self.answers.lock().unwrap().push_back(answer);
    }

    /// Confirms every event from now on.
    pub(crate) fn confirm_all(&self) {
        self.answers.lock().unwrap().clear();
    }

    /// Fails every event while it is down.
    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// Fails every event of this aggregate type.
    pub(crate) fn set_poison(&self, aggregate_type: &str) {
        *self.poison.lock().unwrap() = Some(aggregate_type.to_owned());
    }

    /// Blocks publishing, or unblocks it.
    pub(crate) fn block(&self, blocked: bool) {
        self.blocked.send_replace(blocked);
    }

    /// How many events are being published now.
    pub(crate) fn running(&self) -> usize {
        self.running.lock().unwrap().values().sum()
    }

    /// Sets how long publishing takes.
    pub(crate) fn set_latency(&self, latency: Duration) {
        *self.latency.lock().unwrap() = latency;
    }

    /// The maximum number of events of one aggregate that were being published at the same time.
    pub(crate) fn max_concurrent_per_key(&self) -> usize {
        *self.max_running.lock().unwrap()
    }
}

impl Sink for FakeSink {
    fn publish<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Published> {
        let key = message.ordering_key();
        {
            let mut running = self.running.lock().unwrap();
            let count = running.entry(key.clone()).or_default();
            *count += 1;
            let mut max = self.max_running.lock().unwrap();
            *max = (*max).max(*count);
        }
        let latency = *self.latency.lock().unwrap();
        Box::pin(async move {
            tokio::time::sleep(latency).await;
            self.blocked.subscribe().wait_for(|blocked| !blocked).await.unwrap();
            let is_poison = self.poison.lock().unwrap().as_ref() == Some(&message.aggregate_type);
            let is_down = self.down.load(Ordering::SeqCst) || is_poison;
            let failure = is_down.then(|| Published::Failed("the broker is down".into()));
            let answer = failure.or_else(|| self.answers.lock().unwrap().pop_front());
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

pub(crate) struct Fixture {
    database: Database,
    pub(crate) owner: Client,
    pub(crate) sink: Arc<FakeSink>,
    /// What the relayers know of epochs, as the lanes of one process share it.
    pub(crate) fence: Arc<EpochFence>,
    failed_calls: Arc<FailedCalls>,
    target: Arc<Target>,
}

/// Counts the calls to the database that failed.
#[derive(Debug, Default)]
struct FailedCalls(AtomicUsize);

impl Meter for FailedCalls {
    fn call_failed(&self, _call: &'static str) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A running relayer.
pub(crate) struct Relayer {
    stop: StopHandle,
    task: JoinHandle<Summary>,
}

impl Relayer {
    pub(crate) async fn stop(self) -> Summary {
        self.stop.request_stop();
        self.task.await.unwrap()
    }
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let database = Server::from_env().await.unwrap().database().await.unwrap();
        let owner = database.connect().await.unwrap();
        let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
        let target = Arc::new(Target::parse(&url).unwrap());
        Self { database, owner, sink: Arc::default(), fence: Arc::default(), failed_calls: Arc::default(), target }
    }

    pub(crate) fn start(&self, order: Order, routes: Vec<Route>) -> Relayer {
        self.start_with(order, routes, BTreeMap::from([("memory".to_owned(), Arc::clone(&self.sink))]))
    }

    /// Starts a relayer with these sinks, by name.
    pub(crate) fn start_with(
        &self,
        order: Order,
        routes: Vec<Route>,
        sinks: BTreeMap<String, Arc<FakeSink>>,
    ) -> Relayer {
        let config = EventConfig {
            source: "//test".to_owned(),
            routes: Routes::new(routes),
            sinks: sinks.into_iter().map(|(name, sink)| (name, sink as Arc<dyn Sink>)).collect(),
            order,
        };
        let lane =
            EventLane::new(Arc::clone(&self.target), "test".into(), config).with_fence(Arc::clone(&self.fence));
        let listener = PostgresListener::new(Arc::clone(&self.target), Channel::EVENT);
        let (stop, stop_signal) = StopHandle::new();
        let engine = Engine::new(Arc::new(lane), Settings { slots: SLOTS, ..Settings::default() }).unwrap();
        let engine = engine.with_meter(Arc::clone(&self.failed_calls) as Arc<dyn Meter>);
        Relayer { stop, task: tokio::spawn(engine.run(Some(listener), stop_signal)) }
    }

    pub(crate) async fn publish(&self, aggregate_type: &str, aggregate_id: &str, event_type: &str) -> i64 {
        let event = Event::new(aggregate_type, aggregate_id, event_type, serde_json::json!({ "n": 1 }));
        publisher::publish(&self.owner, &event).await.unwrap().0
    }

    /// Opens an epoch as an operator, with this number.
    pub(crate) async fn open_epoch(&self, counter: i64) {
        self.owner.execute("select symphony.open_epoch('fixture', 'a test', $1)", &[&counter]).await.unwrap();
    }

    /// How many calls of relayers to the database have failed.
    pub(crate) fn failed_calls(&self) -> usize {
        self.failed_calls.0.load(Ordering::SeqCst)
    }

    /// Waits until another call of a relayer has failed.
    pub(crate) async fn until_a_call_fails(&self) {
        let before = self.failed_calls();
        self.until("a call fails", async || self.failed_calls() > before).await;
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        self.owner.query_one(sql, &[]).await.unwrap().get(0)
    }

    async fn processed(&self) -> i64 {
        self.count("select count(*) from m10_recovery.outbox where processed_at is not null").await
    }

    pub(crate) async fn until(&self, what: &str, condition: impl AsyncFnMut() -> bool) {
        wait::until(what, wait::DEFAULT_TIMEOUT, condition).await.unwrap();
    }

    pub(crate) async fn until_processed(&self, count: i64) {
        self.until("events to be processed", async || self.processed().await >= count).await;
    }

    /// The same, and makes failed events due at once.
    pub(crate) async fn until_processed_skipping_backoff(&self, count: i64) {
        self.until_skipping_backoff("events to be processed", async || self.processed().await >= count).await;
    }

    /// Waits until a condition holds, and makes failed events due at once.
    pub(crate) async fn until_skipping_backoff(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let skip_backoff = "update m10_recovery.outbox set process_after = now() where processed_at is null and process_after > now()";
        wait::until(what, wait::DEFAULT_TIMEOUT, async || {
            self.owner.execute(skip_backoff, &[]).await.unwrap();
            condition().await
        })
        .await
        .unwrap();
    }

    /// Waits until this number of failures is recorded.
    pub(crate) async fn until_failures(&self, count: i64) {
        let failures = "select count(*) from m10_recovery.outbox_errors";
        wait::until("failures", wait::DEFAULT_TIMEOUT, async || self.count(failures).await >= count)
            .await
            .unwrap();
    }

    pub(crate) async fn until_sent(&self, count: usize) {
        wait::until("events to be sent", wait::DEFAULT_TIMEOUT, async || self.sink.sent().len() >= count)
            .await
            .unwrap();
    }

    /// The recorded errors of an event, in order.
    pub(crate) async fn errors(&self, id: i64) -> Vec<String> {
        let sql = "select error from m10_recovery.outbox_errors where event_id = $1 order by error_id";
        self.owner.query(sql, &[&id]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }

    pub(crate) async fn until_errors(&self, id: i64, count: usize) {
        wait::until("errors", wait::DEFAULT_TIMEOUT, async || self.errors(id).await.len() >= count).await.unwrap();
    }

    /// Another session of the owner.
    pub(crate) async fn second_session(&self) -> Client {
        self.database.connect().await.unwrap()
    }
}
