//! A `symphony bank` process, for the demo and the benchmark: its counts during the run, its ledger at the end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use symphony_testkit::process::{Launch, Program};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::failure::Failure;

/// How long the bank may take to be ready, on a slow machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the bank may take to return its counts, and their maximum size.
const STATS_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_STATS_BYTES: u64 = 64 * 1024;

/// The bank's counts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) executed: u64,
    pub(super) inquiries: u64,
    pub(super) refused: u64,
}

/// A running bank.
pub(super) struct BankProcess {
    program: Program,
    address: SocketAddr,
    ledger: PathBuf,
}

impl BankProcess {
    /// Starts a bank with its ledger in this folder, and waits until it listens.
    pub(super) async fn start(program: &Path, folder: &Path, faults: &str, seed: u64) -> Result<Self, Failure> {
        let ledger = folder.join("bank.jsonl");
        // Some payments are accepted first, and executed or refused later.
        let accepts: &[&str] = match faults {
            "none" => &[],
            _ => &["--fault", "accept=0.02", "--fault", "accept_refuse=0.002"],
        };
        let seed = seed.to_string();
        let arguments = [&["bank", "--faults", faults, "--seed", &seed], accepts, &["--ledger"]].concat();
        let arguments: Vec<_> = arguments.into_iter().map(PathBuf::from).collect();
        let program = Launch::new(program).args(arguments.into_iter().chain([ledger.clone()])).start();
        let program = program.map_err(|error| Failure::because("the bank did not start", error))?;
        let ready = program.wait_for_line(|line| listening(line).is_some(), START_TIMEOUT).await;
        let ready = ready.map_err(|error| Failure::because("the bank did not start", error))?;
        let address = listening(&ready).ok_or_else(|| Failure::new("the bank did not print its address"))?;
        Ok(Self { program, address, ledger })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of its process.
    pub(super) fn id(&self) -> i32 {
        self.program.id()
    }

    /// Reads the counts over HTTP.
    pub(super) async fn counts(&self) -> Result<Counts, Failure> {
        let counts = tokio::time::timeout(STATS_TIMEOUT, stats(self.address)).await;
        let counts = counts.map_err(std::io::Error::from).flatten();
        counts.map_err(|error| Failure::because("cannot read the bank's counts", error))
    }

    /// The text of its ledger.
    pub(super) fn ledger(&self) -> Result<String, Failure> {
        std::fs::read_to_string(&self.ledger)
            .map_err(|error| Failure::because("cannot read the bank's ledger", error))
    }

    /// Kills the bank: SIGTERM would wait for connections on which a fault withholds the answer. No payment is in
    /// flight any more, so its ledger is complete.
    pub(super) async fn close(&self) {
        // If this fails, dropping the process ends it.
        let _ = self.program.kill9().await;
    }
}

/// The address in the bank's ready line.
fn listening(line: &str) -> Option<SocketAddr> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    line["listening"].as_str()?.strip_prefix("http://")?.parse().ok()
}

/// Uses HTTP/1.0, where the response ends with the connection.
async fn stats(bank: SocketAddr) -> std::io::Result<Counts> {
    let mut stream = TcpStream::connect(bank).await?;
    stream.write_all(b"GET /v1/stats HTTP/1.0\r\nHost: bank\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.take(MAX_STATS_BYTES).read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    serde_json::from_str(body).map_err(std::io::Error::from)
}
