//! When the engine claims.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use symphony_relay::Engine;
use symphony_relay::listener::NoListener;
use symphony_relay::metrics::Meter;
use symphony_relay::stop::StopHandle;
use symphony_relay::wake::Cause;

use crate::sim::*;

fn polling() -> symphony_relay::Settings {
    symphony_relay::Settings { repair_every: Duration::ZERO, ..Default::default() }
}

#[tokio::test(start_paused = true)]
async fn the_bell_is_armed_before_sleep_and_a_last_look_follows() {
    let sim = Sim::new();
    let work = start_with_listener(&sim, quiet());
    pass(S).await;
    let calls: Vec<Call> =
        sim.world().made.iter().map(|made| made.call).filter(|call| *call != Call::NextDue).collect();
    assert_eq!(calls, [Call::Claim, Call::Arm, Call::Claim]);
    assert!(sim.armed());
    work.end().await;
    assert!(!sim.armed(), "a listener that is not needed is not left armed");
}

#[tokio::test(start_paused = true)]
async fn work_committed_while_the_bell_was_being_armed_is_found_by_the_last_look() {
    let sim = Sim::new();
    sim.faults(Call::Arm, &[Fault::Slow(100 * MS)]);
    let work = start_with_listener(&sim, quiet());
    pass(50 * MS).await;
    let id = sim.enqueue("wire");
    pass(60 * MS).await;
    assert_eq!(sim.dispatched_at(id), Some(100 * MS));
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_notification_never_waits() {
    let sim = Sim::new();
    let work = start_with_listener(&sim, polling());
    // A poll has looked a millisecond before, and found nothing: that is no reason to wait.
    pass(501 * MS).await;
    assert_eq!(sim.times(Call::Claim).last(), Some(&(500 * MS)));
    let id = sim.enqueue("wire");
    pass(MS).await;
    assert_eq!(sim.dispatched_at(id), Some(501 * MS));
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_one_wake_up() {
    let sim = Sim::new();
    let work = start_with_listener(&sim, quiet());
    pass(S).await;
    sim.enqueue_many("wire", 50);
    pass(S).await;
    let wakes = sim.see(|world| world.wakes.clone()).iter().filter(|cause| **cause == Cause::Notified).count();
    assert_eq!((wakes, sim.see(|world| world.ledger.len())), (1, 50));
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn notifications_during_a_claim_fold_into_the_next() {
    let sim = Sim::new();
    let work = start_with_listener(&sim, quiet());
    pass(S).await;
    sim.faults(Call::Claim, &[Fault::Slow(200 * MS)]);
    sim.notify();
    pass(100 * MS).await;
    for _ in 0..20 {
        sim.notify();
        pass(MS).await;
    }
    pass(S).await;
    let times: Vec<_> = sim.times(Call::Claim).into_iter().filter(|at| *at >= S).collect();
    assert_eq!(times, [S, S + 200 * MS]);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn wake_ups_that_come_thick_and_bring_little_are_a_window_apart() {
    let sim = Sim::new();
    let work = start_with_listener(&sim, quiet());
    pass(S).await;
    let before = sim.made(Call::Claim).len();
    for _ in 0..100 {
        sim.notify();
        pass(2 * MS).await;
    }
    // The first few show that they come thick.
    let claims = sim.times(Call::Claim).split_off(before + 7);
    assert!(claims.len() <= 9, "200 ms of notifications brought 7 claims and then {}", claims.len());
    for pair in claims.windows(2) {
        assert!(pair[1] - pair[0] >= 25 * MS, "{claims:?}");
    }
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_wake_ups_a_second_do_not_wait_for_each_other_even_after_a_burst() {
    let sim = Sim::new();
    let work = start_with_listener(&sim, quiet());
    pass(S).await;
    for _ in 0..100 {
        sim.notify();
        pass(MS).await;
    }
    // The last of the burst is served a window later at the most. After that nobody waits for a window, though work
    // comes more often than that.
    pass(50 * MS).await;
    sim.enqueue_many("wire", 40);
    sim.notify();
    for _ in 0..3 {
        sim.enqueue("wire");
        pass(10 * MS).await;
    }
    pass(5 * MS).await;
    for _ in 0..50 {
        let id = sim.enqueue("wire");
        let notified_at = sim.now();
        pass(10 * MS).await;
        assert_eq!(sim.dispatched_at(id), Some(notified_at));
    }
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn wake_ups_that_bring_much_are_not_spaced() {
    let sim = Sim::new();
    let work = start_with_listener(&sim, quiet());
    pass(S).await;
    sim.enqueue_many("wire", 20);
    pass(5 * MS).await;
    sim.notify();
    pass(MS).await;
    let claims: Vec<_> = sim.times(Call::Claim).into_iter().filter(|at| *at >= S).collect();
    assert_eq!(claims[..2], [S, S + 5 * MS]);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn sparse_work_costs_one_claim_a_row_and_leaves_the_bell_armed() {
    let sim = Sim::new();
    let work = start_with_listener(&sim, quiet());
    pass(S).await;
    let (claims, arms) = (sim.made(Call::Claim).len(), sim.made(Call::Arm).len());
    for _ in 0..10 {
        let id = sim.enqueue("wire");
        let notified_at = sim.now();
        pass(100 * MS).await;
        assert_eq!(sim.dispatched_at(id), Some(notified_at));
    }
    assert_eq!(sim.made(Call::Claim).len() - claims, 10);
    assert_eq!((sim.made(Call::Arm).len() - arms, sim.made(Call::Disarm).len()), (0, 0));
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn under_load_the_bell_is_disarmed_and_armed_again_when_it_is_over() {
    let sim = Sim::new();
    let work = start_with_listener(&sim, symphony_relay::Settings { slots: 64, batch: 100, ..quiet() });
    pass(S).await;
    sim.enqueue_many("wire", 500);
    pass(MS).await;
    assert!(!sim.armed());
    for _ in 0..50 {
        pass(10 * MS).await;
        assert!(!sim.armed(), "writers pay for notifications while there is work");
        sim.enqueue_many("wire", 5);
    }
    pass(S).await;
    assert!(sim.armed());
    assert_eq!(sim.see(|world| world.ledger.len()), 750);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_poll_alone_finds_everything() {
    let sim = Sim::new();
    let work = start(&sim, polling());
    pass(700 * MS).await;
    let id = sim.enqueue("wire");
    pass(400 * MS).await;
    assert_eq!(sim.dispatched_at(id), Some(S));
    assert_eq!(sim.ledger(id), [Outcome::Paid]);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_poll_runs_though_notifications_come() {
    let sim = Sim::new();
    let work = start_with_listener(&sim, polling());
    pass(5 * S).await;
    // Somebody committed without ringing, for instance because the notification got lost.
    sim.always(Call::Arm, Some(Fault::Hang));
    sim.disconnect_listener();
    let id = sim.enqueue("wire");
    pass(500 * MS).await;
    assert_eq!(sim.ledger(id), [Outcome::Paid]);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_bell_alone_finds_everything() {
    let sim = Sim::new();
    let work = start_with_listener(&sim, quiet());
    for wait in [1, 20, 30, 300, 3000] {
        pass(wait * MS).await;
        sim.enqueue("wire");
    }
    pass(100 * MS).await;
    assert_eq!(sim.see(|world| world.ledger.len()), 5);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_bell_costs_latency_only_and_comes_back_with_a_last_look() {
    let sim = Sim::new();
    let work = start_with_listener(&sim, polling());
    pass(600 * MS).await;
    sim.faults(Call::Arm, &[Fault::Unavailable, Fault::Refused]);
    sim.disconnect_listener();
    let id = sim.enqueue("wire");
    pass(500 * MS).await;
    assert_eq!(sim.dispatched_at(id), Some(S), "by the poll");
    pass(20 * S).await;
    assert!(sim.armed());
    assert_eq!(sim.see(|world| world.connected.clone()), [true, false, false, false, true]);
    let (last_arm, claims) = (*sim.times(Call::Arm).last().expect("armed"), sim.times(Call::Claim));
    assert!(claims.contains(&last_arm), "work committed while it was lost was not notified");
    let id = sim.enqueue("wire");
    let notified_at = sim.now();
    pass(MS).await;
    assert_eq!(sim.dispatched_at(id), Some(notified_at));
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_bell_that_cannot_be_armed_is_tried_with_backoff() {
    let sim = Sim::new();
    sim.always(Call::Arm, Some(Fault::Unavailable));
    let work = start_with_listener(&sim, polling());
    pass(60 * S).await;
    let tries = sim.made(Call::Arm).len();
    assert!((10..=20).contains(&tries), "{tries} tries in a minute");
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_bell_that_is_refused_again_is_left_alone_for_a_minute() {
    let sim = Sim::new();
    sim.always(Call::Arm, Some(Fault::Refused));
    let work = start_with_listener(&sim, polling());
    pass(600 * S).await;
    let tries = sim.times(Call::Arm);
    let pauses: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((8..=11).contains(&tries.len()), "{tries:?}");
    assert!(pauses[0] < 10 * S, "the first time it may have been slow: {pauses:?}");
    assert!(pauses[1..].iter().all(|pause| (60 * S..=76 * S).contains(pause)), "{pauses:?}");
    // Meanwhile polls find work; the listener returns once it can connect.
    let id = sim.enqueue("wire");
    pass(S).await;
    assert_eq!(sim.ledger(id), [Outcome::Paid]);
    sim.always(Call::Arm, None);
    pass(80 * S).await;
    assert!(sim.armed());
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_row_wakes_it_on_time() {
    let sim = Sim::new();
    let id = sim.schedule("wire", 7_123 * MS);
    let work = start_with_listener(&sim, quiet());
    pass(10 * S).await;
    let at = sim.dispatched_at(id).expect("dispatched");
    assert!(at >= 7_123 * MS && at <= 7_125 * MS, "{at:?}");
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_row_to_be_tried_again_wakes_it_on_time() {
    let sim = Sim::new();
    sim.manner("wire", Manner { outcome: Outcome::Later(1_300 * MS), ..PROMPT });
    let work = start(&sim, quiet());
    sim.enqueue("wire");
    pass(4 * S).await;
    let times: Vec<u128> =
        sim.see(|world| world.dispatched.clone()).iter().map(|(_, at)| at.as_millis()).collect();
    assert_eq!(times.len(), 4, "{times:?}");
    assert!(times[3] <= 3_910, "{times:?}");
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_due_row_that_cannot_be_claimed_is_not_asked_about_without_end() {
    let sim = Sim::new();
    let id = sim.schedule("wire", 100 * MS);
    let work = start(&sim, quiet());
    pass(50 * MS).await;
    sim.take_over(id);
    pass(10 * S).await;
    assert!(sim.made(Call::NextDue).len() <= 3 && sim.made(Call::Claim).len() <= 4);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_always_says_now_does_not_keep_it_busy() {
    let sim = Sim::new();
    sim.world().says_now = true;
    let work = start(&sim, quiet());
    pass(10 * S).await;
    assert!(sim.made(Call::NextDue).len() <= 21 && sim.made(Call::Claim).len() <= 22);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn full_claims_are_followed_by_others_at_once() {
    let sim = Sim::new();
    sim.enqueue_many("wire", 1000);
    let work = start(&sim, quiet());
    pass(MS).await;
    assert_eq!(sim.see(|world| world.dispatched.len()), 1000, "prompt dispatches need no window");
    pass(S).await;
    assert_eq!(sim.see(|world| world.ledger.len()), 1000);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn idle_it_costs_less_than_five_statements_a_second_with_everything_on() {
    let sim = Sim::new();
    sim.manner("slow", Manner { takes: 3600 * S, ..PROMPT });
    let work = start_with_listener(&sim, symphony_relay::Settings::default());
    sim.enqueue("slow");
    pass(5 * S).await;
    let before = sim.world().made.len();
    pass(120 * S).await;
    let a_second = (sim.world().made.len() - before) as f64 / 120.0;
    assert!(a_second < 2.5, "{a_second} statements a second, with a lease to renew and repair");
    assert_eq!(sim.made(Call::Disarm).len(), 0, "a poll that finds nothing does not touch the listener");
    assert!(sim.made(Call::NextDue).len() <= 2);
    work.stop.signal();
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_away_is_claimed_from_with_backoff_and_then_at_once() {
    let sim = Sim::new();
    sim.always(Call::Claim, Some(Fault::Unavailable));
    let work = start(&sim, polling());
    sim.enqueue("wire");
    pass(60 * S).await;
    let tries = sim.made(Call::Claim).len();
    assert!((10..=20).contains(&tries), "{tries} tries in a minute");
    sim.always(Call::Claim, None);
    pass(7 * S).await;
    assert_eq!(sim.see(|world| world.ledger.len()), 1);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_claim_is_tried_again_slowly() {
    let sim = Sim::new();
    sim.always(Call::Claim, Some(Fault::Refused));
    let work = start(&sim, polling());
    pass(60 * S).await;
    assert!((9..=13).contains(&sim.made(Call::Claim).len()), "{:?}", sim.times(Call::Claim));
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_had_to_come_after_a_row_is_claimed_as_soon_as_that_one_is_recorded() {
    let sim = Sim::new();
    sim.world().in_order = true;
    sim.manner("wire", Manner { takes: 10 * MS, ..PROMPT });
    sim.enqueue_many("wire", 5);
    let work = start(&sim, quiet());
    // Each takes 10 ms, and its outcome waits 5 ms at most to be flushed. There is no poll and no listener.
    pass(5 * 15 * MS).await;
    assert_eq!(sim.see(|world| world.ledger.len()), 5);
    assert_eq!(sim.made(Call::Claim).iter().map(|made| made.got).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 0]);
    work.end().await;
}

/// Notes whether it is told from within a task.
#[derive(Default)]
struct Place(AtomicBool);

impl Meter for Place {
    fn wakeup(&self, _cause: Cause) {
        self.0.store(tokio::task::try_id().is_some(), Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_is_a_task_of_its_own_wherever_it_is_waited_for() {
    assert_eq!(
        tokio::task::try_id(),
        None,
        "this is the thread that started the runtime, and none of its workers"
    );
    let (sim, place) = (Sim::new(), Arc::new(Place::default()));
    let engine = Engine::new(Arc::new(sim.clone()), quiet()).unwrap().with_meter(Arc::clone(&place) as _);
    let (stop, signal) = StopHandle::new();
    tokio::join!(engine.run(None::<NoListener>, signal), async {
        pass(S).await;
        stop.signal();
    });
    assert!(place.0.load(Ordering::Relaxed));
}
