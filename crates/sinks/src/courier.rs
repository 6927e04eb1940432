//! Carries events and records over a connection that is kept, noticed when it is lost, and made again by whoever needs it
//! next.
//!
//! The clients of some servers reconnect by themselves, and keep what could not be sent until then: an event that was
//! reported as failed would leave minutes later, behind others that were published after it. So no client reconnects
//! here. What fails is forgotten with its connection, and the next one makes a new connection.
//!
//! It decides how long carrying may take and how large a load may be. It does not know what a server's answer means.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use symphony_relay::rail::BoxFuture;
use symphony_relay::sink::{Message, Published, Sink};
use symphony_relay::store::{Record, Store, Written};

use crate::config::Problem;

/// How long letting go of a connection may take: nobody waits for a server that is gone.
const PARTING: Duration = Duration::from_secs(5);
/// The longest that carrying may take, whatever the settings say.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);
/// The largest load, whatever the settings say.
const LARGEST: usize = 64 * 1024 * 1024;

/// What a courier carries.
pub(crate) trait Load: Sync {
    /// How carrying it may end.
    type Outcome: Outcome;

    /// How large the part is that somebody else chose the size of.
    fn size(&self) -> usize;
}

/// What every outcome can say.
pub(crate) trait Outcome: Send {
    /// The server will not have it.
    fn refused(why: String) -> Self;

    /// The server may have it or not.
    fn failed(why: String) -> Self;
}

impl Load for Message {
    type Outcome = Published;

    fn size(&self) -> usize {
        self.data.len()
    }
}

impl Outcome for Published {
    fn refused(why: String) -> Self {
        Self::Refused(why)
    }

    fn failed(why: String) -> Self {
        Self::Failed(why)
    }
}

impl Load for Record {
    type Outcome = Written;

    fn size(&self) -> usize {
        self.metadata.len()
    }
}

impl Outcome for Written {
    fn refused(why: String) -> Self {
        Self::Refused(why)
    }

    fn failed(why: String) -> Self {
        Self::Failed(why)
    }
}

/// How sending ended, for the connection as well as for the load.
pub(crate) enum Sent<O = Published> {
    /// The server has answered. The connection can be used again.
    Answered(O),
    /// There was no answer that could be understood. The connection is of no use any more.
    Broken(String),
}

impl Sent {
    pub(crate) fn confirmed(repeat: bool) -> Self {
        Self::Answered(Published::Confirmed { repeat })
    }
}

impl<O: Outcome> Sent<O> {
    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self::Answered(O::refused(why.into()))
    }

    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self::Answered(O::failed(why.into()))
    }
}

/// How sending something of a protocol ended.
type SentBy<P> = Sent<OutcomeOf<P>>;
type OutcomeOf<P> = <<P as Protocol>::Load as Load>::Outcome;

/// What a protocol knows of itself.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// What it sends.
    type Load: Load;

    /// A connection that any number of loads share.
    type Connection: Send + Sync + 'static;

    /// Why a load cannot be sent at all, if it cannot.
    fn check(&self, load: &Self::Load) -> Result<(), String>;

    /// Makes a connection that is ready to send. The error is for people.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, String>> + Send;

    /// Whether the connection still stands, as far as is known without asking.
    fn is_open(&self, connection: &Self::Connection) -> bool;

    /// Sends a load and waits for the server's answer.
    fn send(
        &self,
        connection: &Self::Connection,
        load: &Self::Load,
    ) -> impl Future<Output = Sent<<Self::Load as Load>::Outcome>> + Send;

    /// Lets go of the connection, in order.
    fn close(&self, connection: Arc<Self::Connection>) -> impl Future<Output = ()> + Send;
}

/// What nothing that is carried may exceed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) max_bytes: usize,
}

impl Limits {
    /// These limits, unless they make no sense.
    pub(crate) fn new(timeout: Duration, connect_timeout: Duration, max_bytes: usize) -> Result<Self, Problem> {
        let limit = |setting, ok: bool, text: &str| if ok { Ok(()) } else { Err(Problem::new(setting, text)) };
        let some = !timeout.is_zero() && timeout <= LONGEST_TIMEOUT;
        limit("timeout", some, "must be above zero and at most \"10m\"")?;
        let shorter = !connect_timeout.is_zero() && connect_timeout < timeout;
        limit("connect_timeout", shorter, "must be above zero and shorter than timeout")?;
        limit("max_bytes", (1..=LARGEST).contains(&max_bytes), "must be from 1 to 67108864")?;
        Ok(Self { timeout, connect_timeout, max_bytes })
    }

    /// Why so many bytes cannot be sent, if they cannot.
    pub(crate) fn check(&self, size: usize) -> Result<(), String> {
        let limit = self.max_bytes;
        if size <= limit { Ok(()) } else { Err(format!("it has {size} bytes, and {limit} are taken (max_bytes)")) }
    }
}

/// A sink or a store over one protocol.
pub(crate) struct Courier<P: Protocol> {
    protocol: P,
    limits: Limits,
    current: Mutex<Option<Arc<P::Connection>>>,
    /// Held by whoever makes a connection: the others wait for it instead of making their own.
    connecting: tokio::sync::Mutex<()>,
}

impl<P: Protocol> Courier<P> {
    pub(crate) fn new(protocol: P, limits: Limits) -> Self {
        Self { protocol, limits, current: Mutex::default(), connecting: tokio::sync::Mutex::default() }
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<P::Connection>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Option<Arc<P::Connection>> {
        self.current().as_ref().filter(|connection| self.protocol.is_open(connection)).map(Arc::clone)
    }

    async fn connection(&self) -> Result<Arc<P::Connection>, String> {
        if let Some(connection) = self.open() {
            return Ok(connection);
        }
        let _alone = self.connecting.lock().await;
        if let Some(connection) = self.open() {
            return Ok(connection);
        }
        let limit = self.limits.connect_timeout;
        let connected = tokio::time::timeout(limit, self.protocol.connect()).await;
        let connection = connected.map_err(|_| format!("no connection within {limit:?}"))??;
        let connection = Arc::new(connection);
        *self.current() = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// The next one makes a new connection, unless another has done so already.
    fn forget(&self, used: Option<&Arc<P::Connection>>) {
        let mut current = self.current();
        if let (Some(used), Some(kept)) = (used, current.as_ref())
            && Arc::ptr_eq(used, kept)
        {
            *current = None;
        }
    }

    async fn attempt(&self, load: &P::Load, used: &mut Option<Arc<P::Connection>>) -> SentBy<P> {
        match self.connection().await {
            Ok(connection) => {
                let connection = used.insert(connection);
                self.protocol.send(connection, load).await
            }
            Err(why) => Sent::failed(why),
        }
    }

    async fn carry(&self, load: &P::Load) -> OutcomeOf<P> {
        let timeout = self.limits.timeout;
        let refused = |why| OutcomeOf::<P>::refused(why);
        if let Err(why) = self.limits.check(load.size()) {
            return refused(why);
        }
        if let Err(why) = self.protocol.check(load) {
            return refused(why);
        }
        let mut used = None;
        match tokio::time::timeout(timeout, self.attempt(load, &mut used)).await {
            Ok(Sent::Answered(outcome)) => outcome,
            Ok(Sent::Broken(why)) => {
                self.forget(used.as_ref());
                OutcomeOf::<P>::failed(why)
            }
            Err(_) => {
                self.forget(used.as_ref());
                OutcomeOf::<P>::failed(format!("no confirmation within {timeout:?}"))
            }
        }
    }

    async fn part(&self) {
        let connection = self.current().take();
        if let Some(connection) = connection {
            let _ = tokio::time::timeout(PARTING, self.protocol.close(connection)).await;
        }
    }
}

impl<P: Protocol<Load = Message>> Sink for Courier<P> {
    fn publish<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Published> {
        Box::pin(self.carry(message))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.part())
    }
}

impl<P: Protocol<Load = Record>> Store for Courier<P> {
    fn write<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Written> {
        Box::pin(self.carry(record))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.part())
    }
}

/// What a client says of an error, for people: its causes one after another, bounded, on one line.
pub(crate) fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(source) = below {
        let cause = source.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        below = source.source();
    }
    // Parts of it may come from the other side, such as names in its certificate.
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect()
}
