//! The demo's environment: a private PostgreSQL with the schema, the shop's tables and two rails.
//!
//! All files are in the server's folder. If this demo is killed, the next one removes the folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use symphony_db::{
    connect::Target,
    payment::{
        OnUnknown, RailPolicy,
        operator::{self, AuditContext},
    },
    schema::{self, Lane},
};
use symphony_testkit::{
    brokers::USER,
    postgres::{Binaries, Cluster, Options},
    shop,
};
use tokio_postgres::Client;
use uuid::Uuid;

use super::{
    lanes::Lanes,
    payments::{ORDERED_RAIL, PLAIN_RAIL},
};
use crate::{command::inspect, failure::Failure};

/// How long a process may take to be ready, or to end, on a slow machine.
pub(super) const PROCESS_TIMEOUT: Duration = Duration::from_secs(60);

/// The private server, and the password of the brokers.
pub(super) struct DemoEnvironment {
    program: PathBuf,
    cluster: Cluster,
    password: String,
}

impl DemoEnvironment {
    pub(super) async fn start() -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::because("cannot find the path of this program", error))?;
        let binaries = Binaries::find().map_err(|error| Failure::new(error.to_string()))?;
        // Durable commits, as in production.
        let options = Options { durable: true, ..Options::default() };
        let cluster = Cluster::start(&binaries, options).await;
        let cluster = cluster.map_err(|error| Failure::because("the private PostgreSQL did not start", error))?;
        install(&cluster).await?;
        let environment = Self { program, cluster, password: Uuid::new_v4().to_string() };
        fs::write(environment.password_file(), &environment.password)
            .map_err(|error| Failure::because("cannot write the brokers' password", error))?;
        Ok(environment)
    }

    /// The server's version, without the packager's suffix.
    pub(super) fn version(&self) -> String {
        let version = self.cluster.binaries().version().to_string();
        version.split_whitespace().next().unwrap_or_default().to_owned()
    }

    pub(super) fn port(&self) -> u16 {
        self.cluster.port()
    }

    /// The path of this program, to start relayers and the bank.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// The folder for files, removed at the end.
    pub(super) fn folder(&self) -> &Path {
        self.cluster.folder()
    }

    /// The password of the brokers.
    pub(super) fn password(&self) -> &str {
        &self.password
    }

    /// The file with the brokers' password.
    pub(super) fn password_file(&self) -> PathBuf {
        self.folder().join("broker-password")
    }

    /// The database URL for one of the shop's logins.
    pub(super) fn url(&self, login: &str) -> String {
        self.url_of(login, "postgres")
    }

    /// The URL for a login in another database.
    pub(super) fn url_of(&self, login: &str, database: &str) -> String {
        format!("postgres://{login}@127.0.0.1:{}/{database}", self.cluster.port())
    }

    pub(super) async fn connect(&self, login: &str) -> Result<Client, Failure> {
        Ok(Target::parse(&self.url(login))?.connect().await?)
    }

    /// A session of the superuser.
    pub(super) async fn owner(&self) -> Result<Client, Failure> {
        self.owner_of("postgres").await
    }

    /// A session of the superuser in another database.
    pub(super) async fn owner_of(&self, database: &str) -> Result<Client, Failure> {
        Ok(Target::parse(&self.cluster.url(database))?.connect().await?)
    }

    /// The history of the payment with the most events.
    pub(super) async fn eventful_payment(&self) -> Result<Option<inspect::InstructionHistory>, Failure> {
        let owner = self.owner().await?;
        match shop::most_attempted(&owner).await? {
            Some(instruction) => inspect::read(&owner, &instruction).await,
            None => Ok(None),
        }
    }

    pub(super) fn how_to_connect(&self, dashboard: &str, lanes: &Lanes, eventful: Option<&str>) -> String {
        let inspect = eventful.map(|id| format!("  symphony inspect {id}\n")).unwrap_or_default();
        format!(
            "Everything runs until Ctrl-C: relayers dispatch what you redrive. The dashboard is at {dashboard}\n\
             Or try in another terminal:\n  export DATABASE_URL={}\n  \
             symphony status\n{inspect}  symphony dlq list\n  symphony verify\n  \
             curl http://{}/v1/stats\n  ls {}\nEvents: {}. Metadata: {}. \
             The brokers' user is {USER}, its password is in {}",
            self.cluster.url("postgres"),
            lanes.payments.bank_address(),
            self.cluster.folder().display(),
            lanes.events.connection_hint(),
            lanes.metadata.store_names(),
            self.password_file().display()
        )
    }
}

async fn install(cluster: &Cluster) -> Result<(), Failure> {
    let mut owner = Target::parse(&cluster.url("postgres"))?.connect().await?;
    schema::install(&mut owner, &Lane::ALL).await?;
    shop::create(&owner).await?;
    // Short backoff and many attempts, so that the demo drains within seconds.
    let policy = RailPolicy {
        max_attempts: Some(20),
        backoff_base_seconds: Some(1),
        backoff_cap_seconds: Some(2),
        on_unknown: Some(OnUnknown::Inquire),
        confirm_every_seconds: Some(1),
        ..RailPolicy::default()
    };
    let audit_context = || AuditContext { actor: shop::OPERATOR, reason: "the rails of the demo" };
    operator::register_rail(&owner, PLAIN_RAIL, &policy, audit_context()).await?;
    let ordered = RailPolicy { ordered: Some(true), ..policy };
    operator::register_rail(&owner, ORDERED_RAIL, &ordered, audit_context()).await?;
    Ok(())
}
