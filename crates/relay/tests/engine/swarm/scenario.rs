//! What a seed decides before the run: settings, lanes, rows, faults, stops and stalls.
//!
//! Each kind of fault is switched on or off for a whole run. Runs with a few kinds, at very different rates, reach more
//! states than runs that have a little of everything.

use std::collections::BTreeMap;
use std::time::Duration;

use symphony_relay::Settings;
use symphony_relay::breaker::Policy;
use symphony_relay::lease::Term;
use symphony_testkit::seeded_rng::SeededRng;

use super::faults::{Faults, Window};

pub(crate) const ROUTES: [&str; 3] = ["card", "sepa", "wire"];

/// Everything that is decided before a run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) term: Term,
    pub(crate) relayers: Vec<Relayer>,
    pub(crate) faults: Faults,
    /// What happens when, in the order of time.
    pub(crate) actions: Vec<(Duration, Action)>,
    /// When faults stop.
    pub(crate) calm_after: Duration,
    /// By when every row must have ended.
    pub(crate) deadline: Duration,
    /// After this number of attempts a row has failed.
    pub(crate) max_attempts: u32,
    /// Whether the outcome of a cancelled dispatch is recorded, as unknown.
    pub(crate) records_abandoned: bool,
}

/// A relayer; one engine after the other runs in it.
#[derive(Clone, Debug)]
pub(crate) struct Relayer {
    pub(crate) settings: Settings,
    pub(crate) listens: bool,
}

/// A row to enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowPlan {
    pub(crate) route: &'static str,
    /// Rows of one key are dispatched in order.
    pub(crate) key: Option<u32>,
    pub(crate) due_in: Duration,
    pub(crate) kind: RowKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    Ordinary,
    /// Its dispatch takes about a lease.
    Slow,
    /// Its route fails for it alone.
    PoisonAtRoute,
    /// The database refuses its outcome, and every batch that contains it.
    PoisonAtDatabase,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Enqueue(Vec<RowPlan>),
    /// The first stop signal, or the second.
    Stop(usize),
    StopTwice(usize),
    Kill(usize),
    /// The process stalls, and with it every timer.
    Stall(Duration),
    /// The clock of the database steps.
    StepClock {
        milliseconds: i64,
    },
    /// The connections of all listeners are lost.
    DisconnectListeners,
}

pub(crate) fn ms(milliseconds: usize) -> Duration {
    Duration::from_millis(milliseconds as u64)
}

/// A time from the first to the last, in milliseconds.
pub(crate) fn between(rng: &mut SeededRng, least: usize, most: usize) -> Duration {
    ms(least + rng.below(most.saturating_sub(least) + 1))
}

impl Scenario {
    pub(crate) fn from_seed(seed: u64) -> Self {
        let rng = &mut SeededRng::new(seed, 0);
        let length = between(rng, 1000, 4000);
        let term = if rng.chance(70) { Term::Renewable(length) } else { Term::Fixed(length) };
        let count = *rng.pick(&[1, 1, 1, 2, 2, 3, 4]);
        let relayers: Vec<_> = (0..count).map(|_| relayer(rng, length)).collect();
        let calm_after = between(rng, 1500, 6000);
        let mut actions = enqueues(rng, calm_after);
        let clock_steps = disturbances(rng, &mut actions, calm_after, length, count);
        actions.sort_by_key(|(at, _)| *at);
        let max_attempts = 3 + u32::try_from(rng.below(6)).unwrap_or(0);
        // Backoff of a refused call, expired leases of a row that the database refuses each time, a slow dispatch.
        let deadline = calm_after + ms(15_000) + length * (max_attempts + 4) + clock_steps;
        Self {
            term,
            faults: Faults::draw(rng, calm_after, count),
            relayers,
            actions,
            calm_after,
            deadline,
            max_attempts,
            records_abandoned: rng.chance(70),
        }
    }
}

fn relayer(rng: &mut SeededRng, length: Duration) -> Relayer {
    let term_ms = usize::try_from(length.as_millis()).unwrap_or(0);
    let limited: Vec<_> = ROUTES.into_iter().filter(|_| rng.chance(30)).collect();
    let route_slots: BTreeMap<_, _> =
        limited.into_iter().map(|route| (route.to_owned(), 1 + rng.below(3))).collect();
    let max_open_for = between(rng, 100, 1000);
    let repairs = rng.chance(60);
    let settings = Settings {
        slots: 1 + rng.below(8),
        route_slots,
        max_batch: 1 + rng.below(10),
        debounce: between(rng, 25, 50),
        poll_interval: Some(between(rng, 250, 1000)),
        flush_interval: *rng.pick(&[ms(0), ms(5), ms(100)]),
        call_timeout: between(rng, 100, (term_ms - 1).min(1500)),
        lease_margin: between(rng, 100, term_ms / 3 - 1),
        repair_every: if repairs { between(rng, 1000, 3000) } else { Duration::ZERO },
        grace: between(rng, 0, 2000),
        breaker: Policy {
            failures: u32::try_from(1 + rng.below(5)).unwrap_or(1),
            open_for: between(rng, 10, 100),
            max_open_for,
        },
    };
    Relayer { settings, listens: rng.chance(50) }
}

/// Bursts of rows over time.
fn enqueues(rng: &mut SeededRng, until: Duration) -> Vec<(Duration, Action)> {
    let until = usize::try_from(until.as_millis()).unwrap_or(0);
    let routes = 1 + rng.below(ROUTES.len());
    let keys = rng.below(4);
    let odd = *rng.pick(&[0, 0, 10, 40]);
    let scheduled = *rng.pick(&[0, 10, 50]);
    let row = |rng: &mut SeededRng| RowPlan {
        route: ROUTES[rng.below(routes)],
        key: (keys > 0 && rng.chance(60)).then(|| u32::try_from(rng.below(keys)).unwrap_or(0)),
        due_in: if rng.chance(scheduled) { between(rng, 1, 2000) } else { Duration::ZERO },
        kind: if rng.chance(odd) {
            *rng.pick(&[RowKind::Slow, RowKind::Slow, RowKind::PoisonAtRoute, RowKind::PoisonAtDatabase])
        } else {
            RowKind::Ordinary
        },
    };
    (0..1 + rng.below(6))
        .map(|_| {
            let (at, size) = (between(rng, 0, until), 1 + rng.below(10));
            (at, Action::Enqueue((0..size).map(|_| row(rng)).collect()))
        })
        .collect()
}

/// Stops, stalls, lost listeners and steps of the clock. Returns by how much the clock of the database goes back.
fn disturbances(
    rng: &mut SeededRng,
    actions: &mut Vec<(Duration, Action)>,
    until: Duration,
    length: Duration,
    relayers: usize,
) -> Duration {
    let until = usize::try_from(until.as_millis()).unwrap_or(0);
    let term_ms = usize::try_from(length.as_millis()).unwrap_or(0);
    let mut back = Duration::ZERO;
    for _ in 0..rng.below(4) {
        let relayer = rng.below(relayers);
        let stop = match rng.below(5) {
            0 | 1 => Action::Stop(relayer),
            2 => Action::StopTwice(relayer),
            3 => {
                // The second signal may come while the engine drains.
                actions.push((between(rng, 0, until), Action::Stop(relayer)));
                Action::Stop(relayer)
            }
            _ => Action::Kill(relayer),
        };
        actions.push((between(rng, 0, until), stop));
    }
    if rng.chance(25) {
        for _ in 0..1 + rng.below(2) {
            actions.push((between(rng, 0, until), Action::Stall(between(rng, 20, term_ms * 3 / 2))));
        }
    }
    if rng.chance(40) {
        for _ in 0..1 + rng.below(2) {
            let step = between(rng, 100, 3000);
            let milliseconds = i64::try_from(step.as_millis()).unwrap_or(0);
            let forward = rng.chance(50);
            back += if forward { Duration::ZERO } else { step };
            let milliseconds = if forward { milliseconds } else { -milliseconds };
            actions.push((between(rng, 0, until), Action::StepClock { milliseconds }));
        }
    }
    if rng.chance(30) {
        actions.push((between(rng, 0, until), Action::DisconnectListeners));
    }
    back
}

/// A window of time before faults stop.
pub(crate) fn window(rng: &mut SeededRng, until: Duration) -> Window {
    let until = usize::try_from(until.as_millis()).unwrap_or(0);
    let from = between(rng, 0, until);
    Window { from, to: from + between(rng, 100, 2500) }
}
