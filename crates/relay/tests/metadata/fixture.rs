//! The fixture: a database with the metadata lane, a fake store that records writes, and relayers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use symphony_client::metadata::tokio_postgres as producer;
use symphony_db::connect::Target;
use symphony_db::listener::Channel;
use symphony_db::metadata::{Entity, Entry, EntryId, reader};
use symphony_relay::epoch::EpochFence;
use symphony_relay::listener::PostgresListener;
use symphony_relay::metadata::routing::{Route, Routes};
use symphony_relay::metadata::{MetadataConfig, MetadataLane};
use symphony_relay::metrics::Meter;
use symphony_relay::rail::BoxFuture;
use symphony_relay::stop::StopHandle;
use symphony_relay::store::{Record, Store, Written};
use symphony_relay::{Engine, Settings, Summary};
use symphony_testkit::test_database::{Database, Server};
use symphony_testkit::wait;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// The slots of a relayer with several stores.
pub(crate) const SLOTS: usize = 64;
/// The type of entities that the fake store fails to write.
pub(crate) const POISON: &str = "poison";

/// A fake store that records writes and returns scripted results.
pub(crate) struct FakeStore {
    written: Mutex<Vec<Record>>,
    answers: Mutex<VecDeque<Written>>,
    /// Whether writes block.
    blocked: watch::Sender<bool>,
    /// How many writes of each entity are running now, and the maximum so far.
    running: Mutex<BTreeMap<String, usize>>,
    max_running: Mutex<usize>,
}

impl Default for FakeStore {
    fn default() -> Self {
        let blocked = watch::channel(false).0;
        Self {
            written: Mutex::default(),
            answers: Mutex::default(),
            blocked,
            running: Mutex::default(),
            max_running: Mutex::default(),
        }
    }
}

impl FakeStore {
    pub(crate) fn written(&self) -> Vec<Record> {
        self.written.lock().unwrap().clone()
    }

    /// Queues a result; once the queue is empty, every write is stored.
    pub(crate) fn answer_next(&self, answer: Written) {
        self.answers.lock().unwrap().push_back(answer);
    }

    /// Stores every write from now on.
    pub(crate) fn store_all(&self) {
        self.answers.lock().unwrap().clear();
    }

    /// Blocks writes.
    pub(crate) fn block(&self) {
        self.blocked.send_replace(true);
    }

    /// Unblocks writes.
    pub(crate) fn unblock(&self) {
        self.blocked.send_replace(false);
    }

    /// How many writes are running now.
    pub(crate) fn running(&self) -> usize {
        self.running.lock().unwrap().values().sum()
    }

    /// The maximum number of writes of one entity that ran at the same time.
    pub(crate) fn max_concurrent_per_key(&self) -> usize {
        *self.max_running.lock().unwrap()
    }
}

impl Store for FakeStore {
    fn write<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Written> {
        let entity = format!("{}/{}", record.entity_type, record.entity_id);
        {
            let mut running = self.running.lock().unwrap();
            let count = running.entry(entity.clone()).or_default();
            *count += 1;
            let mut max = self.max_running.lock().unwrap();
            *max = (*max).max(*count);
        }
        let mut blocked = self.blocked.subscribe();
        Box::pin(async move {
            // Other tasks run here, so that two concurrent writes would be counted.
            tokio::task::yield_now().await;
            blocked.wait_for(|blocked| !blocked).await.unwrap();
            let poison = (record.entity_type == POISON).then(|| Written::Failed("no".to_owned()));
            let answer = poison.or_else(|| self.answers.lock().unwrap().pop_front());
            self.written.lock().unwrap().push(record.clone());
            if let Some(count) = self.running.lock().unwrap().get_mut(&entity) {
                *count -= 1;
            }
            answer.unwrap_or(Written::Stored)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

pub(crate) struct Fixture {
    _database: Database,
    pub(crate) owner: Client,
    pub(crate) store: Arc<FakeStore>,
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
    /// Requests the stop now; the returned future waits for the end.
    pub(crate) fn stop(self) -> impl Future<Output = Summary> {
        self.stop.request_stop();
        async { self.task.await.unwrap() }
    }
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let database = Server::from_env().await.unwrap().database().await.unwrap();
        let owner = database.connect().await.unwrap();
        // The executor role is enough.
        let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
        let target = Arc::new(Target::parse(&url).unwrap());
        Self {
            _database: database,
            owner,
            store: Arc::default(),
            fence: Arc::default(),
            failed_calls: Arc::default(),
            target,
        }
    }

    /// A lane whose only route matches this entity type, or `*`.
    pub(crate) fn lane(&self, entity_type: &str) -> MetadataLane {
        let config = MetadataConfig {
            routes: Routes::new(vec![Route { entity_type: entity_type.to_owned(), store: "memory".to_owned() }]),
            stores: BTreeMap::from([("memory".to_owned(), Arc::clone(&self.store) as Arc<dyn Store>)]),
        };
        MetadataLane::new(Arc::clone(&self.target), "test".into(), config).with_fence(Arc::clone(&self.fence))
    }

    /// Starts a relayer with these stores, each for the entity type of its name.
    pub(crate) fn start_with(&self, stores: &BTreeMap<String, Arc<FakeStore>>) -> Relayer {
        let route = |name: &String| Route { entity_type: name.clone(), store: name.clone() };
        let config = MetadataConfig {
            routes: Routes::new(stores.keys().map(route).collect()),
            stores: stores
                .iter()
                .map(|(name, store)| (name.clone(), Arc::clone(store) as Arc<dyn Store>))
                .collect(),
        };
        let lane = MetadataLane::new(Arc::clone(&self.target), "test".into(), config);
        let (stop, stop_signal) = StopHandle::new();
        let listener = PostgresListener::new(Arc::clone(&self.target), Channel::METADATA);
        let engine = Engine::new(Arc::new(lane), Settings { slots: SLOTS, ..Settings::default() }).unwrap();
        Relayer { stop, task: tokio::spawn(engine.run(Some(listener), stop_signal)) }
    }

    pub(crate) fn start(&self, entity_type: &str) -> Relayer {
        let listener = PostgresListener::new(Arc::clone(&self.target), Channel::METADATA);
        let (stop, stop_signal) = StopHandle::new();
        let engine = Engine::new(Arc::new(self.lane(entity_type)), Settings::default()).unwrap();
        let engine = engine.with_meter(Arc::clone(&self.failed_calls) as Arc<dyn Meter>);
        Relayer { stop, task: tokio::spawn(engine.run(Some(listener), stop_signal)) }
    }

    pub(crate) async fn create(&self, entity_type: &str, entity_id: &str, max_retries: i32) -> EntryId {
        let entry = Entry::new(Entity::new(entity_type, entity_id).unwrap(), serde_json::json!({ "title": "A" }))
            .with_max_retries(max_retries);
        producer::create(&self.owner, &entry).await.unwrap()
    }

    /// Opens an epoch as an operator, with this number.
    pub(crate) async fn open_epoch(&self, counter: i64) {
        self.owner.execute("select symphony.open_epoch('fixture', 'a test', $1)", &[&counter]).await.unwrap();
    }

    /// How many calls of relayers to the database have failed.
    pub(crate) fn failed_calls(&self) -> usize {
        self.failed_calls.0.load(Ordering::SeqCst)
    }

    /// Makes every claim one of 6 minutes ago.
    pub(crate) async fn expire_claims(&self) {
        let expire = "update symphony.metadata_outbox set processing_started_at = now() - interval '6 minutes' where status = 'PROCESSING'";
        self.owner.execute(expire, &[]).await.unwrap();
    }

    pub(crate) async fn entry(&self, id: EntryId) -> reader::MetadataEntry {
        reader::entry(&self.owner, id).await.unwrap().unwrap()
    }

    /// How many entries satisfy this SQL condition.
    pub(crate) async fn count(&self, condition: &str) -> i64 {
        let sql = format!("select count(*) from symphony.metadata_outbox where {condition}");
        self.owner.query_one(&sql, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn ended(&self) -> i64 {
        self.count("status in ('PUBLISHED', 'DLQ')").await
    }

    pub(crate) async fn until_ended(&self, count: i64) {
        self.until("entries have ended", async || self.ended().await >= count).await;
    }

    pub(crate) async fn until(&self, what: &str, condition: impl AsyncFnMut() -> bool) {
        wait::until(what, wait::DEFAULT_TIMEOUT, condition).await.unwrap();
    }

    /// Waits until a condition holds, and makes failed entries due at once.
    pub(crate) async fn until_skipping_backoff(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let skip_backoff = "update symphony.metadata_outbox set next_retry_at = now() where next_retry_at > now()";
        self.until(what, async || {
            self.owner.execute(skip_backoff, &[]).await.unwrap();
            condition().await
        })
        .await;
    }
}
