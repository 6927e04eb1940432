//! Claims of payments that have not been attempted, with which a worker probes a failing rail.

use std::time::Duration;

use symphony_db::BatchSize;
use symphony_db::payment::worker::{ClaimLimits, Claimed, claim_with_limits, complete_batch};

use crate::fixture::{Fixture, LEASE, completion, retryable, worker};

async fn register(fixture: &Fixture, rail: &str, policy: &str) {
    let sql = "select symphony.register_payment_rail($1, $2::text::jsonb, 'test', 'first attempts')";
    fixture.root.execute(sql, &[&rail, &policy]).await.unwrap();
}

/// Enqueues payments `i1` to `i<count>` in one transaction, of as many participants as given.
async fn enqueue(fixture: &Fixture, rail: &str, count: i32, participants: i32) {
    let sql = "select symphony.enqueue_payment_outbox('i' || i, 'p' || (i % $3::int), $1 || i, $1, '{}')
               from generate_series(1, $2::int) i";
    fixture.root.execute(sql, &[&rail, &count, &participants]).await.unwrap();
}

/// Claims up to `limit` first attempts of this rail, and what there is of the other.
async fn claim_first(fixture: &Fixture, rail: &str, limit: u32) -> Vec<Claimed> {
    let limits: ClaimLimits = [(rail.to_owned(), limit), ("other".to_owned(), 10)].into_iter().collect();
    let limits = limits.with_first_attempts([rail.to_owned()]);
    let size = BatchSize::try_from(50).unwrap();
    claim_with_limits(&fixture.root, &worker(), size, LEASE, &limits).await.unwrap().claimed
}

/// The instructions, sorted.
fn instructions(claimed: &[Claimed]) -> Vec<&str> {
    let mut instructions: Vec<_> = claimed.iter().map(|claimed| claimed.instruction_id.as_str()).collect();
    instructions.sort_unstable();
    instructions
}

async fn retry_at_once(fixture: &Fixture, claimed: &[Claimed]) {
    let retries: Vec<_> =
        claimed.iter().map(|claimed| completion(claimed, retryable(Some(Duration::ZERO)))).collect();
    for result in complete_batch(&fixture.root, &worker(), &retries).await.unwrap() {
        result.unwrap();
    }
}

#[tokio::test]
async fn a_claim_of_first_attempts_takes_the_newest_and_never_one_that_was_attempted() {
    let fixture = Fixture::new().await;
    register(&fixture, "wire", "{}").await;
    enqueue(&fixture, "wire", 5, 5).await;
    let newest = claim_first(&fixture, "wire", 1).await;
    assert_eq!(instructions(&newest), ["i5"], "of rows with the same time the last");
    retry_at_once(&fixture, &newest).await;
    let two = claim_first(&fixture, "wire", 2).await;
    assert_eq!(instructions(&two), ["i3", "i4"]);
    // A row under a lease is none, whether it has expired or not: its outcome may be unknown.
    fixture.let_leases_expire().await;
    let rest = claim_first(&fixture, "wire", 10).await;
    assert_eq!(instructions(&rest), ["i1", "i2"]);
    retry_at_once(&fixture, &rest).await;
    assert!(claim_first(&fixture, "wire", 10).await.is_empty());
    assert_eq!(fixture.claim().await.len(), 5, "a usual claim takes all");
}

#[tokio::test]
async fn a_claim_of_first_attempts_takes_heads_of_an_ordered_rail_only() {
    let fixture = Fixture::new().await;
    register(&fixture, "wire", r#"{"ordered": true}"#).await;
    enqueue(&fixture, "wire", 9, 3).await;
    let newest = claim_first(&fixture, "wire", 1).await;
    assert_eq!(instructions(&newest), ["i3"], "the newest of i1, i2 and i3");
    retry_at_once(&fixture, &newest).await;
    assert_eq!(instructions(&claim_first(&fixture, "wire", 10).await), ["i1", "i2"]);
}

#[tokio::test]
async fn a_claim_of_first_attempts_of_one_rail_serves_others_as_usual() {
    for policy in ["{}", r#"{"max_in_flight": 5}"#] {
        let fixture = Fixture::new().await;
        register(&fixture, "wire", policy).await;
        register(&fixture, "other", "{}").await;
        enqueue(&fixture, "wire", 3, 3).await;
        enqueue(&fixture, "other", 3, 3).await;
        let attempted: Vec<_> = fixture.claim().await.into_iter().collect();
        retry_at_once(&fixture, &attempted).await;
        assert!(claim_first(&fixture, "wire", 1).await.iter().all(|claimed| claimed.rail_type == "other"));
        let sql = "select symphony.enqueue_payment_outbox('new', 'p', 'new', 'wire', '{}')";
        fixture.root.execute(sql, &[]).await.unwrap();
        assert_eq!(instructions(&claim_first(&fixture, "wire", 1).await), ["new"], "{policy}");
    }
}
