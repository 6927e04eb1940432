//! How many rows the engine claims, and how it starts them.

use std::collections::BTreeMap;

use symphony_relay::Settings;

use crate::sim::*;

#[tokio::test(start_paused = true)]
async fn a_claim_asks_for_the_free_slots_only_and_never_without_one() {
    let sim = Sim::new();
    sim.set_behavior("wire", Behavior { latency: S, ..INSTANT });
    sim.enqueue_many("wire", 20);
    let settings = Settings { slots: 8, ..without_polls() };
    let engine = start(&sim, Settings { poll_interval: Settings::default().poll_interval, ..settings });
    // The fake lane panics on a claim without capacity; at the poll after 500 ms all slots are taken.
    advance(999 * MS).await;
    assert_eq!(sim.calls(Call::Claim).iter().map(|call| call.size).collect::<Vec<_>>(), [8]);
    advance(2 * S + 2 * MS).await;
    assert_eq!((sim.read(|state| state.max_running), sim.read(|state| state.finished.len())), (8, 20));
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_asks_for_a_batch_at_most() {
    let sim = Sim::new();
    sim.enqueue_many("wire", 30);
    let engine = start(&sim, Settings { max_batch: 10, ..without_polls() });
    advance(S).await;
    assert!(sim.calls(Call::Claim).iter().all(|call| call.size <= 10));
    assert_eq!(sim.read(|state| state.ledger.len()), 30);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_comes_free_is_filled_at_once_while_there_is_more() {
    let sim = Sim::new();
    sim.set_behavior("wire", Behavior { latency: 100 * MS, ..INSTANT });
    sim.enqueue_many("wire", 6);
    let engine = start(&sim, Settings { slots: 2, ..without_polls() });
    advance(201 * MS).await;
    let times: Vec<_> = sim.read(|state| state.dispatched.clone()).iter().map(|(_, at)| at.as_millis()).collect();
    assert_eq!(times, [0, 0, 100, 100, 200, 200]);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_route_at_its_limit_leaves_slots_to_others_and_continues_as_its_slots_come_free() {
    let sim = Sim::new();
    sim.set_behavior("wire", Behavior { latency: 100 * MS, ..INSTANT });
    sim.enqueue_many("wire", 6);
    sim.enqueue_many("card", 3);
    let engine =
        start(&sim, Settings { route_slots: BTreeMap::from([("wire".to_owned(), 2)]), ..without_polls() });
    advance(MS).await;
    assert_eq!(
        sim.read(|state| state.dispatched.clone()).iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        [1, 2, 7, 8, 9]
    );
    advance(200 * MS).await;
    let wires: Vec<_> = sim
        .read(|state| state.dispatched.clone())
        .iter()
        .filter(|(id, _)| *id <= 6)
        .map(|(_, at)| at.as_millis())
        .collect();
    assert_eq!(wires, [0, 0, 100, 100, 200, 200], "without waiting for a poll");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rows_beyond_the_capacity_are_released_without_a_dispatch() {
    let sim = Sim::new();
    sim.state().respects_capacity = false;
    sim.set_behavior("wire", Behavior { latency: 10 * S, ..INSTANT });
    sim.enqueue_many("wire", 5);
    let engine =
        start(&sim, Settings { route_slots: BTreeMap::from([("wire".to_owned(), 2)]), ..without_polls() });
    advance(S).await;
    assert_eq!((sim.read(|state| state.running), sim.leased()), (2, 2));
    assert!(sim.calls(Call::Claim).len() <= 3, "released rows are not claimed in a loop");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rows_of_a_claim_that_took_too_long_are_released_without_a_dispatch() {
    let sim = Sim::new();
    sim.inject(Call::Claim, &[Fault::Slow(27 * S)]);
    sim.set_fault(Call::Claim, None);
    let id = sim.enqueue("wire");
    let engine = start(&sim, Settings { call_timeout: 29 * S, ..without_polls() });
    advance(27 * S + 500 * MS).await;
    assert_eq!(sim.dispatched_at(id), None, "three of thirty seconds are left, the margin");
    assert_eq!((sim.calls(Call::Release).len(), sim.leased()), (1, 0));
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rows_of_a_claim_that_timed_out_are_released_when_they_arrive() {
    let sim = Sim::new();
    sim.inject(Call::Claim, &[Fault::Slow(15 * S)]);
    let engine = start(&sim, without_polls());
    advance(MS).await;
    // Claims after the one that hangs find nothing.
    advance(14 * S).await;
    assert!(sim.calls(Call::Claim).len() > 1, "a claim that hangs does not block others");
    let id = sim.enqueue("wire");
    advance(S + MS).await;
    assert_eq!((sim.calls(Call::Release).len(), sim.leased()), (1, 0));
    assert_eq!(sim.dispatched_at(id), None);
    let summary = engine.stop().await;
    assert_eq!((summary.released, summary.left_behind), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_panics_is_retried() {
    let sim = Sim::new();
    sim.inject(Call::Claim, &[Fault::Panic]);
    let id = sim.enqueue("wire");
    let engine = start(&sim, without_polls());
    advance(10 * S).await;
    assert_eq!(sim.ledger(id), [Outcome::Paid]);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unrecorded_outcomes_limit_claims() {
    let sim = Sim::new();
    sim.set_fault(Call::Complete, Some(Fault::Unavailable));
    sim.enqueue_many("wire", 100);
    let engine = start(&sim, Settings { slots: 8, ..without_polls() });
    advance(5 * S).await;
    assert_eq!(sim.read(|state| state.dispatched.len()), 16, "twice the slots");
    engine.handle.request_stop();
    engine.stop().await;
}
