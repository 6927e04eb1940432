//! What is set up before anybody pays: a server with Symphony installed, a shop, two rails.
//!
//! All files are in the server's own folder, which is swept away by the next demo even if this one is killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use symphony_outbox::{
    connect::Target,
    payment::{
        OnUnknown, RailPolicy,
        operator::{self, Warrant},
    },
    schema::{self, Lane},
};
use symphony_proof::{
    kit::{
        brokers::USER,
        postgres::{Binaries, Cluster, Options},
    },
    shop,
};
use tokio_postgres::Client;
use uuid::Uuid;

use super::{
    lanes::Lanes,
    payments::{ORDERED_RAIL, PLAIN_RAIL},
};
use crate::{command::inspect, failure::Failure};

/// How long a process may take to be ready, or to end. For slow machines.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What stands there before the curtain rises.
pub(super) struct Stage {
    program: PathBuf,
    cluster: Cluster,
    password: String,
}

impl Stage {
    pub(super) async fn set() -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::because("this program does not find itself, to start it again", error))?;
        let binaries = Binaries::find().map_err(|error| Failure::no(error.to_string()))?;
        // Durable, so that the numbers are those of a database that keeps what it has committed.
        let options = Options { durable: true, ..Options::default() };
        let cluster = Cluster::start(&binaries, options).await;
        let cluster = cluster.map_err(|error| Failure::because("the private PostgreSQL did not start", error))?;
        install(&cluster).await?;
        let stage = Self { program, cluster, password: Uuid::new_v4().to_string() };
        fs::write(stage.password_file(), &stage.password)
            .map_err(|error| Failure::because("the password of the brokers cannot be written", error))?;
        Ok(stage)
    }

    /// The server's, without what its packager has added.
    pub(super) fn version(&self) -> String {
        let version = self.cluster.binaries().version().to_string();
        version.split_whitespace().next().unwrap_or_default().to_owned()
    }

    pub(super) fn port(&self) -> u16 {
        self.cluster.port()
    }

    /// This program, to be started again.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// For files that go when all goes.
    pub(super) fn folder(&self) -> &Path {
        self.cluster.folder()
    }

    /// By which the brokers of this demo know who comes.
    pub(super) fn password(&self) -> &str {
        &self.password
    }

    /// Where it is written.
    pub(super) fn password_file(&self) -> PathBuf {
        self.folder().join("broker-password")
    }

    /// The address for one of the shop's logins.
    pub(super) fn url(&self, login: &str) -> String {
        self.url_of(login, "postgres")
    }

    /// The same in another database.
    pub(super) fn url_of(&self, login: &str, database: &str) -> String {
        format!("postgres://{login}@127.0.0.1:{}/{database}", self.cluster.port())
    }

    pub(super) async fn connect(&self, login: &str) -> Result<Client, Failure> {
        Ok(Target::parse(&self.url(login))?.connect().await?)
    }

    /// A session that may see everything.
    pub(super) async fn owner(&self) -> Result<Client, Failure> {
        self.owner_of("postgres").await
    }

    /// The same in another database.
    pub(super) async fn owner_of(&self, database: &str) -> Result<Client, Failure> {
        Ok(Target::parse(&self.cluster.url(database))?.connect().await?)
    }

    /// The payment that has most to tell.
    pub(super) async fn story(&self) -> Result<Option<inspect::Story>, Failure> {
        let owner = self.owner().await?;
        match shop::eventful(&owner).await? {
            Some(instruction) => inspect::read(&owner, &instruction).await,
            None => Ok(None),
        }
    }

    pub(super) fn how_to_look(&self, dashboard: &str, lanes: &Lanes, eventful: Option<&str>) -> String {
        let inspect = eventful.map(|id| format!("  symphony inspect {id}\n")).unwrap_or_default();
        format!(
            "Everything runs until Ctrl-C: what you redrive is carried. The dashboard is at {dashboard}\n\
             Or try, in another terminal:\n  export DATABASE_URL={}\n  \
             symphony status\n{inspect}  symphony dlq list\n  symphony verify\n  \
             curl http://{}/v1/stats\n  ls {}\nEvents: {}. Metadata: {}. \
             Brokers know the user {USER} by the password in {}",
            self.cluster.url("postgres"),
            lanes.payments.bank_place(),
            self.cluster.folder().display(),
            lanes.events.how_to_look(),
            lanes.metadata.places(),
            self.password_file().display()
        )
    }
}

async fn install(cluster: &Cluster) -> Result<(), Failure> {
    let mut owner = Target::parse(&cluster.url("postgres"))?.connect().await?;
    schema::install(&mut owner, &Lane::ALL).await?;
    shop::open(&owner).await?;
    // Soon again, and often: a demo should not wait for a back-off that is made for a bank's bad day.
    let policy = RailPolicy {
        max_attempts: Some(20),
        backoff_base_seconds: Some(1),
        backoff_cap_seconds: Some(2),
        on_unknown: Some(OnUnknown::Inquire),
        ..RailPolicy::default()
    };
    let warrant = || Warrant { actor: shop::DUTY, reason: "the rails of the demo" };
    operator::register_rail(&owner, PLAIN_RAIL, &policy, warrant()).await?;
    let ordered = RailPolicy { ordered: Some(true), ..policy };
    operator::register_rail(&owner, ORDERED_RAIL, &ordered, warrant()).await?;
    Ok(())
}
