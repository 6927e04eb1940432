//! A simulated bank over HTTP: it executes each idempotency key that it remembers at most once, and injects faults on
//! request.
//!
//! Tests, demos and audits compare the outbox with its ledger, which records every executed payment whatever the client
//! was told. It does not know the outbox.
//!
//! # Layout
//! - [`wire`]: request and response bodies
//! - [`server`]: connections, their limits and timeouts
//! - [`routes`]: the paths, and the checks before a request is handled
//! - [`request_handler`]: numbers a request, chooses its fault, decides and records
//! - [`payment`]: a parsed payment and its fingerprint
//! - [`callback`]: reports to the client what became of an accepted payment
//! - [`fault`]: which fault a request gets
//! - [`settings`]: the fault settings and their text form
//! - [`fault_change`]: a change of the faults at run time
//! - [`key_store`]: what the bank remembers of each idempotency key
//! - [`ledger_file`]: the append-only file
//! - [`response`]: responses, and the faults that keep them from arriving

mod callback;
mod fault;
mod fault_change;
mod key_store;
pub mod ledger_file;
mod payment;
mod request_handler;
mod response;
mod routes;
mod server;
pub mod settings;
mod wire;

use std::{io, net::SocketAddr, path::Path, sync::Arc};

pub use callback::{CallbackError, CallbackSender};
use request_handler::RequestHandler;
pub use server::Limits;
use settings::Faults;
use tokio::net::TcpListener;

/// Why the bank could not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The ledger file cannot be used.
    #[error(transparent)]
    Ledger(#[from] ledger_file::Error),
    /// The address is taken or not allowed: choose another one.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// A bank with an address and a ledger.
pub struct Bank {
    listener: TcpListener,
    /// Where it listens.
    pub address: SocketAddr,
    /// Bytes of an incomplete last line that were cut off the ledger file.
    pub cut: u64,
    handler: Arc<RequestHandler>,
}

impl Bank {
    /// Opens the ledger and binds the address.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn open(
        address: SocketAddr,
        ledger: Option<&Path>,
        faults: Faults,
        callbacks: Option<CallbackSender>,
    ) -> Result<Self, Error> {
        let (handler, cut) = RequestHandler::open(ledger, faults, callbacks)?;
        let listening = server::listen(address).await;
        let (listener, address) = listening.map_err(|source| Error::Listen { address, source })?;
        Ok(Self { listener, address, cut, handler: Arc::new(handler) })
    }

    /// Serves until `end` completes. After that every answered request is in the ledger file.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn serve(self, limits: Limits, end: impl Future<Output = ()>) -> Result<(), Error> {
        self.handler.settle_all_later();
        server::serve(self.listener, Arc::clone(&self.handler), limits, end).await;
        Ok(self.handler.ledger.close()?)
    }
}
