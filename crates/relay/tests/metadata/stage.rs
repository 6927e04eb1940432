//! Where these tests play: a database with the metadata lane, a store that remembers, and relayers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use symphony_outbox::connect::Target;
use symphony_outbox::listener::Channel;
use symphony_outbox::metadata::{Entity, Entry, EntryId, producer, reading};
use symphony_proof::kit::scratch::{Database, Server};
use symphony_proof::kit::wait;
use symphony_relay::listener::PostgresListener;
use symphony_relay::metadata::routing::{Route, Routes};
use symphony_relay::metadata::{MetadataLane, Storing};
use symphony_relay::rail::BoxFuture;
use symphony_relay::stop::StopHandle;
use symphony_relay::store::{Record, Store, Written};
use symphony_relay::{Engine, Settings, Summary};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// Remembers what it was given, and answers to order.
pub(crate) struct Memory {
    written: Mutex<Vec<Record>>,
    answers: Mutex<VecDeque<Written>>,
    /// Whether writes wait.
    held: watch::Sender<bool>,
    /// How many of an entity are on their way now, and the most there ever were.
    running: Mutex<BTreeMap<String, usize>>,
    most: Mutex<usize>,
}

impl Default for Memory {
    fn default() -> Self {
        let held = watch::channel(false).0;
        Self {
            written: Mutex::default(),
            answers: Mutex::default(),
            held,
            running: Mutex::default(),
            most: Mutex::default(),
        }
    }
}

impl Memory {
    pub(crate) fn written(&self) -> Vec<Record> {
        self.written.lock().unwrap().clone()
    }

    /// The next one is answered with this; after that all are stored.
    pub(crate) fn answer_next(&self, answer: Written) {
        self.answers.lock().unwrap().push_back(answer);
    }

    /// From now on all are stored.
    pub(crate) fn take_all(&self) {
        self.answers.lock().unwrap().clear();
    }

    /// From now on writes wait.
    pub(crate) fn hold(&self) {
        self.held.send_replace(true);
    }

    /// They need not wait any more.
    pub(crate) fn let_go(&self) {
        self.held.send_replace(false);
    }

    /// The most of one entity that were on their way at the same time.
    pub(crate) fn most_of_one(&self) -> usize {
        *self.most.lock().unwrap()
    }
}

impl Store for Memory {
    fn write<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Written> {
        let entity = format!("{}/{}", record.entity_type, record.entity_id);
        {
            let mut running = self.running.lock().unwrap();
            let count = running.entry(entity.clone()).or_default();
            *count += 1;
            let mut most = self.most.lock().unwrap();
            *most = (*most).max(*count);
        }
        let mut held = self.held.subscribe();
        Box::pin(async move {
            // Others get their turn, so that two at once would be seen.
            tokio::task::yield_now().await;
            held.wait_for(|held| !held).await.unwrap();
            let answer = self.answers.lock().unwrap().pop_front();
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

pub(crate) struct Stage {
    _database: Database,
    pub(crate) owner: Client,
    pub(crate) store: Arc<Memory>,
    target: Arc<Target>,
}

/// A relayer at work.
pub(crate) struct Work {
    stop: StopHandle,
    task: JoinHandle<Summary>,
}

impl Work {
    /// Tells it to stop, at once; and then waits for its end.
    pub(crate) fn end(self) -> impl Future<Output = Summary> {
        self.stop.signal();
        async { self.task.await.unwrap() }
    }
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let database = Server::from_env().await.unwrap().database().await.unwrap();
        let owner = database.connect().await.unwrap();
        // No other role is needed.
        let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
        let target = Arc::new(Target::parse(&url).unwrap());
        Self { _database: database, owner, store: Arc::default(), target }
    }

    /// A lane that carries entities of this type, or of any.
    pub(crate) fn lane(&self, entity_type: &str) -> MetadataLane {
        let storing = Storing {
            routes: Routes::new(vec![Route { entity_type: entity_type.to_owned(), store: "memory".to_owned() }]),
            stores: BTreeMap::from([("memory".to_owned(), Arc::clone(&self.store) as Arc<dyn Store>)]),
        };
        MetadataLane::new(Arc::clone(&self.target), "test".into(), storing)
    }

    pub(crate) fn start(&self, entity_type: &str) -> Work {
        let listener = PostgresListener::new(Arc::clone(&self.target), Channel::METADATA);
        let (stop, signal) = StopHandle::new();
        let engine = Engine::new(Arc::new(self.lane(entity_type)), Settings::default()).unwrap();
        Work { stop, task: tokio::spawn(engine.run(Some(listener), signal)) }
    }

    pub(crate) async fn create(&self, entity_type: &str, entity_id: &str, max_retries: i32) -> EntryId {
        let entry = Entry {
            entity: Entity::new(entity_type, entity_id).unwrap(),
            metadata: serde_json::json!({ "title": "A" }).into(),
            max_retries: Some(max_retries),
        };
        producer::create(&self.owner, &entry).await.unwrap()
    }

    pub(crate) async fn entry(&self, id: EntryId) -> reading::State {
        reading::entry(&self.owner, id).await.unwrap().unwrap()
    }

    /// How many entries are so.
    pub(crate) async fn count(&self, so: &str) -> i64 {
        let sql = format!("select count(*) from symphony.metadata_outbox where {so}");
        self.owner.query_one(&sql, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn ended(&self) -> i64 {
        self.count("status in ('PUBLISHED', 'DLQ')").await
    }

    pub(crate) async fn until_ended(&self, count: i64) {
        self.until("entries have ended", async || self.ended().await >= count).await;
    }

    pub(crate) async fn until(&self, what: &str, so: impl AsyncFnMut() -> bool) {
        wait::until(what, wait::BOUND, so).await.unwrap();
    }

    /// Waits for something, and what failed need not wait for its time.
    pub(crate) async fn until_hastened(&self, what: &str, mut so: impl AsyncFnMut() -> bool) {
        let hasten = "update symphony.metadata_outbox set next_retry_at = now() where next_retry_at > now()";
        self.until(what, async || {
            self.owner.execute(hasten, &[]).await.unwrap();
            so().await
        })
        .await;
    }
}
