//! The faults of a run: what becomes of each call of the database, and of each dispatch.

use std::fmt;
use std::time::Duration;

use symphony_relay::lane::RouteSignal;
use symphony_testkit::seeded_rng::SeededRng;

use super::scenario::{ROUTES, RowKind, between, ms, window};

/// The calls of a lane, and of its listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Claim,
    Complete,
    Renew,
    Release,
    Repair,
    NextDue,
    Arm,
}

pub(crate) const CALLS: usize = 7;

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallPlan {
    /// When the database executes it, whether the caller still waits or not; `None` if it never arrives.
    pub(crate) executed_after: Option<Duration>,
    /// How long the answer takes.
    pub(crate) answered_after: Duration,
    pub(crate) answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Returned,
    /// The connection is lost.
    Lost,
    Never,
    Refused,
    Panic,
}

/// The rates and windows of faults.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    /// Percent of the calls of each kind.
    rates: [usize; CALLS],
    /// Percent of dispatches.
    dispatches: usize,
    /// Whether calls take time although nothing is wrong.
    latency: bool,
    outages: Vec<Outage>,
    routes_down: Vec<(&'static str, Window)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

impl Window {
    fn contains(self, at: Duration) -> bool {
        self.from <= at && at < self.to
    }
}

/// No call succeeds, of all relayers or of one.
#[derive(Clone, Copy, Debug)]
struct Outage {
    window: Window,
    relayer: Option<usize>,
    executes: bool,
    answer: Answer,
}

/// What becomes of a dispatch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DispatchPlan {
    pub(crate) latency: Duration,
    pub(crate) result: DispatchEnd,
    pub(crate) signal: RouteSignal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DispatchEnd {
    Paid,
    Retry(Duration),
    Unknown,
    Panic,
}

impl Faults {
    pub(crate) fn draw(rng: &mut SeededRng, until: Duration, relayers: usize) -> Self {
        let mut rates = [0; CALLS];
        if rng.chance(75) {
            rates.iter_mut().for_each(|rate| *rate = *rng.pick(&[0, 0, 3, 10, 30, 70]));
        }
        let outages = (0..rng.below(3))
            .map(|_| Outage {
                window: window(rng, until),
                relayer: rng.chance(50).then(|| rng.below(relayers)),
                executes: rng.chance(30),
                answer: if rng.chance(50) { Answer::Lost } else { Answer::Never },
            })
            .collect();
        let routes_down = (0..rng.below(3)).map(|_| (*rng.pick(&ROUTES), window(rng, until))).collect();
        let dispatches = *rng.pick(&[0, 5, 20, 50]);
        Self { rates, dispatches, latency: rng.chance(60), outages, routes_down }
    }

    /// What becomes of a call that is sent now.
    pub(crate) fn plan_call(
        &self,
        rng: &mut SeededRng,
        call: Call,
        relayer: usize,
        at: Duration,
        term: Duration,
    ) -> CallPlan {
        let quick = |rng: &mut SeededRng| {
            if self.latency && rng.chance(50) { between(rng, 1, 15) } else { Duration::ZERO }
        };
        let (sent, answered) = (quick(rng), quick(rng));
        let plan = |executed_after, answer| CallPlan { executed_after, answered_after: answered, answer };
        let of_relayer = |outage: &&Outage| outage.relayer.is_none_or(|only| only == relayer);
        if let Some(outage) = self.outages.iter().filter(of_relayer).find(|outage| outage.window.contains(at)) {
            return plan(outage.executes.then_some(sent), outage.answer);
        }
        if !rng.chance(self.rates[call as usize]) {
            return plan(Some(sent), Answer::Returned);
        }
        let slow_ms = usize::try_from(term.as_millis()).unwrap_or(0) * 3 / 2;
        match rng.below(20) {
            0..4 => plan(None, Answer::Lost),
            4..8 => plan(Some(sent), Answer::Lost),
            8..10 => plan(None, Answer::Never),
            10..12 => plan(Some(sent), Answer::Never),
            12..15 => plan(Some(between(rng, 20, slow_ms)), Answer::Returned),
            15..17 => CallPlan {
                executed_after: Some(sent),
                answered_after: between(rng, 20, slow_ms),
                answer: Answer::Returned,
            },
            17 => plan(Some(between(rng, 20, slow_ms)), Answer::Never),
            18 => plan(None, Answer::Refused),
            _ => plan(None, Answer::Panic),
        }
    }

    /// What becomes of a dispatch that starts now.
    pub(crate) fn plan_dispatch(
        &self,
        rng: &mut SeededRng,
        route: &str,
        kind: RowKind,
        at: Duration,
        term: Duration,
    ) -> DispatchPlan {
        let term_ms = usize::try_from(term.as_millis()).unwrap_or(0);
        let latency = match rng.below(20) {
            _ if kind == RowKind::Slow => between(rng, term_ms / 2, term_ms * 5 / 2),
            0..8 => Duration::ZERO,
            8..16 => between(rng, 1, 50),
            16..18 => between(rng, 50, 400),
            _ => between(rng, 400, term_ms * 3 / 2),
        };
        let end = |result, signal| DispatchPlan { latency, result, signal };
        let is_down = self.routes_down.iter().any(|(down, window)| *down == route && window.contains(at));
        let retry = |rng: &mut SeededRng| DispatchEnd::Retry(between(rng, 1, 500));
        if is_down || kind == RowKind::PoisonAtRoute {
            return end(retry(rng), RouteSignal::Failing);
        }
        if !rng.chance(self.dispatches) {
            return end(DispatchEnd::Paid, RouteSignal::Healthy);
        }
        match rng.below(10) {
            0..3 => end(retry(rng), RouteSignal::Failing),
            3..5 => end(retry(rng), RouteSignal::Healthy),
            5..7 => end(retry(rng), RouteSignal::Neutral),
            7..9 => end(DispatchEnd::Unknown, RouteSignal::Neutral),
            _ => end(DispatchEnd::Panic, RouteSignal::Failing),
        }
    }
}

impl fmt::Debug for CallPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.executed_after {
            Some(wait) => write!(f, "executed after {wait:?}")?,
            None => f.write_str("not executed")?,
        }
        write!(f, ", {:?} after {:?}", self.answer, self.answered_after)
    }
}

impl CallPlan {
    /// A call without a fault.
    pub(crate) fn prompt() -> Self {
        Self { executed_after: Some(Duration::ZERO), answered_after: Duration::ZERO, answer: Answer::Returned }
    }
}

impl DispatchPlan {
    /// A dispatch without a fault.
    pub(crate) fn prompt() -> Self {
        Self { latency: ms(1), result: DispatchEnd::Paid, signal: RouteSignal::Healthy }
    }
}
