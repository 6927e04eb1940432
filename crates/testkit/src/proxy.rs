//! A proxy between a client and PostgreSQL that stalls, closes connections and loses replies on request.
//!
//! It parses enough of the wire protocol to tell requests apart and to see when the server has finished one. It does
//! not support TLS and rejects SSL requests. It runs on its own thread, so that a test may block.
//!
//! # Layout
//!
//! - [`Proxy`]: the proxy
//! - [`Fault`]: a fault to inject into matching requests
//! - `session`: one connection and its two directions
//! - `requests`: requests that the server has not answered yet
//! - `wire`: messages of the protocol

mod fault;
mod requests;
mod session;
mod wire;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};

pub use super::address::InvalidDatabaseUrl;
use super::address::{Address, rewrite_url};
use super::port::{HOST, free_port};
use fault::Faults;
pub use fault::{Fault, FaultKind};

/// How long to wait after `accept` has failed, for example because there are too many open files.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Why a proxy could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server's URL does not have exactly one host and port.
    #[error(transparent)]
    Address(#[from] InvalidDatabaseUrl),
    /// A system call failed.
    #[error("could not {what}")]
    System {
        /// The operation.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The direction of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From clients to the server: requests do not arrive.
    ToServer,
    /// From the server to clients: replies do not arrive.
    ToClient,
    /// Both: neither requests nor replies arrive.
    Both,
}

/// What happens to new connections after a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewConnections {
    /// They are forwarded.
    Accept,
    /// They are refused, as if nothing listened on the port.
    Refuse,
}

/// Counters of a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that were closed by a cut.
    pub cut: u64,
    /// Requests that were forwarded to the server.
    pub requests: u64,
    /// Requests that a [fault](FaultKind::RequestLost) lost.
    pub requests_lost: u64,
    /// Replies that a [fault](FaultKind::ReplyLost) lost.
    pub replies_lost: u64,
    /// Replies that a [fault](FaultKind::ReplyHeld) held.
    pub replies_held: u64,
}

/// A port on the loopback address that forwards to a server until a fault is injected. Dropping it closes all
/// connections.
pub struct Proxy {
    url: String,
    port: u16,
    shared: Arc<Shared>,
    // Dropped first, in `drop`: the thread ends when the last command sender is dropped.
    commands: Option<mpsc::UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
}

/// Without the URL, which may contain a password.
impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("port", &self.port).field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// State that the test and the connections share.
struct Shared {
    server: Mutex<Address>,
    /// Which directions are stalled.
    stalled: watch::Sender<Stalled>,
    /// The number of cuts: a session closes when it changes.
    cuts: watch::Sender<u64>,
    /// The ids of the open connections.
    open: watch::Sender<BTreeSet<u64>>,
    next: AtomicU64,
    faults: Faults,
    counts: Mutex<Counts>,
}

#[derive(Clone, Copy, Default)]
struct Stalled {
    to_server: bool,
    to_client: bool,
}

/// Commands to the thread: close or open its port.
enum Command {
    Close(oneshot::Sender<()>),
    Open(oneshot::Sender<io::Result<()>>),
}

impl Proxy {
    /// Starts a proxy in front of the server of this URL.
    ///
    /// # Errors
    /// When the URL does not have one host and port, or a system call fails.
    pub fn in_front_of(url: &str) -> Result<Self, Error> {
        let server = Address::of(url)?;
        let (listener, port) = listen().map_err(system("listen on a free port"))?;
        let shared = Arc::new(Shared {
            server: Mutex::new(server),
            stalled: watch::Sender::default(),
            cuts: watch::Sender::default(),
            open: watch::Sender::default(),
            next: AtomicU64::default(),
            faults: Faults::default(),
            counts: Mutex::default(),
        });
        let (commands, receiver) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(system("create a runtime"))?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener).map_err(system("listen"))?
        };
        let accepting = accept_loop(listener, port, receiver, Arc::clone(&shared));
        let thread = thread::Builder::new().name("proxy".into()).spawn(move || runtime.block_on(accepting));
        let thread = thread.map_err(system("start a thread"))?;
        let url = rewrite_url(url, port)?;
        Ok(Self { url, port, shared, commands: Some(commands), thread: Some(thread) })
    }

    /// The URL of the server through this proxy, with the password if there is one.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Rewrites another URL of the same server, such as that of another login, to connect through this proxy.
    ///
    /// # Errors
    /// When it is not a URL.
    pub fn url_through(&self, url: &str) -> Result<String, InvalidDatabaseUrl> {
        rewrite_url(url, self.port)
    }

    /// The port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The counters so far.
    pub fn counts(&self) -> Counts {
        *self.shared.counts()
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.shared.open.borrow().len()
    }

    /// Forwards new connections to another server, as after a DNS failover. Open connections stay.
    ///
    /// # Errors
    /// When the URL does not have one host and port.
    pub fn redirect(&self, url: &str) -> Result<(), InvalidDatabaseUrl> {
        *self.shared.server.lock().unwrap_or_else(PoisonError::into_inner) = Address::of(url)?;
        Ok(())
    }

    /// Forwards nothing in this direction, not even the end of a connection, until [`release`](Self::release). A
    /// message in transit may still arrive.
    pub fn stall(&self, direction: Direction) {
        self.shared.stalled.send_modify(|stalled| {
            stalled.to_server |= direction != Direction::ToClient;
            stalled.to_client |= direction != Direction::ToServer;
        });
    }

    /// Ends every stall, and forwards what was stalled.
    pub fn release(&self) {
        self.shared.stalled.send_replace(Stalled::default());
    }

    /// Closes all connections, and returns when both sides of each are closed.
    pub async fn cut(&self, new_connections: NewConnections) {
        if new_connections == NewConnections::Refuse {
            let (done, closed) = oneshot::channel();
            self.command(Command::Close(done));
            let _ = closed.await;
        }
        let newer = self.shared.next.load(Ordering::SeqCst);
        let mut open = self.shared.open.subscribe();
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
        let _ = open.wait_for(|open| open.range(..newer).next().is_none()).await;
    }

    /// Accepts new connections again, on the same port, after a cut that refused them.
    ///
    /// # Errors
    /// When another process has taken the port.
    pub async fn accept(&self) -> Result<(), Error> {
        let (done, opened) = oneshot::channel();
        self.command(Command::Open(done));
        let opened = opened.await.map_err(io::Error::other).flatten();
        opened.map_err(system("listen on the same port again"))
    }

    /// Injects this fault into the next `times` requests whose SQL contains `text`, ignoring case.
    ///
    /// Only an execution is a request: preparing a statement is not. A prepared statement matches by its SQL.
    pub fn arm(&self, kind: FaultKind, text: &str, times: u32) -> Fault {
        self.shared.faults.arm(kind, text, times)
    }

    fn command(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // The send fails only if the thread has panicked; the caller then gets no reply.
            let _ = commands.send(command);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn server(&self) -> Address {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Listens on a free port.
fn listen() -> io::Result<(std::net::TcpListener, u16)> {
    loop {
        let port = free_port()?;
        match std::net::TcpListener::bind((HOST, port)) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                return Ok((listener, port));
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {} // another process took it
            Err(error) => return Err(error),
        }
    }
}

/// Accepts connections and executes commands until the command channel is closed.
async fn accept_loop(
    listener: TcpListener,
    port: u16,
    mut commands: mpsc::UnboundedReceiver<Command>,
    shared: Arc<Shared>,
) {
    let mut listener = Some(listener);
    loop {
        tokio::select! {
            command = commands.recv() => match command {
                None => return,
                Some(Command::Close(done)) => {
                    listener = None;
                    let _ = done.send(());
                }
                Some(Command::Open(done)) => {
                    let opened = match &listener {
                        Some(_) => Ok(()),
                        None => TcpListener::bind((HOST, port)).await.map(|opened| listener = Some(opened)),
                    };
                    let _ = done.send(opened);
                }
            },
            accepted = next(listener.as_ref()) => match accepted {
                Ok(client) => session::start(client, &shared),
                Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
            },
        }
    }
}

async fn next(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => Ok(listener.accept().await?.0),
        None => std::future::pending().await,
    }
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { what, source }
}

#[cfg(test)]
mod tests;
