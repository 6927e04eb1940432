//! What is set up before anybody pays: a server with Symphony installed, a shop, two rails, a bank.
//!
//! All files are in the server's own folder, which is swept away by the next demo even if this one is killed.

use std::net::SocketAddr;
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
        postgres::{Binaries, Cluster, Options},
        process::{Launch, Program},
    },
    shop,
};
use tokio_postgres::Client;

use crate::{command::inspect, failure::Failure};

/// Pays in whatever order it can.
pub(super) const PLAIN_RAIL: &str = "sepa";
/// Pays each participant's instructions in the order of their numbers.
pub(super) const ORDERED_RAIL: &str = "payroll";
/// How long a process may take to be ready, or to end. For slow machines.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What stands there before the curtain rises.
pub(super) struct Stage {
    // Before the cluster: fields are dropped in this order, and the bank's ledger is in the server's folder.
    bank: Program,
    bank_place: SocketAddr,
    program: PathBuf,
    cluster: Cluster,
}

impl Stage {
    pub(super) async fn set(faults: &str, seed: u64) -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::because("this program does not find itself, to start it again", error))?;
        let binaries = Binaries::find().map_err(|error| Failure::no(error.to_string()))?;
        // Durable, so that the numbers are those of a database that keeps what it has committed.
        let options = Options { durable: true, ..Options::default() };
        let cluster = Cluster::start(&binaries, options).await;
        let cluster = cluster.map_err(|error| Failure::because("the private PostgreSQL did not start", error))?;
        install(&cluster).await?;
        let ledger = ledger_in(&cluster);
        let arguments = ["bank", "--faults", faults, "--seed", &seed.to_string(), "--ledger"].map(PathBuf::from);
        let bank = Launch::new(&program).args(arguments.into_iter().chain([ledger])).start();
        let bank = bank.map_err(|error| Failure::because("the bank did not start", error))?;
        let ready = bank.wait_for_line(|line| place(line).is_some(), PATIENCE).await;
        let ready = ready.map_err(|error| Failure::because("the bank did not start", error))?;
        let bank_place = place(&ready).ok_or_else(|| Failure::no("the bank did not say where it is"))?;
        Ok(Self { bank, bank_place, program, cluster })
    }

    /// The server's, without what its packager has added.
    pub(super) fn version(&self) -> String {
        let version = self.cluster.binaries().version().to_string();
        version.split_whitespace().next().unwrap_or_default().to_owned()
    }

    pub(super) fn port(&self) -> u16 {
        self.cluster.port()
    }

    pub(super) fn bank_place(&self) -> SocketAddr {
        self.bank_place
    }

    /// This program, to be started again.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// For files that go when all goes.
    pub(super) fn folder(&self) -> &Path {
        self.cluster.folder()
    }

    /// What the bank has written down.
    pub(super) fn bank_ledger(&self) -> Result<String, Failure> {
        std::fs::read_to_string(ledger_in(&self.cluster))
            .map_err(|error| Failure::because("the bank's ledger cannot be read", error))
    }

    /// The address for one of the shop's logins.
    pub(super) fn url(&self, login: &str) -> String {
        format!("postgres://{login}@127.0.0.1:{}/postgres", self.cluster.port())
    }

    pub(super) async fn connect(&self, login: &str) -> Result<Client, Failure> {
        Ok(Target::parse(&self.url(login))?.connect().await?)
    }

    /// A session that may see everything.
    pub(super) async fn owner(&self) -> Result<Client, Failure> {
        Ok(Target::parse(&self.cluster.url("postgres"))?.connect().await?)
    }

    /// The payment that has most to tell.
    pub(super) async fn story(&self) -> Result<Option<inspect::Story>, Failure> {
        let owner = self.owner().await?;
        match shop::eventful(&owner).await? {
            Some(instruction) => inspect::read(&owner, &instruction).await,
            None => Ok(None),
        }
    }

    /// Ends the bank. Nobody pays any more, so all that it did is in its file; it is killed because it would wait for
    /// connections on which it has chosen never to answer.
    pub(super) async fn close_bank(&self) {
        // Whatever goes wrong here, the bank ends with this value.
        let _ = self.bank.kill9().await;
    }

    pub(super) fn how_to_look(&self, eventful: Option<&str>) -> String {
        let inspect = eventful.map(|id| format!("  symphony inspect {id}\n")).unwrap_or_default();
        format!(
            "PostgreSQL and the bank run until Ctrl-C. Try, in another terminal:\n  export DATABASE_URL={}\n  \
             symphony status\n{inspect}  symphony dlq list\n  symphony verify\n  \
             curl http://{}/v1/stats\n  ls {}",
            self.cluster.url("postgres"),
            self.bank_place,
            self.cluster.folder().display()
        )
    }
}

fn ledger_in(cluster: &Cluster) -> PathBuf {
    cluster.folder().join("bank.jsonl")
}

/// Where the bank says that it listens.
fn place(line: &str) -> Option<SocketAddr> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    line["listening"].as_str()?.strip_prefix("http://")?.parse().ok()
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
    operator::set_rail(&owner, PLAIN_RAIL, &policy, warrant()).await?;
    let ordered = RailPolicy { ordered: Some(true), ..policy };
    operator::set_rail(&owner, ORDERED_RAIL, &ordered, warrant()).await?;
    Ok(())
}
