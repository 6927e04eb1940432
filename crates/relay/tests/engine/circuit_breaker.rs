//! The circuit breaker of a failing route.

use std::time::Duration;

use symphony_relay::Settings;
use symphony_relay::breaker::BreakerState;
use symphony_relay::lane::RouteSignal;

use crate::sim::*;

const DOWN: Behavior = Behavior { outcome: Outcome::Retry(S), signal: RouteSignal::Failing, ..INSTANT };

fn states(sim: &Sim) -> Vec<BreakerState> {
    sim.read(|state| state.breaker_states.iter().map(|(_, health)| *health).collect())
}

fn settings() -> Settings {
    Settings { slots: 2, poll_interval: Settings::default().poll_interval, ..without_polls() }
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_stops_dispatch_to_its_route_and_its_rows_use_no_attempts() {
    let sim = Sim::new();
    sim.set_behavior("down", DOWN);
    sim.enqueue_many("down", 50);
    let engine = start(&sim, settings());
    advance(500 * MS).await;
    let attempts = sim.read(|state| state.ledger.len());
    assert!((8..=9).contains(&attempts), "{attempts}: five failures, the dispatch beside the fifth, three probes");
    assert_eq!((states(&sim), sim.leased()), (vec![BreakerState::HalfOpen, BreakerState::Open], 0));
    let other = sim.enqueue("wire");
    advance(499 * MS).await;
    assert_eq!(sim.ledger(other), [Outcome::Paid], "other routes continue");
    assert_eq!(sim.read(|state| state.ledger.len()), attempts + 1);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_probe_at_a_time_tests_whether_the_route_works_again() {
    let sim = Sim::new();
    sim.set_behavior("down", DOWN);
    sim.enqueue_many("down", 50);
    let engine = start(&sim, settings());
    advance(500 * MS).await;
    let before = sim.read(|state| state.ledger.len());
    sim.set_behavior("down", Behavior { latency: 300 * MS, ..DOWN });
    advance(700 * MS).await;
    assert_eq!(sim.read(|state| state.running), 1, "a second after it opened");
    advance(1800 * MS).await;
    assert_eq!(sim.read(|state| state.ledger.len()), before + 3, "the probes failed; two seconds more");
    sim.set_behavior("down", INSTANT);
    advance(3 * S).await;
    assert_eq!(sim.read(|state| state.ledger.iter().filter(|(_, outcome)| *outcome == Outcome::Paid).count()), 50);
    assert_eq!(
        states(&sim),
        [
            BreakerState::HalfOpen,
            BreakerState::Open,
            BreakerState::HalfOpen,
            BreakerState::Open,
            BreakerState::HalfOpen,
            BreakerState::Closed
        ]
    );
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_failing_routes_without_a_row_for_a_probe_do_not_claim_without_end() {
    const LATER: Behavior = Behavior { outcome: Outcome::Retry(Duration::from_secs(3600)), ..DOWN };
    let sim = Sim::new();
    sim.state().routes = 2;
    sim.set_behavior("one", LATER);
    sim.set_behavior("two", Behavior { latency: 90 * MS, ..LATER });
    sim.enqueue_many("one", 5);
    sim.enqueue_many("two", 5);
    // While a claim looks for a row of the first route that was not attempted, the other fails: from then on they ask in turn.
    sim.set_fault(Call::Claim, Some(Fault::Slow(60 * MS)));
    let engine = start(&sim, Settings { slots: 40, ..without_polls() });
    advance(60 * S).await;
    let half_open =
        sim.read(|state| state.breaker_states.iter().map(|(route, _)| route.clone()).collect::<Vec<_>>());
    assert_eq!(half_open, ["one", "two"]);
    let claims = sim.calls(Call::Claim).len();
    assert!(claims < 20, "{claims} claims in a minute without a row");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rows_claimed_before_the_breaker_opened_are_released_but_for_the_probe() {
    let sim = Sim::new();
    sim.set_behavior("down", Behavior { latency: 100 * MS, ..DOWN });
    sim.enqueue_many("down", 5);
    let engine = start_with_listener(&sim, Settings { slots: 20, ..without_polls() });
    advance(50 * MS).await;
    // Their claim is in flight at the fifth failure.
    sim.inject(Call::Claim, &[Fault::Slow(100 * MS)]);
    sim.enqueue_many("down", 4);
    advance(110 * MS).await;
    assert_eq!(sim.calls(Call::Release).iter().map(|call| call.size).collect::<Vec<_>>(), [3]);
    assert_eq!((sim.read(|state| state.dispatched.len()), sim.leased()), (6, 1));
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn dispatches_that_panic_open_the_breaker_too() {
    let sim = Sim::new();
    sim.set_behavior("broken", Behavior { panics: true, ..INSTANT });
    sim.enqueue_many("broken", 50);
    let engine = start(&sim, settings());
    advance(900 * MS).await;
    assert!(sim.read(|state| state.dispatched.len()) <= 9);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_wakes_the_engine_without_a_poll() {
    let sim = Sim::new();
    // No scheduled row may wake the engine at the same moment.
    sim.set_behavior("down", Behavior { outcome: Outcome::Retry(3600 * S), ..DOWN });
    sim.enqueue_many("down", 50);
    let engine = start(&sim, Settings { poll_interval: None, ..settings() });
    advance(50 * MS).await;
    let before = sim.read(|state| state.dispatched.len());
    sim.set_behavior("down", Behavior { latency: S, ..DOWN });
    advance(S).await;
    assert_eq!(sim.read(|state| state.dispatched.len()), before + 1);
    engine.stop().await;
}
