//! The engine: wake, claim, dispatch, complete, renew, repair, release, stop.
//!
//! One task owns all state, so there are no locks. It does nothing itself that takes time: calls to the database and dispatches
//! are tasks of their own, each call with a limit of time, and what they bring comes back to the loop below. The
//! loop takes what came, lets the shift act on it, and sleeps until the next thing is due.
//!
//! What each part decides is in its own file, free of tasks and calls: [`wake`](crate::wake) when to claim, `slots` and
//! [`breaker`](crate::breaker) how much, `completion_batcher` when to record, `renewal` which leases to keep and which
//! dispatches to cut off.

mod answers;
mod calls;
mod flights;
mod release;
mod shift;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::bell::{Bell, Rope};
use crate::lane::Lane;
use crate::metrics::{Meter, Silent};
use crate::settings::{OutOfRange, Settings};
use crate::stop::{Signal, Wish};
use crate::trace::Tracer;

use shift::Shift;

/// How long the bell may take to be disarmed when the engine ends.
const GOODBYE: Duration = Duration::from_secs(1);

/// The longest and the shortest time that the loop sleeps if nothing happens.
const LONG_NAP: Duration = Duration::from_secs(60);
const SHORT_NAP: Duration = Duration::from_millis(1);

/// The loop of one lane in one process.
pub struct Engine<L: Lane> {
    lane: Arc<L>,
    settings: Settings,
    meter: Arc<dyn Meter>,
    tracer: Option<Arc<dyn Tracer>>,
}

/// What an engine did from its start to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Rows that were claimed.
    pub claimed: u64,
    /// Dispatches that began.
    pub started: u64,
    /// Outcomes that are in the ledger.
    pub recorded: u64,
    /// Dispatches that were cut off.
    pub abandoned: u64,
    /// Leases that somebody else had by the time they mattered.
    pub lease_lost: u64,
    /// Outcomes that could not be recorded: their leases expire.
    pub given_up: u64,
    /// Leases given back unstarted.
    pub released: u64,
    /// Leases of others that were repaired.
    pub repaired: u64,
    /// Leases that were held when it left; they expire.
    pub left_behind: u64,
}

impl<L: Lane> Engine<L> {
    /// An engine for this lane.
    ///
    /// # Errors
    ///
    /// A setting that is out of its range.
    pub fn new(lane: Arc<L>, settings: Settings) -> Result<Self, OutOfRange> {
        settings.check(lane.term())?;
        Ok(Self { lane, settings, meter: Arc::new(Silent), tracer: None })
    }

    /// Tells this one what happens.
    #[must_use]
    pub fn with_meter(mut self, meter: Arc<dyn Meter>) -> Self {
        self.meter = meter;
        self
    }

    /// Lets this one draw a span of each dispatch.
    #[must_use]
    pub fn with_tracer(mut self, tracer: Arc<dyn Tracer>) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// Works until it is told to stop, and says what it did. Dropped, it leaves at once.
    ///
    /// The loop is a task of its own. Whoever waits for it may do so on the thread that started the runtime, which is none of its workers:
    /// each ring and each answer would have to wake that thread first, and that one a worker again.
    pub async fn run<B: Bell>(self, bell: Option<B>, stop: Signal) -> Summary {
        let mut task = JoinSet::new();
        task.spawn(self.work(bell, stop));
        match task.join_next().await.map(|ended| ended.map_err(JoinError::try_into_panic)) {
            Some(Ok(summary)) => summary,
            Some(Err(Ok(panic))) => resume_unwind(panic),
            // The runtime goes down, and whoever waits with it.
            Some(Err(Err(_))) | None => Summary::default(),
        }
    }

    async fn work<B: Bell>(self, bell: Option<B>, mut stop: Signal) -> Summary {
        let mut rope = bell.map(|bell| Rope::new(bell, Arc::clone(&self.meter)));
        let mut shift = Shift::new(self.lane, self.settings, self.meter, rope.is_some(), Instant::now());
        shift.flights.tracer = self.tracer;
        shift.told(stop.wish(), Instant::now());
        while !shift.is_over(Instant::now()) {
            let now = Instant::now();
            shift.act(now);
            if shift.is_over(now) {
                // What it let go of just now was the last: nothing would wake it before the grace time ends.
                break;
            }
            if let Some(rope) = &rope {
                rope.want(shift.wants_bell());
            }
            // Whatever is due was done just now. Should something say otherwise, it must not make this loop spin.
            let until = shift.next().unwrap_or(now + LONG_NAP).max(now + SHORT_NAP);
            tokio::select! {
                wish = stop.said() => shift.told(wish, Instant::now()),
                landed = shift.flights.landed() => shift.landed(landed, Instant::now()),
                report = shift.calls.answered() => shift.answered(report, Instant::now()),
                heard = hear(&mut rope) => shift.heard(heard),
                () = sleep_until(until) => {}
            }
            shift.take_the_rest(Instant::now());
        }
        let at_once = stop.wish() == Wish::Leave;
        let summary = shift.summary();
        drop(shift);
        if let Some(rope) = rope {
            rope.let_go(if at_once { Duration::ZERO } else { GOODBYE }).await;
        }
        summary
    }
}

async fn hear(rope: &mut Option<Rope>) -> crate::bell::Heard {
    match rope {
        Some(rope) => rope.heard().await,
        None => std::future::pending().await,
    }
}
