//! A network between a client and PostgreSQL that stalls, breaks, and loses replies to order.
//!
//! It understands as much of the wire protocol as it takes to tell requests apart and to know when the server has
//! finished one; it knows nothing of what they mean, and no TLS: who asks for it is told that there is none. It runs on
//! a thread of its own, so that a test may block.
//!
//! # Layout
//!
//! - [`Proxy`]: the network
//! - [`Fault`]: what is to happen to certain requests
//! - `session`: one connection and its two directions
//! - `requests`: what a client has asked and not yet been answered
//! - `wire`: messages

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

pub use super::address::Unusable;
use super::address::{Address, by_way_of};
use super::port::{HOST, free_port};
use fault::Faults;
pub use fault::{Fault, Harm};

/// How long to wait when the system has no more connections to give.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server's address cannot be used. Give another.
    #[error(transparent)]
    Address(#[from] Unusable),
    /// The system refused. It says what.
    #[error("could not {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Which way messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From clients to the server: what they ask does not arrive.
    ToServer,
    /// From the server to clients: they are not answered.
    ToClient,
    /// Neither arrives.
    Both,
}

/// What becomes of connections that are made after a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newcomers {
    /// They are let through.
    Accept,
    /// They are refused, as by a machine on which nothing listens.
    Refuse,
}

/// What a proxy has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were let through.
    pub connections: u64,
    /// Connections that were closed by a cut.
    pub cut: u64,
    /// Requests that were passed on to be executed.
    pub requests: u64,
    /// Requests that were lost by a [fault](Harm::RequestLost).
    pub requests_lost: u64,
    /// Replies that were lost by a [fault](Harm::ReplyLost).
    pub replies_lost: u64,
    /// Replies that were held back by a [fault](Harm::ReplyHeld).
    pub replies_held: u64,
}

/// A port on the loopback address that forwards to a server until a fault is injected. Dropping it closes all connections.
pub struct Proxy {
    url: String,
    port: u16,
    shared: Arc<Shared>,
    // Dropped first, in `drop`: the thread ends when the last command sender is dropped.
    commands: Option<mpsc::UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
}

/// The address may hold a password.
impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("port", &self.port).field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// What the test and the connections have in common.
struct Shared {
    server: Mutex<Address>,
    /// Which ways are stalled.
    stalled: watch::Sender<Stalled>,
    /// Counts the cuts: a session that sees it change closes.
    cuts: watch::Sender<u64>,
    /// The numbers of the connections that are open.
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

/// What the thread is told to do with its port.
enum Command {
    Close(oneshot::Sender<()>),
    Open(oneshot::Sender<io::Result<()>>),
}

impl Proxy {
    /// A proxy in front of the server that this URL leads to.
    ///
    /// # Errors
    /// When the URL does not name one host and port, or the system refuses.
    pub fn before(url: &str) -> Result<Self, Error> {
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
        let (commands, orders) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(system("make a runtime"))?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener).map_err(system("listen"))?
        };
        let gate = accept_loop(listener, port, orders, Arc::clone(&shared));
        let thread = thread::Builder::new().name("proxy".into()).spawn(move || runtime.block_on(gate));
        let thread = thread.map_err(system("start a thread"))?;
        let url = by_way_of(url, port)?;
        Ok(Self { url, port, shared, commands: Some(commands), thread: Some(thread) })
    }

    /// The URL of the server by way of this proxy. It holds the password, if there is one.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Another URL of the same server, such as that of another login, by way of this proxy.
    ///
    /// # Errors
    /// When it is no URL.
    pub fn instead_of(&self, url: &str) -> Result<String, Unusable> {
        by_way_of(url, self.port)
    }

    /// The port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        *self.shared.counts()
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.shared.open.borrow().len()
    }

    /// Leads new connections to another server, as an address that moves does. Those that are open stay.
    ///
    /// # Errors
    /// When the URL does not name one host and port.
    pub fn redirect(&self, url: &str) -> Result<(), Unusable> {
        *self.shared.server.lock().unwrap_or_else(PoisonError::into_inner) = Address::of(url)?;
        Ok(())
    }

    /// Forwards nothing more that way, not even that a side has gone, until it is [released](Self::release). A
    /// message that is already on its way may still arrive.
    pub fn stall(&self, direction: Direction) {
        self.shared.stalled.send_modify(|stalled| {
            stalled.to_server |= direction != Direction::ToClient;
            stalled.to_client |= direction != Direction::ToServer;
        });
    }

    /// Ends every stall; what was held up goes on.
    pub fn release(&self) {
        self.shared.stalled.send_replace(Stalled::default());
    }

    /// Closes all connections, and returns when both their sides are closed.
    pub async fn cut(&self, newcomers: Newcomers) {
        if newcomers == Newcomers::Refuse {
            let (done, closed) = oneshot::channel();
            self.command(Command::Close(done));
            let _ = closed.await;
        }
        let newer = self.shared.next.load(Ordering::SeqCst);
        let mut open = self.shared.open.subscribe();
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
        let _ = open.wait_for(|open| open.range(..newer).next().is_none()).await;
    }

    /// Lets new connections through again after a cut that refused them, on the same port.
    ///
    /// # Errors
    /// When another process has taken the port.
    pub async fn accept(&self) -> Result<(), Error> {
        let (done, opened) = oneshot::channel();
        self.command(Command::Open(done));
        let opened = opened.await.map_err(io::Error::other).flatten();
        opened.map_err(system("listen on the same port again"))
    }

    /// Lets this happen to the next so many requests whose SQL text contains this, whatever the case of its letters.
    ///
    /// A request is an execution: preparing a statement is none, and executing what was prepared counts by its text.
    pub fn arm(&self, harm: Harm, text: &str, times: u32) -> Fault {
        self.shared.faults.arm(harm, text, times)
    }

    fn command(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // Only a thread that has panicked does not listen; the caller gets no answer.
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

/// A port that is ours.
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
    mut orders: mpsc::UnboundedReceiver<Command>,
    shared: Arc<Shared>,
) {
    let mut listener = Some(listener);
    loop {
        tokio::select! {
            order = orders.recv() => match order {
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
