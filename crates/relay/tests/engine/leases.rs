//! Lease renewal, and lost leases.

use symphony_relay::Settings;
use symphony_relay::lease::Term;

use crate::sim::*;

fn slow(sim: &Sim, latency: std::time::Duration) {
    sim.set_behavior("slow", Behavior { latency, ..INSTANT });
}

#[tokio::test(start_paused = true)]
async fn running_leases_are_renewed_together_at_a_third_of_their_term() {
    let sim = Sim::new();
    slow(&sim, 100 * S);
    sim.enqueue_many("slow", 3);
    let engine = start_with_listener(&sim, without_polls());
    advance(5 * S).await;
    sim.enqueue_many("slow", 2);
    advance(101 * S).await;
    let renewals = sim.calls(Call::Renew);
    assert_eq!(renewals[0].at, 10 * S);
    assert!(renewals.iter().take(9).all(|call| call.size == 5), "{renewals:?}");
    assert!(renewals.len() <= 11, "{renewals:?}");
    assert_eq!(sim.read(|state| state.ledger.len()), 5, "recorded long after the first term was over");
    advance(60 * S).await;
    assert_eq!(sim.calls(Call::Renew).len(), renewals.len(), "ended dispatches are not renewed");
    assert_eq!(engine.stop().await.lease_lost, 0);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_not_renewed_and_its_dispatch_ends_before_it() {
    let sim = Sim::with(Term::Fixed(30 * S));
    slow(&sim, 100 * S);
    let id = sim.enqueue("slow");
    let engine = start(&sim, without_polls());
    advance(27 * S - MS).await;
    assert_eq!(sim.read(|state| state.running), 1);
    advance(2 * MS).await;
    assert_eq!((sim.read(|state| state.running), sim.ledger(id)), (0, vec![Outcome::Unknown]));
    assert_eq!(sim.calls(Call::Renew).len(), 0);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_row_that_waits_for_its_turn_until_its_lease_is_about_to_expire_is_released() {
    let sim = Sim::with(Term::Fixed(30 * S));
    let id = sim.enqueue("wire");
    sim.state().waiting_for_turn.push(id);
    let engine = start(&sim, without_polls());
    advance(27 * S + MS).await;
    assert_eq!((sim.leased(), sim.ledger(id), sim.dispatched_at(id)), (0, vec![], None));
    assert_eq!(engine.stop().await.abandoned, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_cancels_its_dispatch_and_nothing_is_recorded() {
    let sim = Sim::new();
    slow(&sim, 100 * S);
    let lost = sim.enqueue("slow");
    sim.enqueue("slow");
    let engine = start(&sim, without_polls());
    advance(5 * S).await;
    sim.take_over(lost);
    advance(5 * S + MS).await;
    assert_eq!((sim.read(|state| state.running), sim.read(|state| state.lost)), (1, 1));
    assert_eq!(sim.calls(Call::Complete).len(), 0);
    advance(100 * S).await;
    assert_eq!(sim.read(|state| state.finished.clone()), [2]);
    assert_eq!(engine.stop().await.left_behind, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_cancels_its_dispatch_before_its_expiry_and_the_outcome_is_unknown() {
    let sim = Sim::new();
    slow(&sim, 100 * S);
    sim.set_fault(Call::Renew, Some(Fault::Unavailable));
    let id = sim.enqueue("slow");
    let engine = start(&sim, without_polls());
    advance(27 * S - MS).await;
    assert_eq!(sim.read(|state| state.running), 1);
    assert!(sim.calls(Call::Renew).len() >= 5, "renewals are retried");
    advance(2 * MS).await;
    assert_eq!(sim.read(|state| state.running), 0);
    advance(S).await;
    assert_eq!(sim.ledger(id), [Outcome::Unknown], "recorded while the lease was still held");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn renewals_that_hang_are_retried_within_the_lease() {
    let sim = Sim::new();
    slow(&sim, 40 * S);
    sim.inject(Call::Renew, &[Fault::Hang, Fault::Hang]);
    let id = sim.enqueue("slow");
    let engine = start(&sim, without_polls());
    advance(60 * S).await;
    assert_eq!(sim.ledger(id), [Outcome::Paid]);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn renewal_continues_while_every_other_call_hangs() {
    let sim = Sim::new();
    slow(&sim, 100 * S);
    sim.enqueue("slow");
    let settings = Settings { repair_every: S, ..Settings::default() };
    let engine = start_with_listener(&sim, settings);
    advance(S).await;
    for call in [Call::Claim, Call::Complete, Call::Release, Call::Repair, Call::NextDue, Call::Arm] {
        sim.set_fault(call, Some(Fault::Hang));
    }
    sim.disconnect_listener();
    advance(98 * S).await;
    assert_eq!((sim.read(|state| state.running), sim.read(|state| state.lost)), (1, 0));
    assert_eq!(sim.calls(Call::Renew).len(), 9);
    engine.handle.request_stop();
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_that_panics_is_recorded_as_abandoned_and_frees_its_slot() {
    let sim = Sim::new();
    sim.set_behavior("broken", Behavior { panics: true, ..INSTANT });
    let id = sim.enqueue("broken");
    let engine = start_with_listener(&sim, Settings { slots: 1, ..without_polls() });
    advance(S).await;
    let next = sim.enqueue("wire");
    advance(S).await;
    assert_eq!((sim.ledger(id), sim.ledger(next)), (vec![Outcome::Unknown], vec![Outcome::Paid]));
    assert_eq!(engine.stop().await.abandoned, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_a_claim_returns_twice_is_dispatched_once() {
    let sim = Sim::new();
    slow(&sim, 60 * S);
    sim.state().repeats_leases = true;
    sim.enqueue_many("slow", 3);
    let engine = start(&sim, Settings { poll_interval: Settings::default().poll_interval, ..without_polls() });
    advance(70 * S).await;
    assert_eq!(sim.read(|state| state.dispatched.len()), 3);
    assert_eq!(sim.read(|state| state.ledger.len()), 3);
    engine.stop().await;
}
