//! A fake lane in memory: rows, leases with tokens and expiry, a ledger, fault injection, and a record of every call.

mod lane;
mod work;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use symphony_relay::breaker::Health;
use symphony_relay::lane::{LaneError, Repaired, RouteSignal};
use symphony_relay::lease::Term;
use symphony_relay::wake::Cause;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

pub(crate) use work::{pass, quiet, start, start_with_listener};

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

/// A call as it was made: when, and of what size (asked for by a claim, rows of the others).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) call: Call,
    pub(crate) at: Duration,
    pub(crate) size: usize,
    /// Rows that a claim brought.
    pub(crate) got: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing is done and the connection is lost.
    Unavailable,
    /// It is done, and the connection is lost before the answer.
    AnswerLost,
    Refused,
    /// No answer, ever; nothing is done.
    Hang,
    /// Done and answered, but late.
    Slow(Duration),
    Panic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Paid,
    /// To be tried again after so long.
    Later(Duration),
    Unknown,
    /// A row that spoils every completion it is part of.
    Poison,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) takes: Duration,
    pub(crate) outcome: Outcome,
    pub(crate) signal: RouteSignal,
    pub(crate) panics: bool,
}

pub(crate) const PROMPT: Manner =
    Manner { takes: Duration::ZERO, outcome: Outcome::Paid, signal: RouteSignal::Healthy, panics: false };

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
}

struct Row {
    route: String,
    due: Instant,
    lease: Option<(u64, Instant)>,
    ended: bool,
}

pub(crate) struct World {
    start: Instant,
    term: Term,
    rows: BTreeMap<u64, Row>,
    tokens: u64,
    pub(crate) ledger: Vec<(u64, Outcome)>,
    pub(crate) made: Vec<Made>,
    pub(crate) wakes: Vec<Cause>,
    pub(crate) health: Vec<(String, Health)>,
    pub(crate) connected: Vec<bool>,
    pub(crate) dispatched: Vec<(u64, Duration)>,
    pub(crate) finished: Vec<u64>,
    pub(crate) running: usize,
    pub(crate) most_running: usize,
    pub(crate) lost: usize,
    pub(crate) backstops: usize,
    pub(crate) quarantined: Vec<u64>,
    faults: HashMap<Call, VecDeque<Fault>>,
    lasting: HashMap<Call, Fault>,
    manners: HashMap<String, Manner>,
    pub(crate) repairs: VecDeque<Repaired>,
    /// Answers with the backstop for these rows.
    pub(crate) doubled: Vec<u64>,
    /// Whether claims respect the limits of routes; a lane with a bug would not.
    pub(crate) respects_capacity: bool,
    /// Claims bring what is leased already along, under the same lease, as a lane with a bug would.
    pub(crate) repeats: bool,
    /// The next row is always said to be due now, as one is that cannot be claimed.
    pub(crate) says_now: bool,
    /// One row at a time, the lowest that has not ended.
    pub(crate) in_order: bool,
    armed: bool,
    notifications: Option<mpsc::UnboundedSender<()>>,
    next_id: u64,
}

#[derive(Clone)]
pub(crate) struct Sim(Arc<Mutex<World>>);

impl Sim {
    pub(crate) fn new() -> Self {
        Self::with(Term::Renewable(30 * S))
    }

    pub(crate) fn with(term: Term) -> Self {
        Self(Arc::new(Mutex::new(World {
            start: Instant::now(),
            term,
            rows: BTreeMap::new(),
            tokens: 0,
            ledger: Vec::new(),
            made: Vec::new(),
            wakes: Vec::new(),
            health: Vec::new(),
            connected: Vec::new(),
            dispatched: Vec::new(),
            finished: Vec::new(),
            running: 0,
            most_running: 0,
            lost: 0,
            backstops: 0,
            quarantined: Vec::new(),
            faults: HashMap::new(),
            lasting: HashMap::new(),
            manners: HashMap::new(),
            repairs: VecDeque::new(),
            doubled: Vec::new(),
            respects_capacity: true,
            repeats: false,
            says_now: false,
            in_order: false,
            armed: false,
            notifications: None,
            next_id: 0,
        })))
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("no test panics while it holds this")
    }

    /// A look at one thing. Two looks fit in one expression, which two guards do not.
    pub(crate) fn see<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&self.world())
    }

    pub(crate) fn manner(&self, route: &str, manner: Manner) {
        self.world().manners.insert(route.to_owned(), manner);
    }

    /// The next calls of this kind fail like that, one after the other.
    pub(crate) fn faults(&self, call: Call, faults: &[Fault]) {
        self.world().faults.entry(call).or_default().extend(faults);
    }

    /// All calls of this kind fail like that, or no longer.
    pub(crate) fn always(&self, call: Call, fault: Option<Fault>) {
        match fault {
            Some(fault) => self.world().lasting.insert(call, fault),
            None => self.world().lasting.remove(&call),
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

    /// A row that is due later. Rows that are due now are notified, if the listener is armed.
    pub(crate) fn schedule(&self, route: &str, wait: Duration) -> u64 {
        let mut world = self.world();
        world.next_id += 1;
        let id = world.next_id;
        let row = Row { route: route.to_owned(), due: Instant::now() + wait, lease: None, ended: false };
        world.rows.insert(id, row);
        if world.armed
            && wait.is_zero()
            && let Some(notifications) = &world.notifications
        {
            let _ = notifications.send(());
        }
        id
    }

    /// Notifies without a reason.
    pub(crate) fn notify(&self) {
        if let Some(notifications) = &self.world().notifications {
            let _ = notifications.send(());
        }
    }

    /// The listener's connection is lost.
    pub(crate) fn disconnect_listener(&self) {
        let mut world = self.world();
        world.notifications = None;
        world.armed = false;
    }

    /// Another worker takes over a row, whatever its lease says.
    pub(crate) fn take_over(&self, id: u64) {
        let mut world = self.world();
        world.tokens += 1;
        let token = world.tokens;
        let row = world.rows.get_mut(&id).expect("a row");
        row.lease = Some((token, Instant::now() + 3600 * S));
    }

    pub(crate) fn leased(&self) -> usize {
        self.world().rows.values().filter(|row| !row.ended && row.lease.is_some()).count()
    }

    pub(crate) fn armed(&self) -> bool {
        self.world().armed
    }

    pub(crate) fn now(&self) -> Duration {
        self.world().start.elapsed()
    }

    pub(crate) fn made(&self, call: Call) -> Vec<Made> {
        self.world().made.iter().filter(|made| made.call == call).copied().collect()
    }

    pub(crate) fn times(&self, call: Call) -> Vec<Duration> {
        self.made(call).iter().map(|made| made.at).collect()
    }

    pub(crate) fn ledger(&self, id: u64) -> Vec<Outcome> {
        self.world().ledger.iter().filter(|(row, _)| *row == id).map(|(_, outcome)| *outcome).collect()
    }

    pub(crate) fn dispatched_at(&self, id: u64) -> Option<Duration> {
        self.world().dispatched.iter().find(|(row, _)| *row == id).map(|(_, at)| *at)
    }

    /// Records a call and injects its fault: Ok if the work is to be done.
    async fn call(&self, call: Call, size: usize) -> Result<(), LaneError> {
        let fault = {
            let mut world = self.world();
            let at = world.start.elapsed();
            world.made.push(Made { call, at, size, got: 0 });
            let lasting = world.lasting.get(&call).copied();
            world.faults.get_mut(&call).and_then(VecDeque::pop_front).or(lasting)
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
            Some(Fault::Panic) => panic!("to order"),
        }
    }

    /// Whether the answer to the call that is next is lost. Looked at before the call, since that takes the fault away.
    fn loses_answer(&self, call: Call) -> bool {
        let world = self.world();
        world.faults.get(&call).and_then(|faults| faults.front()) == Some(&Fault::AnswerLost)
    }
}
