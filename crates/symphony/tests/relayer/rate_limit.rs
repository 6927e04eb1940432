//! A rail with `max_per_second`, drained by relayers that wake for the next token.

use serde_json::json;

use crate::harness::{Harness, RAIL};
use crate::relayer::Relayer;

const RATE: i64 = 20;
const PAYMENTS: usize = 60;

async fn claims(relayer: &Relayer) -> u64 {
    let metrics = relayer.metrics().await;
    let of_payments =
        metrics.lines().filter(|line| line.starts_with("symphony_claim_batches_total{lane=\"payment\""));
    of_payments.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn a_rail_with_a_rate_limit_is_drained_at_its_rate_by_wake_ups_for_tokens() {
    let harness = Harness::start().await;
    harness.set_rail(RAIL, &json!({ "max_per_second": RATE })).await;
    // Without a poll nothing but the look-up of the next token can wake a relayer.
    let settings = harness.settings().payment("poll_interval", "'0s'").payment("repair_every", "'0s'");
    let relayers = [harness.start_relayer(&settings).await, harness.start_relayer(&settings).await];
    harness.enqueue("rated", PAYMENTS).await;
    harness.reconcile().await;

    // The token for a lease was there a second after that of the lease RATE places before it, at the earliest.
    let fastest = format!(
        "select coalesce(min(1000 * extract(epoch from l.claimed_at - l.earlier)), 0)::bigint
         from (select claimed_at, lag(claimed_at, 2 * {RATE}) over (order by claimed_at) as earlier
               from symphony.payment_outbox_attempts) l where l.earlier is not null"
    );
    let fastest = harness.query_number(&fastest).await;
    // Less 400 ms, for which a claim may wait for another.
    assert!(fastest >= 600, "{} payments were claimed within {fastest} ms", 2 * RATE + 1);
    for relayer in &relayers {
        // Two seconds at 20 ms each, and some for the start.
        let claims = claims(relayer).await;
        assert!(claims < 300, "{claims} claims");
        relayer.stop().await;
    }
}
