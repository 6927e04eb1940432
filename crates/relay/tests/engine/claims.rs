//! How many rows the engine claims, and how it starts them.

use std::collections::BTreeMap;

use symphony_relay::Settings;

use crate::sim::*;

#[tokio::test(start_paused = true)]
async fn a_claim_asks_for_the_free_slots_only_and_never_without_one() {
    let sim = Sim::new();
    sim.manner("wire", Manner { takes: S, ..PROMPT });
    sim.enqueue_many("wire", 20);
    let settings = Settings { slots: 8, ..quiet() };
    let work = start(&sim, Settings { poll: Settings::default().poll, ..settings });
    // The lane itself fails the dispatch of a claim without room; the polls at 500 ms meet full slots.
    pass(999 * MS).await;
    assert_eq!(sim.made(Call::Claim).iter().map(|made| made.size).collect::<Vec<_>>(), [8]);
    pass(2 * S + 2 * MS).await;
    assert_eq!((sim.see(|world| world.most_running), sim.see(|world| world.finished.len())), (8, 20));
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_asks_for_a_batch_at_most() {
    let sim = Sim::new();
    sim.enqueue_many("wire", 30);
    let work = start(&sim, Settings { batch: 10, ..quiet() });
    pass(S).await;
    assert!(sim.made(Call::Claim).iter().all(|made| made.size <= 10));
    assert_eq!(sim.see(|world| world.ledger.len()), 30);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_comes_free_is_filled_at_once_while_there_is_more() {
    let sim = Sim::new();
    sim.manner("wire", Manner { takes: 100 * MS, ..PROMPT });
    sim.enqueue_many("wire", 6);
    let work = start(&sim, Settings { slots: 2, ..quiet() });
    pass(201 * MS).await;
    let times: Vec<_> = sim.see(|world| world.dispatched.clone()).iter().map(|(_, at)| at.as_millis()).collect();
    assert_eq!(times, [0, 0, 100, 100, 200, 200]);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_capped_route_leaves_room_for_the_others_and_goes_on_as_its_slots_come_free() {
    let sim = Sim::new();
    sim.manner("wire", Manner { takes: 100 * MS, ..PROMPT });
    sim.enqueue_many("wire", 6);
    sim.enqueue_many("card", 3);
    let work = start(&sim, Settings { route_slots: BTreeMap::from([("wire".to_owned(), 2)]), ..quiet() });
    pass(MS).await;
    assert_eq!(
        sim.see(|world| world.dispatched.clone()).iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        [1, 2, 7, 8, 9]
    );
    pass(200 * MS).await;
    let wires: Vec<_> = sim
        .see(|world| world.dispatched.clone())
        .iter()
        .filter(|(id, _)| *id <= 6)
        .map(|(_, at)| at.as_millis())
        .collect();
    assert_eq!(wires, [0, 0, 100, 100, 200, 200], "without waiting for a poll");
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_lane_brings_beyond_the_room_is_given_back_unstarted() {
    let sim = Sim::new();
    sim.world().respects_capacity = false;
    sim.manner("wire", Manner { takes: 10 * S, ..PROMPT });
    sim.enqueue_many("wire", 5);
    let work = start(&sim, Settings { route_slots: BTreeMap::from([("wire".to_owned(), 2)]), ..quiet() });
    pass(S).await;
    assert_eq!((sim.see(|world| world.running), sim.leased()), (2, 2));
    assert!(sim.made(Call::Claim).len() <= 3, "nor is it claimed over and over");
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_took_too_long_is_not_started_and_given_back() {
    let sim = Sim::new();
    sim.faults(Call::Claim, &[Fault::Slow(27 * S)]);
    sim.always(Call::Claim, None);
    let id = sim.enqueue("wire");
    let work = start(&sim, Settings { call_timeout: 29 * S, ..quiet() });
    pass(27 * S + 500 * MS).await;
    assert_eq!(sim.dispatched_at(id), None, "three of thirty seconds are left, the margin");
    assert_eq!((sim.made(Call::Release).len(), sim.leased()), (1, 0));
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn rows_of_a_claim_that_was_given_up_are_given_back_when_they_come() {
    let sim = Sim::new();
    sim.faults(Call::Claim, &[Fault::Slow(15 * S)]);
    let work = start(&sim, quiet());
    pass(MS).await;
    // Claims after the one that hangs find nothing.
    pass(14 * S).await;
    assert!(sim.made(Call::Claim).len() > 1, "one that hangs does not stop others");
    let id = sim.enqueue("wire");
    pass(S + MS).await;
    assert_eq!((sim.made(Call::Release).len(), sim.leased()), (1, 0));
    assert_eq!(sim.dispatched_at(id), None);
    let summary = work.end().await;
    assert_eq!((summary.released, summary.left_behind), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_panics_is_a_claim_that_failed() {
    let sim = Sim::new();
    sim.faults(Call::Claim, &[Fault::Panic]);
    let id = sim.enqueue("wire");
    let work = start(&sim, quiet());
    pass(10 * S).await;
    assert_eq!(sim.ledger(id), [Outcome::Paid]);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_pile_up_hold_claims_back() {
    let sim = Sim::new();
    sim.always(Call::Complete, Some(Fault::Unavailable));
    sim.enqueue_many("wire", 100);
    let work = start(&sim, Settings { slots: 8, ..quiet() });
    pass(5 * S).await;
    assert_eq!(sim.see(|world| world.dispatched.len()), 16, "twice the slots");
    work.stop.signal();
    work.end().await;
}
