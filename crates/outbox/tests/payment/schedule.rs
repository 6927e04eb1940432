//! What a worker is told besides leases: where it has room, when to come back, what to do when nobody knows.

use std::time::Duration;

use symphony_outbox::BatchSize;
use symphony_outbox::error::{CompleteError, LeaseError};
use symphony_outbox::payment::worker::{Rooms, advise_on_unknown_outcome, claim_within, next_due, trace_contexts};
use symphony_outbox::payment::{OnUnknown, producer};
use tokio_postgres::Client;

use crate::stage::{LEASE, Stage, worker};

fn rooms(rooms: &[(&str, u32)]) -> Rooms {
    rooms.iter().map(|(rail, room)| ((*rail).to_owned(), *room)).collect()
}

async fn rail(stage: &Stage, name: &str, policy: &str) {
    let sql = "select case when exists (select from symphony.payment_rail_policies where rail_type = $1)
                     then symphony.set_payment_rail($1, $2::text::jsonb, 'test', 'schedule')
                     else symphony.register_payment_rail($1, $2::text::jsonb, 'test', 'schedule') end";
    stage.root.execute(sql, &[&name, &policy]).await.unwrap();
}

async fn enqueue(stage: &Stage, rail: &str, count: i32) {
    let sql =
        "select symphony.enqueue_payment_outbox($1 || i, $1, 'key', $1, '{}') from generate_series(1, $2::int) i";
    stage.root.execute(sql, &[&rail, &count]).await.unwrap();
}

/// How many of each of two rails a claim gives.
async fn claim(client: &Client, at_most: BatchSize, rooms: &Rooms) -> (usize, usize) {
    let claimed = claim_within(client, &worker(), at_most, LEASE, rooms).await.unwrap().claimed;
    let of = |rail: &str| claimed.iter().filter(|claimed| claimed.rail_type == rail).count();
    (of("swift"), of("fedwire"))
}

#[tokio::test]
async fn a_claim_gives_a_rail_no_more_than_there_is_room_for() {
    for policy in ["{}", r#"{"max_in_flight": 50}"#] {
        let stage = Stage::set().await;
        let executor = stage.login("symphony_executor").await;
        for name in ["swift", "fedwire"] {
            rail(&stage, name, policy).await;
            enqueue(&stage, name, 20).await;
        }
        assert_eq!(claim(&executor, BatchSize::MOST, &rooms(&[])).await, (0, 0));
        assert_eq!(claim(&executor, BatchSize::MOST, &rooms(&[("swift", 0), ("fedwire", 3)])).await, (0, 3));
        assert_eq!(claim(&executor, BatchSize::MOST, &rooms(&[("swift", 2), ("fedwire", 1)])).await, (2, 1));
        let one = claim(&executor, BatchSize::ONE, &rooms(&[("swift", 2), ("fedwire", 2)])).await;
        assert_eq!(one.0 + one.1, 1);
        // The bound was that call's alone.
        assert_eq!(stage.claim().await.len(), 33);
    }
}

#[tokio::test]
async fn a_room_that_cannot_be_read_is_refused() {
    let stage = Stage::set().await;
    for nonsense in ["[]", "{\"a\": \"b\"}", "{\"a\": -1}", "nonsense"] {
        let set = "select set_config('symphony.claim_rooms', $1, false)";
        stage.root.execute(set, &[&nonsense]).await.unwrap();
        let refusal =
            stage.root.execute("select from symphony.claim_outbox_batch(1, 'w', 60)", &[]).await.unwrap_err();
        assert_eq!(refusal.code().unwrap().code(), "P7005", "{nonsense}");
    }
}

#[tokio::test]
async fn the_next_scheduled_row_is_known_by_the_clock_of_the_database() {
    let stage = Stage::set().await;
    let executor = stage.login("symphony_executor").await;
    rail(&stage, "swift", "{}").await;
    enqueue(&stage, "swift", 1).await;
    let all = rooms(&[("swift", 1)]);
    // What is due is for a claim to find.
    assert_eq!(next_due(&executor, &all).await.unwrap(), None);
    let later = "update symphony.payment_outbox_pending set next_attempt_at = now() + interval '1 hour'";
    stage.root.batch_execute(later).await.unwrap();
    let due = next_due(&executor, &all).await.unwrap().unwrap();
    assert!((Duration::from_secs(3000)..=Duration::from_secs(3600)).contains(&due), "{due:?}");
    assert_eq!(next_due(&executor, &rooms(&[("sepa", 1)])).await.unwrap(), None);
    stage.root.batch_execute("select symphony.pause_payment_rail('swift', 'test', 'schedule')").await.unwrap();
    assert_eq!(next_due(&executor, &all).await.unwrap(), None);
}

#[tokio::test]
async fn a_key_is_remembered_from_the_first_time_it_may_have_been_sent() {
    let stage = Stage::set().await;
    let executor = stage.login("symphony_executor").await;
    let advise = async |lease, sending| {
        advise_on_unknown_outcome(&executor, &worker(), lease, Duration::from_secs(sending)).await
    };
    let claimed = stage.claimed(1).await;
    let advice = advise(claimed.lease(), 30).await.unwrap();
    assert_eq!((advice.on_unknown, advice.key_remembered), (OnUnknown::Inquire, true));

    // An attempt an hour ago, and a rail that remembers for a little more than that.
    rail(&stage, "sepa", r#"{"on_unknown": "RESEND", "key_memory_seconds": 3700}"#).await;
    stage
        .root
        .batch_execute(
            "update symphony.payment_outbox_pending \
             set claimed_at = now() - interval '1 hour', lease_expires_at = now() - interval '1 second'",
        )
        .await
        .unwrap();
    let claimed = stage.claim().await.remove(0);
    assert!(claimed.outcome_unknown);
    assert!(advise(claimed.lease(), 30).await.unwrap().key_remembered);
    let advice = advise(claimed.lease(), 300).await.unwrap();
    assert_eq!((advice.on_unknown, advice.key_remembered), (OnUnknown::Resend, false));
    rail(&stage, "sepa", r#"{"on_unknown": "STOP", "key_memory_seconds": 3000}"#).await;
    let advice = advise(claimed.lease(), 0).await.unwrap();
    assert_eq!((advice.on_unknown, advice.key_remembered), (OnUnknown::Stop, false));

    stage.let_leases_expire().await;
    let refusal = advise(claimed.lease(), 0).await.unwrap_err();
    assert!(matches!(refusal, CompleteError::LeaseLost(_)), "{refusal:?}");
}

#[tokio::test]
async fn whose_trace_an_outbox_belongs_to_is_told_of_those_that_are_pending_and_have_one() {
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let stage = Stage::set().await;
    let executor = stage.login("symphony_executor").await;
    rail(&stage, "swift", "{}").await;
    let mut producer = stage.login("symphony_ingest").await;
    let transaction = producer.transaction().await.unwrap();
    producer::set_traceparent(&transaction, traceparent).await.unwrap();
    let enqueue = "select symphony.enqueue_payment_outbox($1, 'p', 'key', 'swift', '{}')";
    transaction.execute(enqueue, &[&"traced"]).await.unwrap();
    transaction.commit().await.unwrap();
    producer.execute(enqueue, &[&"untraced"]).await.unwrap();

    let claimed = stage.claim().await;
    let ids: Vec<_> = claimed.iter().map(|claimed| claimed.outbox_id).collect();
    let contexts = trace_contexts(&executor, &ids).await.unwrap();
    let traced = claimed.iter().find(|claimed| claimed.instruction_id == "traced").unwrap().outbox_id;
    assert_eq!(contexts.into_iter().collect::<Vec<_>>(), [(traced, traceparent.to_owned())]);

    symphony_proof::kit::crowd::clear_pending(&stage.root).await.unwrap();
    assert!(trace_contexts(&executor, &ids).await.unwrap().is_empty());
    for ids in [vec![], vec![traced; 1001]] {
        let refusal = trace_contexts(&executor, &ids).await.unwrap_err();
        assert!(matches!(refusal, LeaseError::InvalidArgument(_)), "{refusal:?}");
    }
}
