//! When the engine repairs expired leases.

use std::time::Duration;

use symphony_relay::Settings;
use symphony_relay::lane::Repaired;

use crate::sim::*;

fn repaired(requeued: usize, ended: usize, more: bool) -> Repaired {
    Repaired { requeued, ended, more, ..Repaired::default() }
}

#[tokio::test(start_paused = true)]
async fn repair_starts_at_a_random_time_within_the_first_minute_and_then_runs_every_minute() {
    let mut firsts = Vec::new();
    for _ in 0..8 {
        let sim = Sim::new();
        let engine = start(&sim, Settings { poll_interval: None, ..Settings::default() });
        advance(300 * S).await;
        let times = sim.times(Call::Repair);
        assert_eq!(times.len(), 5);
        assert!(times[0] < 60 * S);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 60 * S), "{times:?}");
        firsts.push(times[0]);
        engine.stop().await;
    }
    firsts.dedup();
    assert!(firsts.len() > 1, "relayers would repair at the same moment");
}

#[tokio::test(start_paused = true)]
async fn a_repair_that_reports_more_is_followed_by_another_at_once() {
    let sim = Sim::new();
    sim.state().repairs.extend([repaired(100, 0, true), repaired(99, 1, true), repaired(0, 0, true)]);
    let engine = start(&sim, Settings { poll_interval: None, ..Settings::default() });
    advance(60 * S).await;
    let times = sim.times(Call::Repair);
    assert_eq!(times.len(), 3, "a repair that changed nothing is not");
    assert!(times[2] - times[0] <= 2 * MS);
    assert_eq!(engine.stop().await.repaired, 200);
}

#[tokio::test(start_paused = true)]
async fn requeued_rows_wake_the_engine_when_they_are_due() {
    let sim = Sim::new();
    let engine = start(&sim, Settings { poll_interval: None, ..Settings::default() });
    advance(S).await;
    let lookups = sim.calls(Call::NextDue).len();
    sim.state().repairs.push_back(repaired(1, 0, false));
    let id = sim.schedule("wire", 61 * S);
    advance(70 * S).await;
    assert!(sim.calls(Call::NextDue).len() > lookups);
    assert!(sim.dispatched_at(id).is_some());
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_repair_is_retried_before_the_next_interval_and_repair_can_be_disabled() {
    let sim = Sim::new();
    sim.inject(Call::Repair, &[Fault::Unavailable, Fault::Hang, Fault::Panic]);
    let engine = start(&sim, Settings { poll_interval: None, ..Settings::default() });
    advance(90 * S).await;
    assert!(sim.calls(Call::Repair).len() >= 4);
    engine.stop().await;

    let sim = Sim::new();
    let engine = start(&sim, Settings { repair_every: Duration::ZERO, ..Settings::default() });
    advance(300 * S).await;
    assert_eq!(sim.calls(Call::Repair).len(), 0);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn quarantined_rows_are_reported_as_their_total() {
    let sim = Sim::new();
    let pass_of = |quarantined| Repaired { quarantined, ..Repaired::default() };
    sim.state().repairs.extend([0, 2, 2, 3].map(pass_of));
    let engine = start(&sim, Settings { poll_interval: None, ..Settings::default() });
    advance(300 * S).await;
    assert!(sim.read(|state| state.quarantined.starts_with(&[0, 2, 2, 3])));
    engine.stop().await;
}
