//! Graceful and immediate shutdown.

use std::sync::Arc;

use symphony_relay::listener::NoListener;
use symphony_relay::stop::StopHandle;
use symphony_relay::{Engine, Settings};
use tokio::time::timeout;

use crate::sim::*;

#[tokio::test(start_paused = true)]
async fn at_the_first_signal_the_engine_stops_claiming_and_completes_running_dispatches() {
    let sim = Sim::new();
    sim.set_behavior("slow", Behavior { latency: 20 * S, ..INSTANT });
    sim.enqueue_many("slow", 3);
    let engine = start_with_listener(&sim, Settings::default());
    // Between two polls.
    advance(S + 100 * MS).await;
    let claims = sim.calls(Call::Claim).len();
    engine.handle.request_stop();
    advance(MS).await;
    sim.enqueue("slow");
    let summary = engine.task.await.expect("ends");
    assert_eq!(sim.now(), 20 * S);
    assert_eq!((sim.calls(Call::Claim).len(), sim.read(|state| state.ledger.len())), (claims, 3));
    assert!(!sim.calls(Call::Renew).is_empty(), "leases are renewed meanwhile");
    assert_eq!((summary.started, summary.recorded, summary.left_behind), (3, 3, 0));
    assert!(!sim.armed());
}

#[tokio::test(start_paused = true)]
async fn an_idle_engine_stops_at_once() {
    let sim = Sim::new();
    let engine = start_with_listener(&sim, Settings::default());
    advance(S).await;
    engine.stop().await;
    assert_eq!(sim.now(), S);
}

#[tokio::test(start_paused = true)]
async fn rows_that_a_claim_returns_after_the_signal_are_released() {
    let sim = Sim::new();
    sim.inject(Call::Claim, &[Fault::Slow(2 * S)]);
    sim.inject(Call::Release, &[Fault::Unavailable]);
    sim.enqueue_many("wire", 5);
    let engine = start(&sim, without_polls());
    advance(S).await;
    let summary = engine.stop().await;
    assert_eq!((sim.read(|state| state.dispatched.len()), sim.leased()), (0, 0));
    assert_eq!((summary.claimed, summary.released, summary.left_behind), (5, 5, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_that_outlasts_the_grace_period_is_cancelled_and_recorded_as_unknown() {
    let sim = Sim::new();
    sim.set_behavior("slow", Behavior { latency: 3600 * S, ..INSTANT });
    let id = sim.enqueue("slow");
    let engine = start(&sim, without_polls());
    advance(S).await;
    let summary = engine.stop().await;
    assert_eq!(sim.now(), 31 * S);
    assert_eq!((sim.ledger(id), sim.read(|state| state.running)), (vec![Outcome::Unknown], 0));
    assert_eq!((summary.abandoned, summary.recorded), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_waits_for_its_turn_at_the_end_of_the_grace_period_is_released() {
    let sim = Sim::new();
    let id = sim.enqueue("wire");
    sim.state().waiting_for_turn.push(id);
    let engine = start(&sim, without_polls());
    advance(S).await;
    assert_eq!(sim.leased(), 1);
    let summary = engine.stop().await;
    assert_eq!((sim.now(), sim.leased(), sim.ledger(id)), (31 * S, 0, vec![]), "nothing was sent");
    assert_eq!((summary.abandoned, summary.recorded, summary.released), (0, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_database_delays_the_shutdown_by_one_call_timeout_only() {
    let sim = Sim::new();
    sim.set_behavior("slow", Behavior { latency: 3600 * S, ..INSTANT });
    sim.enqueue("slow");
    let engine = start(&sim, without_polls());
    advance(S).await;
    sim.set_fault(Call::Complete, Some(Fault::Hang));
    let summary = engine.stop().await;
    assert_eq!(sim.now(), 41 * S, "the grace period and one call timeout");
    assert_eq!(summary.left_behind, 1);
}

#[tokio::test(start_paused = true)]
async fn at_the_second_signal_the_engine_stops_at_once() {
    let sim = Sim::new();
    sim.set_behavior("slow", Behavior { latency: 20 * S, ..INSTANT });
    sim.enqueue_many("slow", 3);
    let engine = start_with_listener(&sim, without_polls());
    advance(S).await;
    engine.handle.request_stop();
    advance(S).await;
    engine.handle.request_stop();
    let summary = engine.task.await.expect("ends");
    assert_eq!((sim.now(), summary.left_behind), (2 * S, 3));
    advance(MS).await;
    assert_eq!((sim.read(|state| state.running), sim.leased()), (0, 3), "their leases expire");
}

#[tokio::test(start_paused = true)]
async fn the_second_signal_does_not_wait_for_the_listener() {
    let sim = Sim::new();
    let engine = start_with_listener(&sim, Settings::default());
    advance(S).await;
    sim.inject(Call::Disarm, &[Fault::Hang]);
    engine.handle.request_stop();
    advance(300 * MS).await;
    engine.handle.request_stop();
    engine.task.await.expect("ends");
    assert_eq!(sim.now(), S + 300 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_hangs_delays_the_shutdown_by_a_second_only() {
    let sim = Sim::new();
    let engine = start_with_listener(&sim, Settings::default());
    advance(S).await;
    sim.inject(Call::Disarm, &[Fault::Hang]);
    engine.stop().await;
    assert_eq!(sim.now(), 2 * S);
}

#[tokio::test(start_paused = true)]
async fn a_signal_before_the_start_counts() {
    let sim = Sim::new();
    sim.enqueue("wire");
    let engine = start(&sim, without_polls());
    let summary = engine.stop().await;
    assert_eq!((summary.claimed, sim.leased()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_engine_whose_stop_handle_is_dropped_keeps_running() {
    let sim = Sim::new();
    let engine = start(&sim, Settings::default());
    drop(engine.handle);
    advance(S).await;
    let id = sim.enqueue("wire");
    advance(S).await;
    assert_eq!(sim.ledger(id), [Outcome::Paid]);
    engine.task.abort();
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_dropped_stops_at_once() {
    let sim = Sim::new();
    let engine = Engine::new(Arc::new(sim.clone()), Settings::default()).unwrap();
    let (_stop, stop_signal) = StopHandle::new();
    timeout(S, engine.run(None::<NoListener>, stop_signal)).await.unwrap_err();
    let claims = sim.calls(Call::Claim).len();
    assert!(claims > 0, "it was running");
    let id = sim.enqueue("wire");
    advance(10 * S).await;
    assert_eq!((sim.calls(Call::Claim).len(), sim.dispatched_at(id)), (claims, None));
}
