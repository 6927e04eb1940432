//! A simulated bank: takes payments over HTTP, executes each key it remembers at most once, and fails to order.
//!
//! It is the ground truth of tests, demos and audits: its ledger says which money has left, whatever its clients were
//! told. It knows nothing of the outbox.
//!
//! # Layout
//! - [`wire`]: what goes over the wire
//! - [`server`]: connections, how many, how long, and how they end
//! - [`routes`]: the paths, and what is asked of a request first
//! - [`desk`]: where requests are dealt with
//! - [`demand`]: a payment as it was asked for
//! - [`fault`]: which fault meets which request
//! - [`settings`]: which faults are ordered, and how they are written
//! - [`orders`]: a change of the faults while the bank runs
//! - [`book`]: what the bank remembers
//! - [`journal`]: the file
//! - [`answer`]: answers, and the ways in which they fail to arrive

mod answer;
mod book;
mod demand;
mod desk;
mod fault;
pub(crate) mod journal;
mod orders;
mod routes;
mod server;
pub(crate) mod settings;
mod wire;

use std::{io, net::SocketAddr, path::Path, sync::Arc};

use desk::Desk;
pub(crate) use server::Limits;
use settings::Faults;
use tokio::net::TcpListener;

/// Why a bank did not open, or had to close.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The file is the trouble.
    #[error(transparent)]
    Ledger(#[from] journal::Error),
    /// Choose another address.
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
}

/// A bank with an address and a ledger.
pub(crate) struct Bank {
    listener: TcpListener,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// How many bytes of a half-written line were cut off the file.
    pub(crate) cut: u64,
    desk: Arc<Desk>,
}

impl Bank {
    /// Opens the ledger and takes the address.
    pub(crate) async fn open(address: SocketAddr, ledger: Option<&Path>, faults: Faults) -> Result<Self, Error> {
        let (desk, cut) = Desk::open(ledger, faults)?;
        let listening = server::listen(address).await;
        let (listener, address) = listening.map_err(|source| Error::Listen { address, source })?;
        Ok(Self { listener, address, cut, desk: Arc::new(desk) })
    }

    /// Serves until the end comes; then all that was said is on the disk.
    pub(crate) async fn serve(self, limits: Limits, end: impl Future<Output = ()>) -> Result<(), Error> {
        server::serve(self.listener, Arc::clone(&self.desk), limits, end).await;
        Ok(self.desk.journal.close()?)
    }
}
