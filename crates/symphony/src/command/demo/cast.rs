//! Who takes part: each with a session of its own and no more rights than it needs.

use symphony_outbox::{
    connect::Target,
    schema::{self, Lane},
};
use symphony_proof::{
    kit::postgres::Cluster,
    shop::{self, DUTY, TILL, WORKERS},
};
use tokio_postgres::Client;

use crate::failure::Failure;

/// The sessions of the walk.
pub(super) struct Cast {
    /// Owns the server; opens the shop, and counts at the end.
    pub(super) superuser: Client,
    cluster_port: u16,
}

/// Those who come once the shop is open.
pub(super) struct Staff {
    pub(super) till: Client,
    pub(super) workers: [Client; 2],
    pub(super) duty: Client,
}

impl Cast {
    pub(super) async fn new(cluster: &Cluster) -> Result<Self, Failure> {
        let superuser = Target::parse(&cluster.url("postgres"))?.connect().await?;
        Ok(Self { superuser, cluster_port: cluster.port() })
    }

    /// Installs Symphony; says how many differences are left.
    pub(super) async fn install(&mut self) -> Result<usize, Failure> {
        schema::install(&mut self.superuser, &Lane::ALL).await?;
        self.verify().await
    }

    /// How many differences there are between the database and this build.
    pub(super) async fn verify(&mut self) -> Result<usize, Failure> {
        Ok(schema::verify(&mut self.superuser, &Lane::ALL).await?.len())
    }

    /// Opens the shop, and lets everybody in.
    pub(super) async fn open(&self) -> Result<Staff, Failure> {
        shop::open(&self.superuser).await?;
        Ok(Staff {
            till: self.log_in(TILL).await?,
            workers: [self.log_in(WORKERS[0]).await?, self.log_in(WORKERS[1]).await?],
            duty: self.log_in(DUTY).await?,
        })
    }

    async fn log_in(&self, user: &str) -> Result<Client, Failure> {
        let url = format!("postgres://{user}@127.0.0.1:{}/postgres", self.cluster_port);
        Ok(Target::parse(&url)?.connect().await?)
    }
}
