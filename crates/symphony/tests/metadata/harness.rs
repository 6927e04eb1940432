//! The harness of the metadata tests: a test database, a second store and relayers, with the number of ended entries.
//!
//! The harness changes timestamps instead of waiting. A failed entry is due at once instead of after 1 s, 2 s, 4 s …
//! Claims of a dead relayer become older than 5 minutes, so that they expire.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::json;
use symphony_client::metadata::tokio_postgres as client_api;
use symphony_db::connect::Target;
use symphony_db::metadata::{Entity, Entry, EntryId};
use symphony_testkit::test_database::{Database, Server};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::relayer::{Relayer, Settings};
use crate::second_store::{Records, SecondStore};

/// How often the harness advances timestamps.
const ADVANCE_INTERVAL: Duration = Duration::from_millis(200);
/// Producers that write at the same time, each its own entities.
const SESSIONS: usize = 2;
/// Entries of one transaction.
const BATCH: usize = 3;
/// Consecutive updates of one entity. No later update follows, so a lost write stays visible.
const UPDATES_PER_ENTITY: usize = 5;
/// Every seventh transaction is rolled back.
const ROLLBACK_EVERY: usize = 7;
/// More retries than any outage of these tests uses up.
const MAX_RETRIES: i32 = 100;

/// Settings of a relayer that writes all metadata to one store.
pub(crate) fn settings(url: &str, store: &str) -> Settings {
    let mut settings = Settings::new(url, BTreeMap::new()).payment_defaults();
    settings.log_level = "warn";
    settings.extra = format!(
        "[metadata]\npoll_interval = '250ms'\nrepair_every = '1s'\n\
         [metadata.breaker]\nmax_open_for = '1s'\n\
         [[metadata.routes]]\nentity_type = '*'\nstore = 'second'\n\
         [stores.second]\n{store}"
    );
    settings
}

/// Running producers. Each returns what it has committed: the entry, its entity and its number.
pub(crate) type Writes = JoinSet<Vec<(EntryId, String, usize)>>;

/// A second store and a test database, with what was committed to it.
pub(crate) struct Harness {
    pub(crate) store: SecondStore,
    pub(crate) settings: Settings,
    pub(crate) superuser: Client,
    /// Every committed entry.
    committed: BTreeSet<EntryId>,
    /// The number in the latest metadata of each entity.
    latest: BTreeMap<String, usize>,
    /// The number of each producer's next entry.
    next_number: usize,
    producer_url: String,
    /// Worker ids of dead relayers.
    dead_workers: Vec<String>,
    last_advanced: Instant,
    folder: TempDir,
    _database: Database,
}

impl Harness {
    pub(crate) async fn start(store: SecondStore) -> Self {
        let database = Server::from_env().await.unwrap().database().await.unwrap();
        let superuser = database.connect().await.unwrap();
        let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
        let producer_url = database.url_as_login(&["symphony_ingest"]).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        Self {
            settings: settings(&url, &store.section(folder.path())),
            store,
            superuser,
            committed: BTreeSet::new(),
            latest: BTreeMap::new(),
            next_number: 0,
            producer_url,
            dead_workers: Vec::new(),
            last_advanced: Instant::now(),
            folder,
            _database: database,
        }
    }

    pub(crate) async fn start_relayer(&self) -> Relayer {
        self.start_relayer_with(&self.settings).await
    }

    pub(crate) async fn start_relayer_with(&self, settings: &Settings) -> Relayer {
        Relayer::start(settings, self.folder.path()).await
    }

    /// Expires all claims of a dead relayer, now and later.
    pub(crate) async fn expire_claims_of(&mut self, relayer: &Relayer) {
        self.dead_workers.push(relayer.worker.clone());
        self.advance_time().await;
    }

    /// Kills a relayer, and starts another in its place.
    pub(crate) async fn kill(&mut self, relayer: &mut Relayer) {
        relayer.program.kill9().await.unwrap();
        let successor = self.start_relayer().await;
        let dead = std::mem::replace(relayer, successor);
        self.expire_claims_of(&dead).await;
    }

    /// Starts to commit about this many entries: several updates of each entity, some of them in one transaction.
    pub(crate) fn start_writes(&mut self, entries: usize) -> Writes {
        let numbers = self.next_number..self.next_number + entries / SESSIONS;
        self.next_number = numbers.end;
        let mut sessions = JoinSet::new();
        for session in 0..SESSIONS {
            let target = Target::parse(&self.producer_url).unwrap();
            sessions.spawn(write(target, session, numbers.clone()));
        }
        sessions
    }

    /// Waits until these writes are committed.
    pub(crate) async fn finish_writes(&mut self, mut writes: Writes) {
        while let Some(written) = writes.join_next().await {
            for (id, entity, number) in written.unwrap() {
                self.committed.insert(id);
                // A producer's later number is the later commit.
                self.latest.insert(entity, number);
            }
        }
    }

    /// How many entries were committed.
    pub(crate) fn count(&self) -> usize {
        self.committed.len()
    }

    /// How many entries are PUBLISHED or in the DLQ.
    pub(crate) async fn ended(&self) -> usize {
        let ended = "select count(*) from symphony.metadata_outbox where status in ('PUBLISHED', 'DLQ')";
        usize::try_from(self.query_number(ended).await).unwrap()
    }

    /// How many attempts have failed.
    pub(crate) async fn failures(&self) -> i64 {
        self.query_number("select coalesce(sum(retry_count), 0)::bigint from symphony.metadata_outbox").await
    }

    pub(crate) async fn query_number(&self, query: &str) -> i64 {
        self.superuser.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Waits for a condition and advances timestamps meanwhile.
    pub(crate) async fn wait_until(&mut self, what: &str, condition: impl AsyncFn(&Self) -> bool) {
        let advancing = async || {
            if self.last_advanced.elapsed() > ADVANCE_INTERVAL {
                self.advance_time().await;
                self.last_advanced = Instant::now();
            }
            condition(self).await
        };
        until(what, 2 * DEFAULT_TIMEOUT, advancing).await.unwrap();
    }

    /// Waits until all committed entries have ended.
    pub(crate) async fn wait_until_all_ended(&mut self) {
        self.wait_until("all have ended", async |harness| harness.ended().await == harness.count()).await;
    }

    /// Makes retries due and expires claims of dead relayers. It skips locked rows to avoid deadlocks with relayers.
    async fn advance_time(&self) {
        let due = "update symphony.metadata_outbox set next_retry_at = now() where id in (
                     select id from symphony.metadata_outbox where next_retry_at > now() for update skip locked)";
        self.superuser.execute(due, &[]).await.unwrap();
        let old = "update symphony.metadata_outbox set processing_started_at = now() - interval '6 minutes' where id in (
                     select id from symphony.metadata_outbox
                     where status = 'PROCESSING' and processing_started_at > now() - interval '5 minutes'
                       and claimed_by = any ($1)
                     for update skip locked)";
        self.superuser.execute(old, &[&self.dead_workers]).await.unwrap();
    }

    /// Checks that exactly the committed entries exist, each PUBLISHED, and that the second store holds the latest
    /// metadata of each entity.
    pub(crate) async fn reconcile(&self) {
        let all = "select id, entity_type, entity_id, status::text, symphony.metadata_version(created_at, epoch), metadata::text,
                          processed_at is not null
                   from symphony.metadata_outbox";
        let (mut ids, mut expected) = (BTreeSet::new(), Records::new());
        for row in self.superuser.query(all, &[]).await.unwrap() {
            let (id, status): (_, String) = (EntryId(row.get(0)), row.get(3));
            assert!(ids.insert(id), "{id} exists twice");
            assert_eq!((status.as_str(), row.get(6)), ("PUBLISHED", true), "{id}");
            let (entity, record) = ((row.get(1), row.get(2)), (row.get(4), row.get(5)));
            let latest = expected.entry(entity).or_insert_with(|| record.clone());
            *latest = record.max(latest.clone());
        }
        assert_eq!(ids, self.committed);
        for ((_, entity), (_, metadata)) in &expected {
            assert_eq!(*metadata, format!("{{\"number\": {}}}", self.latest[entity]), "{entity}");
        }
        let stored = self.store.read().await;
        let differs = |entity: &&(String, String)| stored.get(entity) != expected.get(entity);
        let entities: BTreeSet<_> = stored.keys().chain(expected.keys()).collect();
        if let Some(entity) = entities.into_iter().find(differs) {
            panic!("{entity:?}: {:?} is stored instead of {:?}", stored.get(entity), expected.get(entity));
        }
    }
}

/// One producer: it commits its own entities, several in a transaction, and sometimes rolls back.
async fn write(target: Target, session: usize, numbers: std::ops::Range<usize>) -> Vec<(EntryId, String, usize)> {
    let mut client = target.connect().await.unwrap();
    let (mut committed, mut transactions) = (Vec::new(), 0_usize);
    let mut remaining = numbers.peekable();
    while remaining.peek().is_some() {
        let transaction = client.transaction().await.unwrap();
        let mut batch = Vec::new();
        for number in remaining.by_ref().take(BATCH) {
            let id = format!("{session}-{}", number / UPDATES_PER_ENTITY);
            let entity = Entity::new("document", id.clone()).unwrap();
            let entry = Entry::new(entity, json!({ "number": number })).with_max_retries(MAX_RETRIES);
            batch.push((client_api::create(&transaction, &entry).await.unwrap(), id, number));
        }
        transactions += 1;
        if transactions.is_multiple_of(ROLLBACK_EVERY) {
            transaction.rollback().await.unwrap();
        } else {
            transaction.commit().await.unwrap();
            committed.append(&mut batch);
        }
    }
    committed
}
