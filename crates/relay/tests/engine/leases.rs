//! Lease renewal, and lost leases.

use symphony_relay::Settings;
use symphony_relay::lease::Term;

use crate::sim::*;

fn slow(sim: &Sim, takes: std::time::Duration) {
    sim.manner("slow", Manner { takes, ..PROMPT });
}

#[tokio::test(start_paused = true)]
async fn running_leases_are_renewed_together_at_a_third_of_their_time() {
    let sim = Sim::new();
    slow(&sim, 100 * S);
    sim.enqueue_many("slow", 3);
    let work = start_with_listener(&sim, quiet());
    pass(5 * S).await;
    sim.enqueue_many("slow", 2);
    pass(101 * S).await;
    let renewals = sim.made(Call::Renew);
    assert_eq!(renewals[0].at, 10 * S);
    assert!(renewals.iter().take(9).all(|made| made.size == 5), "{renewals:?}");
    assert!(renewals.len() <= 11, "{renewals:?}");
    assert_eq!(sim.see(|world| world.ledger.len()), 5, "recorded long after the first term was over");
    pass(60 * S).await;
    assert_eq!(sim.made(Call::Renew).len(), renewals.len(), "what has ended is not renewed");
    assert_eq!(work.end().await.lease_lost, 0);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_not_renewed_and_its_dispatch_ends_before_it() {
    let sim = Sim::with(Term::Fixed(30 * S));
    slow(&sim, 100 * S);
    let id = sim.enqueue("slow");
    let work = start(&sim, quiet());
    pass(27 * S - MS).await;
    assert_eq!(sim.see(|world| world.running), 1);
    pass(2 * MS).await;
    assert_eq!((sim.see(|world| world.running), sim.ledger(id)), (0, vec![Outcome::Unknown]));
    assert_eq!(sim.made(Call::Renew).len(), 0);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_said_to_be_lost_cancels_its_dispatch_and_nothing_is_recorded() {
    let sim = Sim::new();
    slow(&sim, 100 * S);
    let lost = sim.enqueue("slow");
    sim.enqueue("slow");
    let work = start(&sim, quiet());
    pass(5 * S).await;
    sim.take_over(lost);
    pass(5 * S + MS).await;
    assert_eq!((sim.see(|world| world.running), sim.see(|world| world.lost)), (1, 1));
    assert_eq!(sim.made(Call::Complete).len(), 0);
    pass(100 * S).await;
    assert_eq!(sim.see(|world| world.finished.clone()), [2]);
    assert_eq!(work.end().await.left_behind, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_cancels_its_dispatch_before_its_end_and_the_outcome_is_unknown() {
    let sim = Sim::new();
    slow(&sim, 100 * S);
    sim.always(Call::Renew, Some(Fault::Unavailable));
    let id = sim.enqueue("slow");
    let work = start(&sim, quiet());
    pass(27 * S - MS).await;
    assert_eq!(sim.see(|world| world.running), 1);
    assert!(sim.made(Call::Renew).len() >= 5, "it is tried over and over");
    pass(2 * MS).await;
    assert_eq!(sim.see(|world| world.running), 0);
    pass(S).await;
    assert_eq!(sim.ledger(id), [Outcome::Unknown], "while the lease still held");
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn renewals_that_hang_are_tried_again_within_the_lease() {
    let sim = Sim::new();
    slow(&sim, 40 * S);
    sim.faults(Call::Renew, &[Fault::Hang, Fault::Hang]);
    let id = sim.enqueue("slow");
    let work = start(&sim, quiet());
    pass(60 * S).await;
    assert_eq!(sim.ledger(id), [Outcome::Paid]);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn renewal_goes_on_while_every_other_call_hangs() {
    let sim = Sim::new();
    slow(&sim, 100 * S);
    sim.enqueue("slow");
    let settings = Settings { repair_every: S, ..Settings::default() };
    let work = start_with_listener(&sim, settings);
    pass(S).await;
    for call in [Call::Claim, Call::Complete, Call::Release, Call::Repair, Call::NextDue, Call::Arm] {
        sim.always(call, Some(Fault::Hang));
    }
    sim.disconnect_listener();
    pass(98 * S).await;
    assert_eq!((sim.see(|world| world.running), sim.see(|world| world.lost)), (1, 0));
    assert_eq!(sim.made(Call::Renew).len(), 9);
    work.stop.signal();
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_that_panics_is_recorded_as_abandoned_and_frees_its_slot() {
    let sim = Sim::new();
    sim.manner("broken", Manner { panics: true, ..PROMPT });
    let id = sim.enqueue("broken");
    let work = start_with_listener(&sim, Settings { slots: 1, ..quiet() });
    pass(S).await;
    let next = sim.enqueue("wire");
    pass(S).await;
    assert_eq!((sim.ledger(id), sim.ledger(next)), (vec![Outcome::Unknown], vec![Outcome::Paid]));
    assert_eq!(work.end().await.abandoned, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_a_claim_brings_twice_is_dispatched_once() {
    let sim = Sim::new();
    slow(&sim, 60 * S);
    sim.world().repeats = true;
    sim.enqueue_many("slow", 3);
    let work = start(&sim, Settings { poll: Settings::default().poll, ..quiet() });
    pass(70 * S).await;
    assert_eq!(sim.see(|world| world.dispatched.len()), 3);
    assert_eq!(sim.see(|world| world.ledger.len()), 3);
    work.end().await;
}
