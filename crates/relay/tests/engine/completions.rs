//! How outcomes are batched, recorded and retried.

use symphony_relay::Settings;

use crate::sim::*;

fn sizes(sim: &Sim) -> Vec<(u128, usize)> {
    sim.made(Call::Complete).iter().map(|made| (made.at.as_millis(), made.size)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_first_outcome_at_an_idle_desk_is_recorded_at_once_and_the_next_are_gathered() {
    let sim = Sim::new();
    for (route, takes) in [("a", 100), ("b", 101), ("c", 102), ("d", 105), ("e", 300)] {
        sim.manner(route, Manner { takes: takes * MS, ..PROMPT });
        sim.enqueue(route);
    }
    let work = start(&sim, quiet());
    pass(S).await;
    assert_eq!(sizes(&sim), [(100, 1), (105, 3), (300, 1)]);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_come_while_a_completion_is_under_way_go_together_once_it_is_answered() {
    // Answered soon; or so late that nobody waits for it any longer.
    for (slow, next) in [(20, 120), (1000, 200)] {
        let sim = Sim::new();
        for (route, takes) in [("a", 100), ("b", 110), ("c", 112), ("d", 115), ("e", 117)] {
            sim.manner(route, Manner { takes: takes * MS, ..PROMPT });
            sim.enqueue(route);
        }
        sim.faults(Call::Complete, &[Fault::Slow(slow * MS)]);
        let work = start(&sim, quiet());
        pass(500 * MS).await;
        assert_eq!(sizes(&sim), [(100, 1), (next, 4)]);
        work.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_completion_waits_for_none_that_is_under_way() {
    let sim = Sim::new();
    sim.manner("wire", Manner { takes: 100 * MS, ..PROMPT });
    sim.enqueue_many("wire", 1000);
    sim.faults(Call::Complete, &[Fault::Slow(S)]);
    let work = start(&sim, Settings { slots: 1000, batch: 1000, ..quiet() });
    pass(500 * MS).await;
    assert_eq!(sizes(&sim), [(100, 500), (100, 500)]);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_come_together_are_recorded_together_five_hundred_at_most() {
    let sim = Sim::new();
    sim.manner("wire", Manner { takes: 100 * MS, ..PROMPT });
    sim.enqueue_many("wire", 750);
    let work = start(&sim, Settings { slots: 750, batch: 750, ..quiet() });
    pass(S).await;
    assert_eq!(sizes(&sim).iter().map(|(_, size)| size).sum::<usize>(), 750);
    assert!(sizes(&sim).len() <= 3 && sizes(&sim).iter().all(|(_, size)| *size <= 500), "{:?}", sizes(&sim));
    assert!(sizes(&sim).iter().all(|(at, _)| *at <= 105), "{:?}", sizes(&sim));
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn each_row_has_a_result_of_its_own() {
    let sim = Sim::new();
    sim.manner("wire", Manner { takes: 100 * MS, ..PROMPT });
    sim.enqueue_many("wire", 4);
    sim.world().doubled.push(3);
    let work = start(&sim, quiet());
    pass(50 * MS).await;
    sim.take_over(2);
    pass(10 * S).await;
    assert_eq!(sizes(&sim), [(100, 4)], "neither a lost lease nor the backstop is tried again");
    assert_eq!(sim.see(|world| world.ledger.clone()), [(1, Outcome::Paid), (4, Outcome::Paid)]);
    assert_eq!((sim.see(|world| world.lost), sim.see(|world| world.backstops)), (1, 1));
    let summary = work.end().await;
    assert_eq!((summary.recorded, summary.lease_lost, summary.left_behind), (2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_tried_again_while_the_lease_lasts_and_not_longer() {
    let sim = Sim::new();
    sim.always(Call::Complete, Some(Fault::Unavailable));
    let id = sim.enqueue("wire");
    let work = start(&sim, quiet());
    pass(120 * S).await;
    let times = sim.times(Call::Complete);
    assert!((15..=25).contains(&times.len()), "{times:?}");
    assert!(times.last().is_some_and(|at| *at >= 27 * S && *at < 30 * S), "{times:?}");
    assert_eq!(sim.ledger(id), []);
    let summary = work.end().await;
    assert_eq!((summary.given_up, summary.left_behind), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_recorded_as_soon_as_the_connection_is_back() {
    let sim = Sim::new();
    sim.faults(Call::Complete, &[Fault::Unavailable, Fault::Unavailable, Fault::Unavailable]);
    let id = sim.enqueue("wire");
    let work = start(&sim, quiet());
    pass(S).await;
    assert_eq!(sim.ledger(id), [Outcome::Paid]);
    assert_eq!(sim.see(|world| world.dispatched.len()), 1, "and not dispatched again for it");
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_lost_does_not_record_twice() {
    let sim = Sim::new();
    sim.faults(Call::Complete, &[Fault::AnswerLost]);
    let id = sim.enqueue("wire");
    let work = start(&sim, quiet());
    pass(60 * S).await;
    assert_eq!((sim.ledger(id).len(), sim.made(Call::Complete).len()), (1, 2));
    let summary = work.end().await;
    assert_eq!((summary.given_up, summary.left_behind), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn one_bad_row_does_not_take_the_others_down() {
    let sim = Sim::new();
    sim.manner("wire", Manner { takes: 100 * MS, ..PROMPT });
    sim.manner("poison", Manner { takes: 100 * MS, outcome: Outcome::Poison, ..PROMPT });
    sim.enqueue_many("wire", 3);
    let bad = sim.enqueue("poison");
    sim.enqueue_many("wire", 3);
    let work = start(&sim, quiet());
    pass(10 * S).await;
    assert_eq!(sim.see(|world| world.ledger.len()), 6);
    assert_eq!(sim.ledger(bad), []);
    assert_eq!(sim.made(Call::Complete).len(), 8, "all together once, then each alone once");
    assert_eq!(work.end().await.given_up, 1);
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_panics_does_not_take_its_rows_along() {
    let sim = Sim::new();
    sim.manner("wire", Manner { takes: 100 * MS, ..PROMPT });
    sim.enqueue_many("wire", 3);
    sim.faults(Call::Complete, &[Fault::Panic]);
    let work = start(&sim, quiet());
    pass(S).await;
    assert_eq!(sim.see(|world| world.ledger.len()), 3);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_hangs_does_not_hold_up_the_next() {
    let sim = Sim::new();
    sim.faults(Call::Complete, &[Fault::Hang]);
    let work = start_with_listener(&sim, quiet());
    let first = sim.enqueue("wire");
    pass(100 * MS).await;
    let second = sim.enqueue("wire");
    pass(10 * MS).await;
    assert_eq!((sim.ledger(first).len(), sim.ledger(second).len()), (0, 1));
    pass(11 * S).await;
    assert_eq!(sim.ledger(first).len(), 1, "after its time it is tried again");
    work.end().await;
}
