//! The bell that writers ring when somebody sleeps, and the task that looks after it.
//!
//! A bell only saves time: whatever it fails to ring for is found by the next poll. So its failures are told and
//! repaired here, and nothing else waits for it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::backoff::{Backoff, spread};
use crate::fail_point::{self, Step};
use crate::lane::LaneError;
use crate::metrics::Meter;

/// How long a bell may take to be armed or disarmed. Arming may have to connect and to make sure that what is said is heard;
/// no lease depends on it, so it has more time than other calls.
const LIMIT: Duration = Duration::from_secs(60);

/// How long a bell is left alone that was refused retry_scheduled: nobody removes a pooler within seconds, and each try costs two sessions and a
/// notification.
const REFUSED: Duration = Duration::from_secs(60);

/// Something that rings when there is new work. It connects by itself when it is armed, and again after it failed.
pub trait Bell: Send + 'static {
    /// Somebody is about to sleep: whatever is committed after this returns, rings. Work that was committed before
    /// may not have, so the engine looks once more before it sleeps.
    fn arm(&mut self) -> impl Future<Output = Result<(), LaneError>> + Send;

    /// Nobody sleeps: writers need not ring.
    fn disarm(&mut self) -> impl Future<Output = Result<(), LaneError>> + Send;

    /// Waits until it rang. Cancel-safe: a ring is not lost when this is dropped. An error says that the bell is lost
    /// and has to be armed anew. Also waited for while disarmed, once it was armed, so that what comes is drained.
    fn rung(&mut self) -> impl Future<Output = Result<(), LaneError>> + Send;
}

/// The bell of an engine that has none.
#[derive(Clone, Copy, Debug)]
pub enum NoBell {}

impl Bell for NoBell {
    async fn arm(&mut self) -> Result<(), LaneError> {
        match *self {}
    }
    async fn disarm(&mut self) -> Result<(), LaneError> {
        match *self {}
    }
    async fn rung(&mut self) -> Result<(), LaneError> {
        match *self {}
    }
}

/// What the engine wants of the bell. The number tells one wish to be armed from the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wish {
    armed: bool,
    number: u64,
}

/// What is known of the bell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct News {
    /// The wish for which it is armed.
    armed_for: Option<u64>,
    /// How often it was armed.
    armings: u64,
    /// How often it rang. Rings that come faster than they are looked at count as one.
    rings: u64,
}

/// What an engine learns when it looks at its bell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    /// It is armed, as was asked.
    pub(crate) armed: bool,
    /// It was armed since the last look, perhaps after it had been lost: what came in between did not ring.
    pub(crate) anew: bool,
    /// It rang since the last look.
    pub(crate) rang: bool,
}

/// The engine's end of a bell.
#[derive(Debug)]
pub(crate) struct Rope {
    wish: watch::Sender<Wish>,
    news: watch::Receiver<News>,
    seen: News,
    keeper: JoinHandle<()>,
}

impl Rope {
    /// Gives the bell to a task of its own.
    pub(crate) fn new<B: Bell>(bell: B, meter: Arc<dyn Meter>) -> Self {
        let (wish, wishes) = watch::channel(Wish::default());
        let (news, heard) = watch::channel(News::default());
        let keeper = Keeper {
            bell,
            meter,
            news,
            armed: false,
            connected: false,
            refused: false,
            backoff: Backoff::of_calls(),
            not_before: Instant::now(),
        };
        Self { wish, news: heard, seen: News::default(), keeper: tokio::spawn(keeper.keep(wishes)) }
    }

    /// Asks for the bell to be armed or not.
    pub(crate) fn want(&self, armed: bool) {
        self.wish.send_if_modified(|wish| {
            let changed = wish.armed != armed;
            if changed {
                *wish = Wish { armed, number: wish.number + 1 };
            }
            changed
        });
    }

    /// Waits for news; cancel-safe. Never returns once the keeper is gone.
    pub(crate) async fn heard(&mut self) -> Heard {
        if self.news.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        let (news, wish) = (*self.news.borrow_and_update(), *self.wish.borrow());
        let seen = std::mem::replace(&mut self.seen, news);
        Heard {
            armed: wish.armed && news.armed_for == Some(wish.number),
            anew: news.armings != seen.armings,
            rang: news.rings != seen.rings,
        }
    }

    /// Lets the bell go, disarmed if there is time.
    pub(crate) async fn let_go(self, patience: Duration) {
        drop(self.wish);
        let mut keeper = self.keeper;
        if timeout(patience, &mut keeper).await.is_err() {
            keeper.abort();
        }
    }
}

struct Keeper<B> {
    bell: B,
    meter: Arc<dyn Meter>,
    news: watch::Sender<News>,
    armed: bool,
    connected: bool,
    /// The last try was refused.
    refused: bool,
    backoff: Backoff,
    /// After a failure, when to try again.
    not_before: Instant,
}

impl<B: Bell> Keeper<B> {
    async fn keep(mut self, mut wishes: watch::Receiver<Wish>) {
        loop {
            let wish = *wishes.borrow_and_update();
            if wish.armed && !self.armed && Instant::now() >= self.not_before {
                self.arm().await;
            } else if !wish.armed && self.armed {
                self.disarm().await;
            }
            if wish.armed && self.armed {
                self.news.send_if_modified(|news| news.armed_for.replace(wish.number) != Some(wish.number));
            }
            let waits = wish.armed && !self.armed;
            tokio::select! {
                changed = wishes.changed() => if changed.is_err() {
                    break;
                },
                rung = self.bell.rung(), if self.connected => match rung {
                    Ok(()) => self.news.send_modify(|news| news.rings += 1),
                    Err(error) => self.lost(&error),
                },
                () = sleep_until(self.not_before), if waits => {}
            }
        }
        if self.armed {
            self.disarm().await;
        }
    }

    async fn arm(&mut self) {
        match within(self.bell.arm()).await {
            Ok(()) => {
                fail_point::reach(Step::AfterArm);
                if self.backoff.worked() {
                    tracing::info!("the listener is back");
                }
                (self.armed, self.connected, self.refused) = (true, true, false);
                self.news.send_modify(|news| news.armings += 1);
                self.meter.listener_connected(true);
            }
            Err(error) => self.lost(&error),
        }
    }

    async fn disarm(&mut self) {
        let disarmed = within(self.bell.disarm()).await;
        self.armed = false;
        self.news.send_if_modified(|news| news.armed_for.take().is_some());
        if let Err(error) = disarmed {
            self.lost(&error);
        }
    }

    fn lost(&mut self, error: &LaneError) {
        (self.armed, self.connected) = (false, false);
        let refused = matches!(error, LaneError::Refused(_));
        let again = std::mem::replace(&mut self.refused, refused) && refused;
        let wait = self.backoff.after(error);
        // Once, the server may have been slow to ring.
        self.not_before = Instant::now() + if again { wait.max(spread(REFUSED)) } else { wait };
        self.news.send_if_modified(|news| news.armed_for.take().is_some());
        self.meter.listener_connected(false);
        if self.backoff.just_began() {
            tracing::warn!(%error, "the listener is lost: work is found by polling until it is back");
        }
    }
}

async fn within<T>(call: impl Future<Output = Result<T, LaneError>>) -> Result<T, LaneError> {
    timeout(LIMIT, call)
        .await
        .unwrap_or_else(|_| Err(LaneError::Unavailable(format!("no answer within {LIMIT:?}"))))
}
