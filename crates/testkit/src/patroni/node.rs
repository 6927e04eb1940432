//! One node of a cluster: Patroni, the PostgreSQL that it starts, and the tunnels through which others reach them.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tokio_postgres::NoTls;

use super::configuration::{self, Ports, SUPERUSER};
use super::tunnel::Tunnel;
use super::{Error, Replication, rest, system};
use crate::account::Account;
use crate::folder::Folder;
use crate::port::HOST;
use crate::postgres::Binaries;
use crate::process::child;
use crate::process::{Launch, Program};

/// A node. Dropping it kills its processes and removes its data.
#[derive(Debug)]
pub(super) struct Node {
    name: String,
    program: PathBuf,
    configuration: PathBuf,
    account: Account,
    port: u16,
    rest: u16,
    /// The way from its Patroni to etcd.
    etcd: Tunnel,
    /// The way from other nodes to its PostgreSQL.
    replication: Tunnel,
    /// The way from other nodes to its REST API.
    peers: Tunnel,
    patroni: Option<Program>,
    folder: Folder,
}

impl Node {
    /// Writes the configuration of a node with these ports of PostgreSQL and of its REST API. It is not started.
    pub(super) fn new(
        name: String,
        (port, rest): (u16, u16),
        binaries: &Binaries,
        program: &Path,
        etcd: u16,
        replication: Replication,
        account: Account,
    ) -> Result<Self, Error> {
        let folder = Folder::create(account).map_err(system("create a temporary folder"))?;
        let tunnel = |target| Tunnel::to(target).map_err(system("open a tunnel"));
        let node = Self {
            name,
            program: program.to_owned(),
            configuration: folder.path().join("patroni.yml"),
            account,
            port,
            rest,
            etcd: tunnel(etcd)?,
            replication: tunnel(port)?,
            peers: tunnel(rest)?,
            patroni: None,
            folder,
        };
        let ports = Ports {
            postgres: port,
            rest,
            etcd: node.etcd.port(),
            replication: node.replication.port(),
            peers: node.peers.port(),
        };
        let (folder, data) = (node.folder.path(), node.folder.data());
        let text = configuration::patroni(&node.name, folder, &data, binaries.folder(), &ports, replication);
        let written = fs::write(&node.configuration, text).and_then(|()| account.chown(&node.configuration));
        written.map_err(system("write the configuration of Patroni"))?;
        Ok(node)
    }

    /// Starts Patroni, which starts PostgreSQL.
    pub(super) fn start(&mut self) -> Result<(), Error> {
        let mut launch = Launch::new(&self.program).args([&self.configuration]).current_dir(self.folder.path());
        for (name, _) in std::env::vars_os() {
            // Variables of libpq and of Patroni refer to another server.
            if name.to_str().is_some_and(|name| name.starts_with("PG") || name.starts_with("PATRONI_")) {
                launch = launch.env_remove(name);
            }
        }
        self.patroni = Some(launch.account(self.account).start()?);
        Ok(())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The address of its REST API.
    pub(super) fn rest(&self) -> SocketAddr {
        (HOST, self.rest).into()
    }

    /// Cuts it off from etcd and from other nodes. Clients and HAProxy still reach it.
    pub(super) fn partition(&self) {
        for tunnel in [&self.etcd, &self.replication, &self.peers] {
            tunnel.cut();
        }
    }

    /// Cuts the replication from it.
    pub(super) fn stop_replication(&self) {
        self.replication.cut();
    }

    /// Ends what was cut.
    pub(super) fn reconnect(&self) {
        for tunnel in [&self.etcd, &self.replication, &self.peers] {
            tunnel.restore();
        }
    }

    pub(super) async fn is_leader(&self) -> bool {
        rest::is_leader(self.rest()).await
    }

    /// The names of the nodes that stream from this one, and whether its commits wait for each.
    pub(super) async fn standbys(&self) -> BTreeMap<String, bool> {
        let url = format!("postgres://{SUPERUSER}@{HOST}:{}/postgres", self.port);
        let names = async {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.ok()?;
            tokio::spawn(connection);
            let streaming = "select application_name, sync_state <> 'async' from pg_stat_replication
                             where state = 'streaming'";
            Some(client.query(streaming, &[]).await.ok()?.iter().map(|row| (row.get(0), row.get(1))).collect())
        };
        names.await.unwrap_or_default()
    }

    pub(super) fn is_running(&self) -> bool {
        self.patroni.is_some()
    }

    pub(super) fn kill_postgres(&self) {
        child::signal_server(&self.folder.data(), Signal::KILL);
    }

    pub(super) async fn kill(&mut self) -> Result<(), Error> {
        if let Some(patroni) = self.patroni.take() {
            patroni.kill9().await?;
        }
        self.kill_postgres();
        Ok(())
    }

    /// Kills Patroni and starts it again. PostgreSQL goes on.
    pub(super) async fn restart_patroni(&mut self) -> Result<(), Error> {
        if let Some(patroni) = self.patroni.take() {
            patroni.kill9().await?;
        }
        self.start()
    }

    pub(super) fn pause(&self) {
        // Patroni first, so that it does not see that PostgreSQL has stopped.
        if let Some(patroni) = &self.patroni {
            patroni.suspend();
        }
        child::signal_server(&self.folder.data(), Signal::STOP);
    }

    pub(super) fn resume(&self) {
        child::signal_server(&self.folder.data(), Signal::CONT);
        if let Some(patroni) = &self.patroni {
            patroni.resume();
        }
    }

    /// The end of Patroni's log, with that of PostgreSQL.
    pub(super) fn tail(&self) -> String {
        let tail = self.patroni.as_ref().map_or_else(|| "not running".to_owned(), Program::tail);
        format!("{}:\n{tail}", self.name)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.patroni = None;
        self.kill_postgres();
    }
}
