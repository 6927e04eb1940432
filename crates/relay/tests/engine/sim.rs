//! A fake lane in memory: rows, leases with tokens and expiry, a ledger, fault injection, and a record of every call.

mod lane;
mod run;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use symphony_relay::breaker::BreakerState;
use symphony_relay::lane::{LaneError, Repaired, RouteSignal};
use symphony_relay::lease::Term;
use symphony_relay::wake::Cause;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

pub(crate) use run::{advance, start, start_with_listener, without_polls};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const S: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Claim,
    Dispatch,
    Complete,
    Renew,
    Release,
    Repair,
    NextDue,
    Arm,
    Disarm,
}

/// A recorded call: when, and its size (the limit of a claim, the rows of the others).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordedCall {
    pub(crate) call: Call,
    pub(crate) at: Duration,
    pub(crate) size: usize,
    /// Rows that a claim returned.
    pub(crate) rows: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection is lost before the call is executed.
    Unavailable,
    /// The call is executed, and the connection is lost before the answer.
    AnswerLost,
    Refused,
    /// The call is not executed and never returns.
    Hang,
    /// The call is executed after this time.
    Slow(Duration),
    Panic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Paid,
    /// A retry is due after this time.
    Retry(Duration),
    Unknown,
    /// A poison row: the database refuses every batch that contains it.
    Poison,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Behavior {
    pub(crate) latency: Duration,
    pub(crate) outcome: Outcome,
    pub(crate) signal: RouteSignal,
    pub(crate) panics: bool,
}

pub(crate) const INSTANT: Behavior =
    Behavior { latency: Duration::ZERO, outcome: Outcome::Paid, signal: RouteSignal::Healthy, panics: false };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    pub(crate) id: u64,
    token: u64,
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}

pub(crate) struct Job {
    lease: Lease,
    route: String,
    attempt: u32,
}

struct Row {
    route: String,
    due: Instant,
    lease: Option<(u64, Instant)>,
    attempts: u32,
    ended: bool,
}

impl Row {
    fn job(&self, id: u64, token: u64) -> Job {
        Job { lease: Lease { id, token }, route: self.route.clone(), attempt: self.attempts + 1 }
    }
}

pub(crate) struct SimState {
    start: Instant,
    term: Term,
    rows: BTreeMap<u64, Row>,
    tokens: u64,
    pub(crate) ledger: Vec<(u64, Outcome)>,
    pub(crate) calls: Vec<RecordedCall>,
    pub(crate) causes: Vec<Cause>,
    pub(crate) breaker_states: Vec<(String, BreakerState)>,
    pub(crate) connected: Vec<bool>,
    pub(crate) dispatched: Vec<(u64, Duration)>,
    pub(crate) finished: Vec<u64>,
    pub(crate) running: usize,
    pub(crate) max_running: usize,
    pub(crate) lost: usize,
    pub(crate) backstops: usize,
    pub(crate) quarantined: Vec<u64>,
    faults: HashMap<Call, VecDeque<Fault>>,
    permanent_faults: HashMap<Call, Fault>,
    behaviors: HashMap<String, Behavior>,
    /// The behavior of single rows, whatever their route.
    pub(crate) row_behaviors: HashMap<u64, Behavior>,
    /// When each row ended.
    pub(crate) ended_at: BTreeMap<u64, Duration>,
    /// How many routes the lane serves.
    pub(crate) routes: usize,
    /// Whether claims can select rows that have not been attempted.
    pub(crate) selects_first_attempts: bool,
    pub(crate) repairs: VecDeque<Repaired>,
    /// Rows whose completion the backstop rejects.
    pub(crate) rejected_by_backstop: Vec<u64>,
    /// Whether claims respect the limits of routes; a lane with a bug would not.
    pub(crate) respects_capacity: bool,
    /// Whether claims also return rows that are leased already, under the same lease; a lane with a bug would.
    pub(crate) repeats_leases: bool,
    /// Whether the next row is always due now, as if it could not be claimed.
    pub(crate) always_due: bool,
    /// Rows whose turn never comes.
    pub(crate) waiting_for_turn: Vec<u64>,
    /// Whether claims return one row at a time, the first that has not ended.
    pub(crate) in_order: bool,
    armed: bool,
    notifications: Option<mpsc::UnboundedSender<()>>,
    next_id: u64,
}

#[derive(Clone)]
pub(crate) struct Sim(Arc<Mutex<SimState>>);

impl Sim {
    pub(crate) fn new() -> Self {
        Self::with(Term::Renewable(30 * S))
    }

    pub(crate) fn with(term: Term) -> Self {
        Self(Arc::new(Mutex::new(SimState {
            start: Instant::now(),
            term,
            rows: BTreeMap::new(),
            tokens: 0,
            ledger: Vec::new(),
            calls: Vec::new(),
            causes: Vec::new(),
            breaker_states: Vec::new(),
            connected: Vec::new(),
            dispatched: Vec::new(),
            finished: Vec::new(),
            running: 0,
            max_running: 0,
            lost: 0,
            backstops: 0,
            quarantined: Vec::new(),
            faults: HashMap::new(),
            permanent_faults: HashMap::new(),
            behaviors: HashMap::new(),
            row_behaviors: HashMap::new(),
            ended_at: BTreeMap::new(),
            routes: 1,
            selects_first_attempts: true,
            repairs: VecDeque::new(),
            rejected_by_backstop: Vec::new(),
            respects_capacity: true,
            repeats_leases: false,
            always_due: false,
            waiting_for_turn: Vec::new(),
            in_order: false,
            armed: false,
            notifications: None,
            next_id: 0,
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, SimState> {
        self.0.lock().expect("no test panics while it holds the lock")
    }

    /// Reads one value. Two reads fit in one expression, which two guards do not.
    pub(crate) fn read<T>(&self, value: impl FnOnce(&SimState) -> T) -> T {
        value(&self.state())
    }

    pub(crate) fn set_behavior(&self, route: &str, behavior: Behavior) {
        self.state().behaviors.insert(route.to_owned(), behavior);
    }

    /// Injects faults into the next calls of this kind, one each.
    pub(crate) fn inject(&self, call: Call, faults: &[Fault]) {
        self.state().faults.entry(call).or_default().extend(faults);
    }

    /// Injects a fault into every call of this kind, or removes it.
    pub(crate) fn set_fault(&self, call: Call, fault: Option<Fault>) {
        match fault {
            Some(fault) => self.state().permanent_faults.insert(call, fault),
            None => self.state().permanent_faults.remove(&call),
        };
    }

    pub(crate) fn enqueue(&self, route: &str) -> u64 {
        self.schedule(route, Duration::ZERO)
    }

    pub(crate) fn enqueue_many(&self, route: &str, count: usize) {
        for _ in 0..count {
            self.enqueue(route);
        }
    }

    /// Enqueues a row that is due later. A row that is due now is notified, if the listener is armed.
    pub(crate) fn schedule(&self, route: &str, wait: Duration) -> u64 {
        let mut state = self.state();
        state.next_id += 1;
        let id = state.next_id;
        let row =
            Row { route: route.to_owned(), due: Instant::now() + wait, lease: None, attempts: 0, ended: false };
        state.rows.insert(id, row);
        if state.armed
            && wait.is_zero()
            && let Some(notifications) = &state.notifications
        {
            let _ = notifications.send(());
        }
        id
    }

    /// Sends a notification without a row.
    pub(crate) fn notify(&self) {
        if let Some(notifications) = &self.state().notifications {
            let _ = notifications.send(());
        }
    }

    /// The listener's connection is lost.
    pub(crate) fn disconnect_listener(&self) {
        let mut state = self.state();
        state.notifications = None;
        state.armed = false;
    }

    /// Another worker claims a row, although it is leased.
    pub(crate) fn take_over(&self, id: u64) {
        let mut state = self.state();
        state.tokens += 1;
        let token = state.tokens;
        let row = state.rows.get_mut(&id).expect("a row");
        row.lease = Some((token, Instant::now() + 3600 * S));
    }

    pub(crate) fn leased(&self) -> usize {
        self.state().rows.values().filter(|row| !row.ended && row.lease.is_some()).count()
    }

    pub(crate) fn armed(&self) -> bool {
        self.state().armed
    }

    pub(crate) fn now(&self) -> Duration {
        self.state().start.elapsed()
    }

    pub(crate) fn calls(&self, call: Call) -> Vec<RecordedCall> {
        self.state().calls.iter().filter(|recorded| recorded.call == call).copied().collect()
    }

    pub(crate) fn times(&self, call: Call) -> Vec<Duration> {
        self.calls(call).iter().map(|call| call.at).collect()
    }

    pub(crate) fn ledger(&self, id: u64) -> Vec<Outcome> {
        self.state().ledger.iter().filter(|(row, _)| *row == id).map(|(_, outcome)| *outcome).collect()
    }

    pub(crate) fn dispatched_at(&self, id: u64) -> Option<Duration> {
        self.state().dispatched.iter().find(|(row, _)| *row == id).map(|(_, at)| *at)
    }

    /// Records a call and injects its fault; `Ok` if the call is to be executed.
    async fn call(&self, call: Call, size: usize) -> Result<(), LaneError> {
        let fault = {
            let mut state = self.state();
            let at = state.start.elapsed();
            state.calls.push(RecordedCall { call, at, size, rows: 0 });
            let permanent_faults = state.permanent_faults.get(&call).copied();
            state.faults.get_mut(&call).and_then(VecDeque::pop_front).or(permanent_faults)
        };
        match fault {
            None | Some(Fault::AnswerLost) => Ok(()),
            Some(Fault::Unavailable) => Err(LaneError::Unavailable("cut".to_owned())),
            Some(Fault::Refused) => Err(LaneError::Refused("no".to_owned())),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Slow(time)) => {
                sleep(time).await;
                Ok(())
            }
            Some(Fault::Panic) => panic!("injected"),
        }
    }

    /// Whether the answer to the next call is lost. Checked before the call, which consumes the fault.
    fn loses_answer(&self, call: Call) -> bool {
        let state = self.state();
        state.faults.get(&call).and_then(|faults| faults.front()) == Some(&Fault::AnswerLost)
    }
}
