//! Claim limits, the next due time, trace contexts and the advice on unknown outcomes.

use std::time::Duration;

use symphony_client::payment::tokio_postgres as producer;
use symphony_db::BatchSize;
use symphony_db::error::{ClaimError, CompleteError};
use symphony_db::payment::OnUnknown;
use symphony_db::payment::worker::{
    ClaimLimits, advise_on_unknown_outcome, claim_with_limits, next_due, trace_contexts,
};
use tokio_postgres::Client;

use crate::fixture::{Fixture, LEASE, worker};

fn limits(limits: &[(&str, u32)]) -> ClaimLimits {
    limits.iter().map(|(rail, limit)| ((*rail).to_owned(), *limit)).collect()
}

async fn rail(fixture: &Fixture, name: &str, policy: &str) {
    let sql = "select case when exists (select from symphony.payment_rail_policies where rail_type = $1)
                     then symphony.set_payment_rail($1, $2::text::jsonb, 'test', 'schedule')
                     else symphony.register_payment_rail($1, $2::text::jsonb, 'test', 'schedule') end";
    fixture.root.execute(sql, &[&name, &policy]).await.unwrap();
}

async fn enqueue(fixture: &Fixture, rail: &str, count: i32) {
    let sql =
        "select symphony.enqueue_payment_outbox($1 || i, $1, 'key', $1, '{}') from generate_series(1, $2::int) i";
    fixture.root.execute(sql, &[&rail, &count]).await.unwrap();
}

/// How many of each of two rails a claim gives.
async fn claim(client: &Client, at_most: BatchSize, limits: &ClaimLimits) -> (usize, usize) {
    let claimed = claim_with_limits(client, &worker(), at_most, LEASE, limits).await.unwrap().claimed;
    let of = |rail: &str| claimed.iter().filter(|claimed| claimed.rail_type == rail).count();
    (of("swift"), of("fedwire"))
}

#[tokio::test]
async fn a_claim_returns_no_more_of_a_rail_than_its_limit() {
    for policy in ["{}", r#"{"max_in_flight": 50}"#] {
        let fixture = Fixture::new().await;
        let executor = fixture.login("symphony_executor").await;
        for name in ["swift", "fedwire"] {
            rail(&fixture, name, policy).await;
            enqueue(&fixture, name, 20).await;
        }
        assert_eq!(claim(&executor, BatchSize::MAX, &limits(&[])).await, (0, 0));
        assert_eq!(claim(&executor, BatchSize::MAX, &limits(&[("swift", 0), ("fedwire", 3)])).await, (0, 3));
        assert_eq!(claim(&executor, BatchSize::MAX, &limits(&[("swift", 2), ("fedwire", 1)])).await, (2, 1));
        let one = claim(&executor, BatchSize::ONE, &limits(&[("swift", 2), ("fedwire", 2)])).await;
        assert_eq!(one.0 + one.1, 1);
        // The bound was that call's alone.
        assert_eq!(fixture.claim().await.len(), 33);
    }
}

#[tokio::test]
async fn limits_that_are_no_object_of_whole_numbers_are_refused() {
    let fixture = Fixture::new().await;
    for call in ["claim_outbox_batch(1, 'w', 60, $1::text::jsonb)", "next_outbox_due(p_limits => $1::text::jsonb)"]
    {
        for nonsense in ["[]", "null", r#"{"a": "b"}"#, r#"{"a": -1}"#, r#"{"a": 1.5}"#, r#"{"a": 1000001}"#] {
            let refusal =
                fixture.root.execute(&format!("select from symphony.{call}"), &[&nonsense]).await.unwrap_err();
            assert_eq!(refusal.code().unwrap().code(), "P7005", "{call}: {nonsense}");
        }
    }
}

#[tokio::test]
async fn calls_without_limits_stay_valid_by_position_and_by_name() {
    let fixture = Fixture::new().await;
    for call in [
        "claim_outbox_batch(1, 'w', 60)",
        "claim_outbox_batch(p_batch_size => 1, p_worker_id => 'w', p_lease_seconds => 60)",
        "claim_outbox_batch(1, 'w', p_lease_seconds => 60, p_limits => null)",
        "next_outbox_due()",
    ] {
        fixture.root.batch_execute(&format!("select * from symphony.{call}")).await.unwrap();
    }
}

#[tokio::test]
async fn the_next_scheduled_row_is_known_by_the_clock_of_the_database() {
    let fixture = Fixture::new().await;
    let executor = fixture.login("symphony_executor").await;
    rail(&fixture, "swift", "{}").await;
    enqueue(&fixture, "swift", 1).await;
    let all = limits(&[("swift", 1)]);
    // What is due is for a claim to find.
    assert_eq!(next_due(&executor, &all).await.unwrap(), None);
    let later = "update symphony.payment_outbox_pending set next_attempt_at = now() + interval '1 hour'";
    fixture.root.batch_execute(later).await.unwrap();
    let due = next_due(&executor, &all).await.unwrap().unwrap();
    assert!((Duration::from_secs(3000)..=Duration::from_secs(3600)).contains(&due), "{due:?}");
    assert_eq!(next_due(&executor, &limits(&[("sepa", 1)])).await.unwrap(), None);
    fixture.root.batch_execute("select symphony.pause_payment_rail('swift', 'test', 'schedule')").await.unwrap();
    assert_eq!(next_due(&executor, &all).await.unwrap(), None);
}

#[tokio::test]
async fn a_key_is_remembered_from_the_first_time_it_may_have_been_sent() {
    let fixture = Fixture::new().await;
    let executor = fixture.login("symphony_executor").await;
    let advise = async |lease, sending| {
        advise_on_unknown_outcome(&executor, &worker(), lease, Duration::from_secs(sending)).await
    };
    let claimed = fixture.claimed(1).await;
    let advice = advise(claimed.lease(), 30).await.unwrap();
    assert_eq!((advice.on_unknown, advice.key_remembered), (OnUnknown::Inquire, true));

    // An attempt an hour ago, and a rail that remembers for a little more than that.
    rail(&fixture, "sepa", r#"{"on_unknown": "RESEND", "key_memory_seconds": 3700}"#).await;
    fixture
        .root
        .batch_execute(
            "update symphony.payment_outbox_pending \
             set claimed_at = now() - interval '1 hour', lease_expires_at = now() - interval '1 second'",
        )
        .await
        .unwrap();
    let claimed = fixture.claim().await.remove(0);
    assert!(claimed.outcome_unknown);
    assert!(advise(claimed.lease(), 30).await.unwrap().key_remembered);
    let advice = advise(claimed.lease(), 300).await.unwrap();
    assert_eq!((advice.on_unknown, advice.key_remembered), (OnUnknown::Resend, false));
    rail(&fixture, "sepa", r#"{"on_unknown": "STOP", "key_memory_seconds": 3000}"#).await;
    let advice = advise(claimed.lease(), 0).await.unwrap();
    assert_eq!((advice.on_unknown, advice.key_remembered), (OnUnknown::Stop, false));

    fixture.let_leases_expire().await;
    let refusal = advise(claimed.lease(), 0).await.unwrap_err();
    assert!(matches!(refusal, CompleteError::LeaseLost(_)), "{refusal:?}");
}

#[tokio::test]
async fn trace_contexts_are_returned_for_pending_outboxes_that_have_one() {
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let fixture = Fixture::new().await;
    let executor = fixture.login("symphony_executor").await;
    rail(&fixture, "swift", "{}").await;
    let mut producer = fixture.login("symphony_ingest").await;
    let transaction = producer.transaction().await.unwrap();
    producer::set_traceparent(&transaction, traceparent).await.unwrap();
    let enqueue = "select symphony.enqueue_payment_outbox($1, 'p', 'key', 'swift', '{}')";
    transaction.execute(enqueue, &[&"traced"]).await.unwrap();
    transaction.commit().await.unwrap();
    producer.execute(enqueue, &[&"untraced"]).await.unwrap();

    let claimed = fixture.claim().await;
    let ids: Vec<_> = claimed.iter().map(|claimed| claimed.outbox_id).collect();
    let contexts = trace_contexts(&executor, &ids).await.unwrap();
    let traced = claimed.iter().find(|claimed| claimed.instruction_id == "traced").unwrap().outbox_id;
    assert_eq!(contexts.into_iter().collect::<Vec<_>>(), [(traced, traceparent.to_owned())]);

    symphony_testkit::bulk_rows::clear_pending(&fixture.root).await.unwrap();
    assert!(trace_contexts(&executor, &ids).await.unwrap().is_empty());
    for ids in [vec![], vec![traced; 1001]] {
        let refusal = trace_contexts(&executor, &ids).await.unwrap_err();
        assert!(matches!(refusal, ClaimError::InvalidArgument(_)), "{refusal:?}");
    }
}
