//! The server of a benchmark: a private one with a database per measurement, or the database that was given.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use symphony_db::connect::Target;
use symphony_db::payment::operator::{self, AuditContext};
use symphony_db::payment::{RailPolicy, reader};
use symphony_db::schema::{self, Lane, install::installed_lanes};
use symphony_testkit::bench_database::resource_usage::{Postmaster, ResourceUsage, cpu_seconds};
use symphony_testkit::bench_database::{self, Rows};
use symphony_testkit::bulk_rows;
use symphony_testkit::postgres::{Binaries, Cluster, Options};
use symphony_testkit::test_database::{Database as Scratch, Server};
use symphony_testkit::wait;
use tokio_postgres::Client;
use uuid::Uuid;

use super::result::{Postgres, PostgresUsage};
use super::workload;
use crate::database;
use crate::failure::Failure;
use crate::progress;

/// Settings of the private server: enough WAL that no checkpoint starts while a measurement runs.
const SETTINGS: [(&str, &str); 3] =
    [("shared_buffers", "512MB"), ("max_wal_size", "4GB"), ("checkpoint_timeout", "15min")];
/// The rail and the participants of payments that a long ledger has before the measurement.
const LEDGER_RAIL: &str = "BENCH_LEDGER";
const LEDGER_PARTICIPANTS: i32 = 100_000;
/// How long closed sessions may take to disappear from the server.
const SESSION_END_TIMEOUT: Duration = Duration::from_secs(60);

/// The server.
pub(super) enum BenchServer {
    /// A private server. `server` is dropped first: it removes the databases. `long_ledgers` took minutes to fill: they
    /// are kept for further measurements.
    Private { server: Server, cluster: Box<Cluster>, long_ledgers: Mutex<Vec<BenchDatabase>> },
    /// The database that `--database-url` names.
    Given { target: Target },
}

/// The database of a measurement.
pub(super) struct BenchDatabase {
    target: Arc<Target>,
    owner: Client,
    postmaster: Option<Postmaster>,
    scratch: Option<Scratch>,
    /// How many payments its ledger had at first, and a lower bound of the ids of all others.
    ledger: u32,
    first_payment: Uuid,
}

/// Resource usage at the start of a measurement.
pub(super) struct UsageWatch<'a> {
    database: &'a BenchDatabase,
    server: ResourceUsage,
    own: f64,
}

impl BenchServer {
    /// Starts a private server with durable commits.
    pub(super) async fn private() -> Result<Self, Failure> {
        let binaries = Binaries::find().map_err(|error| Failure::new(error.to_string()))?;
        let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let options = Options { durable: true, settings, ..Options::default() };
        let cluster = Cluster::start(&binaries, options).await;
        let cluster = cluster.map_err(|error| Failure::because("the private PostgreSQL did not start", error))?;
        let server = Server::at(&cluster.url("postgres"))?;
        Ok(Self::Private { server, cluster: Box::new(cluster), long_ledgers: Mutex::default() })
    }

    /// Uses a given database, unless it holds rows that no benchmark has enqueued.
    pub(super) async fn given(url: &str, beside_other_rows: bool, lanes: &[Lane]) -> Result<Self, Failure> {
        let target = Target::parse(url)?;
        let mut owner = database::open(&target).await?;
        // The guard refuses objects of another owner before anything is read.
        let installed = match schema::guard(&mut owner).await {
            Ok(()) => installed_lanes(&owner).await?,
            Err(schema::guard::Error::NotInstalled) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let mut foreign_rows = false;
        for lane in installed {
            if bench_database::is_foreign(&owner, lane).await? {
                foreign_rows = true;
                let spared = lane == Lane::Payment || !lanes.contains(&lane);
                if !(beside_other_rows && spared) {
                    return Err(foreign(lane, &target, beside_other_rows));
                }
            }
        }
        // A database with foreign rows is for its owner to migrate.
        if !foreign_rows {
            schema::install(&mut owner, lanes).await?;
        }
        Ok(Self::Given { target })
    }

    /// The database for a measurement: a new one, or the given one. `ledger` is how many payments its ledger has.
    pub(super) async fn database(&self, ledger: u32) -> Result<BenchDatabase, Failure> {
        let (target, scratch) = match self {
            Self::Private { server, long_ledgers, .. } => {
                if let Some(database) = take(long_ledgers, ledger) {
                    return Ok(database);
                }
                let scratch = server.database().await?;
                (scratch.target(), Some(scratch))
            }
            Self::Given { .. } if ledger > 0 => {
                return Err(Failure::usage("--ledger fills the ledger of a private server")
                    .hint("unset --database-url and DATABASE_URL, or leave --ledger out"));
            }
            Self::Given { target } => (target.clone(), None),
        };
        let owner = target.connect().await?;
        let postmaster = Postmaster::of(&owner).await?;
        let mut first_payment = Uuid::nil();
        if ledger > 0 {
            progress::show(&format!("filling the ledger with {ledger} payments"));
            let count = i32::try_from(ledger).unwrap_or(i32::MAX);
            bulk_rows::ledger(&owner, LEDGER_RAIL, count, LEDGER_PARTICIPANTS).await?;
            first_payment = bench_database::lower_bound_of_new_payments(&owner).await?;
        }
        Ok(BenchDatabase { target: Arc::new(target), owner, postmaster, scratch, ledger, first_payment })
    }

    /// Ends the use of a database by a measurement. Drops it if it was created for one measurement.
    pub(super) async fn release(&self, database: BenchDatabase) -> Result<(), Failure> {
        match self {
            Self::Private { long_ledgers, .. } if database.ledger > 0 => {
                long_ledgers.lock().unwrap_or_else(PoisonError::into_inner).push(database);
                Ok(())
            }
            _ => database.close().await,
        }
    }

    /// Drops the databases that were kept.
    pub(super) async fn close(&self) -> Result<(), Failure> {
        if let Self::Private { long_ledgers, .. } = self {
            let kept = std::mem::take(&mut *long_ledgers.lock().unwrap_or_else(PoisonError::into_inner));
            for database in kept {
                database.close().await?;
            }
        }
        Ok(())
    }

    /// The server's version and settings.
    pub(super) async fn postgres(&self) -> Result<Postgres, Failure> {
        let client = match self {
            Self::Private { cluster, .. } => Target::parse(&cluster.url("postgres"))?.connect().await?,
            Self::Given { target } => target.connect().await?,
        };
        let private = matches!(self, Self::Private { .. });
        Ok(Postgres {
            version: bench_database::version(&client).await?,
            private,
            settings: bench_database::settings(&client).await?,
        })
    }

    /// A note about rows that stay in a given database.
    pub(super) fn leftovers(&self) -> Option<String> {
        match self {
            Self::Private { .. } => None,
            Self::Given { target } => Some(format!(
                "the rows of this run stay in {}, because the ledger is append-only; drop that database when you are done",
                target.describe()
            )),
        }
    }
}

impl BenchDatabase {
    pub(super) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Registers the benchmark's rail.
    pub(super) async fn open(&self, lane: Lane, ordered: bool) -> Result<(), Failure> {
        if lane == Lane::Payment {
            let policy = RailPolicy { ordered: Some(ordered), ..RailPolicy::default() };
            let audit_context = AuditContext { actor: "symphony bench", reason: "a rail of a benchmark" };
            let name = workload::name(lane, ordered);
            let known = reader::rails(&self.owner).await?;
            if known.iter().any(|rail| rail.rail_type == name && rail.is_registered()) {
                operator::set_rail(&self.owner, &name, &policy, audit_context).await?;
            } else {
                operator::register_rail(&self.owner, &name, &policy, audit_context).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn rows(&self, lane: Lane, name: &str) -> Result<Rows, Failure> {
        Ok(bench_database::rows(&self.owner, lane, name, self.first_payment).await?)
    }

    /// Reads the usage at the start of a measurement.
    pub(super) async fn watch(&self) -> Result<UsageWatch<'_>, Failure> {
        bench_database::checkpoint(&self.owner).await;
        let server = ResourceUsage::read(&self.owner, self.postmaster).await?;
        Ok(UsageWatch { database: self, server, own: own_seconds() })
    }

    /// A session whose open transaction holds a snapshot until the session ends.
    pub(super) async fn hold_snapshot(&self) -> Result<Client, Failure> {
        let session = self.target.connect().await?;
        bench_database::hold_snapshot(&session).await?;
        Ok(session)
    }

    /// Whether the database belongs to the benchmark.
    pub(super) fn is_scratch(&self) -> bool {
        self.scratch.is_some()
    }

    /// Drops the database, unless it was given.
    async fn close(self) -> Result<(), Failure> {
        let Self { owner, scratch, .. } = self;
        drop(owner);
        match scratch {
            Some(scratch) => Ok(scratch.close().await?),
            None => Ok(()),
        }
    }
}

impl UsageWatch<'_> {
    /// What `messages` cost the server, and the CPU time of this process. All other sessions must have ended.
    pub(super) async fn usage(self, messages: u64) -> Result<(PostgresUsage, f64), Failure> {
        let owner = &self.database.owner;
        let gone =
            async || bench_database::other_sessions(owner).await.is_ok_and(|foreign_rows| foreign_rows == 0);
        // Sessions of other users in a given database stay open, so the wait there is short.
        let _ = wait::until(
            "all sessions are gone",
            if self.database.is_scratch() { SESSION_END_TIMEOUT } else { SESSION_END_TIMEOUT / 30 },
            gone,
        )
        .await;
        self.usage_so_far(messages).await.map(|(share, own, _)| (share, own))
    }

    /// The usage while sessions still run, which report with some delay; and the number of transactions.
    pub(super) async fn usage_so_far(&self, messages: u64) -> Result<(PostgresUsage, f64, f64), Failure> {
        let BenchDatabase { owner, postmaster, .. } = self.database;
        let spent = ResourceUsage::read(owner, *postmaster).await?.since(&self.server);
        Ok((PostgresUsage::of(&spent, messages), own_seconds() - self.own, spent.transactions))
    }
}

/// Takes a database with a ledger of this size, if there is one.
fn take(long_ledgers: &Mutex<Vec<BenchDatabase>>, ledger: u32) -> Option<BenchDatabase> {
    let mut databases = long_ledgers.lock().unwrap_or_else(PoisonError::into_inner);
    let place = databases.iter().position(|database| database.ledger == ledger)?;
    Some(databases.swap_remove(place))
}

fn foreign(lane: Lane, target: &Target, beside_other_rows: bool) -> Failure {
    let hint = if beside_other_rows {
        "claims on events and metadata take any row, so these lanes need their own database"
    } else {
        "give the benchmark its own database, or unset --database-url and DATABASE_URL for a private server; \
         --beside-other-rows runs the payment lane on its own rails"
    };
    let place = target.describe();
    Failure::new(format!("the {} lane of {place} holds rows that no benchmark has enqueued", lane.name()))
        .hint(hint)
}

/// The CPU time of this process.
fn own_seconds() -> f64 {
    cpu_seconds(std::process::id()).unwrap_or_default()
}
