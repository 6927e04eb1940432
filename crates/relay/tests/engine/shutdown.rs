//! Graceful and immediate shutdown.

use std::sync::Arc;

use symphony_relay::listener::NoListener;
use symphony_relay::stop::StopHandle;
use symphony_relay::{Engine, Settings};
use tokio::time::timeout;

use crate::sim::*;

#[tokio::test(start_paused = true)]
async fn at_the_first_signal_it_claims_no_more_finishes_what_runs_and_records_it() {
    let sim = Sim::new();
    sim.manner("slow", Manner { takes: 20 * S, ..PROMPT });
    sim.enqueue_many("slow", 3);
    let work = start_with_listener(&sim, Settings::default());
    // Between two polls.
    pass(S + 100 * MS).await;
    let claims = sim.made(Call::Claim).len();
    work.stop.signal();
    pass(MS).await;
    sim.enqueue("slow");
    let summary = work.task.await.expect("ends");
    assert_eq!(sim.now(), 20 * S);
    assert_eq!((sim.made(Call::Claim).len(), sim.see(|world| world.ledger.len())), (claims, 3));
    assert!(!sim.made(Call::Renew).is_empty(), "leases are kept meanwhile");
    assert_eq!((summary.started, summary.recorded, summary.left_behind), (3, 3, 0));
    assert!(!sim.armed());
}

#[tokio::test(start_paused = true)]
async fn idle_it_ends_at_once() {
    let sim = Sim::new();
    let work = start_with_listener(&sim, Settings::default());
    pass(S).await;
    work.end().await;
    assert_eq!(sim.now(), S);
}

#[tokio::test(start_paused = true)]
async fn what_a_claim_brings_after_the_signal_is_given_back() {
    let sim = Sim::new();
    sim.faults(Call::Claim, &[Fault::Slow(2 * S)]);
    sim.faults(Call::Release, &[Fault::Unavailable]);
    sim.enqueue_many("wire", 5);
    let work = start(&sim, quiet());
    pass(S).await;
    let summary = work.end().await;
    assert_eq!((sim.see(|world| world.dispatched.len()), sim.leased()), (0, 0));
    assert_eq!((summary.claimed, summary.released, summary.left_behind), (5, 5, 0));
}

#[tokio::test(start_paused = true)]
async fn what_still_runs_at_the_end_of_the_grace_time_is_cut_off_and_recorded_as_unknown() {
    let sim = Sim::new();
    sim.manner("slow", Manner { takes: 3600 * S, ..PROMPT });
    let id = sim.enqueue("slow");
    let work = start(&sim, quiet());
    pass(S).await;
    let summary = work.end().await;
    assert_eq!(sim.now(), 31 * S);
    assert_eq!((sim.ledger(id), sim.see(|world| world.running)), (vec![Outcome::Unknown], 0));
    assert_eq!((summary.abandoned, summary.recorded), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_away_does_not_keep_it_for_ever() {
    let sim = Sim::new();
    sim.manner("slow", Manner { takes: 3600 * S, ..PROMPT });
    sim.enqueue("slow");
    let work = start(&sim, quiet());
    pass(S).await;
    sim.always(Call::Complete, Some(Fault::Hang));
    let summary = work.end().await;
    assert_eq!(sim.now(), 41 * S, "the grace time and one call");
    assert_eq!(summary.left_behind, 1);
}

#[tokio::test(start_paused = true)]
async fn at_the_second_signal_it_leaves_at_once() {
    let sim = Sim::new();
    sim.manner("slow", Manner { takes: 20 * S, ..PROMPT });
    sim.enqueue_many("slow", 3);
    let work = start_with_listener(&sim, quiet());
    pass(S).await;
    work.stop.signal();
    pass(S).await;
    work.stop.signal();
    let summary = work.task.await.expect("ends");
    assert_eq!((sim.now(), summary.left_behind), (2 * S, 3));
    pass(MS).await;
    assert_eq!((sim.see(|world| world.running), sim.leased()), (0, 3), "their leases expire");
}

#[tokio::test(start_paused = true)]
async fn a_signal_that_came_before_the_start_counts() {
    let sim = Sim::new();
    sim.enqueue("wire");
    let work = start(&sim, quiet());
    let summary = work.end().await;
    assert_eq!((summary.claimed, sim.leased()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_engine_whose_switch_is_gone_works_on() {
    let sim = Sim::new();
    let work = start(&sim, Settings::default());
    drop(work.stop);
    pass(S).await;
    let id = sim.enqueue("wire");
    pass(S).await;
    assert_eq!(sim.ledger(id), [Outcome::Paid]);
    work.task.abort();
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_dropped_leaves_at_once() {
    let sim = Sim::new();
    let engine = Engine::new(Arc::new(sim.clone()), Settings::default()).unwrap();
    let (_stop, signal) = StopHandle::new();
    timeout(S, engine.run(None::<NoListener>, signal)).await.unwrap_err();
    let claims = sim.made(Call::Claim).len();
    assert!(claims > 0, "it was at work");
    let id = sim.enqueue("wire");
    pass(10 * S).await;
    assert_eq!((sim.made(Call::Claim).len(), sim.dispatched_at(id)), (claims, None));
}
