//! The swarm finds bugs that are planted into the engine, each by the invariant that it breaks.

use symphony_relay::simulation::{PlantedBug, plant};

use super::invariants::Invariant;
use super::run::run;

/// Seeds within which each bug is found.
const MOST_SEEDS: u64 = 1000;

fn is_found(bug: PlantedBug, by: &[Invariant]) {
    plant(Some(bug));
    let found = (0..MOST_SEEDS).find_map(|seed| run(seed).violation.map(|violation| (seed, violation)));
    plant(None);
    let (seed, violation) = found.expect("found");
    println!("{bug:?}: found by seed {seed}, which violates {}", violation.invariant);
    assert!(by.contains(&violation.invariant), "{violation:?}");
}

macro_rules! planted_bugs {
    ($($test:ident: $bug:ident by $($invariant:ident),+;)+) => { $(
        #[test]
        fn $test() {
            is_found(PlantedBug::$bug, &[$(Invariant::$invariant),+]);
        }
    )+ };
}

planted_bugs! {
    a_completion_after_the_expiry_of_its_lease_is_found: CompletionAfterExpiry by CompletedInTime;
    a_lost_lease_that_does_not_cancel_its_dispatch_is_found: LostLeaseNotCancelled by LostLeaseAbandoned;
    a_dispatch_that_outlasts_its_lease_is_found: OverdueNotCancelled by DispatchEndsBeforeLease;
    a_slot_that_a_cancelled_dispatch_keeps_is_found: CancelledSlotLeaks by CapacityReturned, Progress;
    a_stop_without_a_release_is_found: StopWithoutRelease by StopReleases;
    a_breaker_that_waits_for_its_probe_for_ever_is_found: NeutralProbeKeepsProbing by CapacityReturned, Progress;
    a_renewal_of_the_wrong_lease_is_found: RenewalOfWrongLease by LostLeaseAbandoned;
    a_claim_of_an_engine_that_drains_is_found: ClaimWhileDraining by StopEndsCalls;
    a_completion_that_is_not_retried_is_found: LostCompletion by NothingHeld, Progress, StopInTime;
}
