//! The engine: wake, claim, dispatch, complete, renew, repair, release, stop.
//!
//! One task owns all state, so there are no locks. It never blocks: database calls and dispatches run in tasks of
//! their own, each call with a timeout, and report their results to the loop below. The loop takes the results, runs
//! one step of the state machine in `state`, and sleeps until the next deadline.
//!
//! Each decision has its own module, free of tasks and calls: [`wake`](crate::wake) when to claim, `slots` and
//! [`breaker`](crate::breaker) how many, `completion_batcher` when to record, `renewal` which leases to renew and which
//! dispatches to cancel.

mod calls;
mod dispatches;
mod release;
mod results;
mod state;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::lane::Lane;
use crate::listener::{Listener, ListenerHandle, ListenerUpdate};
use crate::metrics::{Meter, NoopMeter};
use crate::settings::{OutOfRange, Settings};
use crate::stop::StopSignal;
use crate::trace::Tracer;

use state::EngineState;

/// How long disarming the listener may take at the end.
const DISARM_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum and the minimum time that the loop sleeps if nothing happens.
const MAX_SLEEP: Duration = Duration::from_secs(60);
const MIN_SLEEP: Duration = Duration::from_millis(1);

/// The relay loop of one lane in one process.
pub struct Engine<L: Lane> {
    lane: Arc<L>,
    settings: Settings,
    meter: Arc<dyn Meter>,
    tracer: Option<Arc<dyn Tracer>>,
}

/// Counters of one run of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Rows claimed.
    pub claimed: u64,
    /// Dispatches started.
    pub started: u64,
    /// Outcomes recorded.
    pub recorded: u64,
    /// Dispatches cancelled or panicked.
    pub abandoned: u64,
    /// Leases lost before the outcome was recorded.
    pub lease_lost: u64,
    /// Outcomes that could not be recorded; their leases expire.
    pub given_up: u64,
    /// Leases released without a dispatch.
    pub released: u64,
    /// Expired leases repaired.
    pub repaired: u64,
    /// Leases still held at the end; they expire.
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
        Ok(Self { lane, settings, meter: Arc::new(NoopMeter), tracer: None })
    }

    /// Reports metrics to this meter.
    #[must_use]
    pub fn with_meter(mut self, meter: Arc<dyn Meter>) -> Self {
        self.meter = meter;
        self
    }

    /// Exports a span of each dispatch to this tracer.
    #[must_use]
    pub fn with_tracer(mut self, tracer: Arc<dyn Tracer>) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// Runs until it is stopped, and returns its counters. Dropping the future stops the engine at once.
    ///
    /// The loop runs in a spawned task, because the caller may await it on the thread that started the runtime. That
    /// is not a worker thread: there, each notification and each result would cost two more thread switches.
    pub async fn run<N: Listener>(self, listener: Option<N>, stop: StopSignal) -> Summary {
        let mut task = JoinSet::new();
        task.spawn(self.run_loop(listener, stop));
        match task.join_next().await.map(|ended| ended.map_err(JoinError::try_into_panic)) {
            Some(Ok(summary)) => summary,
            Some(Err(Ok(panic))) => resume_unwind(panic),
            // The runtime is shutting down, and the caller with it.
            Some(Err(Err(_))) | None => Summary::default(),
        }
    }

    async fn run_loop<N: Listener>(self, listener: Option<N>, mut stop: StopSignal) -> Summary {
        let mut listener = listener.map(|listener| ListenerHandle::spawn(listener, Arc::clone(&self.meter)));
        let mut state = EngineState::new(self.lane, self.settings, self.meter, listener.is_some(), Instant::now());
        state.dispatches.tracer = self.tracer;
        state.on_stop(stop.mode(), Instant::now());
        while !state.is_finished(Instant::now()) {
            let now = Instant::now();
            state.step(now);
            if state.is_finished(now) {
                // This step dropped the last lease: nothing would wake the loop before the grace period ends.
                break;
            }
            if let Some(listener) = &listener {
                listener.request(state.wants_notifications());
            }
            // Everything due was done just now. A deadline that claims otherwise must not make this loop spin.
            let until = state.next_deadline().unwrap_or(now + MAX_SLEEP).max(now + MIN_SLEEP);
            // In a fixed order, so that a run can be repeated. None starves: `take_ready` takes whatever else is ready.
            tokio::select! {
                biased;
                mode = stop.changed() => state.on_stop(mode, Instant::now()),
                ended = state.dispatches.ended() => state.on_dispatch_ended(ended, Instant::now()),
                result = state.calls.returned() => state.on_call_returned(result, Instant::now()),
                update = changed(&mut listener) => state.on_listener(update),
                () = sleep_until(until) => {}
            }
            state.take_ready(Instant::now());
        }
        let summary = state.summary();
        drop(state);
        if let Some(listener) = listener {
            let no_longer = timeout(DISARM_TIMEOUT, stop.until_immediate());
            listener.close(async { drop(no_longer.await) }).await;
        }
        summary
    }
}

async fn changed(listener: &mut Option<ListenerHandle>) -> ListenerUpdate {
    match listener {
        Some(listener) => listener.changed().await,
        None => std::future::pending().await,
    }
}
