//! How outcomes are batched, recorded and retried.

use symphony_relay::Settings;

use crate::sim::*;

fn sizes(sim: &Sim) -> Vec<(u128, usize)> {
    sim.calls(Call::Complete).iter().map(|call| (call.at.as_millis(), call.size)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_first_outcome_is_recorded_at_once_and_the_next_are_batched() {
    let sim = Sim::new();
    for (route, latency) in [("a", 100), ("b", 101), ("c", 102), ("d", 105), ("e", 300)] {
        sim.set_behavior(route, Behavior { latency: latency * MS, ..INSTANT });
        sim.enqueue(route);
    }
    let engine = start(&sim, without_polls());
    advance(S).await;
    assert_eq!(sizes(&sim), [(100, 1), (105, 3), (300, 1)]);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_arrive_during_a_completion_are_batched_until_it_returns() {
    // The call returns soon; or so late that the next batch does not wait for it.
    for (slow, next) in [(20, 120), (1000, 200)] {
        let sim = Sim::new();
        for (route, latency) in [("a", 100), ("b", 110), ("c", 112), ("d", 115), ("e", 117)] {
            sim.set_behavior(route, Behavior { latency: latency * MS, ..INSTANT });
            sim.enqueue(route);
        }
        sim.inject(Call::Complete, &[Fault::Slow(slow * MS)]);
        let engine = start(&sim, without_polls());
        advance(500 * MS).await;
        assert_eq!(sizes(&sim), [(100, 1), (next, 4)]);
        engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_does_not_wait_for_a_call_in_flight() {
    let sim = Sim::new();
    sim.set_behavior("wire", Behavior { latency: 100 * MS, ..INSTANT });
    sim.enqueue_many("wire", 1000);
    sim.inject(Call::Complete, &[Fault::Slow(S)]);
    let engine = start(&sim, Settings { slots: 1000, max_batch: 1000, ..without_polls() });
    advance(500 * MS).await;
    assert_eq!(sizes(&sim), [(100, 500), (100, 500)]);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_come_together_are_recorded_together_five_hundred_at_most() {
    let sim = Sim::new();
    sim.set_behavior("wire", Behavior { latency: 100 * MS, ..INSTANT });
    sim.enqueue_many("wire", 750);
    let engine = start(&sim, Settings { slots: 750, max_batch: 750, ..without_polls() });
    advance(S).await;
    assert_eq!(sizes(&sim).iter().map(|(_, size)| size).sum::<usize>(), 750);
    assert!(sizes(&sim).len() <= 3 && sizes(&sim).iter().all(|(_, size)| *size <= 500), "{:?}", sizes(&sim));
    assert!(sizes(&sim).iter().all(|(at, _)| *at <= 105), "{:?}", sizes(&sim));
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn each_row_has_a_result_of_its_own() {
    let sim = Sim::new();
    sim.set_behavior("wire", Behavior { latency: 100 * MS, ..INSTANT });
    sim.enqueue_many("wire", 4);
    sim.state().rejected_by_backstop.push(3);
    let engine = start(&sim, without_polls());
    advance(50 * MS).await;
    sim.take_over(2);
    advance(10 * S).await;
    assert_eq!(sizes(&sim), [(100, 4)], "neither a lost lease nor the backstop is retried");
    assert_eq!(sim.read(|state| state.ledger.clone()), [(1, Outcome::Paid), (4, Outcome::Paid)]);
    assert_eq!((sim.read(|state| state.lost), sim.read(|state| state.backstops)), (1, 1));
    let summary = engine.stop().await;
    assert_eq!((summary.recorded, summary.lease_lost, summary.left_behind), (2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_completion_is_retried_after_a_lost_connection_until_the_lease_expires() {
    let sim = Sim::new();
    sim.set_fault(Call::Complete, Some(Fault::Unavailable));
    let id = sim.enqueue("wire");
    let engine = start(&sim, without_polls());
    advance(120 * S).await;
    let times = sim.times(Call::Complete);
    assert!((15..=25).contains(&times.len()), "{times:?}");
    assert!(times.last().is_some_and(|at| *at >= 27 * S && *at < 30 * S), "{times:?}");
    assert_eq!(sim.ledger(id), []);
    let summary = engine.stop().await;
    assert_eq!((summary.given_up, summary.left_behind), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_recorded_as_soon_as_the_connection_is_back() {
    let sim = Sim::new();
    sim.inject(Call::Complete, &[Fault::Unavailable, Fault::Unavailable, Fault::Unavailable]);
    let id = sim.enqueue("wire");
    let engine = start(&sim, without_polls());
    advance(S).await;
    assert_eq!(sim.ledger(id), [Outcome::Paid]);
    assert_eq!(sim.read(|state| state.dispatched.len()), 1, "and is not dispatched again");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_lost_does_not_record_twice() {
    let sim = Sim::new();
    sim.inject(Call::Complete, &[Fault::AnswerLost]);
    let id = sim.enqueue("wire");
    let engine = start(&sim, without_polls());
    advance(60 * S).await;
    assert_eq!((sim.ledger(id).len(), sim.calls(Call::Complete).len()), (1, 2));
    let summary = engine.stop().await;
    assert_eq!((summary.given_up, summary.left_behind), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn one_poison_row_does_not_block_the_others() {
    let sim = Sim::new();
    sim.set_behavior("wire", Behavior { latency: 100 * MS, ..INSTANT });
    sim.set_behavior("poison", Behavior { latency: 100 * MS, outcome: Outcome::Poison, ..INSTANT });
    sim.enqueue_many("wire", 3);
    let bad = sim.enqueue("poison");
    sim.enqueue_many("wire", 3);
    let engine = start(&sim, without_polls());
    advance(10 * S).await;
    assert_eq!(sim.read(|state| state.ledger.len()), 6);
    assert_eq!(sim.ledger(bad), []);
    assert_eq!(sim.calls(Call::Complete).len(), 8, "one batch, then each row alone");
    assert_eq!(engine.stop().await.given_up, 1);
}

#[tokio::test(start_paused = true)]
async fn the_rows_of_a_completion_that_panics_are_recorded() {
    let sim = Sim::new();
    sim.set_behavior("wire", Behavior { latency: 100 * MS, ..INSTANT });
    sim.enqueue_many("wire", 3);
    sim.inject(Call::Complete, &[Fault::Panic]);
    let engine = start(&sim, without_polls());
    advance(S).await;
    assert_eq!(sim.read(|state| state.ledger.len()), 3);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_hangs_does_not_block_the_next() {
    let sim = Sim::new();
    sim.inject(Call::Complete, &[Fault::Hang]);
    let engine = start_with_listener(&sim, without_polls());
    let first = sim.enqueue("wire");
    advance(100 * MS).await;
    let second = sim.enqueue("wire");
    advance(10 * MS).await;
    assert_eq!((sim.ledger(first).len(), sim.ledger(second).len()), (0, 1));
    advance(11 * S).await;
    assert_eq!(sim.ledger(first).len(), 1, "it is retried after its timeout");
    engine.stop().await;
}
