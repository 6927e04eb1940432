//! What is going on, at one moment: the outbox as its owner sees it, and the bank as it tells it itself.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use symphony_proof::shop::{self, Numbers};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_postgres::Client;

use crate::failure::Failure;

/// How long the bank may take to say its counts, and how long they may be.
const PATIENCE: Duration = Duration::from_secs(30);
const LONGEST: u64 = 64 * 1024;
/// Rates are those of so many counts, so that they do not jump.
const REMEMBERED: usize = 6;

/// The part of the bank's counts that is shown.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct BankCounts {
    pub(super) executed: u64,
    pub(super) inquiries: u64,
    pub(super) refused: u64,
}

/// All of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) elapsed: Duration,
    pub(super) numbers: Numbers,
    pub(super) bank: BankCounts,
    /// Both over the last few counts.
    pub(super) enqueued_a_second: u64,
    pub(super) dispatched_a_second: u64,
    pub(super) kills: u32,
}

/// Whoever counts.
pub(super) struct Counter {
    owner: Client,
    bank: SocketAddr,
    began: Instant,
    /// The last few counts, the oldest first.
    before: VecDeque<(Instant, Numbers)>,
}

impl Counter {
    pub(super) fn new(owner: Client, bank: SocketAddr) -> Self {
        Self { owner, bank, began: Instant::now(), before: VecDeque::new() }
    }

    pub(super) async fn count(&mut self, kills: u32) -> Result<Counts, Failure> {
        let numbers = shop::numbers(&self.owner).await?;
        let bank = tokio::time::timeout(PATIENCE, stats(self.bank)).await;
        let bank = bank.map_err(std::io::Error::from).flatten();
        let bank = bank.map_err(|error| Failure::because("the bank does not say its counts", error))?;
        let now = Instant::now();
        let (then, first) = self.before.front().copied().unwrap_or((self.began, Numbers::default()));
        let rate = |now_there: i64, then_there: i64| {
            let millis = u64::try_from(now.duration_since(then).as_millis()).unwrap_or(u64::MAX).max(1);
            u64::try_from(now_there - then_there).unwrap_or_default().saturating_mul(1000) / millis
        };
        let counts = Counts {
            elapsed: self.began.elapsed(),
            numbers,
            bank,
            enqueued_a_second: rate(numbers.enqueued, first.enqueued),
            dispatched_a_second: rate(numbers.dispatched, first.dispatched),
            kills,
        };
        self.before.push_back((now, numbers));
        if self.before.len() > REMEMBERED {
            self.before.pop_front();
        }
        Ok(counts)
    }
}

/// Asks the bank. HTTP/1.0: the answer ends where the connection does.
async fn stats(bank: SocketAddr) -> std::io::Result<BankCounts> {
    let mut stream = TcpStream::connect(bank).await?;
    stream.write_all(b"GET /v1/stats HTTP/1.0\r\nHost: bank\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    serde_json::from_str(body).map_err(std::io::Error::from)
}
