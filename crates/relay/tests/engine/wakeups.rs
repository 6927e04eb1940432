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
async fn the_listener_is_armed_before_the_engine_is_idle_and_one_more_claim_follows() {
    let sim = Sim::new();
    let engine = start_with_listener(&sim, without_polls());
    advance(S).await;
    let calls: Vec<Call> =
        sim.state().calls.iter().map(|call| call.call).filter(|call| *call != Call::NextDue).collect();
    assert_eq!(calls, [Call::Claim, Call::Arm, Call::Claim]);
    assert!(sim.armed());
    engine.stop().await;
    assert!(!sim.armed(), "a stopped engine leaves no armed listener");
}

#[tokio::test(start_paused = true)]
async fn work_committed_while_the_listener_was_being_armed_is_found_by_the_claim_that_follows() {
    let sim = Sim::new();
    sim.inject(Call::Arm, &[Fault::Slow(100 * MS)]);
    let engine = start_with_listener(&sim, without_polls());
    advance(50 * MS).await;
    let id = sim.enqueue("wire");
    advance(60 * MS).await;
    assert_eq!(sim.dispatched_at(id), Some(100 * MS));
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_notification_never_waits() {
    let sim = Sim::new();
    let engine = start_with_listener(&sim, polling());
    // A poll found nothing a millisecond before: that is no reason to wait.
    advance(501 * MS).await;
    assert_eq!(sim.times(Call::Claim).last(), Some(&(500 * MS)));
    let id = sim.enqueue("wire");
    advance(MS).await;
    assert_eq!(sim.dispatched_at(id), Some(501 * MS));
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_notifications_is_one_wake_up() {
    let sim = Sim::new();
    let engine = start_with_listener(&sim, without_polls());
    advance(S).await;
    sim.enqueue_many("wire", 50);
    advance(S).await;
    let causes = sim.read(|state| state.causes.clone()).iter().filter(|cause| **cause == Cause::Notified).count();
    assert_eq!((causes, sim.read(|state| state.ledger.len())), (1, 50));
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn notifications_during_a_claim_are_merged_into_the_next() {
    let sim = Sim::new();
    let engine = start_with_listener(&sim, without_polls());
    advance(S).await;
    sim.inject(Call::Claim, &[Fault::Slow(200 * MS)]);
    sim.notify();
    advance(100 * MS).await;
    for _ in 0..20 {
        sim.notify();
        advance(MS).await;
    }
    advance(S).await;
    let times: Vec<_> = sim.times(Call::Claim).into_iter().filter(|at| *at >= S).collect();
    assert_eq!(times, [S, S + 200 * MS]);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn bursts_of_notifications_for_few_rows_are_debounced() {
    let sim = Sim::new();
    let engine = start_with_listener(&sim, without_polls());
    advance(S).await;
    let before = sim.calls(Call::Claim).len();
    for _ in 0..100 {
        sim.notify();
        advance(2 * MS).await;
    }
    // The first claims detect the burst.
    let claims = sim.times(Call::Claim).split_off(before + 7);
    assert!(claims.len() <= 9, "200 ms of notifications caused 7 claims and then {}", claims.len());
    for pair in claims.windows(2) {
        assert!(pair[1] - pair[0] >= 25 * MS, "{claims:?}");
    }
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_notifications_a_second_are_not_debounced_even_after_a_burst() {
    let sim = Sim::new();
    let engine = start_with_listener(&sim, without_polls());
    advance(S).await;
    for _ in 0..100 {
        sim.notify();
        advance(MS).await;
    }
    // The last notification of the burst waits one debounce interval at most. After that none waits, although work
    // arrives more often than once per interval.
    advance(50 * MS).await;
    sim.enqueue_many("wire", 40);
    sim.notify();
    for _ in 0..3 {
        sim.enqueue("wire");
        advance(10 * MS).await;
    }
    advance(5 * MS).await;
    for _ in 0..50 {
        let id = sim.enqueue("wire");
        let notified_at = sim.now();
        advance(10 * MS).await;
        assert_eq!(sim.dispatched_at(id), Some(notified_at));
    }
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn notifications_for_many_rows_are_not_debounced() {
    let sim = Sim::new();
    let engine = start_with_listener(&sim, without_polls());
    advance(S).await;
    sim.enqueue_many("wire", 20);
    advance(5 * MS).await;
    sim.notify();
    advance(MS).await;
    let claims: Vec<_> = sim.times(Call::Claim).into_iter().filter(|at| *at >= S).collect();
    assert_eq!(claims[..2], [S, S + 5 * MS]);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sparse_work_costs_one_claim_per_row_and_leaves_the_listener_armed() {
    let sim = Sim::new();
    let engine = start_with_listener(&sim, without_polls());
    advance(S).await;
    let (claims, arms) = (sim.calls(Call::Claim).len(), sim.calls(Call::Arm).len());
    for _ in 0..10 {
        let id = sim.enqueue("wire");
        let notified_at = sim.now();
        advance(100 * MS).await;
        assert_eq!(sim.dispatched_at(id), Some(notified_at));
    }
    assert_eq!(sim.calls(Call::Claim).len() - claims, 10);
    assert_eq!((sim.calls(Call::Arm).len() - arms, sim.calls(Call::Disarm).len()), (0, 0));
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn under_load_the_listener_is_disarmed_and_armed_again_afterwards() {
    let sim = Sim::new();
    let engine =
        start_with_listener(&sim, symphony_relay::Settings { slots: 64, max_batch: 100, ..without_polls() });
    advance(S).await;
    sim.enqueue_many("wire", 500);
    advance(MS).await;
    assert!(!sim.armed());
    for _ in 0..50 {
        advance(10 * MS).await;
        assert!(!sim.armed(), "producers would notify a busy engine");
        sim.enqueue_many("wire", 5);
    }
    advance(S).await;
    assert!(sim.armed());
    assert_eq!(sim.read(|state| state.ledger.len()), 750);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_poll_alone_finds_everything() {
    let sim = Sim::new();
    let engine = start(&sim, polling());
    advance(700 * MS).await;
    let id = sim.enqueue("wire");
    advance(400 * MS).await;
    assert_eq!(sim.dispatched_at(id), Some(S));
    assert_eq!(sim.ledger(id), [Outcome::Paid]);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_poll_runs_although_there_is_a_listener() {
    let sim = Sim::new();
    let engine = start_with_listener(&sim, polling());
    advance(5 * S).await;
    // A commit without a notification, for instance because it was lost.
    sim.set_fault(Call::Arm, Some(Fault::Hang));
    sim.disconnect_listener();
    let id = sim.enqueue("wire");
    advance(500 * MS).await;
    assert_eq!(sim.ledger(id), [Outcome::Paid]);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn notifications_alone_find_everything() {
    let sim = Sim::new();
    let engine = start_with_listener(&sim, without_polls());
    for wait in [1, 20, 30, 300, 3000] {
        advance(wait * MS).await;
        sim.enqueue("wire");
    }
    advance(100 * MS).await;
    assert_eq!(sim.read(|state| state.ledger.len()), 5);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_listener_costs_latency_only_and_a_claim_follows_when_it_is_back() {
    let sim = Sim::new();
    let engine = start_with_listener(&sim, polling());
    advance(600 * MS).await;
    sim.inject(Call::Arm, &[Fault::Unavailable, Fault::Refused]);
    sim.disconnect_listener();
    let id = sim.enqueue("wire");
    advance(500 * MS).await;
    assert_eq!(sim.dispatched_at(id), Some(S), "by the poll");
    advance(20 * S).await;
    assert!(sim.armed());
    assert_eq!(sim.read(|state| state.connected.clone()), [true, false, false, false, true]);
    let (last_arm, claims) = (*sim.times(Call::Arm).last().expect("armed"), sim.times(Call::Claim));
    assert!(claims.contains(&last_arm), "work committed while it was lost was not notified");
    let id = sim.enqueue("wire");
    let notified_at = sim.now();
    advance(MS).await;
    assert_eq!(sim.dispatched_at(id), Some(notified_at));
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_cannot_be_armed_is_retried_with_backoff() {
    let sim = Sim::new();
    sim.set_fault(Call::Arm, Some(Fault::Unavailable));
    let engine = start_with_listener(&sim, polling());
    advance(60 * S).await;
    let tries = sim.calls(Call::Arm).len();
    assert!((10..=20).contains(&tries), "{tries} tries in a minute");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_is_refused_twice_is_retried_once_a_minute() {
    let sim = Sim::new();
    sim.set_fault(Call::Arm, Some(Fault::Refused));
    let engine = start_with_listener(&sim, polling());
    advance(600 * S).await;
    let tries = sim.times(Call::Arm);
    let pauses: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((8..=11).contains(&tries.len()), "{tries:?}");
    assert!(pauses[0] < 10 * S, "a first refusal may have been a slow notification: {pauses:?}");
    assert!(pauses[1..].iter().all(|pause| (60 * S..=76 * S).contains(pause)), "{pauses:?}");
    // Meanwhile polls find work; the listener returns once it can connect.
    let id = sim.enqueue("wire");
    advance(S).await;
    assert_eq!(sim.ledger(id), [Outcome::Paid]);
    sim.set_fault(Call::Arm, None);
    advance(80 * S).await;
    assert!(sim.armed());
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_row_wakes_the_engine_on_time() {
    let sim = Sim::new();
    let id = sim.schedule("wire", 7_123 * MS);
    let engine = start_with_listener(&sim, without_polls());
    advance(10 * S).await;
    let at = sim.dispatched_at(id).expect("dispatched");
    assert!(at >= 7_123 * MS && at <= 7_125 * MS, "{at:?}");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_wakes_the_engine_on_time() {
    let sim = Sim::new();
    sim.set_behavior("wire", Behavior { outcome: Outcome::Retry(1_300 * MS), ..INSTANT });
    let engine = start(&sim, without_polls());
    sim.enqueue("wire");
    advance(4 * S).await;
    let times: Vec<u128> =
        sim.read(|state| state.dispatched.clone()).iter().map(|(_, at)| at.as_millis()).collect();
    assert_eq!(times.len(), 4, "{times:?}");
    assert!(times[3] <= 3_910, "{times:?}");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_due_row_that_cannot_be_claimed_causes_no_loop_of_lookups() {
    let sim = Sim::new();
    let id = sim.schedule("wire", 100 * MS);
    let engine = start(&sim, without_polls());
    advance(50 * MS).await;
    sim.take_over(id);
    advance(10 * S).await;
    assert!(sim.calls(Call::NextDue).len() <= 3 && sim.calls(Call::Claim).len() <= 4);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lane_whose_next_row_is_always_due_causes_no_busy_loop() {
    let sim = Sim::new();
    sim.state().always_due = true;
    let engine = start(&sim, without_polls());
    advance(10 * S).await;
    assert!(sim.calls(Call::NextDue).len() <= 21 && sim.calls(Call::Claim).len() <= 22);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_claim_is_followed_by_another_at_once() {
    let sim = Sim::new();
    sim.enqueue_many("wire", 1000);
    let engine = start(&sim, without_polls());
    advance(MS).await;
    assert_eq!(sim.read(|state| state.dispatched.len()), 1000, "instant dispatches need no debounce");
    advance(S).await;
    assert_eq!(sim.read(|state| state.ledger.len()), 1000);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_engine_makes_fewer_than_five_statements_a_second() {
    let sim = Sim::new();
    sim.set_behavior("slow", Behavior { latency: 3600 * S, ..INSTANT });
    let engine = start_with_listener(&sim, symphony_relay::Settings::default());
    sim.enqueue("slow");
    advance(5 * S).await;
    let before = sim.state().calls.len();
    advance(120 * S).await;
    let a_second = (sim.state().calls.len() - before) as f64 / 120.0;
    assert!(a_second < 2.5, "{a_second} statements a second, with a lease to renew and repair");
    assert_eq!(sim.calls(Call::Disarm).len(), 0, "a poll that finds nothing does not touch the listener");
    assert!(sim.calls(Call::NextDue).len() <= 2);
    engine.handle.request_stop();
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn claims_are_retried_with_backoff_while_the_database_is_unavailable() {
    let sim = Sim::new();
    sim.set_fault(Call::Claim, Some(Fault::Unavailable));
    let engine = start(&sim, polling());
    sim.enqueue("wire");
    advance(60 * S).await;
    let tries = sim.calls(Call::Claim).len();
    assert!((10..=20).contains(&tries), "{tries} tries in a minute");
    sim.set_fault(Call::Claim, None);
    advance(7 * S).await;
    assert_eq!(sim.read(|state| state.ledger.len()), 1);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_claim_is_retried_slowly() {
    let sim = Sim::new();
    sim.set_fault(Call::Claim, Some(Fault::Refused));
    let engine = start(&sim, polling());
    advance(60 * S).await;
    assert!((9..=13).contains(&sim.calls(Call::Claim).len()), "{:?}", sim.times(Call::Claim));
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rows_that_had_to_wait_are_claimed_as_soon_as_the_one_before_is_recorded() {
    let sim = Sim::new();
    sim.state().in_order = true;
    sim.set_behavior("wire", Behavior { latency: 10 * MS, ..INSTANT });
    sim.enqueue_many("wire", 5);
    let engine = start(&sim, without_polls());
    // Each dispatch takes 10 ms, and its outcome waits 5 ms at most to be flushed. There is no poll and no listener.
    advance(5 * 15 * MS).await;
    assert_eq!(sim.read(|state| state.ledger.len()), 5);
    assert_eq!(sim.calls(Call::Claim).iter().map(|call| call.rows).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 0]);
    engine.stop().await;
}

/// Records whether the engine calls it from within a task.
#[derive(Default)]
struct TaskProbe(AtomicBool);

impl Meter for TaskProbe {
    fn wakeup(&self, _cause: Cause) {
        self.0.store(tokio::task::try_id().is_some(), Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_runs_in_a_spawned_task_wherever_it_is_awaited() {
    assert_eq!(tokio::task::try_id(), None, "this is the thread that started the runtime, not a worker thread");
    let (sim, probe) = (Sim::new(), Arc::new(TaskProbe::default()));
    let engine = Engine::new(Arc::new(sim.clone()), without_polls()).unwrap().with_meter(Arc::clone(&probe) as _);
    let (stop, stop_signal) = StopHandle::new();
    tokio::join!(engine.run(None::<NoListener>, stop_signal), async {
        advance(S).await;
        stop.request_stop();
    });
    assert!(probe.0.load(Ordering::Relaxed));
}
