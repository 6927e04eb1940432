//! A lane in memory: rows, leases with tokens that expire, a ledger, faults to order, and a record of every call.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use symphony_relay::bell::Bell;
use symphony_relay::breaker::Health;
use symphony_relay::lane::{Done, Ended, Finished, Lane, Repaired, Trouble, Verdict};
use symphony_relay::lease::{LeaseWatch, Term};
use symphony_relay::metrics::Meter;
use symphony_relay::rooms::Rooms;
use symphony_relay::stop::Stop;
use symphony_relay::wake::Cause;
use symphony_relay::{Engine, Settings, Summary};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

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
    Away,
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
    pub(crate) verdict: Verdict,
    pub(crate) panics: bool,
}

pub(crate) const PROMPT: Manner =
    Manner { takes: Duration::ZERO, outcome: Outcome::Paid, verdict: Verdict::Good, panics: false };

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
    faults: HashMap<Call, VecDeque<Fault>>,
    lasting: HashMap<Call, Fault>,
    manners: HashMap<String, Manner>,
    pub(crate) repairs: VecDeque<Repaired>,
    /// Answers with the backstop for these rows.
    pub(crate) doubled: Vec<u64>,
    /// Claims look at the rooms of routes, or not, as a lane with a bug would.
    pub(crate) heeds_rooms: bool,
    /// Claims bring what is leased already along, under the same lease, as a lane with a bug would.
    pub(crate) repeats: bool,
    armed: bool,
    rings: Option<mpsc::UnboundedSender<()>>,
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
            faults: HashMap::new(),
            lasting: HashMap::new(),
            manners: HashMap::new(),
            repairs: VecDeque::new(),
            doubled: Vec::new(),
            heeds_rooms: true,
            repeats: false,
            armed: false,
            rings: None,
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

    /// A row that is due later. Writers ring for rows that are due, if the bell is armed.
    pub(crate) fn schedule(&self, route: &str, wait: Duration) -> u64 {
        let mut world = self.world();
        world.next_id += 1;
        let id = world.next_id;
        let row = Row { route: route.to_owned(), due: Instant::now() + wait, lease: None, ended: false };
        world.rows.insert(id, row);
        if world.armed
            && wait.is_zero()
            && let Some(rings) = &world.rings
        {
            let _ = rings.send(());
        }
        id
    }

    /// Rings without reason.
    pub(crate) fn ring(&self) {
        if let Some(rings) = &self.world().rings {
            let _ = rings.send(());
        }
    }

    /// The bell's connection is cut.
    pub(crate) fn cut_bell(&self) {
        let mut world = self.world();
        world.rings = None;
        world.armed = false;
    }

    /// Somebody else takes a row over, whatever its lease says.
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

    /// Takes note of a call and suffers its fault: whether the work is done, and how it ends otherwise.
    async fn call(&self, call: Call, size: usize) -> Result<(), Trouble> {
        let fault = {
            let mut world = self.world();
            let at = world.start.elapsed();
            world.made.push(Made { call, at, size, got: 0 });
            let lasting = world.lasting.get(&call).copied();
            world.faults.get_mut(&call).and_then(VecDeque::pop_front).or(lasting)
        };
        match fault {
            None | Some(Fault::AnswerLost) => Ok(()),
            Some(Fault::Away) => Err(Trouble::Away("cut".to_owned())),
            Some(Fault::Refused) => Err(Trouble::Refused("no".to_owned())),
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

/// Counts a running dispatch as long as it lives, cut off or not.
struct Running(Sim);

impl Running {
    fn new(sim: &Sim) -> Self {
        let mut world = sim.world();
        world.running += 1;
        world.most_running = world.most_running.max(world.running);
        Self(sim.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.world().running -= 1;
    }
}

impl Lane for Sim {
    type Job = Job;
    type Lease = Lease;
    type Outcome = Outcome;

    fn term(&self) -> Term {
        self.world().term
    }

    fn lease(&self, job: &Job) -> Lease {
        job.lease
    }

    fn route<'a>(&self, job: &'a Job) -> &'a str {
        &job.route
    }

    async fn claim(&self, rooms: &Rooms) -> Result<Vec<Job>, Trouble> {
        assert!(rooms.total() > 0, "a claim without room");
        let number = self.world().made.len();
        self.call(Call::Claim, rooms.total()).await?;
        let (world, now) = (&mut *self.world(), Instant::now());
        let expires = now + world.term.length();
        let mut jobs: Vec<Job> = Vec::new();
        for (id, row) in &mut world.rows {
            let free = row.lease.is_none_or(|(_, end)| end <= now);
            if let Some((token, _)) = row.lease.filter(|_| world.repeats && !free && !row.ended) {
                jobs.push(Job { lease: Lease { id: *id, token }, route: row.route.clone() });
            }
            let of_route = jobs.iter().filter(|job| job.route == row.route).count();
            let room = !world.heeds_rooms || of_route < rooms.of(&row.route);
            if !row.ended && free && row.due <= now && room && jobs.len() < rooms.total() {
                world.tokens += 1;
                row.lease = Some((world.tokens, expires));
                jobs.push(Job { lease: Lease { id: *id, token: world.tokens }, route: row.route.clone() });
            }
        }
        world.made[number].got = jobs.len();
        Ok(jobs)
    }

    async fn dispatch(&self, job: Job, lease: LeaseWatch) -> Finished<Outcome> {
        let _running = Running::new(self);
        assert!(!lease.remaining().is_zero(), "started without time");
        let manner = {
            let mut world = self.world();
            let at = world.start.elapsed();
            world.made.push(Made { call: Call::Dispatch, at, size: 1, got: 0 });
            world.dispatched.push((job.lease.id, at));
            world.manners.get(&job.route).copied().unwrap_or(PROMPT)
        };
        if !manner.takes.is_zero() {
            sleep(manner.takes).await;
        }
        assert!(!manner.panics, "to order");
        self.world().finished.push(job.lease.id);
        Finished { outcome: manner.outcome, latency: manner.takes, verdict: manner.verdict }
    }

    fn abandoned(&self, _: &Lease) -> Option<Outcome> {
        Some(Outcome::Unknown)
    }

    async fn complete(&self, done: &[Arc<Done<Lease, Outcome>>]) -> Result<Vec<Ended>, Trouble> {
        let lost = self.loses_answer(Call::Complete);
        self.call(Call::Complete, done.len()).await?;
        if done.iter().any(|done| done.outcome == Outcome::Poison) {
            return Err(Trouble::Refused("poison".to_owned()));
        }
        let (world, now) = (&mut *self.world(), Instant::now());
        let mut answers = Vec::new();
        for done in done {
            let row = world.rows.get_mut(&done.lease.id).expect("a row");
            let holds = row.lease.is_some_and(|(token, end)| token == done.lease.token && end > now);
            answers.push(if row.ended {
                Ended::AlreadyTerminal
            } else if !holds {
                Ended::LeaseLost
            } else if world.doubled.contains(&done.lease.id) {
                Ended::Backstop
            } else {
                row.lease = None;
                world.ledger.push((done.lease.id, done.outcome));
                match done.outcome {
                    Outcome::Later(wait) => row.due = now + wait,
                    Outcome::Unknown => row.due = now + 3600 * S,
                    Outcome::Paid | Outcome::Poison => row.ended = true,
                }
                Ended::Recorded { state: "PAID", again: !row.ended }
            });
        }
        if lost { Err(Trouble::Away("the answer was lost".to_owned())) } else { Ok(answers) }
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<bool>, Trouble> {
        self.call(Call::Renew, leases.len()).await?;
        let (world, now) = (&mut *self.world(), Instant::now());
        let expires = now + world.term.length();
        let mut held = Vec::new();
        for lease in leases {
            let row = world.rows.get_mut(&lease.id).expect("a row");
            let holds = row.lease.is_some_and(|(token, end)| token == lease.token && end > now);
            if holds {
                row.lease = Some((lease.token, expires));
            }
            held.push(holds);
        }
        Ok(held)
    }

    async fn release(&self, leases: &[Lease]) -> Result<usize, Trouble> {
        self.call(Call::Release, leases.len()).await?;
        let (world, now) = (&mut *self.world(), Instant::now());
        let mut count = 0;
        for lease in leases {
            let row = world.rows.get_mut(&lease.id).expect("a row");
            if row.lease.is_some_and(|(token, end)| token == lease.token && end > now) {
                row.lease = None;
                count += 1;
            }
        }
        Ok(count)
    }

    async fn repair(&self) -> Result<Repaired, Trouble> {
        self.call(Call::Repair, 0).await?;
        Ok(self.world().repairs.pop_front().unwrap_or_default())
    }

    async fn next_due(&self) -> Result<Option<Duration>, Trouble> {
        self.call(Call::NextDue, 0).await?;
        let (world, now) = (self.world(), Instant::now());
        let waiting = world.rows.values().filter(|row| !row.ended && row.lease.is_none() && row.due > now);
        Ok(waiting.map(|row| row.due - now).min())
    }
}

/// Each notification comes by itself; a cut connection says so.
pub(crate) struct SimBell {
    sim: Sim,
    rings: Option<mpsc::UnboundedReceiver<()>>,
}

impl Bell for SimBell {
    async fn arm(&mut self) -> Result<(), Trouble> {
        self.sim.call(Call::Arm, 0).await?;
        let mut world = self.sim.world();
        if world.rings.is_none() {
            let (sender, receiver) = mpsc::unbounded_channel();
            (world.rings, self.rings) = (Some(sender), Some(receiver));
        }
        world.armed = true;
        Ok(())
    }

    async fn disarm(&mut self) -> Result<(), Trouble> {
        self.sim.call(Call::Disarm, 0).await?;
        self.sim.world().armed = false;
        Ok(())
    }

    async fn rung(&mut self) -> Result<(), Trouble> {
        let Some(rings) = &mut self.rings else { return Err(Trouble::Away("never connected".to_owned())) };
        rings.recv().await.ok_or_else(|| Trouble::Away("cut".to_owned()))
    }
}

impl Meter for Sim {
    fn wakeup(&self, cause: Cause) {
        self.world().wakes.push(cause);
    }
    fn breaker(&self, route: &str, health: Health) {
        self.world().health.push((route.to_owned(), health));
    }
    fn listener_connected(&self, connected: bool) {
        self.world().connected.push(connected);
    }
    fn lease_lost(&self) {
        self.world().lost += 1;
    }
    fn backstop(&self) {
        self.world().backstops += 1;
    }
}

/// Without repair, which has tests of its own; polls are left out where they are not the matter.
pub(crate) fn quiet() -> Settings {
    Settings { poll: None, repair_every: Duration::ZERO, ..Settings::default() }
}

/// An engine at work.
pub(crate) struct Work {
    pub(crate) stop: Stop,
    pub(crate) task: JoinHandle<Summary>,
}

impl Work {
    /// Says stop once and waits for the end.
    pub(crate) async fn end(self) -> Summary {
        self.stop.signal();
        self.task.await.expect("the engine ends in order")
    }
}

pub(crate) fn start(sim: &Sim, settings: Settings) -> Work {
    start_with(sim, settings, None)
}

pub(crate) fn start_with_bell(sim: &Sim, settings: Settings) -> Work {
    start_with(sim, settings, Some(SimBell { sim: sim.clone(), rings: None }))
}

fn start_with(sim: &Sim, settings: Settings, bell: Option<SimBell>) -> Work {
    let engine = Engine::new(Arc::new(sim.clone()), settings).expect("settings in range");
    let (stop, signal) = Stop::new();
    let task = tokio::spawn(engine.with_meter(Arc::new(sim.clone())).run(bell, signal));
    Work { stop, task }
}

/// Lets so much time pass.
pub(crate) async fn pass(time: Duration) {
    sleep(time).await;
}
