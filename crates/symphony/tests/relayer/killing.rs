//! Proof 27, at any moment: relayers are killed under load, again and again.

use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::yard::{ORDERED, RAIL, Yard};

/// Chance that can be repeated (SplitMix64): `SYMPHONY_SEED` gives the seed.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % sides
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
    let mut dice = Dice(seed);
    let yard = Yard::open().await;
    yard.rail(ORDERED, &json!({"ordered": true})).await;
    yard.bank
        .order(&json!({"seed": seed, "latency": "20ms", "jitter": "80ms", "cut_after": "0.03", "error_500_after": "0.03", "cut_before": "0.03"}))
        .await;
    let orders = yard.orders_for(&[RAIL, ORDERED]);
    let mut relayers = [yard.relayer(&orders).await, yard.relayer(&orders).await];
    let load = yard.load(&[RAIL, ORDERED]);
    let began = Instant::now();
    let mut kills = 0;
    while began.elapsed() < soak {
        // Not to wait for anything: the moment is what chance decides.
        // A moment by chance, at which the kill comes.
        tokio::time::sleep(Duration::from_millis(dice.throw(700))).await;
        let victim = usize::try_from(dice.throw(2)).unwrap();
        relayers[victim].program.kill9().await.unwrap();
        kills += 1;
        relayers[victim] = yard.relayer(&orders).await;
    }
    load.end().await;
    let report = yard.audit().await;
    println!("{kills} kills; {report}");
    assert!(report.counts.in_order > 0, "the order of the ordered rail was not looked at");
    for relayer in relayers {
        relayer.stop().await;
    }
}

/// At the settings that it ships with, and by the clock of the database.
#[tokio::test]
async fn the_row_of_a_dead_relayer_is_dispatched_again_within_35_seconds() {
    const LEASE: f64 = 30.0;
    const PROMISED: f64 = 35.0;
    let yard = Yard::open().await;
    yard.bank.order(&json!({"latency": "20s"})).await;
    let orders = yard.orders().defaults();
    let victim = yard.relayer(&orders).await;
    yard.enqueue("orphan", 1).await;
    yard.leases_are_held(1).await;
    let heir = yard.relayer(&orders).await;

    let owner = yard.owner().await;
    let killed = "create table public.killed as select clock_timestamp() as at";
    owner.batch_execute(killed).await.unwrap();
    victim.program.kill9().await.unwrap();
    yard.bank.order(&json!({"latency": "0ms"})).await;
    let lease = "select extract(epoch from lease_expires_at - k.at)::float8
                 from symphony.payment_outbox_pending, public.killed k";
    let lease: f64 = owner.query_one(lease, &[]).await.unwrap().get(0);
    assert!(lease <= LEASE, "the lease of the dead lasts {lease} s");

    // Longer than the promise, so that what is measured decides.
    yard.is_done().await;
    let again = "select extract(epoch from a.claimed_at - k.at)::float8, a.state::text
                 from symphony.payment_outbox_attempts a, public.killed k where a.worker_id = $1";
    let row = owner.query_one(again, &[&heir.worker]).await.unwrap();
    let (again, state): (f64, String) = (row.get(0), row.get(1));
    assert_eq!(state, "DISPATCHED");
    assert!(again <= PROMISED, "{again} s after the kill");
    yard.audit().await;
    heir.stop().await;
}
