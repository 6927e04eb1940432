//! A bell by the bed of a relayer: it hears the database, and says when it is about to sleep.
//!
//! A commit that notifies costs every other writer, so writers notify only while somebody sleeps. Two sessions of its
//! own, past any pooler: one hears, the other holds the wake-up lock of the channel. Which of the writers notify, and why
//! none is missed, is written in `schema/functions/core/`. This decides nothing about when to sleep.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client};
use uuid::Uuid;

use crate::connect::{self, Target};

/// How long the database may hold back an answer that says "not yet".
const PATIENCE: Duration = Duration::from_secs(5);
/// How long whoever wants to sleep waits to be told that the bell is armed; after that it will ring when it is.
const SOON: Duration = Duration::from_millis(20);
/// Where another's bell does for ours, how often to look whether it still does.
const ANOTHERS: Duration = Duration::from_secs(2);
/// How long a notification may take to arrive before a pooler is suspected. Shorter than whoever hangs a bell waits, or the
/// reason would never be told.
const ARRIVAL: Duration = Duration::from_secs(5);
/// How long the answer to a simple question may take.
const ANSWER: Duration = Duration::from_secs(10);

const ARM: &str = "select symphony.arm_wakeup($1, $2)";
const DISARM: &str = "select pg_advisory_unlock(symphony.wakeup_lock($1))";
const TEST_LISTEN: &str = "listen symphony_bell";
const TEST_RING: &str = "select pg_notify('symphony_bell', $1)";
const TEST_DONE: &str = "unlisten symphony_bell";
const CHECK: &str = "select 1";

/// A channel on which work is announced.
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

/// Why there is no bell. Work is found by polling meanwhile.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server was not reached, or refused.
    #[error(transparent)]
    Connect(#[from] connect::Error),
    /// The database refused to listen or to be told.
    #[error("the database refused to ring")]
    Refused(#[source] tokio_postgres::Error),
    /// What one session said, the other did not hear: a pooler stands in between. Give an address that leads to PostgreSQL itself.
    #[error(
        "a notification did not arrive: a pooler stands between; the address to listen at must lead to PostgreSQL itself"
    )]
    Deaf,
    /// The bell was there and is gone. Hang it again.
    #[error("the connection of the bell was lost")]
    Lost,
}

/// What the hand has brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody asked, or it was let go.
    Silent,
    /// Asked for; transactions that were open before are still open.
    Waiting,
    /// From now on whoever commits work rings: the answer to this wish.
    Armed(u64),
}

/// A bell that rings when work is committed while it is armed.
#[derive(Debug)]
pub struct Bell {
    ear: Client,
    heard: mpsc::Receiver<()>,
    /// Rings when arming took so long that its owner may sleep already.
    late: mpsc::Receiver<()>,
    wanted: watch::Sender<Wanted>,
    state: watch::Receiver<State>,
}

/// What the hand is to bring about. Each wish to be armed is a new one, so that another's bell is looked at again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wanted {
    armed: bool,
    wish: u64,
}

impl Bell {
    /// Connects, listens, and makes sure that what is said arrives.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn hang(target: &Target, channel: Channel) -> Result<Self, Error> {
        let (ring, heard) = mpsc::channel(1);
        let (test, mut tested) = mpsc::channel(16);
        let (ring_late, late) = mpsc::channel(1);
        let hear = move |message| {
            if let AsyncMessage::Notification(said) = message {
                if said.channel() == channel.name {
                    // One that waits already stands for all of them.
                    let _ = ring.try_send(());
                } else {
                    let _ = test.try_send(said.payload().to_owned());
                }
            }
        };
        let ear = target.connect_and_hear(hear).await?;
        let hand = target.connect().await?;
        ear.batch_execute(TEST_LISTEN).await.map_err(Error::Refused)?;
        let token = Uuid::new_v4().to_string();
        hand.execute_typed(TEST_RING, &[(&token, Type::TEXT)]).await.map_err(Error::Refused)?;
        let arrives = async { while tested.recv().await.is_some_and(|heard| heard != token) {} };
        timeout(ARRIVAL, arrives).await.map_err(|_| Error::Deaf)?;
        ear.batch_execute(TEST_DONE).await.map_err(Error::Refused)?;
        // Not before: at a pooler it would stay behind on a session of somebody else.
        ear.batch_execute(channel.listen).await.map_err(Error::Refused)?;

        let (wanted, wishes) = watch::channel(Wanted::default());
        let (says, state) = watch::channel(State::Silent);
        // Ends with the bell: the wishes end then, and with the hand's session its lock.
        tokio::spawn(Hand { session: hand, channel, wishes, says, ring: ring_late }.serve());
        Ok(Self { ear, heard, late, wanted, state })
    }

    /// Says that its owner is about to sleep. After this it must look for work once more before it does.
    ///
    /// Returns soon. Where transactions that were open before are still open, the bell rings by itself once they have
    /// ended, so that what they wrote is looked for.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub async fn arm(&mut self) -> Result<(), Error> {
        let mut wish = 0;
        self.wanted.send_modify(|wanted| {
            wanted.armed = true;
            wanted.wish += 1;
            wish = wanted.wish;
        });
        match timeout(SOON, self.state.wait_for(|state| *state == State::Armed(wish))).await {
            Ok(Err(_gone)) => Err(Error::Lost),
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    }

    /// Says that its owner is awake: nobody need ring. Returns at once.
    pub fn disarm(&mut self) {
        self.wanted.send_modify(|wanted| wanted.armed = false);
        // What rang until now is known.
        let _ = self.heard.try_recv();
        let _ = self.late.try_recv();
    }

    /// Waits until it rings. Nothing is lost if the wait is given up.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub async fn rung(&mut self) -> Result<(), Error> {
        // Either ends with its session.
        tokio::select! {
            heard = self.heard.recv() => heard.ok_or(Error::Lost),
            late = self.late.recv() => late.ok_or(Error::Lost),
        }
    }

    /// Makes sure that the session that hears is still there.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub async fn check(&self) -> Result<(), Error> {
        match timeout(ANSWER, self.ear.batch_execute(CHECK)).await {
            Ok(Ok(())) if self.state.has_changed().is_ok() => Ok(()),
            _ => Err(Error::Lost),
        }
    }
}

/// The session that holds the wake-up lock, and what it does about it.
struct Hand {
    session: Client,
    channel: Channel,
    wishes: watch::Receiver<Wanted>,
    says: watch::Sender<State>,
    ring: mpsc::Sender<()>,
}

impl Hand {
    /// Until the bell is gone or the session is.
    async fn serve(mut self) {
        let mut hold = Hold::Nothing;
        loop {
            let wanted = *self.wishes.borrow_and_update();
            let step = match hold {
                Hold::Nothing if wanted.armed => self.arm().await,
                Hold::Anothers(since) if wanted.armed && since.elapsed() >= ANOTHERS => self.arm().await,
                Hold::Lock | Hold::Anothers(_) if wanted.armed => {
                    self.says.send_replace(State::Armed(wanted.wish));
                    self.rest().await.map(|()| hold)
                }
                Hold::Lock => self.let_go().await,
                Hold::Nothing | Hold::Anothers(_) => {
                    self.says.send_replace(State::Silent);
                    self.rest().await.map(|()| Hold::Nothing)
                }
            };
            let Some(next) = step else { return };
            hold = next;
        }
    }

    /// Asks for the lock. Nothing is held where it is not to be had yet; then it is asked for again.
    async fn arm(&self) -> Option<Hold> {
        let was_late = *self.says.borrow() == State::Waiting;
        self.says.send_replace(State::Waiting);
        let began = Instant::now();
        let patience = i32::try_from(PATIENCE.as_millis()).unwrap_or(i32::MAX);
        let arguments: [(&(dyn ToSql + Sync), Type); 2] =
            [(&self.channel.name, Type::TEXT), (&patience, Type::INT4)];
        let row = timeout(PATIENCE + ANSWER, self.session.query_typed_one(ARM, &arguments)).await.ok()?.ok()?;
        let hold = match row.try_get(0).ok()? {
            "HELD" => Hold::Lock,
            "SHARED" => Hold::Anothers(Instant::now()),
            "NOT_YET" => return Some(Hold::Nothing),
            _ => return None,
        };
        if was_late || began.elapsed() >= SOON / 2 {
            // Its owner may sleep already, and what was committed meanwhile did not ring.
            let _ = self.ring.try_send(());
        }
        Some(hold)
    }

    async fn let_go(&self) -> Option<Hold> {
        self.says.send_replace(State::Silent);
        let arguments: [(&(dyn ToSql + Sync), Type); 1] = [(&self.channel.name, Type::TEXT)];
        timeout(ANSWER, self.session.execute_typed(DISARM, &arguments)).await.ok()?.ok()?;
        Some(Hold::Nothing)
    }

    /// Until somebody wishes something; none where nobody ever will, or the session is gone.
    async fn rest(&mut self) -> Option<()> {
        tokio::select! {
            changed = self.wishes.changed() => changed.ok(),
            // A session that ended while nothing was asked of it must be noticed as well.
            () = tokio::time::sleep(ANOTHERS) => (!self.session.is_closed()).then_some(()),
        }
    }
}

/// What stands between a writer's commit and silence.
#[derive(Clone, Copy, Debug)]
enum Hold {
    /// Nothing: nobody rings for us.
    Nothing,
    /// Our lock.
    Lock,
    /// Another's lock, as of this moment.
    Anothers(Instant),
}
