//! A highly available cluster: three PostgreSQL servers under Patroni, with etcd and HAProxy, on the loopback address.
//!
//! A test can kill, pause and partition the leader, switch over, and let replication lag, so that a failover loses
//! commits. Patroni decides what follows.
//!
//! # Layout
//!
//! - [`HaCluster`]: the cluster and its faults
//! - `node`: one Patroni with its PostgreSQL
//! - `configuration`: the files of Patroni and HAProxy
//! - `rest`: Patroni's REST API
//! - `search`: finds the programs
//! - `tunnel`: a connection between two programs that a test can cut

mod configuration;
mod node;
mod rest;
mod search;
mod tunnel;

use std::io;
use std::time::{Duration, Instant};

use super::account::Account;
use super::address::{InvalidDatabaseUrl, rewrite_url};
use super::folder::Folder;
use super::port::{HOST, free_block};
use super::postgres::Binaries;
use super::process::{self, Launch, Program};
use super::wait::{self, TimedOut};
use node::Node;
pub use search::FindError;

/// How many PostgreSQL servers a cluster has.
pub const NODES: usize = 3;
/// How long the cluster may take to recover from a fault. Newer Patroni needs 20 s to notice that a leader is gone.
const DEADLINE: Duration = Duration::from_secs(240);
/// How long the cluster may take to find its way back by itself.
const REPAIR_AFTER: Duration = Duration::from_secs(20);

/// Why a cluster did not start, or did not recover.
#[derive(thiserror::Error)]
pub enum Error {
    /// A program was not found. The message says how to install it.
    #[error(transparent)]
    Find(#[from] FindError),
    /// A program did not start or end as expected.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// A system call failed.
    #[error("could not {what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The cluster did not reach a state in time. The logs of its nodes may say why.
    #[error("{timed_out}; the members are {members}; the ends of their logs:\n{logs}")]
    Deadline {
        /// The expected state.
        timed_out: TimedOut,
        /// What the nodes say about the cluster.
        members: String,
        /// The ends of the logs of all nodes.
        logs: String,
    },
    /// Patroni refused a switchover.
    #[error("Patroni refused to switch over: {0}")]
    Refused(String),
}

/// `unwrap` prints this, so it shows the logs line by line.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process(error) => error.fmt(f),
            _ => std::fmt::Display::fmt(self, f),
        }
    }
}

/// Whether a commit waits for a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// It does not: a failover may lose commits.
    Asynchronous,
    /// It does, while there is a standby; Patroni promotes only a standby that has every commit.
    Synchronous,
}

/// A running cluster. Dropping it kills all its processes and removes the data.
#[derive(Debug)]
pub struct HaCluster {
    replication: Replication,
    port: u16,
    // Dropped in this order: nothing is promoted while the nodes are killed one by one.
    _haproxy: Program,
    nodes: Vec<Node>,
    _etcd: Program,
    _folder: Folder,
}

impl HaCluster {
    /// Starts etcd, three nodes of this PostgreSQL and HAProxy, and waits until two standbys follow a leader.
    ///
    /// # Errors
    /// When a program is not found or does not start, or the cluster has no leader in time.
    pub async fn start(binaries: &Binaries, replication: Replication) -> Result<Self, Error> {
        let programs = search::find()?;
        let account = Account::for_server().map_err(system("find a user for the servers"))?;
        let folder = Folder::create(account).map_err(system("create a temporary folder"))?;
        let [client, peer, listen, ports @ ..] =
            free_block::<{ 3 + 2 * NODES }>().map_err(system("find free ports"))?;

        let etcd = Launch::new(&programs.etcd).args(configuration::etcd(folder.path(), client, peer));
        let etcd = etcd.current_dir(folder.path()).account(account).start()?;
        etcd.wait_for_line(|line| line.contains("ready to serve client requests"), DEADLINE).await?;

        let mut nodes = Vec::new();
        for (ports, number) in ports.chunks_exact(2).zip(1..) {
            let name = format!("node{number}");
            let mut node =
                Node::new(name, (ports[0], ports[1]), binaries, &programs.patroni, client, replication, account)?;
            node.start()?;
            nodes.push(node);
        }
        let ports: Vec<_> = nodes.iter().map(|node| (node.name(), node.port(), node.rest().port())).collect();
        let file = configuration::haproxy(listen, &ports);
        let path = folder.path().join("haproxy.cfg");
        std::fs::write(&path, file).and_then(|()| account.chown(&path)).map_err(system("write a file"))?;
        let haproxy = Launch::new(&programs.haproxy).args(["-db", "-f"]).args([&path]);
        let haproxy = haproxy.current_dir(folder.path()).account(account).start()?;

        let mut cluster =
            Self { replication, port: listen, _haproxy: haproxy, nodes, _etcd: etcd, _folder: folder };
        cluster.wait_until_healthy().await?;
        let session =
            async || tokio_postgres::connect(&cluster.url("postgres"), tokio_postgres::NoTls).await.is_ok();
        cluster.within("HAProxy leads to the leader", session).await?;
        Ok(cluster)
    }

    /// The URL of a database through HAProxy, which leads to the leader, as the superuser.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{}@{HOST}:{}/{database}", configuration::SUPERUSER, self.port)
    }

    /// Rewrites a URL to name all nodes, so that the client finds the leader.
    ///
    /// # Errors
    /// When it is not a URL.
    pub fn multi_host_url(&self, url: &str) -> Result<String, InvalidDatabaseUrl> {
        let hosts: Vec<_> = self.nodes.iter().map(|node| format!("{HOST}:{}", node.port())).collect();
        let one = rewrite_url(url, self.port)?;
        let all = one.replace(&format!("{HOST}:{}", self.port), &hosts.join(","));
        Ok(format!("{all}{}target_session_attrs=read-write", if all.contains('?') { '&' } else { '?' }))
    }

    /// The node that holds the leader's lock.
    ///
    /// # Errors
    /// When there is none in time.
    pub async fn leader(&self) -> Result<usize, Error> {
        let leader = async || {
            for (index, node) in self.nodes.iter().enumerate() {
                if node.is_leader().await {
                    return Some(index);
                }
            }
            None
        };
        match wait::until_some("a node is the leader", DEADLINE, leader).await {
            Ok(leader) => Ok(leader),
            Err(timed_out) => Err(self.too_late(timed_out).await),
        }
    }

    /// Waits until another node than this is the leader.
    ///
    /// # Errors
    /// When none is in time.
    pub async fn wait_for_other_leader(&self, old: usize) -> Result<(), Error> {
        self.within("another node is the leader", async || {
            for (index, node) in self.nodes.iter().enumerate() {
                if index != old && node.is_leader().await {
                    return true;
                }
            }
            false
        })
        .await
    }

    /// Waits until two standbys stream from the leader, one of them synchronously if commits wait for one.
    ///
    /// It does what an operator would do if that does not happen by itself: a standby that has WAL that the new leader
    /// lacks is copied again. A Patroni that no longer sees what others write to etcd is restarted.
    ///
    /// # Errors
    /// When that is not so in time.
    pub async fn wait_until_healthy(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + DEADLINE;
        let what = "two standbys stream from the leader";
        while wait::until(what, REPAIR_AFTER, async || self.is_healthy().await).await.is_err() {
            if Instant::now() > deadline {
                let timed_out = TimedOut { what: what.to_owned(), timeout: DEADLINE };
                return Err(self.too_late(timed_out).await);
            }
            self.repair().await?;
        }
        Ok(())
    }

    async fn is_healthy(&self) -> bool {
        let Some(leader) = self.known_leader().await else { return false };
        let standbys = leader.standbys().await;
        // By the server itself: its Patroni may be wrong about it.
        let waits = standbys.values().any(|waits| *waits) || self.replication == Replication::Asynchronous;
        standbys.len() == NODES - 1 && waits && rest::is_healthy(leader.rest(), self.replication).await
    }

    async fn repair(&mut self) -> Result<(), Error> {
        let Some(leader) = self.known_leader().await else { return Ok(()) };
        let (name, streaming) = (leader.name().to_owned(), leader.standbys().await);
        for node in self.nodes.iter().filter(|node| node.name() != name && !streaming.contains_key(node.name())) {
            rest::reinitialize(node.rest()).await;
        }
        if streaming.len() == NODES - 1 && self.replication == Replication::Synchronous {
            for node in self.nodes.iter_mut().filter(|node| node.name() == name) {
                node.restart_patroni().await?;
            }
        }
        Ok(())
    }

    async fn known_leader(&self) -> Option<&Node> {
        for node in &self.nodes {
            if node.is_leader().await {
                return Some(node);
            }
        }
        None
    }

    /// Switches over to a standby, as an operator would, and waits until it leads.
    ///
    /// # Errors
    /// When Patroni refuses, or nothing follows in time.
    pub async fn switch_over(&self) -> Result<(), Error> {
        let old = self.leader().await?;
        let (status, answer) = rest::switch_over(self.nodes[old].rest(), self.nodes[old].name()).await;
        if status != 200 {
            return Err(Error::Refused(answer));
        }
        self.wait_for_other_leader(old).await
    }

    /// Kills the PostgreSQL of a node with SIGKILL. Its Patroni goes on.
    pub fn kill_postgres(&self, node: usize) {
        self.nodes[node].kill_postgres();
    }

    /// Kills Patroni and PostgreSQL of a node with SIGKILL, as if the machine were lost.
    ///
    /// # Errors
    /// When the process does not end in time.
    pub async fn kill(&mut self, node: usize) -> Result<(), Error> {
        self.nodes[node].kill().await
    }

    /// Whether the Patroni of a node was not killed.
    pub fn is_running(&self, node: usize) -> bool {
        self.nodes[node].is_running()
    }

    /// Starts a killed node again on its data.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn restart(&mut self, node: usize) -> Result<(), Error> {
        self.nodes[node].start()
    }

    /// Suspends all processes of a node with SIGSTOP, as a hypervisor suspends a machine.
    pub fn pause(&self, node: usize) {
        self.nodes[node].pause();
    }

    /// Resumes all processes of a node.
    pub fn resume(&self, node: usize) {
        self.nodes[node].resume();
    }

    /// Cuts a node off from etcd and the other nodes. Clients still reach it.
    pub fn partition(&self, node: usize) {
        self.nodes[node].partition();
    }

    /// Stops the replication from a node: from now on, its standbys lag.
    pub fn stop_replication(&self, node: usize) {
        self.nodes[node].stop_replication();
    }

    /// Connects a node to etcd and the other nodes again.
    pub fn reconnect(&self, node: usize) {
        self.nodes[node].reconnect();
    }

    async fn within(&self, what: &str, condition: impl AsyncFnMut() -> bool) -> Result<(), Error> {
        match wait::until(what, DEADLINE, condition).await {
            Ok(()) => Ok(()),
            Err(timed_out) => Err(self.too_late(timed_out).await),
        }
    }

    async fn too_late(&self, timed_out: TimedOut) -> Error {
        let mut members = String::new();
        for node in &self.nodes {
            members += &rest::members(node.rest()).await;
        }
        let logs = self.nodes.iter().map(Node::tail).collect::<Vec<_>>().join("\n");
        Error::Deadline { timed_out, members, logs }
    }
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { what, source }
}
