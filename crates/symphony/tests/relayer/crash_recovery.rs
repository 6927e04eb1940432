//! Proof 27: a relayer dies at any step of its loop or at any moment, and another takes over its rows.

use std::hash::{BuildHasher as _, RandomState};
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use serde_json::json;
use symphony_relay::fail_point::ALL;
use symphony_testkit::proxy::{FaultKind, Proxy};
use symphony_testkit::wait::DEFAULT_TIMEOUT;

use crate::harness::{Harness, ORDERED, RAIL};
use crate::relayer::{Relayer, Settings};

/// Payments that are enqueued before each crash.
const ENQUEUED: usize = 8;
/// SIGABRT.
const ABORTED: i32 = 6;

#[tokio::test]
async fn whatever_step_a_relayer_dies_at_another_carries_on() {
    let harness = Harness::start().await;
    for (_, fail_point) in ALL {
        harness.enqueue(fail_point, ENQUEUED).await;
        let victim = match *fail_point {
            "before_release" | "after_release" => stopped_during_a_claim(&harness, fail_point).await,
            "before_renew" | "after_renew" => {
                // Dispatches that outlast a third of their lease.
                harness.bank.set_faults(&json!({"latency": "2s"})).await;
                harness
                    .start_relayer(
                        &settings(&harness, fail_point).payment("lease", "'4s'").payment("call_timeout", "'3s'"),
                    )
                    .await
            }
            _ => harness.start_relayer(&settings(&harness, fail_point)).await,
        };
        let status = victim.program.exit(DEFAULT_TIMEOUT).await.unwrap();
        assert_eq!(status.signal(), Some(ABORTED), "{fail_point}: {}", victim.program.tail());
        harness.bank.set_faults(&json!({"latency": "0ms"})).await;

        harness.expire_leases().await;
        let successor = harness.start_relayer(&harness.settings()).await;
        harness.reconcile().await;
        successor.stop().await;
    }
}

/// Settings with a fail point, and with leases that expire only when the test expires them.
fn settings(harness: &Harness, fail_point: &str) -> Settings {
    let settings = harness.settings().payment("lease", "'30s'").payment("call_timeout", "'20s'");
    settings.abort_at(fail_point)
}

/// A relayer that is stopped during a claim, so that it has to release the rows that the claim returns.
async fn stopped_during_a_claim(harness: &Harness, fail_point: &str) -> Relayer {
    let network = Proxy::in_front_of(&harness.url).unwrap();
    let claim = network.arm(FaultKind::ReplyHeld, "claim_outbox_batch", 1);
    let mut settings = settings(harness, fail_point);
    settings.url = network.url().to_owned();
    let victim = harness.start_relayer(&settings).await;
    claim.wait_fired(1, DEFAULT_TIMEOUT).await.unwrap();
    victim.program.term();
    // The payment lane's own line, because the lane must be stopping before the claim returns.
    victim.wait_for_log(r#""held":0"#).await;
    claim.release();
    victim.program.exit(DEFAULT_TIMEOUT).await.unwrap();
    victim
}

/// A random number generator (SplitMix64) that `SYMPHONY_SEED` makes repeatable.
struct SplitMix64(u64);

impl SplitMix64 {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

#[tokio::test]
async fn relayers_that_are_killed_at_any_moment_lose_nothing_and_pay_nothing_twice() {
    let seed = setting("SYMPHONY_SEED").unwrap_or_else(|| RandomState::new().hash_one(0) % 1_000_000);
    let soak = Duration::from_secs(setting("SYMPHONY_SOAK").unwrap_or(4));
    println!("SYMPHONY_SEED={seed} SYMPHONY_SOAK={} repeats the kills", soak.as_secs());
    let mut random = SplitMix64(seed);
    let harness = Harness::start().await;
    harness.set_rail(ORDERED, &json!({"ordered": true})).await;
    let faults = json!({
        "seed": seed, "latency": "20ms", "jitter": "80ms",
        "cut_after": "0.03", "error_500_after": "0.03", "cut_before": "0.03",
    });
    harness.bank.set_faults(&faults).await;
    let settings = harness.settings_for(&[RAIL, ORDERED]);
    let mut relayers = [harness.start_relayer(&settings).await, harness.start_relayer(&settings).await];
    let producers = harness.start_producers(&[RAIL, ORDERED]);
    let began = Instant::now();
    let mut kills = 0;
    while began.elapsed() < soak {
        // The kill comes at a random moment.
        tokio::time::sleep(Duration::from_millis(random.below(700))).await;
        let victim = usize::try_from(random.below(2)).unwrap();
        relayers[victim].program.kill9().await.unwrap();
        kills += 1;
        relayers[victim] = harness.start_relayer(&settings).await;
    }
    producers.stop().await;
    let report = harness.reconcile().await;
    println!("{kills} kills; {report}");
    assert!(report.counts.in_order > 0, "the order of the ordered rail was not checked");
    for relayer in relayers {
        relayer.stop().await;
    }
}

/// With the default settings, measured by the clock of the database.
#[tokio::test]
async fn the_row_of_a_dead_relayer_is_dispatched_again_within_35_seconds() {
    const LEASE: f64 = 30.0;
    const TAKEOVER_LIMIT: f64 = 35.0;
    let harness = Harness::start().await;
    harness.bank.set_faults(&json!({"latency": "20s"})).await;
    let settings = harness.settings().payment_defaults();
    let victim = harness.start_relayer(&settings).await;
    harness.enqueue("orphan", 1).await;
    harness.wait_for_leases(1).await;
    let successor = harness.start_relayer(&settings).await;

    let superuser = harness.superuser().await;
    let killed = "create table public.killed as select clock_timestamp() as at";
    superuser.batch_execute(killed).await.unwrap();
    victim.program.kill9().await.unwrap();
    harness.bank.set_faults(&json!({"latency": "0ms"})).await;
    let lease = "select extract(epoch from lease_expires_at - k.at)::float8
                 from symphony.payment_outbox_pending, public.killed k";
    let lease: f64 = superuser.query_one(lease, &[]).await.unwrap().get(0);
    assert!(lease <= LEASE, "the dead relayer's lease lasts {lease} s");

    harness.wait_until_drained().await;
    let again = "select extract(epoch from a.claimed_at - k.at)::float8, a.state::text
                 from symphony.payment_outbox_attempts a, public.killed k where a.worker_id = $1";
    let row = superuser.query_one(again, &[&successor.worker]).await.unwrap();
    let (again, state): (f64, String) = (row.get(0), row.get(1));
    assert_eq!(state, "DISPATCHED");
    assert!(again <= TAKEOVER_LIMIT, "{again} s after the kill");
    harness.reconcile().await;
    successor.stop().await;
}
