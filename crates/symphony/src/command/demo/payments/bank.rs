//! The bank of the demo: a process of its own, asked for its counts while it pays and read for its ledger at the end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use symphony_proof::kit::process::{Launch, Program};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::stage::{PATIENCE, Stage};
use crate::failure::Failure;

/// How long the bank may take to say its counts, and how long they may be.
const SHORT_PATIENCE: Duration = Duration::from_secs(30);
const LONGEST: u64 = 64 * 1024;

/// The part of the bank's counts that is shown.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(in crate::command::demo) struct Counts {
    pub(in crate::command::demo) executed: u64,
    pub(in crate::command::demo) inquiries: u64,
    pub(in crate::command::demo) refused: u64,
}

/// A bank that runs.
pub(super) struct Bank {
    program: Program,
    place: SocketAddr,
    ledger: PathBuf,
}

impl Bank {
    pub(super) async fn open(stage: &Stage, faults: &str, seed: u64) -> Result<Self, Failure> {
        let ledger = stage.folder().join("bank.jsonl");
        let arguments = ["bank", "--faults", faults, "--seed", &seed.to_string(), "--ledger"].map(PathBuf::from);
        let program = Launch::new(stage.program()).args(arguments.into_iter().chain([ledger.clone()])).start();
        let program = program.map_err(|error| Failure::because("the bank did not start", error))?;
        let ready = program.wait_for_line(|line| listening(line).is_some(), PATIENCE).await;
        let ready = ready.map_err(|error| Failure::because("the bank did not start", error))?;
        let place = listening(&ready).ok_or_else(|| Failure::no("the bank did not say where it is"))?;
        Ok(Self { program, place, ledger })
    }

    pub(super) fn place(&self) -> SocketAddr {
        self.place
    }

    /// Asks it.
    pub(super) async fn counts(&self) -> Result<Counts, Failure> {
        let counts = tokio::time::timeout(SHORT_PATIENCE, stats(self.place)).await;
        let counts = counts.map_err(std::io::Error::from).flatten();
        counts.map_err(|error| Failure::because("the bank does not say its counts", error))
    }

    /// What it has written down.
    pub(super) fn ledger(&self) -> Result<String, Failure> {
        std::fs::read_to_string(&self.ledger)
            .map_err(|error| Failure::because("the bank's ledger cannot be read", error))
    }

    /// Ends it. Nobody pays any more, so all that it did is in its file; it is killed because it would wait for connections
    /// on which it has chosen never to answer.
    pub(super) async fn close(&self) {
        // Whatever goes wrong here, the bank ends with this value.
        let _ = self.program.kill9().await;
    }
}

/// Where the bank says that it listens.
fn listening(line: &str) -> Option<SocketAddr> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    line["listening"].as_str()?.strip_prefix("http://")?.parse().ok()
}

/// HTTP/1.0: the answer ends where the connection does.
async fn stats(bank: SocketAddr) -> std::io::Result<Counts> {
    let mut stream = TcpStream::connect(bank).await?;
    stream.write_all(b"GET /v1/stats HTTP/1.0\r\nHost: bank\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    serde_json::from_str(body).map_err(std::io::Error::from)
}
