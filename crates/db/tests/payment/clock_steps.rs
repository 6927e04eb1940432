//! Payments that were enqueued or scheduled while the clock was ahead.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use symphony_client::payment::tokio_postgres as producer;
use symphony_db::BatchSize;
use symphony_db::error::OperateError;
use symphony_db::payment::operator::make_due;
use symphony_db::payment::worker::{claim, complete, repair};
use symphony_db::payment::{OperationKind, reader};

use crate::fixture::{AUDIT, Fixture, LEASE, RAIL, completion, instruction, retryable, worker};

/// Enqueues a payment as if the clock were an hour ahead.
async fn enqueue_ahead(fixture: &Fixture, instruction: &str) {
    let insert = "insert into symphony.payment_outbox_pending
                    (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, next_attempt_at, created_at)
                  select symphony.uuidv7_lower_bound(t.at), t.name, t.name, 1, t.name, 'sepa', '{}', t.at, t.at
                  from (select now() + interval '1 hour' as at, $1::text as name) t";
    fixture.root.execute(insert, &[&instruction]).await.unwrap();
}

async fn claimed(fixture: &Fixture) -> usize {
    claim(&fixture.root, &worker(), BatchSize::MAX, LEASE).await.unwrap().len()
}

#[tokio::test]
async fn a_repair_makes_payments_due_that_a_clock_ahead_has_enqueued() {
    let fixture = Fixture::new().await;
    let executor = fixture.login("symphony_executor").await;
    enqueue_ahead(&fixture, "ahead").await;
    // What was scheduled on purpose stays so.
    fixture.enqueue(1).await;
    let later = "update symphony.payment_outbox_pending set next_attempt_at = now() + interval '1 hour'
                 where instruction_id = 'instruction-1'";
    fixture.root.batch_execute(later).await.unwrap();
    assert_eq!(claimed(&fixture).await, 0);
    assert!(repair(&executor, &worker(), BatchSize::MAX).await.unwrap().is_empty(), "no lease has expired");
    assert_eq!(claimed(&fixture).await, 1);
}

/// Both promises at once: a fresh payment is due when the clock is set back, one that its producer scheduled is not.
#[tokio::test]
async fn a_repair_makes_no_scheduled_payment_due_before_its_time_however_the_clock_steps() {
    let fixture = Fixture::new().await;
    let executor = fixture.login("symphony_executor").await;
    // Enqueued while the clock was an hour ahead: for a time that had passed by that clock and has not passed by this one,
    // for one that has passed by both, and for one beyond both.
    for (name, not_before, ahead) in [
        ("soon", "30 minutes", "61 minutes"),
        ("past", "-30 minutes", "62 minutes"),
        ("later", "2 hours", "63 minutes"),
    ] {
        let insert = "insert into symphony.payment_outbox_pending
                       (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, next_attempt_at, created_at, not_before)
                     select symphony.uuidv7_lower_bound(t.at), t.name, t.name, 1, t.name, 'sepa', '{}', greatest(t.at, t.not_before), t.at, t.not_before
                     from (select now() + $3::text::interval as at, now() + $2::text::interval as not_before, $1::text as name) t";
        fixture.root.execute(insert, &[&name, &not_before, &ahead]).await.unwrap();
    }
    enqueue_ahead(&fixture, "fresh").await;
    // Enqueued by a clock that was right, in the same second as the rows above.
    let right = instruction(1).not_before(Timestamp::now() + Duration::from_secs(3600));
    producer::enqueue(&fixture.root, &right).await.unwrap();

    for _ in 0..2 {
        repair(&executor, &worker(), BatchSize::MAX).await.unwrap();
    }
    let names: BTreeSet<_> = fixture.claim().await.into_iter().map(|claimed| claimed.instruction_id).collect();
    assert_eq!(names, BTreeSet::from(["fresh".to_owned(), "past".to_owned()]));
    let wait = "select round(extract(epoch from next_attempt_at - now()) / 60)::int
                from symphony.payment_outbox_pending where lease_token is null order by next_attempt_at";
    let waits: Vec<i32> = fixture.root.query(wait, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(waits, [30, 60, 120], "each waits for its own time");
}

#[tokio::test]
async fn an_operator_makes_no_payment_due_before_its_producer_wants_it() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    let later = instruction(1).not_before(Timestamp::now() + Duration::from_secs(3600));
    producer::enqueue(&fixture.root, &later).await.unwrap();
    assert_eq!(make_due(&operator, RAIL, AUDIT).await.unwrap(), 0);
    // A clock that was ahead has scheduled a retry of it for tomorrow.
    let tomorrow = "update symphony.payment_outbox_pending set next_attempt_at = now() + interval '1 day'";
    fixture.root.batch_execute(tomorrow).await.unwrap();
    assert_eq!(make_due(&operator, RAIL, AUDIT).await.unwrap(), 1);
    assert_eq!(claimed(&fixture).await, 0);
    let kept = "select count(*) from symphony.payment_outbox_pending where next_attempt_at = not_before";
    assert_eq!(fixture.root.query_one(kept, &[]).await.unwrap().get::<_, i64>(0), 1);
}

#[tokio::test]
async fn a_low_watermark_that_was_saved_by_a_clock_ahead_hides_nothing() {
    let fixture = Fixture::new().await;
    fixture.enqueue(1).await;
    let overdue = "update symphony.payment_outbox_pending set next_attempt_at = now() - interval '1 minute'";
    fixture.root.batch_execute(overdue).await.unwrap();
    let save = |ahead: &str| {
        format!(
            "select set_config('symphony.claim_low_watermarks', jsonb_build_object('sepa', jsonb_build_object(
               'from', now() + interval '{ahead}', 'saved_at', now() + interval '{ahead}',
               'until', now() + interval '{ahead}' + interval '10 seconds'))::text, false)"
        )
    };
    fixture.root.batch_execute(&save("-1 second")).await.unwrap();
    assert_eq!(claimed(&fixture).await, 0, "a valid watermark hides what is far below it for a while");
    fixture.root.batch_execute(&save("1 hour")).await.unwrap();
    assert_eq!(claimed(&fixture).await, 1);
}

#[tokio::test]
async fn an_operator_makes_the_scheduled_payments_of_a_rail_due_and_the_log_says_who() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    let first = fixture.claimed(1).await;
    let hour = Some(Duration::from_secs(3600));
    complete(&fixture.root, &worker(), &completion(&first, retryable(hour))).await.unwrap();
    enqueue_ahead(&fixture, "ahead").await;
    let running = fixture.claimed(2).await;
    assert_eq!(make_due(&operator, RAIL, AUDIT).await.unwrap(), 2);
    assert_eq!(make_due(&operator, RAIL, AUDIT).await.unwrap(), 0, "nothing is scheduled now");
    assert_eq!(claimed(&fixture).await, 2);
    assert!(reader::pending(&operator, running.outbox_id).await.unwrap().unwrap().claimed_by.is_some());

    let log = reader::operations_log(&operator, None, 2).await.unwrap();
    assert_eq!(log.iter().map(|done| done.operation).collect::<Vec<_>>(), [OperationKind::MakeDue; 2]);
    assert_eq!((log[0].actor.as_str(), log[0].outbox_id), (AUDIT.actor, None));
    let refused = make_due(&operator, "elsewhere", AUDIT).await.unwrap_err();
    assert!(matches!(refused, OperateError::UnknownRail(_)), "{refused}");
}
