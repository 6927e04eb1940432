//! The state of a run: the database, what is known of each lease and engine, the trace, and the first violation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use symphony_relay::breaker::BreakerState;
use symphony_relay::claim_capacity::ClaimCapacity;
use symphony_relay::stop::StopMode;
use symphony_relay::{Settings, Summary};
use symphony_testkit::seeded_rng::SeededRng;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::database::Database;
use super::faults::{CALLS, Call, CallPlan, DispatchEnd, DispatchPlan};
use super::invariants::{Invariant, Violation};
use super::lane::Lease;
use super::scenario::{RowPlan, Scenario, between, ms};
use super::trace::{Event, Step};

/// How late a timer may be, in a runtime that counts milliseconds.
pub(crate) const TIMER: Duration = Duration::from_millis(2);

/// What is known of a lease outside of the engine that has it.
#[derive(Debug)]
pub(crate) struct LeaseRecord {
    pub(crate) lease: Lease,
    pub(crate) engine: usize,
    pub(crate) route: &'static str,
    /// When the engine considers it expired, at the latest.
    pub(crate) expires: Duration,
    /// When the claim's answer arrived at the engine.
    pub(crate) delivered: Duration,
    /// Whether it arrived within the timeout of the call.
    pub(crate) in_time: bool,
    pub(crate) dispatched: bool,
    /// The result of its dispatch.
    pub(crate) end: Option<DispatchEnd>,
    /// When its job was dropped: the dispatch ended or was cancelled.
    pub(crate) dropped: Option<Duration>,
    /// When the engine learnt from a renewal that it is lost.
    pub(crate) lost: Option<Duration>,
    /// The engine asked for the outcome of a cancelled dispatch.
    pub(crate) abandoned: bool,
    pub(crate) release_sent: bool,
    /// It is part of a completion or a release in flight.
    pub(crate) in_call: bool,
    /// When the engine got the answer that ends it.
    pub(crate) settled: Option<Duration>,
}

/// What is known of one engine. A relayer that restarts has a new one.
#[derive(Debug)]
pub(crate) struct EngineRecord {
    pub(crate) settings: Settings,
    pub(crate) in_flight: [usize; CALLS],
    pub(crate) last_claim: Option<(Duration, ClaimCapacity)>,
    pub(crate) unsettled: BTreeSet<u64>,
    pub(crate) breakers: BTreeMap<String, Breaker>,
    pub(crate) stop: Option<(StopMode, Duration)>,
    pub(crate) ended: Option<Duration>,
    /// The jobs of each key, in the order of their claims.
    pub(crate) turns: BTreeMap<u32, VecDeque<u64>>,
    /// Whether the last dispatch of a key succeeded.
    pub(crate) succeeded: BTreeMap<u32, bool>,
    pub(crate) turn_ended: Arc<Notify>,
    pub(crate) notifications: Option<mpsc::UnboundedSender<()>>,
    pub(crate) armed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Breaker {
    pub(crate) state: BreakerState,
    pub(crate) since: Duration,
    /// When it stopped being closed.
    pub(crate) opened: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) started: Instant,
    pub(crate) rng: SeededRng,
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) database: Database,
    /// By token.
    pub(crate) leases: BTreeMap<u64, LeaseRecord>,
    /// The tokens of running dispatches.
    pub(crate) running: BTreeSet<u64>,
    pub(crate) engines: Vec<EngineRecord>,
    pub(crate) calm: bool,
    pub(crate) finishing: bool,
    pub(crate) clock_stepped: bool,
    /// The last stall of the process: from when to when.
    pub(crate) stall: Option<(Duration, Duration)>,
    pub(crate) stalled_for: Duration,
    pub(crate) trace: Vec<Step>,
    pub(crate) violation: Option<Violation>,
    /// Events at the same moment, to notice a loop that never waits.
    busy: (Duration, usize),
}

#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<State>>);

impl Shared {
    pub(crate) fn new(scenario: Arc<Scenario>, seed: u64) -> Self {
        let database = Database::new(scenario.term.length(), scenario.max_attempts);
        Self(Arc::new(Mutex::new(State {
            started: Instant::now(),
            rng: SeededRng::new(seed, 1),
            scenario,
            database,
            leases: BTreeMap::new(),
            running: BTreeSet::new(),
            engines: Vec::new(),
            calm: false,
            finishing: false,
            clock_stepped: false,
            stall: None,
            stalled_for: Duration::ZERO,
            trace: Vec::new(),
            violation: None,
            busy: (Duration::ZERO, 0),
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nothing panics while it holds the lock")
    }
}

impl State {
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// When a step of now may have been decided: before the stall, if the process has just stalled.
    pub(crate) fn decided(&self) -> Duration {
        let now = self.now();
        self.stall.filter(|(_, to)| *to == now).map_or(now, |(from, _)| from)
    }

    pub(crate) fn is_stall_over_now(&self) -> bool {
        self.stall.is_some_and(|(_, to)| to == self.now())
    }

    pub(crate) fn record(&mut self, engine: Option<usize>, event: Event) {
        /// More than a run has rows, calls and engines.
        const MOST_AT_ONCE: usize = 5_000;
        if self.violation.is_some() {
            return;
        }
        let at = self.now();
        self.busy = if self.busy.0 == at { (at, self.busy.1 + 1) } else { (at, 0) };
        self.trace.push(Step { at, engine, event });
        if self.busy.1 > MOST_AT_ONCE {
            self.violate(Invariant::Bounded, format!("{MOST_AT_ONCE} steps at the same moment"));
        }
        self.check_running();
    }

    pub(crate) fn violate(&mut self, invariant: Invariant, seen: String) {
        self.violation.get_or_insert(Violation { invariant, seen });
    }

    /// Whether the run is over: no call returns any more, so that a loop of the engine cannot go on for ever.
    pub(crate) fn is_frozen(&self) -> bool {
        self.violation.is_some()
    }

    pub(crate) fn plan_call(&mut self, call: Call, relayer: usize) -> CallPlan {
        if self.calm {
            return CallPlan::prompt();
        }
        let (now, term) = (self.now(), self.scenario.term.length());
        self.scenario.faults.plan_call(&mut self.rng, call, relayer, now, term)
    }

    pub(crate) fn plan_dispatch(&mut self, lease: Lease) -> DispatchPlan {
        if self.calm {
            return DispatchPlan::prompt();
        }
        let plan = self.database.rows[&lease.row].plan;
        let (now, term) = (self.now(), self.scenario.term.length());
        self.scenario.faults.plan_dispatch(&mut self.rng, plan.route, plan.kind, now, term)
    }

    /// How long a relayer is away before it restarts.
    pub(crate) fn restart_delay(&mut self) -> Duration {
        if self.calm { ms(1) } else { between(&mut self.rng, 0, 1500) }
    }

    pub(crate) fn enqueue(&mut self, plan: RowPlan) {
        let now = self.now();
        let row = self.database.enqueue(plan, now);
        self.record(None, Event::Enqueued { row, plan });
        if plan.due_in.is_zero() {
            for engine in self.engines.iter().filter(|engine| engine.armed) {
                let _ = engine.notifications.as_ref().map(|notifications| notifications.send(()));
            }
        }
    }

    pub(crate) fn disconnect_listeners(&mut self) {
        self.record(None, Event::ListenersDisconnected);
        for engine in &mut self.engines {
            (engine.notifications, engine.armed) = (None, false);
        }
    }

    pub(crate) fn engine_started(&mut self, relayer: usize) -> usize {
        let engine = self.engines.len();
        self.engines.push(EngineRecord {
            settings: self.scenario.relayers[relayer].settings.clone(),
            in_flight: [0; CALLS],
            last_claim: None,
            unsettled: BTreeSet::new(),
            breakers: BTreeMap::new(),
            stop: None,
            ended: None,
            turns: BTreeMap::new(),
            succeeded: BTreeMap::new(),
            turn_ended: Arc::default(),
            notifications: None,
            armed: false,
        });
        self.record(Some(engine), Event::Started { relayer });
        engine
    }

    pub(crate) fn stop_requested(&mut self, engine: usize) {
        let now = self.now();
        let record = &mut self.engines[engine];
        let stop = match record.stop {
            None => (StopMode::Drain, now),
            Some((_, at)) => (StopMode::Immediate, if record.ended.is_some() { at } else { now }),
        };
        record.stop = Some(stop);
        self.record(Some(engine), Event::StopRequested(stop.0));
    }

    pub(crate) fn killed(&mut self, engine: usize) {
        let now = self.now();
        self.engines[engine].stop = Some((StopMode::Immediate, now));
        self.record(Some(engine), Event::Killed);
    }

    pub(crate) fn breaker_changed(&mut self, engine: usize, route: &str, state: BreakerState) {
        let now = self.now();
        let breakers = &mut self.engines[engine].breakers;
        let before = breakers.get(route).filter(|breaker| breaker.state != BreakerState::Closed);
        let opened = match state {
            BreakerState::Closed => None,
            BreakerState::Open | BreakerState::HalfOpen => before.map_or(Some(now), |breaker| breaker.opened),
        };
        breakers.insert(route.to_owned(), Breaker { state, since: now, opened });
        self.record(Some(engine), Event::Breaker(route.to_owned(), state));
    }

    /// An engine ended; with its counters, unless it was killed.
    pub(crate) fn engine_ended(&mut self, engine: usize, summary: Option<Summary>) {
        let now = self.now();
        self.engines[engine].ended = Some(now);
        self.record(Some(engine), Event::Ended(summary));
        if let Some(summary) = summary {
            self.check_end(engine, summary);
        }
        let record = &mut self.engines[engine];
        (record.notifications, record.armed) = (None, false);
    }

    /// Whether each dispatch and call from before has ended, and each lease with it. A dispatch that began before faults
    /// stopped may go on for long after another worker has ended its row.
    pub(crate) fn is_quiet(&self) -> bool {
        let now = self.now();
        let is_open = |lease: &LeaseRecord| {
            let was_delivered = lease.in_time || !lease.delivered.is_zero();
            was_delivered && (lease.dropped.is_none() || lease.settled.is_none() && lease.expires > now)
        };
        let is_calling =
            |engine: &EngineRecord| engine.in_flight[..Call::Arm as usize].iter().any(|calls| *calls > 0);
        let mut engines = self.engines.iter().filter(|engine| engine.ended.is_none());
        !engines.any(is_calling) && !self.leases.values().any(is_open)
    }

    pub(crate) fn is_running(&self, engine: usize) -> bool {
        self.engines[engine].ended.is_none()
    }
}
