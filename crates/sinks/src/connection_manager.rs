//! Manages the one connection of a sink or store: connects on demand, detects a lost connection, and bounds each
//! delivery in time and size.
//!
//! Every broker sink and every store but the HTTP ones is a [`ConnectionManager`] around a [`WireProtocol`]. The
//! manager implements [`Sink`] and [`Store`]; a protocol only connects, sends and classifies the server's answer.
//!
//! Client libraries must not reconnect by themselves. Some of them keep unsent messages until then: an event that was
//! reported as failed would leave minutes later, behind events that were published after it. So a failed connection is
//! dropped with everything in it, and the next delivery makes a new one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use symphony_relay::rail::BoxFuture;
use symphony_relay::sink::{Message, Published, Sink};
use symphony_relay::store::{Record, Store, Written};

use crate::config::SettingError;

/// How long closing a connection may take; the server may be gone.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest value of the setting `timeout`.
const MAX_TIMEOUT: Duration = Duration::from_secs(600);
/// The largest value of the setting `max_bytes`.
const MAX_BYTES_UPPER_LIMIT: usize = 64 * 1024 * 1024;

/// What a connection manager delivers: an event or a metadata record.
pub(crate) trait Delivery: Sync {
    /// How the delivery may end.
    type Outcome: DeliveryOutcome;

    /// The size of the part whose size the producer chose.
    fn payload_bytes(&self) -> usize;
}

/// The outcomes that the connection manager itself reports.
pub(crate) trait DeliveryOutcome: Send {
    /// The server will not take it; the same will happen again.
    fn refused(why: String) -> Self;

    /// The server may or may not have it.
    fn failed(why: String) -> Self;
}

impl Delivery for Message {
    type Outcome = Published;

    fn payload_bytes(&self) -> usize {
        self.data.len()
    }
}

impl DeliveryOutcome for Published {
    fn refused(why: String) -> Self {
        Self::Refused(why)
    }

    fn failed(why: String) -> Self {
        Self::Failed(why)
    }
}

impl Delivery for Record {
    type Outcome = Written;

    fn payload_bytes(&self) -> usize {
        self.metadata.len()
    }
}

impl DeliveryOutcome for Written {
    fn refused(why: String) -> Self {
        Self::Refused(why)
    }

    fn failed(why: String) -> Self {
        Self::Failed(why)
    }
}

/// The result of sending: what became of the delivery, and whether the connection can be used again.
pub(crate) enum SendResult<O = Published> {
    /// The server has answered. The connection can be used again.
    Answered(O),
    /// There was no answer, or none that the client understood. The connection manager drops the connection.
    ConnectionLost(String),
}

impl SendResult {
    pub(crate) fn confirmed(repeat: bool) -> Self {
        Self::Answered(Published::Confirmed { repeat })
    }
}

impl<O: DeliveryOutcome> SendResult<O> {
    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self::Answered(O::refused(why.into()))
    }

    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self::Answered(O::failed(why.into()))
    }
}

type OutcomeOf<P> = <<P as WireProtocol>::Delivery as Delivery>::Outcome;

/// One broker's or store's protocol. A new broker sink implements this and not [`Sink`].
pub(crate) trait WireProtocol: Send + Sync + 'static {
    /// [`Message`] for a sink, [`Record`] for a store.
    type Delivery: Delivery;

    /// A connection that any number of deliveries share.
    type Connection: Send + Sync + 'static;

    /// Checks a delivery without IO. The error says why the server could never take it.
    fn check(&self, delivery: &Self::Delivery) -> Result<(), String>;

    /// Makes a connection that is ready to send. The error is for operators and holds no secret.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, String>> + Send;

    /// Whether the connection is open as far as the client knows. Without IO.
    fn is_open(&self, connection: &Self::Connection) -> bool;

    /// Sends a delivery once and waits for the server's confirmation.
    fn send(
        &self,
        connection: &Self::Connection,
        delivery: &Self::Delivery,
    ) -> impl Future<Output = SendResult<<Self::Delivery as Delivery>::Outcome>> + Send;

    /// Closes the connection gracefully.
    fn close(&self, connection: Arc<Self::Connection>) -> impl Future<Output = ()> + Send;
}

/// The limits of every delivery, from the settings `timeout`, `connect_timeout` and `max_bytes`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) max_bytes: usize,
}

impl Limits {
    /// Checks the three settings against each other and against their own limits.
    pub(crate) fn new(
        timeout: Duration,
        connect_timeout: Duration,
        max_bytes: usize,
    ) -> Result<Self, SettingError> {
        let limit =
            |setting, ok: bool, text: &str| if ok { Ok(()) } else { Err(SettingError::new(setting, text)) };
        let in_range = !timeout.is_zero() && timeout <= MAX_TIMEOUT;
        limit("timeout", in_range, "must be above zero and at most \"10m\"")?;
        let shorter = !connect_timeout.is_zero() && connect_timeout < timeout;
        limit("connect_timeout", shorter, "must be above zero and shorter than timeout")?;
        limit("max_bytes", (1..=MAX_BYTES_UPPER_LIMIT).contains(&max_bytes), "must be from 1 to 67108864")?;
        Ok(Self { timeout, connect_timeout, max_bytes })
    }

    /// Refuses a payload that is larger than `max_bytes`.
    pub(crate) fn check_size(&self, bytes: usize) -> Result<(), String> {
        let limit = self.max_bytes;
        if bytes <= limit {
            Ok(())
        } else {
            Err(format!("its payload has {bytes} bytes, and the limit is {limit} (max_bytes)"))
        }
    }
}

/// A sink or a store over one protocol.
pub(crate) struct ConnectionManager<P: WireProtocol> {
    protocol: P,
    limits: Limits,
    current: Mutex<Option<Arc<P::Connection>>>,
    /// Held while a connection is made, so that concurrent deliveries wait for it and do not each connect.
    connecting: tokio::sync::Mutex<()>,
}

impl<P: WireProtocol> ConnectionManager<P> {
    pub(crate) fn new(protocol: P, limits: Limits) -> Self {
        Self { protocol, limits, current: Mutex::default(), connecting: tokio::sync::Mutex::default() }
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<P::Connection>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_connection(&self) -> Option<Arc<P::Connection>> {
        self.current().as_ref().filter(|connection| self.protocol.is_open(connection)).map(Arc::clone)
    }

    async fn connection(&self) -> Result<Arc<P::Connection>, String> {
        if let Some(connection) = self.open_connection() {
            return Ok(connection);
        }
        let _guard = self.connecting.lock().await;
        if let Some(connection) = self.open_connection() {
            return Ok(connection);
        }
        let limit = self.limits.connect_timeout;
        let connected = tokio::time::timeout(limit, self.protocol.connect()).await;
        let connection = connected.map_err(|_| format!("no connection within {limit:?} (connect_timeout)"))??;
        let connection = Arc::new(connection);
        *self.current() = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Drops a failed connection, unless another delivery has already replaced it.
    fn discard(&self, failed: Option<&Arc<P::Connection>>) {
        let mut current = self.current();
        if let (Some(failed), Some(kept)) = (failed, current.as_ref())
            && Arc::ptr_eq(failed, kept)
        {
            *current = None;
        }
    }

    async fn connect_and_send(
        &self,
        delivery: &P::Delivery,
        used: &mut Option<Arc<P::Connection>>,
    ) -> SendResult<OutcomeOf<P>> {
        match self.connection().await {
            Ok(connection) => {
                let connection = used.insert(connection);
                self.protocol.send(connection, delivery).await
            }
            Err(why) => SendResult::failed(why),
        }
    }

    async fn deliver(&self, delivery: &P::Delivery) -> OutcomeOf<P> {
        let timeout = self.limits.timeout;
        let checked = self.limits.check_size(delivery.payload_bytes());
        if let Err(why) = checked.and_then(|()| self.protocol.check(delivery)) {
            return OutcomeOf::<P>::refused(why);
        }
        let mut used = None;
        match tokio::time::timeout(timeout, self.connect_and_send(delivery, &mut used)).await {
            Ok(SendResult::Answered(outcome)) => outcome,
            Ok(SendResult::ConnectionLost(why)) => {
                self.discard(used.as_ref());
                OutcomeOf::<P>::failed(why)
            }
            Err(_) => {
                self.discard(used.as_ref());
                OutcomeOf::<P>::failed(format!("no confirmation within {timeout:?} (timeout)"))
            }
        }
    }

    async fn disconnect(&self) {
        let connection = self.current().take();
        if let Some(connection) = connection {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.protocol.close(connection)).await;
        }
    }
}

impl<P: WireProtocol<Delivery = Message>> Sink for ConnectionManager<P> {
    fn publish<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Published> {
        Box::pin(self.deliver(message))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.disconnect())
    }
}

impl<P: WireProtocol<Delivery = Record>> Store for ConnectionManager<P> {
    fn write<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Written> {
        Box::pin(self.deliver(record))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.disconnect())
    }
}
