//! LISTEN/NOTIFY for an idle relayer: receives notifications of committed work, and tells producers when to send them.
//!
//! A commit with a NOTIFY delays every other writer, so producers notify only while a relayer is idle. The listener
//! uses two direct sessions: one listens, the other holds the wake-up lock of the channel. `schema/functions/core/`
//! describes which producers notify, and why no commit is missed. The caller decides when it is idle.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client};
use uuid::Uuid;

use crate::connect::{self, Target};

/// How long the database may wait for the wake-up lock before it answers NOT_YET.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long `arm` waits for the lock; after that a notification follows once it is held.
const ARM_WAIT: Duration = Duration::from_millis(20);
/// How often to check the lock while another relayer holds it for us.
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How long the test notification may take before a pooler is suspected. Shorter than the timeout of callers, so that
/// they see the reason.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a simple query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

const ARM: &str = "select symphony.acquire_wakeup_lock($1, $2)";
const DISARM: &str = "select pg_advisory_unlock(symphony.wakeup_lock_key($1))";
const TEST_LISTEN: &str = "listen symphony_listener_test";
const TEST_NOTIFY: &str = "select pg_notify('symphony_listener_test', $1)";
const TEST_UNLISTEN: &str = "unlisten symphony_listener_test";
const CHECK: &str = "select 1";
/// Both sessions are idle for as long as there is no work.
const STAY_CONNECTED: &str = "set idle_session_timeout = 0";

/// Shows that a relayer of this name listens; see `relayers::listeners_of`. Nothing waits for this lock.
const SHOW_NAME: &str = "select pg_try_advisory_lock_shared(hashtextextended(concat_ws(' ', $1, current_setting('application_name')), 0))";

/// A notification channel of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    name: &'static str,
    listen: &'static str,
}

impl Channel {
    /// The payment lane's.
    pub const PAYMENT: Self = Self { name: "outbox_pending", listen: "listen outbox_pending" };
    /// The event lane's.
    pub const EVENT: Self = Self { name: "m10_outbox", listen: "listen m10_outbox" };
    /// The metadata lane's.
    pub const METADATA: Self = Self { name: "metadata_outbox", listen: "listen metadata_outbox" };
}

/// Why there are no notifications. Meanwhile the relayer finds work by polling.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server was not reached, or refused.
    #[error(transparent)]
    Connect(#[from] connect::Error),
    /// The database refused LISTEN or NOTIFY.
    #[error("the database refused to listen or to notify")]
    Refused(#[source] tokio_postgres::Error),
    /// The test notification of one session did not reach the other: the address leads to a pooler. Use the address of
    /// PostgreSQL itself.
    #[error(
        "a test notification did not arrive: the address to listen at must lead to PostgreSQL itself, not to a pooler"
    )]
    NotDelivered,
    /// A session was lost. Connect again.
    #[error("the connection of the listener was lost")]
    Lost,
}

/// The state of the wake-up lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not requested, or released.
    Disarmed,
    /// Requested; transactions that were open before are still open.
    Waiting,
    /// Every commit of work notifies from now on: the answer to this request.
    Armed(u64),
}

/// Receives a notification when work is committed while it is armed.
#[derive(Debug)]
pub struct NotifyListener {
    session: Client,
    notifications: mpsc::Receiver<()>,
    /// Notifies when arming took so long that the relayer may be idle already.
    late: mpsc::Receiver<()>,
    request: watch::Sender<Request>,
    state: watch::Receiver<State>,
}

/// The requested state. Each request to be armed has a new number, so that a lock held by another relayer is checked
/// again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Request {
    armed: bool,
    number: u64,
}

impl NotifyListener {
    /// Connects, listens, and checks that a test notification arrives.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn connect(target: &Target, channel: Channel) -> Result<Self, Error> {
        let (notify, notifications) = mpsc::channel(1);
        let (test, mut tested) = mpsc::channel(16);
        let (notify_late, late) = mpsc::channel(1);
        let receive = move |message| {
            if let AsyncMessage::Notification(notification) = message {
                if notification.channel() == channel.name {
                    // One that is queued already stands for all of them.
                    let _ = notify.try_send(());
                } else {
                    let _ = test.try_send(notification.payload().to_owned());
                }
            }
        };
        let session = target.connect_with_messages(receive).await?;
        let lock_session = target.connect().await?;
        session.batch_execute(TEST_LISTEN).await.map_err(Error::Refused)?;
        let token = Uuid::new_v4().to_string();
        lock_session.execute_typed(TEST_NOTIFY, &[(&token, Type::TEXT)]).await.map_err(Error::Refused)?;
        let arrives = async { while tested.recv().await.is_some_and(|payload| payload != token) {} };
        timeout(DELIVERY_TIMEOUT, arrives).await.map_err(|_| Error::NotDelivered)?;
        session.batch_execute(TEST_UNLISTEN).await.map_err(Error::Refused)?;
        // Not before: behind a pooler, the setting and the LISTEN would stay on a session that other clients use.
        for idle in [&session, &lock_session] {
            idle.batch_execute(STAY_CONNECTED).await.map_err(Error::Refused)?;
        }
        session.execute_typed(SHOW_NAME, &[(&channel.name, Type::TEXT)]).await.map_err(Error::Refused)?;
        session.batch_execute(channel.listen).await.map_err(Error::Refused)?;

        let (request, requests) = watch::channel(Request::default());
        let (sender, state) = watch::channel(State::Disarmed);
        // Ends with the listener, which closes `requests`; the lock ends with its session.
        let task = WakeupLock { session: lock_session, channel, requests, state: sender, notify: notify_late };
        tokio::spawn(task.run());
        Ok(Self { session, notifications, late, request, state })
    }

    /// Asks producers to notify, because the relayer is about to be idle. It must claim once more before it waits.
    ///
    /// Returns soon. If transactions that were open before are still open, a notification follows once they have ended,
    /// so that the relayer looks for what they wrote.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub async fn arm(&mut self) -> Result<(), Error> {
        let mut number = 0;
        self.request.send_modify(|request| {
            request.armed = true;
            request.number += 1;
            number = request.number;
        });
        match timeout(ARM_WAIT, self.state.wait_for(|state| *state == State::Armed(number))).await {
            Ok(Err(_gone)) => Err(Error::Lost),
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    }

    /// Tells producers that the relayer is busy and needs no notifications. Returns at once.
    pub fn disarm(&mut self) {
        self.request.send_modify(|request| request.armed = false);
        // Notifications up to now are obsolete.
        let _ = self.notifications.try_recv();
        let _ = self.late.try_recv();
    }

    /// Waits for a notification. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub async fn notified(&mut self) -> Result<(), Error> {
        // Either channel closes with its session.
        tokio::select! {
            notified = self.notifications.recv() => notified.ok_or(Error::Lost),
            late = self.late.recv() => late.ok_or(Error::Lost),
        }
    }

    /// Checks that both sessions are alive.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub async fn check(&self) -> Result<(), Error> {
        match timeout(QUERY_TIMEOUT, self.session.batch_execute(CHECK)).await {
            Ok(Ok(())) if self.state.has_changed().is_ok() => Ok(()),
            _ => Err(Error::Lost),
        }
    }
}

/// The task that holds the wake-up lock, on a second session.
struct WakeupLock {
    session: Client,
    channel: Channel,
    requests: watch::Receiver<Request>,
    state: watch::Sender<State>,
    notify: mpsc::Sender<()>,
}

impl WakeupLock {
    /// Runs until the listener is dropped or the session is lost.
    async fn run(mut self) {
        let mut hold = Hold::Nothing;
        loop {
            let request = *self.requests.borrow_and_update();
            let step = match hold {
                Hold::Nothing if request.armed => self.arm().await,
                Hold::Shared(since) if request.armed && since.elapsed() >= RECHECK_INTERVAL => self.arm().await,
                Hold::Lock | Hold::Shared(_) if request.armed => {
                    self.state.send_replace(State::Armed(request.number));
                    self.wait_for_request().await.map(|()| hold)
                }
                Hold::Lock => self.release().await,
                Hold::Nothing | Hold::Shared(_) => {
                    self.state.send_replace(State::Disarmed);
                    self.wait_for_request().await.map(|()| Hold::Nothing)
                }
            };
            let Some(next) = step else { return };
            hold = next;
        }
    }

    /// Requests the lock. While it is not granted, nothing is held and the caller requests it again.
    async fn arm(&self) -> Option<Hold> {
        let was_late = *self.state.borrow() == State::Waiting;
        self.state.send_replace(State::Waiting);
        let began = Instant::now();
        let timeout_ms = i32::try_from(LOCK_TIMEOUT.as_millis()).unwrap_or(i32::MAX);
        let arguments: [(&(dyn ToSql + Sync), Type); 2] =
            [(&self.channel.name, Type::TEXT), (&timeout_ms, Type::INT4)];
        let row = timeout(LOCK_TIMEOUT + QUERY_TIMEOUT, self.session.query_typed_one(ARM, &arguments))
            .await
            .ok()?
            .ok()?;
        let hold = match row.try_get(0).ok()? {
            "HELD" => Hold::Lock,
            "SHARED" => Hold::Shared(Instant::now()),
            "NOT_YET" => return Some(Hold::Nothing),
            _ => return None,
        };
        if was_late || began.elapsed() >= ARM_WAIT / 2 {
            // The relayer may be idle already, and commits in between did not notify.
            let _ = self.notify.try_send(());
        }
        Some(hold)
    }

    async fn release(&self) -> Option<Hold> {
        self.state.send_replace(State::Disarmed);
        let arguments: [(&(dyn ToSql + Sync), Type); 1] = [(&self.channel.name, Type::TEXT)];
        timeout(QUERY_TIMEOUT, self.session.execute_typed(DISARM, &arguments)).await.ok()?.ok()?;
        Some(Hold::Nothing)
    }

    /// Waits for a request; none once the listener is dropped or the session is lost.
    async fn wait_for_request(&mut self) -> Option<()> {
        tokio::select! {
            changed = self.requests.changed() => changed.ok(),
            // Notice a session that ended while it was idle, too.
            () = tokio::time::sleep(RECHECK_INTERVAL) => (!self.session.is_closed()).then_some(()),
        }
    }
}

/// The lock that makes producers notify.
#[derive(Clone, Copy, Debug)]
enum Hold {
    /// None: producers do not notify for us.
    Nothing,
    /// Our lock.
    Lock,
    /// The lock of another relayer, as of this moment.
    Shared(Instant),
}
