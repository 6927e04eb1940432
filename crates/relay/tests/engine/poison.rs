//! Rows that always fail beside rows that do not: the failures count against the row, not against its route.

use std::collections::HashSet;
use std::time::Duration;

use symphony_relay::Settings;
use symphony_relay::breaker::BreakerState;
use symphony_relay::lane::RouteSignal;

use crate::sim::*;

const HEALTHY: Behavior = Behavior { latency: Duration::from_millis(50), ..INSTANT };
/// A row that the route cannot process: it fails quickly, and again after a backoff.
const POISON: Behavior = Behavior {
    latency: Duration::from_millis(5),
    outcome: Outcome::Retry(Duration::from_secs(2)),
    signal: RouteSignal::Failing,
    ..INSTANT
};

fn polling() -> Settings {
    Settings { repair_every: Duration::ZERO, ..Settings::default() }
}

fn enqueue_poison(sim: &Sim) -> u64 {
    let id = sim.enqueue("wire");
    sim.state().row_behaviors.insert(id, POISON);
    id
}

/// Enqueues healthy rows at a steady rate, and `poison` rows as the nth of them, and returns the 99th percentile of the
/// time from the enqueue of a healthy row to its end.
async fn p99_beside(sim: &Sim, rows: u64, poison: impl Fn(u64) -> usize) -> Duration {
    sim.set_behavior("wire", HEALTHY);
    let engine = start_with_listener(sim, polling());
    let mut enqueued = Vec::new();
    for row in 0..rows {
        for _ in 0..poison(row) {
            enqueue_poison(sim);
        }
        enqueued.push((sim.enqueue("wire"), sim.now()));
        advance(4 * MS).await;
    }
    // Rows that are late count with their whole time.
    advance(600 * S).await;
    engine.stop().await;
    let ended_at = sim.read(|state| state.ended_at.clone());
    let mut latencies: Vec<_> =
        enqueued.iter().map(|(id, at)| ended_at.get(id).map_or(Duration::MAX, |end| *end - *at)).collect();
    latencies.sort();
    latencies[latencies.len() * 99 / 100]
}

#[tokio::test(start_paused = true)]
async fn one_poison_row_in_a_hundred_does_not_slow_the_others() {
    let without = p99_beside(&Sim::new(), 3000, |_| 0).await;
    let with = p99_beside(&Sim::new(), 3000, |row| usize::from(row % 100 == 50)).await;
    assert!(with <= 2 * without, "{with:?} instead of {without:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_poison_rows_in_a_row_do_not_slow_the_others() {
    let without = p99_beside(&Sim::new(), 3000, |_| 0).await;
    let with = p99_beside(&Sim::new(), 3000, |row| if row == 500 { 100 } else { 0 }).await;
    assert!(with <= 2 * without, "{with:?} instead of {without:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_poison_rows_at_the_front_of_a_backlog_do_not_hold_it_up() {
    let drain_time = async |poison: u64| {
        let sim = Sim::new();
        sim.set_behavior("wire", HEALTHY);
        for _ in 0..poison {
            enqueue_poison(&sim);
        }
        sim.enqueue_many("wire", 2000);
        let engine = start_with_listener(&sim, polling());
        while sim.read(|state| state.ended_at.len()) < 2000 && sim.now() < 60 * S {
            advance(50 * MS).await;
        }
        engine.stop().await;
        sim.now()
    };
    let (without, with) = (drain_time(0).await, drain_time(100).await);
    assert!(with <= 2 * without, "{with:?} instead of {without:?}");
}

#[tokio::test(start_paused = true)]
async fn a_probe_is_a_row_that_has_not_failed_where_there_is_one() {
    let sim = Sim::new();
    let poison: HashSet<u64> = (0..5).map(|_| enqueue_poison(&sim)).collect();
    let engine = start(&sim, Settings { slots: 5, ..without_polls() });
    advance(100 * MS).await;
    let dispatched = || sim.read(|state| state.dispatched.len());
    assert_eq!(dispatched(), 5, "their retries are not due");
    let [first, second] = [sim.enqueue("wire"), sim.enqueue("wire")];
    advance(3 * S).await;
    let probe = sim.read(|state| state.dispatched[5].0);
    assert_eq!((probe, sim.ledger(first), sim.ledger(second)), (second, vec![Outcome::Paid], vec![Outcome::Paid]));
    assert!(dispatched() > 7 && poison.iter().all(|id| sim.ledger(*id).len() > 1), "then the others are retried");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_first_attempt_ends_the_pause_that_failed_rows_have_caused() {
    let sim = Sim::new();
    for _ in 0..8 {
        enqueue_poison(&sim);
    }
    let engine = start(&sim, polling());
    // Their retries fail alone, so the pause grows to a minute.
    advance(600 * S).await;
    let states = || sim.read(|state| state.breaker_states.iter().map(|(_, health)| *health).collect::<Vec<_>>());
    while states().last() != Some(&BreakerState::Open) {
        advance(500 * MS).await;
    }
    let healthy = sim.enqueue("wire");
    advance(600 * MS).await;
    assert_eq!(sim.ledger(healthy), [Outcome::Paid], "the next poll finds it");
    assert_eq!(states().last(), Some(&BreakerState::Closed));
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_cannot_select_rows_probes_with_any() {
    let sim = Sim::new();
    sim.state().selects_first_attempts = false;
    for _ in 0..8 {
        enqueue_poison(&sim);
    }
    let engine = start(&sim, Settings { slots: 4, ..polling() });
    let healthy = sim.enqueue("wire");
    advance(20 * S).await;
    assert_eq!(sim.ledger(healthy), [Outcome::Paid]);
    engine.stop().await;
}
