//! The harness of the event tests: a test database, a broker and two relayers, with the number of processed events.
//!
//! The harness changes timestamps instead of waiting. It makes claims of killed relayers older than 5 minutes, so that
//! they expire. When a broker is back, it ends the backoff that grew during the outage; later backoff is not changed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use symphony_testkit::brokers::Kind;
use symphony_testkit::test_database::{Database, Server};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until, until_some};
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::broker::{DESTINATION, TestBroker};
use crate::producers::Producers;
use crate::relayer::{Relayer, Settings};

/// How often the harness ages the claims of dead relayers.
const AGING_INTERVAL: Duration = Duration::from_millis(200);

/// Settings of a relayer that publishes all events to one sink, in order of each aggregate.
pub(crate) fn settings(url: &str, sink: &str) -> Settings {
    let mut settings = Settings::new(url, BTreeMap::new()).payment_defaults();
    settings.log_level = "warn";
    settings.extra = format!(
        "[event]\nsource = '//shop.example'\norder = 'aggregate'\npoll_interval = '250ms'\n\
         [event.breaker]\nmax_open_for = '1s'\n\
         [[event.routes]]\naggregate_type = '*'\nevent_type = '*'\nsink = 'bus'\ndestination = '{DESTINATION}'\n\
         [sinks.bus]\n{sink}"
    );
    settings
}

/// A broker, two relayers and a test database.
pub(crate) struct Harness {
    pub(crate) broker: TestBroker,
    pub(crate) relayers: [Relayer; 2],
    settings: Settings,
    superuser: Client,
    /// Worker ids of killed relayers.
    dead_workers: Vec<String>,
    last_aged: Instant,
    folder: TempDir,
    pub(crate) database: Database,
}

impl Harness {
    /// Starts the broker and two relayers.
    pub(crate) async fn start(kind: Kind) -> Self {
        let database = Server::from_env().await.unwrap().database().await.unwrap();
        let superuser = database.connect().await.unwrap();
        let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
        let (broker, folder) = (TestBroker::start(kind).await, tempfile::tempdir().unwrap());
        let settings = settings(&url, &broker.section(folder.path()));
        let relayers =
            [Relayer::start(&settings, folder.path()).await, Relayer::start(&settings, folder.path()).await];
        Self {
            broker,
            relayers,
            settings,
            superuser,
            dead_workers: Vec::new(),
            last_aged: Instant::now(),
            folder,
            database,
        }
    }

    /// Kills a relayer and starts another in its place.
    pub(crate) async fn kill_relayer(&mut self, index: usize) {
        self.relayers[index].program.kill9().await.unwrap();
        let successor = Relayer::start(&self.settings, self.folder.path()).await;
        let dead = std::mem::replace(&mut self.relayers[index], successor);
        self.dead_workers.push(dead.worker);
    }

    /// Kills the broker, and restarts it after a relayer has failed to publish.
    pub(crate) async fn kill_broker(&mut self, producers: &Producers) {
        let before = self.failures().await;
        self.broker.kill().await;
        let condition = async || {
            self.observe(producers).await;
            self.failures().await > before
        };
        until("a relayer fails to publish", 2 * DEFAULT_TIMEOUT, condition).await.unwrap();
        self.broker.restart().await;
        let due = "update m10_recovery.outbox set process_after = now()
                   where processed_at is null and claimed_at is null and process_after > now()";
        self.superuser.execute(due, &[]).await.unwrap();
    }

    /// Waits until this many events are processed. The producers continue meanwhile.
    pub(crate) async fn wait_for_processed(&mut self, count: usize, producers: &Producers) {
        // The bound limits the time without progress, not the total: the long form takes longer than any bound.
        let mut processed = 0;
        while processed < count {
            let progress = async || Some(self.observe(producers).await).filter(|now| *now > processed);
            let what = format!("more than {processed} of {count} events are processed");
            processed = until_some(what, 2 * DEFAULT_TIMEOUT, progress).await.unwrap();
        }
    }

    /// Counts processed events, ages claims if it is time to, and tells the producers how far they may go.
    async fn observe(&mut self, producers: &Producers) -> usize {
        if self.last_aged.elapsed() > AGING_INTERVAL {
            self.age_claims_of_dead_relayers().await;
            self.last_aged = Instant::now();
        }
        // Read before the pending rows are counted, so that the difference never exceeds what is processed.
        let committed = producers.count();
        let pending = "select count(*) from m10_recovery.outbox where processed_at is null";
        let pending = usize::try_from(self.query_number(pending).await).unwrap();
        let processed = committed.saturating_sub(pending);
        producers.set_processed(processed);
        processed
    }

    async fn age_claims_of_dead_relayers(&self) {
        let old = "update m10_recovery.outbox set claimed_at = claimed_at - interval '1 hour'
                   where processed_at is null and claimed_at > now() - interval '5 minutes'
                     and split_part(claimed_by, '#', 1) = any ($1)";
        self.superuser.execute(old, &[&self.dead_workers]).await.unwrap();
    }

    /// How many publishes have failed, without those of events that waited behind another.
    async fn failures(&self) -> i64 {
        self.query_number("select count(*) from m10_recovery.outbox_errors where error not like 'waits behind%'")
            .await
    }

    /// Runs a query that returns one number.
    pub(crate) async fn query_number(&self, query: &str) -> i64 {
        self.superuser.query_one(query, &[]).await.unwrap().get(0)
    }
}
