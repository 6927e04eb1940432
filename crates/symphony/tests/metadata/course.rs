//! The course that entries take: a database, a second store and relayers, and how far they have come.
//!
//! Times of the lane are moved by the owner instead of being waited for: what failed is due at once instead of after 1 s, 2 s, 4 s …, and
//! the claims of a relayer that died are older than 5 minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::json;
use symphony_outbox::connect::Target;
use symphony_outbox::metadata::{Entity, Entry, EntryId, producer};
use symphony_proof::kit::scratch::{Database, Server};
use symphony_proof::kit::wait::{BOUND, until};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::relayer::{Orders, Relayer};
use crate::second::{Kept, Second};

/// How often times are moved: often enough not to wait, too seldom to be in the way.
const HASTE: Duration = Duration::from_millis(200);
/// Sessions that write at the same time, each entities of its own.
const SESSIONS: usize = 2;
/// Entries of one transaction.
const TOGETHER: usize = 3;
/// Updates of one entity, one after the other. Then nothing heals it any more: what is lost of it stays lost.
const UPDATES: usize = 5;
/// One in so many transactions is rolled back.
const ROLLED_BACK: usize = 7;
/// No outage of these tests may use up the retries of an entry.
const RETRIES: i32 = 100;

/// What a relayer is told that carries all metadata to one store.
pub(crate) fn orders(url: &str, store: &str) -> Orders {
    let mut orders = Orders::new(url, BTreeMap::new()).defaults();
    orders.log_level = "warn";
    orders.more = format!(
        "[metadata]\npoll = '250ms'\nrepair_every = '1s'\n\
         [metadata.breaker]\nlongest_pause = '1s'\n\
         [[metadata.routes]]\nentity_type = '*'\nstore = 'second'\n\
         [stores.second]\n{store}"
    );
    orders
}

/// Sessions that write, and what each has committed: the entry, its entity, its number.
pub(crate) type Writing = JoinSet<Vec<(EntryId, String, usize)>>;

/// Everything that one test has.
pub(crate) struct Course {
    pub(crate) second: Second,
    pub(crate) orders: Orders,
    pub(crate) owner: Client,
    /// Every entry that was committed, and the number in the last metadata of each entity.
    committed: BTreeSet<EntryId>,
    latest: BTreeMap<String, usize>,
    /// The number that the next entry of each session has.
    next: usize,
    writer_url: String,
    /// Names of relayers that died.
    dead: Vec<String>,
    hastened: Instant,
    folder: TempDir,
    _database: Database,
}

impl Course {
    pub(crate) async fn open(second: Second) -> Self {
        let database = Server::from_env().await.unwrap().database().await.unwrap();
        let owner = database.connect().await.unwrap();
        let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
        let writer_url = database.url_as_login(&["symphony_ingest"]).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        Self {
            orders: orders(&url, &second.section(folder.path())),
            second,
            owner,
            committed: BTreeSet::new(),
            latest: BTreeMap::new(),
            next: 0,
            writer_url,
            dead: Vec::new(),
            hastened: Instant::now(),
            folder,
            _database: database,
        }
    }

    pub(crate) async fn relayer(&self) -> Relayer {
        self.relayer_with(&self.orders).await
    }

    pub(crate) async fn relayer_with(&self, orders: &Orders) -> Relayer {
        Relayer::start(orders, self.folder.path()).await
    }

    /// A relayer of this name is dead: its claims are old from now on.
    pub(crate) async fn mourn(&mut self, relayer: &Relayer) {
        self.dead.push(relayer.worker.clone());
        self.hasten().await;
    }

    /// Kills a relayer, and starts another in its place.
    pub(crate) async fn kill(&mut self, relayer: &mut Relayer) {
        relayer.program.kill9().await.unwrap();
        let heir = self.relayer().await;
        let dead = std::mem::replace(relayer, heir);
        self.mourn(&dead).await;
    }

    /// Begins to commit about so many entries, several updates of each entity, some of them in one transaction.
    pub(crate) fn begin(&mut self, entries: usize) -> Writing {
        let numbers = self.next..self.next + entries / SESSIONS;
        self.next = numbers.end;
        let mut sessions = JoinSet::new();
        for session in 0..SESSIONS {
            let target = Target::parse(&self.writer_url).unwrap();
            sessions.spawn(write(target, session, numbers.clone()));
        }
        sessions
    }

    /// Waits until it is done.
    pub(crate) async fn finish(&mut self, mut writing: Writing) {
        while let Some(written) = writing.join_next().await {
            for (id, entity, number) in written.unwrap() {
                self.committed.insert(id);
                // A session commits one transaction after the other.
                self.latest.insert(entity, number);
            }
        }
    }

    /// How many entries were committed.
    pub(crate) fn count(&self) -> usize {
        self.committed.len()
    }

    /// How many have ended.
    pub(crate) async fn ended(&self) -> usize {
        let ended = "select count(*) from symphony.metadata_outbox where status in ('PUBLISHED', 'DLQ')";
        usize::try_from(self.number(ended).await).unwrap()
    }

    /// How often something was tried in vain.
    pub(crate) async fn failures(&self) -> i64 {
        self.number("select coalesce(sum(retry_count), 0)::bigint from symphony.metadata_outbox").await
    }

    pub(crate) async fn number(&self, question: &str) -> i64 {
        self.owner.query_one(question, &[]).await.unwrap().get(0)
    }

    /// Waits until something is so, and moves times meanwhile.
    pub(crate) async fn until(&mut self, what: &str, so: impl AsyncFn(&Self) -> bool) {
        let asked = async || {
            if self.hastened.elapsed() > HASTE {
                self.hasten().await;
                self.hastened = Instant::now();
            }
            so(self).await
        };
        until(what, 2 * BOUND, asked).await.unwrap();
    }

    /// Waits until all that was committed has ended.
    pub(crate) async fn until_all_ended(&mut self) {
        self.until("all have ended", async |course| course.ended().await == course.count()).await;
    }

    /// Leaves alone what somebody holds: two who lock many rows, each in its own order, would wait for each other.
    async fn hasten(&self) {
        let due = "update symphony.metadata_outbox set next_retry_at = now() where id in (
                     select id from symphony.metadata_outbox where next_retry_at > now() for update skip locked)";
        self.owner.execute(due, &[]).await.unwrap();
        let old = "update symphony.metadata_outbox set processing_started_at = now() - interval '6 minutes' where id in (
                     select id from symphony.metadata_outbox
                     where status = 'PROCESSING' and processing_started_at > now() - interval '5 minutes'
                       and claimed_by = any ($1)
                     for update skip locked)";
        self.owner.execute(old, &[&self.dead]).await.unwrap();
    }

    /// Each entry that was committed, and no other, is there once and PUBLISHED, and the second store holds the latest of each entity.
    pub(crate) async fn audit(&self) {
        let all = "select id, entity_type, entity_id, status::text, symphony.metadata_version(created_at), metadata::text,
                          processed_at is not null
                   from symphony.metadata_outbox";
        let (mut ids, mut expected) = (BTreeSet::new(), Kept::new());
        for row in self.owner.query(all, &[]).await.unwrap() {
            let (id, status): (_, String) = (EntryId(row.get(0)), row.get(3));
            assert!(ids.insert(id), "{id} is there twice");
            assert_eq!((status.as_str(), row.get(6)), ("PUBLISHED", true), "{id}");
            let (entity, record) = ((row.get(1), row.get(2)), (row.get(4), row.get(5)));
            let kept = expected.entry(entity).or_insert_with(|| record.clone());
            *kept = record.max(kept.clone());
        }
        assert_eq!(ids, self.committed);
        for ((_, entity), (_, metadata)) in &expected {
            assert_eq!(*metadata, format!("{{\"number\": {}}}", self.latest[entity]), "{entity}");
        }
        let kept = self.second.read().await;
        let differs = |entity: &&(String, String)| kept.get(entity) != expected.get(entity);
        let entities: BTreeSet<_> = kept.keys().chain(expected.keys()).collect();
        if let Some(entity) = entities.into_iter().find(differs) {
            panic!("{entity:?}: {:?} is kept instead of {:?}", kept.get(entity), expected.get(entity));
        }
    }
}

/// One session: entities of its own, several in a transaction, now and then a rollback.
async fn write(target: Target, session: usize, numbers: std::ops::Range<usize>) -> Vec<(EntryId, String, usize)> {
    let mut client = target.connect().await.unwrap();
    let (mut committed, mut transactions) = (Vec::new(), 0_usize);
    let mut left = numbers.peekable();
    while left.peek().is_some() {
        let transaction = client.transaction().await.unwrap();
        let mut together = Vec::new();
        for number in left.by_ref().take(TOGETHER) {
            let id = format!("{session}-{}", number / UPDATES);
            let entity = Entity::new("document", id.clone()).unwrap();
            let entry = Entry { entity, metadata: json!({ "number": number }).into(), max_retries: Some(RETRIES) };
            together.push((producer::create(&transaction, &entry).await.unwrap(), id, number));
        }
        transactions += 1;
        if transactions.is_multiple_of(ROLLED_BACK) {
            transaction.rollback().await.unwrap();
        } else {
            transaction.commit().await.unwrap();
            committed.append(&mut together);
        }
    }
    committed
}
