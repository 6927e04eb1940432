//! Carries events over a connection that is kept, noticed when it is lost, and made again by whoever needs it next.
//!
//! The clients of some brokers reconnect by themselves, and keep what could not be sent until then: an event that was
//! reported as failed would leave minutes later, behind others that were published after it. So no client reconnects
//! here. What fails is forgotten with its connection, and the next publication makes a new one.
//!
//! It decides how long a publication may take and how large it may be. It does not know what a broker's answer means.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use symphony_relay::rail::BoxFuture;
use symphony_relay::sink::{Message, Published, Sink};

/// How long letting go of a connection may take: nobody waits for a broker that is gone.
const PARTING: Duration = Duration::from_secs(5);

/// How sending ended, for the connection as well as for the message.
pub(crate) enum Sent {
    /// The broker has answered. The connection can be used again.
    Answered(Published),
    /// There was no answer that could be understood. The connection is of no use any more.
    Broken(String),
}

impl Sent {
    pub(crate) fn confirmed(repeat: bool) -> Self {
        Self::Answered(Published::Confirmed { repeat })
    }

    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self::Answered(Published::Refused(why.into()))
    }

    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self::Answered(Published::Failed(why.into()))
    }
}

/// What a protocol knows of itself.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// A connection that any number of publications share.
    type Connection: Send + Sync + 'static;

    /// Why a message cannot be sent at all, if it cannot.
    fn check(&self, message: &Message) -> Result<(), String>;

    /// Makes a connection that is ready to publish. The error is for people.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, String>> + Send;

    /// Whether the connection still stands, as far as is known without asking.
    fn is_open(&self, connection: &Self::Connection) -> bool;

    /// Sends a message and waits for the broker's answer.
    fn send(&self, connection: &Self::Connection, message: &Message) -> impl Future<Output = Sent> + Send;

    /// Lets go of the connection, in order.
    fn close(&self, connection: Arc<Self::Connection>) -> impl Future<Output = ()> + Send;
}

/// What no publication may exceed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) max_bytes: usize,
}

/// A sink over one protocol.
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
        let connection = connected.map_err(|_| format!("no connection to the broker within {limit:?}"))??;
        let connection = Arc::new(connection);
        *self.current() = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// The next publication makes a new connection, unless another has done so already.
    fn forget(&self, used: Option<&Arc<P::Connection>>) {
        let mut current = self.current();
        if let (Some(used), Some(kept)) = (used, current.as_ref())
            && Arc::ptr_eq(used, kept)
        {
            *current = None;
        }
    }

    async fn attempt(&self, message: &Message, used: &mut Option<Arc<P::Connection>>) -> Sent {
        match self.connection().await {
            Ok(connection) => {
                let connection = used.insert(connection);
                self.protocol.send(connection, message).await
            }
            Err(why) => Sent::failed(why),
        }
    }

    async fn deliver(&self, message: &Message) -> Published {
        let Limits { timeout, max_bytes, .. } = self.limits;
        let size = message.data.len();
        if size > max_bytes {
            let why = format!("its data has {size} bytes, and this sink takes {max_bytes} (max_bytes)");
            return Published::Refused(why);
        }
        if let Err(why) = self.protocol.check(message) {
            return Published::Refused(why);
        }
        let mut used = None;
        match tokio::time::timeout(timeout, self.attempt(message, &mut used)).await {
            Ok(Sent::Answered(published)) => published,
            Ok(Sent::Broken(why)) => {
                self.forget(used.as_ref());
                Published::Failed(why)
            }
            Err(_) => {
                self.forget(used.as_ref());
                Published::Failed(format!("the broker did not confirm within {timeout:?}"))
            }
        }
    }
}

impl<P: Protocol> Sink for Courier<P> {
    fn publish<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Published> {
        Box::pin(self.deliver(message))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let connection = self.current().take();
            if let Some(connection) = connection {
                let _ = tokio::time::timeout(PARTING, self.protocol.close(connection)).await;
            }
        })
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
