//! The course that events take: a database, two relayers and a broker, and how far they have come.
//!
//! Two times of the contract are moved by the owner instead of being waited for: the claims of a relayer that was killed are older than 5 minutes,
//! and when a broker is back, the delays end that grew while it was away. Nobody touches those of later.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use symphony_proof::kit::brokers::Kind;
use symphony_proof::kit::scratch::{Database, Server};
use symphony_proof::kit::wait::{BOUND, until, until_some};
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::bus::{Bus, DESTINATION};
use crate::publishers::Publishers;
use crate::relayer::{Orders, Relayer};

/// How often claims are made older: often enough not to wait, too seldom to be in the way.
const HASTE: Duration = Duration::from_millis(200);

/// What a relayer is told that publishes all events to one sink, strictly in order.
pub(crate) fn orders(url: &str, sink: &str) -> Orders {
    let mut orders = Orders::new(url, BTreeMap::new()).defaults();
    orders.log_level = "warn";
    orders.more = format!(
        "[event]\nsource = '//shop.example'\norder = 'aggregate'\npoll = '250ms'\n\
         [event.breaker]\nlongest_pause = '1s'\n\
         [[event.routes]]\naggregate_type = '*'\nevent_type = '*'\nsink = 'bus'\ndestination = '{DESTINATION}'\n\
         [sinks.bus]\n{sink}"
    );
    orders
}

/// Everything that one test has.
pub(crate) struct Course {
    pub(crate) bus: Bus,
    pub(crate) relayers: [Relayer; 2],
    orders: Orders,
    owner: Client,
    /// Names of relayers that were killed.
    dead: Vec<String>,
    buried: Instant,
    folder: TempDir,
    pub(crate) database: Database,
}

impl Course {
    /// Starts the broker and two relayers.
    pub(crate) async fn open(kind: Kind) -> Self {
        let database = Server::from_env().await.unwrap().database().await.unwrap();
        let owner = database.connect().await.unwrap();
        let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
        let (bus, folder) = (Bus::start(kind).await, tempfile::tempdir().unwrap());
        let orders = orders(&url, &bus.section(folder.path()));
        let relayers =
            [Relayer::start(&orders, folder.path()).await, Relayer::start(&orders, folder.path()).await];
        Self { bus, relayers, orders, owner, dead: Vec::new(), buried: Instant::now(), folder, database }
    }

    /// Kills a relayer and starts another in its place.
    pub(crate) async fn kill_relayer(&mut self, which: usize) {
        self.relayers[which].program.kill9().await.unwrap();
        let heir = Relayer::start(&self.orders, self.folder.path()).await;
        let dead = std::mem::replace(&mut self.relayers[which], heir);
        self.dead.push(dead.worker);
    }

    /// Kills the broker, and starts it again when a relayer has missed it.
    pub(crate) async fn kill_broker(&mut self, publishers: &Publishers) {
        let before = self.failures().await;
        self.bus.kill().await;
        let missed = async || {
            self.pass(publishers).await;
            self.failures().await > before
        };
        until("a relayer misses the broker", 2 * BOUND, missed).await.unwrap();
        self.bus.revive().await;
        let due = "update m10_recovery.outbox set process_after = now()
                   where processed_at is null and claimed_at is null and process_after > now()";
        self.owner.execute(due, &[]).await.unwrap();
    }

    /// Waits until so many are processed, and lets the publishers go on meanwhile.
    pub(crate) async fn processed(&mut self, count: usize, publishers: &Publishers) {
        // What is counted against the bound is standing still, not being slow: the long form takes its time.
        let mut best = 0;
        while best < count {
            let further = async || Some(self.pass(publishers).await).filter(|processed| *processed > best);
            let what = format!("more than {best} are processed, of {count}");
            best = until_some(what, 2 * BOUND, further).await.unwrap();
        }
    }

    /// Looks how many are processed, makes claims older if it is time to, and lets the publishers go on.
    async fn pass(&mut self, publishers: &Publishers) -> usize {
        if self.buried.elapsed() > HASTE {
            self.bury().await;
            self.buried = Instant::now();
        }
        // Counted before those that are left: it is never more than are processed.
        let committed = publishers.count();
        let left = "select count(*) from m10_recovery.outbox where processed_at is null";
        let left = usize::try_from(self.number(left).await).unwrap();
        let processed = committed.saturating_sub(left);
        publishers.go_on(processed);
        processed
    }

    async fn bury(&self) {
        let old = "update m10_recovery.outbox set claimed_at = claimed_at - interval '1 hour'
                   where processed_at is null and claimed_at > now() - interval '5 minutes'
                     and split_part(claimed_by, '#', 1) = any ($1)";
        self.owner.execute(old, &[&self.dead]).await.unwrap();
    }

    /// How often a relayer has failed to publish, other than by waiting its turn.
    async fn failures(&self) -> i64 {
        self.number("select count(*) from m10_recovery.outbox_errors where error not like 'waits behind%'").await
    }

    /// One number.
    pub(crate) async fn number(&self, question: &str) -> i64 {
        self.owner.query_one(question, &[]).await.unwrap().get(0)
    }
}
