//! Notifications of new work for an engine, and the task that keeps its listener connected. LISTEN itself is issued by
//! `symphony_db::listener`.
//!
//! Notifications only save time: the next poll finds whatever a notification did not announce. So this module logs and
//! repairs the failures of a listener, and nothing else waits for it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use symphony_db::connect::Target;
use symphony_db::listener::{self, Channel, NotifyListener};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::call_backoff::{CallBackoff, with_jitter};
use crate::fail_point::{self, Step};
use crate::lane::LaneError;
use crate::metrics::Meter;
use crate::session_pool::with_cause;

/// The timeout of arming and disarming. Arming may have to connect and to test the delivery of a notification; no
/// lease depends on it, so it has more time than other calls.
const ARM_TIMEOUT: Duration = Duration::from_secs(60);

/// The backoff after a second refusal in a row: a pooler does not go away within seconds, and each attempt costs two
/// sessions and a notification.
const REFUSED_BACKOFF: Duration = Duration::from_secs(60);

/// How often to check that the listening session is alive.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Receives notifications of new work. It connects when it is armed, and reconnects after a failure.
pub trait Listener: Send + 'static {
    /// The engine is about to be idle: whatever is committed after this returns is notified. Work that was committed
    /// before may not be, so the engine claims once more before it waits.
    fn arm(&mut self) -> impl Future<Output = Result<(), LaneError>> + Send;

    /// The engine is busy: producers need not notify.
    fn disarm(&mut self) -> impl Future<Output = Result<(), LaneError>> + Send;

    /// Waits for a notification. Cancel-safe: no notification is lost when this is dropped. After an error the
    /// listener must be armed again. Also polled while disarmed, once it was armed, to drain late notifications.
    fn notified(&mut self) -> impl Future<Output = Result<(), LaneError>> + Send;
}

/// The listener of an engine that only polls.
#[derive(Clone, Copy, Debug)]
pub enum NoListener {}

impl Listener for NoListener {
    async fn arm(&mut self) -> Result<(), LaneError> {
        match *self {}
    }
    async fn disarm(&mut self) -> Result<(), LaneError> {
        match *self {}
    }
    async fn notified(&mut self) -> Result<(), LaneError> {
        match *self {}
    }
}

/// Listens on a channel of PostgreSQL. It connects when it is first armed, and again after it was lost.
#[derive(Debug)]
pub struct PostgresListener {
    target: Arc<Target>,
    channel: Channel,
    connection: Option<NotifyListener>,
    next_check: Instant,
}

impl PostgresListener {
    /// A listener on this channel. The address must lead to PostgreSQL itself, not to a pooler.
    #[must_use]
    pub fn new(target: Arc<Target>, channel: Channel) -> Self {
        Self { target, channel, connection: None, next_check: Instant::now() }
    }

    fn lost(&mut self, error: &listener::Error) -> LaneError {
        self.connection = None;
        match error {
            // A pooler does not go away within seconds.
            listener::Error::NotDelivered => LaneError::Refused(error.to_string()),
            listener::Error::Connect(_) | listener::Error::Refused(_) | listener::Error::Lost => {
                LaneError::Unavailable(with_cause(error))
            }
        }
    }
}

impl Listener for PostgresListener {
    async fn arm(&mut self) -> Result<(), LaneError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => {
                let connected = NotifyListener::connect(&self.target, self.channel).await;
                self.next_check = Instant::now() + CHECK_INTERVAL;
                match connected {
                    Ok(connection) => self.connection.insert(connection),
                    Err(error) => return Err(self.lost(&error)),
                }
            }
        };
        let armed = connection.arm().await;
        armed.map_err(|error| self.lost(&error))
    }

    async fn disarm(&mut self) -> Result<(), LaneError> {
        if let Some(connection) = &mut self.connection {
            connection.disarm();
        }
        Ok(())
    }

    async fn notified(&mut self) -> Result<(), LaneError> {
        let Some(connection) = &mut self.connection else { return std::future::pending().await };
        let notified = loop {
            tokio::select! {
                notified = connection.notified() => break notified,
                () = sleep_until(self.next_check) => match connection.check().await {
                    Ok(()) => self.next_check = Instant::now() + CHECK_INTERVAL,
                    Err(lost) => break Err(lost),
                },
            }
        };
        notified.map_err(|error| self.lost(&error))
    }
}

/// What the engine requests. The number distinguishes one request to be armed from the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Request {
    armed: bool,
    number: u64,
}

/// What the task reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Status {
    /// The request for which the listener is armed.
    armed_for: Option<u64>,
    /// How often it was armed.
    armings: u64,
    /// How many notifications arrived. Those that arrive faster than the engine reads them count as one.
    notifications: u64,
}

/// What changed since the engine last looked at its listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenerUpdate {
    /// It is armed, as requested.
    pub(crate) armed: bool,
    /// It was armed again, perhaps after it was lost: commits in between were not notified.
    pub(crate) rearmed: bool,
    /// A notification arrived.
    pub(crate) notified: bool,
}

/// The engine's handle of its listener.
#[derive(Debug)]
pub(crate) struct ListenerHandle {
    request: watch::Sender<Request>,
    status: watch::Receiver<Status>,
    seen: Status,
    task: JoinHandle<()>,
}

impl ListenerHandle {
    /// Spawns the task that owns the listener.
    pub(crate) fn spawn<N: Listener>(listener: N, meter: Arc<dyn Meter>) -> Self {
        let (request, requests) = watch::channel(Request::default());
        let (sender, status) = watch::channel(Status::default());
        let task = ListenerTask {
            listener,
            meter,
            status: sender,
            armed: false,
            connected: false,
            refused: false,
            backoff: CallBackoff::with_defaults(),
            not_before: Instant::now(),
        };
        Self { request, status, seen: Status::default(), task: tokio::spawn(task.run(requests)) }
    }

    /// Requests that the listener is armed, or not.
    pub(crate) fn request(&self, armed: bool) {
        self.request.send_if_modified(|request| {
            let changed = request.armed != armed;
            if changed {
                *request = Request { armed, number: request.number + 1 };
            }
            changed
        });
    }

    /// Waits for a change; cancel-safe. Never returns once the task has ended.
    pub(crate) async fn changed(&mut self) -> ListenerUpdate {
        if self.status.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        let (status, request) = (*self.status.borrow_and_update(), *self.request.borrow());
        let seen = std::mem::replace(&mut self.seen, status);
        ListenerUpdate {
            armed: request.armed && status.armed_for == Some(request.number),
            rearmed: status.armings != seen.armings,
            notified: status.notifications != seen.notifications,
        }
    }

    /// Ends the task; disarms the listener first if that succeeds before `no_longer` returns.
    pub(crate) async fn close(self, no_longer: impl Future<Output = ()>) {
        drop(self.request);
        let mut task = self.task;
        tokio::select! {
            biased;
            _ = &mut task => {}
            () = no_longer => task.abort(),
        }
    }
}

struct ListenerTask<N> {
    listener: N,
    meter: Arc<dyn Meter>,
    status: watch::Sender<Status>,
    armed: bool,
    connected: bool,
    /// The last attempt was refused.
    refused: bool,
    backoff: CallBackoff,
    /// After a failure, when to retry.
    not_before: Instant,
}

impl<N: Listener> ListenerTask<N> {
    async fn run(mut self, mut requests: watch::Receiver<Request>) {
        loop {
            let request = *requests.borrow_and_update();
            if request.armed && !self.armed && Instant::now() >= self.not_before {
                self.arm().await;
            } else if !request.armed && self.armed {
                self.disarm().await;
            }
            if request.armed && self.armed {
                self.status
                    .send_if_modified(|status| status.armed_for.replace(request.number) != Some(request.number));
            }
            let retry_pending = request.armed && !self.armed;
            tokio::select! {
                biased;
                changed = requests.changed() => if changed.is_err() {
                    break;
                },
                notified = self.listener.notified(), if self.connected => match notified {
                    Ok(()) => self.status.send_modify(|status| status.notifications += 1),
                    Err(error) => self.lost(&error),
                },
                () = sleep_until(self.not_before), if retry_pending => {}
            }
        }
        if self.armed {
            self.disarm().await;
        }
    }

    async fn arm(&mut self) {
        match with_timeout(self.listener.arm()).await {
            Ok(()) => {
                fail_point::reach(Step::AfterArm);
                if self.backoff.succeeded() {
                    tracing::info!("the listener is connected again");
                }
                (self.armed, self.connected, self.refused) = (true, true, false);
                self.status.send_modify(|status| status.armings += 1);
                self.meter.listener_connected(true);
            }
            Err(error) => self.lost(&error),
        }
    }

    async fn disarm(&mut self) {
        let disarmed = with_timeout(self.listener.disarm()).await;
        self.armed = false;
        self.status.send_if_modified(|status| status.armed_for.take().is_some());
        if let Err(error) = disarmed {
            self.lost(&error);
        }
    }

    fn lost(&mut self, error: &LaneError) {
        (self.armed, self.connected) = (false, false);
        let refused = matches!(error, LaneError::Refused(_));
        let refused_again = std::mem::replace(&mut self.refused, refused) && refused;
        let wait = self.backoff.failed_with(error);
        // A single refusal may be a slow notification.
        self.not_before =
            Instant::now() + if refused_again { wait.max(with_jitter(REFUSED_BACKOFF)) } else { wait };
        self.status.send_if_modified(|status| status.armed_for.take().is_some());
        self.meter.listener_connected(false);
        if self.backoff.is_first_failure() {
            tracing::warn!(%error, "the listener is lost: work is found by polling until it is connected again");
        }
    }
}

async fn with_timeout<T>(call: impl Future<Output = Result<T, LaneError>>) -> Result<T, LaneError> {
    let no_answer = |_| Err(LaneError::Unavailable(format!("no answer within {ARM_TIMEOUT:?}")));
    timeout(ARM_TIMEOUT, call).await.unwrap_or_else(no_answer)
}
