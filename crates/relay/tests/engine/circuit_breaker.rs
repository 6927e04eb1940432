//! The circuit breaker of a failing route.

use symphony_relay::Settings;
use symphony_relay::breaker::Health;
use symphony_relay::lane::RouteSignal;

use crate::sim::*;

const DOWN: Manner = Manner { outcome: Outcome::Later(S), signal: RouteSignal::Failing, ..PROMPT };

fn states(sim: &Sim) -> Vec<Health> {
    sim.see(|world| world.health.iter().map(|(_, health)| *health).collect())
}

fn settings() -> Settings {
    Settings { slots: 2, poll: Settings::default().poll, ..quiet() }
}

#[tokio::test(start_paused = true)]
async fn a_route_that_fails_over_and_over_is_left_alone_and_its_rows_burn_no_attempts() {
    let sim = Sim::new();
    sim.manner("down", DOWN);
    sim.enqueue_many("down", 50);
    let work = start(&sim, settings());
    pass(500 * MS).await;
    let attempts = sim.see(|world| world.ledger.len());
    assert!((5..=6).contains(&attempts), "{attempts}: five failures, and what ran beside the fifth");
    assert_eq!((states(&sim), sim.leased()), (vec![Health::Open], 0));
    let other = sim.enqueue("wire");
    pass(499 * MS).await;
    assert_eq!(sim.ledger(other), [Outcome::Paid], "other routes go on");
    assert_eq!(sim.see(|world| world.ledger.len()), attempts + 1);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn one_job_at_a_time_finds_out_whether_it_works_again() {
    let sim = Sim::new();
    sim.manner("down", DOWN);
    sim.enqueue_many("down", 50);
    let work = start(&sim, settings());
    pass(500 * MS).await;
    let before = sim.see(|world| world.ledger.len());
    sim.manner("down", Manner { takes: 300 * MS, ..DOWN });
    pass(700 * MS).await;
    assert_eq!(sim.see(|world| world.running), 1, "a second after it opened");
    pass(1800 * MS).await;
    assert_eq!(sim.see(|world| world.ledger.len()), before + 1, "the probe failed; two seconds more");
    sim.manner("down", PROMPT);
    pass(2 * S).await;
    assert_eq!(sim.see(|world| world.ledger.iter().filter(|(_, outcome)| *outcome == Outcome::Paid).count()), 50);
    assert_eq!(states(&sim), [Health::Open, Health::HalfOpen, Health::Open, Health::HalfOpen, Health::Closed]);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn rows_claimed_while_a_route_was_failing_are_given_back() {
    let sim = Sim::new();
    sim.manner("down", Manner { takes: 100 * MS, ..DOWN });
    sim.enqueue_many("down", 5);
    let work = start_with_listener(&sim, Settings { slots: 20, ..quiet() });
    pass(50 * MS).await;
    // The claim of these is under way when the fifth failure comes.
    sim.faults(Call::Claim, &[Fault::Slow(100 * MS)]);
    sim.enqueue_many("down", 4);
    pass(110 * MS).await;
    assert_eq!(sim.made(Call::Release).iter().map(|made| made.size).collect::<Vec<_>>(), [4]);
    assert_eq!((sim.see(|world| world.dispatched.len()), sim.leased()), (5, 0));
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_route_whose_dispatches_panic_is_left_alone_too() {
    let sim = Sim::new();
    sim.manner("broken", Manner { panics: true, ..PROMPT });
    sim.enqueue_many("broken", 50);
    let work = start(&sim, settings());
    pass(900 * MS).await;
    assert!(sim.see(|world| world.dispatched.len()) <= 6);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_wakes_it_without_a_poll() {
    let sim = Sim::new();
    // So that no scheduled row wakes it at the same moment.
    sim.manner("down", Manner { outcome: Outcome::Later(3600 * S), ..DOWN });
    sim.enqueue_many("down", 50);
    let work = start(&sim, Settings { poll: None, ..settings() });
    pass(50 * MS).await;
    let before = sim.see(|world| world.dispatched.len());
    sim.manner("down", Manner { takes: S, ..DOWN });
    pass(S).await;
    assert_eq!(sim.see(|world| world.dispatched.len()), before + 1);
    work.end().await;
}
