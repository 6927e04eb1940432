//! Relayers and the second store die, and every entry still ends once with the latest metadata in the store.
//!
//! Relayers and the store are killed at random moments, which `SYMPHONY_SEED` repeats. A relayer also aborts at each
//! fail point of its loop.

use std::hash::{BuildHasher, RandomState};
use std::os::unix::process::ExitStatusExt as _;

use symphony_relay::fail_point::ALL;
use symphony_testkit::proxy::{FaultKind, Proxy};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::harness::Harness;
use crate::relayer::Relayer;
use crate::second_store::SecondStore;

/// Kills of one run.
const KILLS: usize = 6;
/// Entries that are written around each kill.
const ENTRIES: usize = 120;
/// Entries that wait for a relayer that aborts.
const WAITING: usize = 20;
/// SIGABRT.
const ABORTED: i32 = 6;

async fn run(store: SecondStore) {
    let given = std::env::var("SYMPHONY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(|| RandomState::new().hash_one("seed") % 1_000_000);
    println!("SYMPHONY_SEED={seed}");
    let mut harness = Harness::start(store).await;
    let mut relayers = [harness.start_relayer().await, harness.start_relayer().await];
    for kill in 0..KILLS {
        let before = harness.ended().await;
        let writes = harness.start_writes(ENTRIES);
        // In the first half of the entries, so that some are still pending.
        let random = seed.wrapping_mul(6_364_136_223_846_793_005).rotate_left(u32::try_from(kill).unwrap() * 7);
        let moment = before + usize::try_from(random % (ENTRIES as u64 / 2)).unwrap();
        harness.wait_until("enough entries have ended", async |harness| harness.ended().await >= moment).await;
        if kill % 2 == 0 {
            harness.store.kill().await;
            harness.finish_writes(writes).await;
            let (failures, writes) = (harness.failures().await, harness.start_writes(ENTRIES / 4));
            harness.finish_writes(writes).await;
            harness
                .wait_until("a write to the store fails", async |harness| harness.failures().await > failures)
                .await;
            harness.store.restart().await;
        } else {
            harness.kill(&mut relayers[kill / 2 % 2]).await;
            harness.finish_writes(writes).await;
        }
    }
    harness.wait_until_all_ended().await;
    harness.reconcile().await;
    println!("{} entries, {} failed attempts", harness.count(), harness.failures().await);
    for relayer in &relayers {
        let metrics = relayer.metrics().await;
        assert!(metrics.contains("symphony_dlq_depth{lane=\"metadata\"} 0"), "{metrics}");
        assert!(!metrics.contains("lane=\"event\"") && !metrics.contains("lane=\"payment\""), "{metrics}");
        // One that was just started may still wait for its first answer, when the other has done all the work.
        until("it is ready", DEFAULT_TIMEOUT, async || relayer.get("/readyz").await.0 == 200).await.unwrap();
        relayer.stop().await;
    }
}

#[tokio::test]
async fn postgres_holds_the_latest_of_each_entity_though_relayers_and_store_are_killed() {
    run(SecondStore::postgres().await).await;
}

#[tokio::test]
async fn redis_holds_the_latest_of_each_entity_though_relayers_and_store_are_killed() {
    run(SecondStore::redis().await).await;
}

#[tokio::test]
async fn whatever_step_a_relayer_dies_at_another_carries_on() {
    let mut harness = Harness::start(SecondStore::postgres().await).await;
    // This lane does not renew claims, so it never reaches those fail points.
    for (_, fail_point) in ALL.iter().filter(|(_, fail_point)| !fail_point.ends_with("_renew")) {
        let writes = harness.start_writes(WAITING);
        harness.finish_writes(writes).await;
        let victim = if fail_point.ends_with("_release") {
            stopped_during_a_claim(&harness, fail_point).await
        } else {
            harness.start_relayer_with(&harness.settings.clone().abort_at(fail_point)).await
        };
        let status = victim.program.exit(DEFAULT_TIMEOUT).await.unwrap();
        assert_eq!(status.signal(), Some(ABORTED), "{fail_point}: {}", victim.program.tail());

        harness.expire_claims_of(&victim).await;
        let successor = harness.start_relayer().await;
        harness.wait_until_all_ended().await;
        harness.reconcile().await;
        successor.stop().await;
    }
}

/// A relayer that is stopped during a claim, so that it has to release the rows that the claim returns.
async fn stopped_during_a_claim(harness: &Harness, fail_point: &str) -> Relayer {
    let mut settings = harness.settings.clone().abort_at(fail_point);
    let network = Proxy::in_front_of(&settings.url).unwrap();
    let claim = network.arm(FaultKind::ReplyHeld, "claim_metadata_batch", 1);
    (settings.url, settings.log_level) = (network.url().to_owned(), "info");
    let victim = harness.start_relayer_with(&settings).await;
    claim.wait_fired(1, DEFAULT_TIMEOUT).await.unwrap();
    victim.program.term();
    // The lane's own line, because the lane must be stopping before the claim returns.
    victim.wait_for_log(r#""held":0"#).await;
    claim.release();
    victim.program.exit(DEFAULT_TIMEOUT).await.unwrap();
    victim
}
