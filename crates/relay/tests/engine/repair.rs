//! When the engine repairs expired leases.

use std::time::Duration;

use symphony_relay::Settings;
use symphony_relay::lane::Repaired;

use crate::sim::*;

fn repaired(requeued: usize, ended: usize, more: bool) -> Repaired {
    Repaired { requeued, ended, more, ..Repaired::default() }
}

#[tokio::test(start_paused = true)]
async fn repair_begins_at_a_time_of_its_own_within_the_first_minute_and_goes_on_every_minute() {
    let mut firsts = Vec::new();
    for _ in 0..8 {
        let sim = Sim::new();
        let work = start(&sim, Settings { poll: None, ..Settings::default() });
        pass(300 * S).await;
        let times = sim.times(Call::Repair);
        assert_eq!(times.len(), 5);
        assert!(times[0] < 60 * S);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 60 * S), "{times:?}");
        firsts.push(times[0]);
        work.end().await;
    }
    firsts.dedup();
    assert!(firsts.len() > 1, "a fleet would repair in step");
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_leaves_more_is_followed_by_another_at_once() {
    let sim = Sim::new();
    sim.world().repairs.extend([repaired(100, 0, true), repaired(99, 1, true), repaired(0, 0, true)]);
    let work = start(&sim, Settings { poll: None, ..Settings::default() });
    pass(60 * S).await;
    let times = sim.times(Call::Repair);
    assert_eq!(times.len(), 3, "and one that did nothing is not");
    assert!(times[2] - times[0] <= 2 * MS);
    assert_eq!(work.end().await.repaired, 200);
}

#[tokio::test(start_paused = true)]
async fn rows_that_repair_put_back_wake_it_when_they_are_due() {
    let sim = Sim::new();
    let work = start(&sim, Settings { poll: None, ..Settings::default() });
    pass(S).await;
    let asked = sim.made(Call::NextDue).len();
    sim.world().repairs.push_back(repaired(1, 0, false));
    let id = sim.schedule("wire", 61 * S);
    pass(70 * S).await;
    assert!(sim.made(Call::NextDue).len() > asked);
    assert!(sim.dispatched_at(id).is_some());
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn repair_that_fails_is_tried_again_before_its_next_turn_and_can_be_switched_off() {
    let sim = Sim::new();
    sim.faults(Call::Repair, &[Fault::Unavailable, Fault::Hang, Fault::Panic]);
    let work = start(&sim, Settings { poll: None, ..Settings::default() });
    pass(90 * S).await;
    assert!(sim.made(Call::Repair).len() >= 4);
    work.end().await;

    let sim = Sim::new();
    let work = start(&sim, Settings { repair_every: Duration::ZERO, ..Settings::default() });
    pass(300 * S).await;
    assert_eq!(sim.made(Call::Repair).len(), 0);
    work.end().await;
}

#[tokio::test(start_paused = true)]
async fn rows_that_were_quarantined_are_told_as_their_total() {
    let sim = Sim::new();
    let pass_of = |quarantined| Repaired { quarantined, ..Repaired::default() };
    sim.world().repairs.extend([0, 2, 2, 3].map(pass_of));
    let work = start(&sim, Settings { poll: None, ..Settings::default() });
    pass(300 * S).await;
    assert!(sim.see(|world| world.quarantined.starts_with(&[0, 2, 2, 3])));
    work.end().await;
}
