//! Slow routes beside a quick one: they share the slots but for a reserve.

use std::time::Duration;

use symphony_relay::Settings;

use crate::sim::*;

const SLOW: Behavior = Behavior { latency: Duration::from_secs(29), ..INSTANT };
const QUICK: Behavior = Behavior { latency: Duration::from_millis(50), ..INSTANT };

fn polling() -> Settings {
    Settings { repair_every: Duration::ZERO, ..Settings::default() }
}

/// A lane with this many slow routes, each with a backlog, and one more.
fn with_slow_routes(count: usize) -> Sim {
    let sim = Sim::new();
    sim.state().routes = count + 1;
    sim.set_behavior("quick", QUICK);
    for route in 0..count {
        let route = format!("slow{route}");
        sim.set_behavior(&route, SLOW);
        sim.enqueue_many(&route, 300);
    }
    sim
}

/// Enqueues a row of the quick route each 50 ms for a minute, and returns how long the slowest took.
async fn slowest_quick_row(sim: &Sim) -> Duration {
    let mut enqueued = Vec::new();
    for _ in 0..1200 {
        enqueued.push((sim.enqueue("quick"), sim.now()));
        advance(50 * MS).await;
    }
    advance(60 * S).await;
    let ended_at = sim.read(|state| state.ended_at.clone());
    enqueued.iter().map(|(id, at)| ended_at.get(id).map_or(Duration::MAX, |end| *end - *at)).max().expect("rows")
}

#[tokio::test(start_paused = true)]
async fn slow_routes_leave_slots_to_a_quick_one_however_many_they_are() {
    for count in [1, 2, 5, 12] {
        let sim = with_slow_routes(count);
        let engine = start_with_listener(&sim, polling());
        // The slow routes have all slots that they get.
        advance(5 * S).await;
        let slowest = slowest_quick_row(&sim).await;
        assert!(slowest < S, "{slowest:?} beside {count} slow routes");
        // Three quarters, less what cannot be divided.
        let running = sim.read(|state| state.max_running);
        assert!(running > 48 - count, "{count} slow routes use {running} slots");
        engine.handle.request_stop();
        engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_quick_route_that_hangs_leaves_slots_to_others() {
    let sim = Sim::new();
    sim.state().routes = 2;
    for route in ["quick", "hangs"] {
        sim.set_behavior(route, QUICK);
        sim.enqueue_many(route, 100);
    }
    let engine = start_with_listener(&sim, polling());
    advance(5 * S).await;
    sim.set_behavior("hangs", SLOW);
    sim.enqueue_many("hangs", 300);
    let slowest = slowest_quick_row(&sim).await;
    assert!(slowest < S, "{slowest:?}");
    engine.handle.request_stop();
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_single_route_uses_every_slot_whether_slow_or_quick() {
    for behavior in [SLOW, QUICK] {
        let sim = Sim::new();
        sim.set_behavior("only", behavior);
        sim.enqueue_many("only", 200);
        let engine = start_with_listener(&sim, polling());
        advance(S).await;
        assert_eq!(sim.read(|state| state.max_running), 64);
        engine.handle.request_stop();
        engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn several_quick_routes_use_nearly_every_slot() {
    let sim = Sim::new();
    sim.state().routes = 3;
    for route in ["a", "b", "c"] {
        sim.set_behavior(route, QUICK);
        sim.enqueue_many(route, 640);
    }
    let engine = start_with_listener(&sim, polling());
    while sim.read(|state| state.ended_at.len()) < 1920 && sim.now() < 60 * S {
        advance(10 * MS).await;
    }
    // With every slot: 30 times 50 ms.
    assert!(sim.now() < 1700 * MS, "{:?}", sim.now());
    engine.stop().await;
}
