//! Where a benchmark runs: on a private server with a database for each measurement, or in the database that was given.

use std::sync::Arc;
use std::time::Duration;

use symphony_outbox::connect::Target;
use symphony_outbox::payment::operator::{self, Warrant};
use symphony_outbox::payment::{RailPolicy, reading};
use symphony_outbox::schema::{self, Lane, install::installed_lanes};
use symphony_proof::kit::postgres::{Binaries, Cluster, Options};
use symphony_proof::kit::scratch::{Database as Scratch, Server};
use symphony_proof::kit::wait;
use symphony_proof::track::spending::{Postmaster, Spending, cpu_seconds};
use symphony_proof::track::{self, Rows};
use tokio_postgres::Client;

use super::goods;
use super::result::{Postgres, Share};
use crate::database;
use crate::failure::Failure;

/// What the private server has beyond what every private server has: room for a log that is not cut short while somebody is timed.
const SETTINGS: [(&str, &str); 3] =
    [("shared_buffers", "512MB"), ("max_wal_size", "4GB"), ("checkpoint_timeout", "15min")];
/// How long sessions that are over may take to be gone at the server.
const GOING: Duration = Duration::from_secs(60);

/// The server.
pub(super) enum Ground {
    /// A server of our own. The databases first: they are removed before it.
    Private { server: Server, cluster: Box<Cluster> },
    /// Somebody's.
    Given { target: Target },
}

/// A database to run in.
pub(super) struct Course {
    target: Arc<Target>,
    owner: Client,
    postmaster: Option<Postmaster>,
    scratch: Option<Scratch>,
}

/// What was spent before something is timed.
pub(super) struct Watch<'a> {
    course: &'a Course,
    server: Spending,
    own: f64,
}

impl Ground {
    /// Starts a private server, durable as any that keeps what it has committed.
    pub(super) async fn private() -> Result<Self, Failure> {
        let binaries = Binaries::find().map_err(|error| Failure::no(error.to_string()))?;
        let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let options = Options { durable: true, settings, ..Options::default() };
        let cluster = Cluster::start(&binaries, options).await;
        let cluster = cluster.map_err(|error| Failure::because("the private PostgreSQL did not start", error))?;
        let server = Server::at(&cluster.url("postgres"))?;
        Ok(Self::Private { server, cluster: Box::new(cluster) })
    }

    /// Takes a database that was given, if it is for this: a queue of somebody else's is never touched.
    pub(super) async fn given(url: &str, beside_others: bool, lanes: &[Lane]) -> Result<Self, Failure> {
        let target = Target::parse(url)?;
        let mut owner = database::open(&target).await?;
        // What is not there cannot be read, and what is a stranger's must not be: an install says so.
        let installed = match schema::guard(&mut owner).await {
            Ok(()) => installed_lanes(&owner).await?,
            Err(schema::guard::Error::NotInstalled) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let mut others = false;
        for lane in installed {
            if track::is_foreign(&owner, lane).await? {
                others = true;
                let spared = lane == Lane::Payment || !lanes.contains(&lane);
                if !(beside_others && spared) {
                    return Err(foreign(lane, &target, beside_others));
                }
            }
        }
        // What is in somebody else's database is for them to bring up to date.
        if !others {
            schema::install(&mut owner, lanes).await?;
        }
        Ok(Self::Given { target })
    }

    /// A database for a measurement: a fresh one, or that which was given.
    pub(super) async fn course(&self) -> Result<Course, Failure> {
        let (target, scratch) = match self {
            Self::Private { server, .. } => {
                let scratch = server.database().await?;
                (scratch.target(), Some(scratch))
            }
            Self::Given { target } => (target.clone(), None),
        };
        let owner = target.connect().await?;
        let postmaster = Postmaster::of(&owner).await?;
        Ok(Course { target: Arc::new(target), owner, postmaster, scratch })
    }

    /// What kind of server it is.
    pub(super) async fn postgres(&self) -> Result<Postgres, Failure> {
        let client = match self {
            Self::Private { cluster, .. } => Target::parse(&cluster.url("postgres"))?.connect().await?,
            Self::Given { target } => target.connect().await?,
        };
        let private = matches!(self, Self::Private { .. });
        Ok(Postgres {
            version: track::version(&client).await?,
            private,
            settings: track::settings(&client).await?,
        })
    }

    /// What stays, and how it goes.
    pub(super) fn remains(&self) -> Option<String> {
        match self {
            Self::Private { .. } => None,
            Self::Given { target } => Some(format!(
                "the rows of this run stay in {}: a ledger forgets nothing; drop that database when you are done",
                target.place()
            )),
        }
    }
}

impl Course {
    pub(super) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Makes the rail that payments go by.
    pub(super) async fn open(&self, lane: Lane, ordered: bool) -> Result<(), Failure> {
        if lane == Lane::Payment {
            let policy = RailPolicy { ordered: Some(ordered), ..RailPolicy::default() };
            let warrant = Warrant { actor: "symphony bench", reason: "a rail that leads nowhere" };
            let name = goods::name(lane, ordered);
            let known = reading::rails(&self.owner).await?;
            if known.iter().any(|rail| rail.rail_type == name && rail.is_registered()) {
                operator::set_rail(&self.owner, &name, &policy, warrant).await?;
            } else {
                operator::register_rail(&self.owner, &name, &policy, warrant).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn rows(&self, lane: Lane, name: &str) -> Result<Rows, Failure> {
        Ok(track::rows(&self.owner, lane, name).await?)
    }

    /// Takes note of what was spent so far.
    pub(super) async fn watch(&self) -> Result<Watch<'_>, Failure> {
        track::checkpoint(&self.owner).await;
        let server = Spending::so_far(&self.owner, self.postmaster).await?;
        Ok(Watch { course: self, server, own: own_seconds() })
    }

    /// A session with an open transaction, which sees the database as it is now for as long as the session lives.
    pub(super) async fn hold_snapshot(&self) -> Result<Client, Failure> {
        let session = self.target.connect().await?;
        track::hold_snapshot(&session).await?;
        Ok(session)
    }

    /// Whether the database goes with the measurement.
    pub(super) fn is_scratch(&self) -> bool {
        self.scratch.is_some()
    }

    /// Removes it, if it was made for one measurement.
    pub(super) async fn close(self) -> Result<(), Failure> {
        let Self { owner, scratch, .. } = self;
        drop(owner);
        match scratch {
            Some(scratch) => Ok(scratch.close().await?),
            None => Ok(()),
        }
    }
}

impl Watch<'_> {
    /// What so many messages took of the server, and of this process. Whoever worked must have ended their sessions.
    pub(super) async fn share(self, messages: u64) -> Result<(Share, f64), Failure> {
        let owner = &self.course.owner;
        let gone = async || track::other_sessions(owner).await.is_ok_and(|others| others == 0);
        // In a database that others use as well, their sessions stay: then it is as much as is known.
        let _ =
            wait::until("all sessions are gone", if self.course.is_scratch() { GOING } else { GOING / 30 }, gone)
                .await;
        self.so_far(messages).await.map(|(share, own, _)| (share, own))
    }

    /// The same while sessions go on, which report with some delay; and in how many transactions.
    pub(super) async fn so_far(&self, messages: u64) -> Result<(Share, f64, f64), Failure> {
        let Course { owner, postmaster, .. } = self.course;
        let spent = Spending::so_far(owner, *postmaster).await?.since(&self.server);
        Ok((Share::of(&spent, messages), own_seconds() - self.own, spent.transactions))
    }
}

fn foreign(lane: Lane, target: &Target, beside_others: bool) -> Failure {
    let hint = if beside_others {
        "whoever claims events or metadata claims whatever is there, so these lanes need a database of their own"
    } else {
        "make a database for this, or leave --database-url and DATABASE_URL out for a private server; \
         --beside-other-rows runs the payment lane all the same, on rails of its own"
    };
    let place = target.place();
    Failure::no(format!("the {} lane of {place} holds what no benchmark has put there", lane.name())).hint(hint)
}

/// The time of the processor that this process has had.
fn own_seconds() -> f64 {
    cpu_seconds(std::process::id()).unwrap_or_default()
}
