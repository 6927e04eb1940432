//! What a producer over tokio-postgres may rely on.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use symphony_client::Payload;
use symphony_client::error::{CancelError, EnqueueError};
use symphony_client::payment::{self, PaymentState};

use crate::fixture::{Fixture, PAYMENTS, changed, instruction};

#[tokio::test]
async fn an_instruction_is_committed_with_its_business_row() {
    let fixture = Fixture::new().await;
    let mut client = fixture.login("symphony_ingest").await;

    let transaction = client.transaction().await.unwrap();
    transaction.execute("insert into orders values ('order-1')", &[]).await.unwrap();
    let enqueued = payment::tokio_postgres::enqueue(&transaction, &instruction(1)).await.unwrap();
    assert_eq!(fixture.count(PAYMENTS).await, 0, "not visible before the commit");
    transaction.commit().await.unwrap();

    assert_eq!((enqueued.sequence_id, enqueued.replayed), (1, false));
    assert_eq!((fixture.count("orders").await, fixture.count(PAYMENTS).await), (1, 1));
}

#[tokio::test]
async fn an_instruction_is_rolled_back_with_its_business_row_and_gives_its_number_back() {
    let fixture = Fixture::new().await;
    let mut client = fixture.login("symphony_ingest").await;

    let transaction = client.transaction().await.unwrap();
    transaction.execute("insert into orders values ('order-1')", &[]).await.unwrap();
    payment::tokio_postgres::enqueue(&transaction, &instruction(1)).await.unwrap();
    transaction.rollback().await.unwrap();

    assert_eq!((fixture.count("orders").await, fixture.count(PAYMENTS).await), (0, 0));
    assert_eq!(payment::tokio_postgres::enqueue(&client, &instruction(2)).await.unwrap().sequence_id, 1);
}

#[tokio::test]
async fn the_same_key_is_answered_with_the_same_outbox() {
    let fixture = Fixture::new().await;
    let first = fixture.enqueue(1).await;
    let again = fixture.enqueue(1).await;
    assert!(again.replayed);
    assert_eq!(
        (again.outbox_id, again.sequence_id, again.created_at),
        (first.outbox_id, first.sequence_id, first.created_at)
    );
    assert_eq!(fixture.count(PAYMENTS).await, 1);
}

#[tokio::test]
async fn a_batch_answers_in_order_and_replays_what_is_known() {
    let fixture = Fixture::new().await;
    let known = fixture.enqueue(2).await;
    let client = fixture.login("symphony_ingest").await;

    let batch = [instruction(3), instruction(2), instruction(1), instruction(3)];
    let answers = payment::tokio_postgres::enqueue_batch(&client, &batch).await.unwrap();

    assert_eq!(answers.iter().map(|a| a.sequence_id).collect::<Vec<_>>(), [2, 1, 3, 2]);
    assert_eq!(answers.iter().map(|a| a.replayed).collect::<Vec<_>>(), [false, true, false, true]);
    assert_eq!(answers[1].outbox_id, known.outbox_id);
    assert_eq!(answers[3].outbox_id, answers[0].outbox_id);
}

#[tokio::test]
async fn a_batch_with_one_bad_instruction_enqueues_nothing() {
    let fixture = Fixture::new().await;
    let batch = [instruction(1), changed(instruction(2), |it| it.rail_type = "spea".to_owned())];
    let error = payment::tokio_postgres::enqueue_batch(&fixture.root, &batch).await.unwrap_err();
    assert!(matches!(error, EnqueueError::UnknownRail(_)), "{error:?}");
    assert_eq!(fixture.count(PAYMENTS).await, 0);
}

#[tokio::test]
async fn an_amount_keeps_every_digit_on_its_way_to_the_worker() {
    let fixture = Fixture::new().await;
    let payload: Payload = serde_json::from_str(r#"{"amount": 100000000000000000.010}"#).unwrap();
    payment::tokio_postgres::enqueue(&fixture.root, &changed(instruction(1), |it| it.payload = payload))
        .await
        .unwrap();
    assert_eq!(
        fixture.text("select payload::text from symphony.payment_outbox_pending").await,
        r#"{"amount": 100000000000000000.010}"#
    );
}

#[tokio::test]
async fn a_traceparent_is_kept_beside_what_its_transaction_enqueues() {
    let fixture = Fixture::new().await;
    let mut client = fixture.login("symphony_ingest").await;
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    let transaction = client.transaction().await.unwrap();
    payment::tokio_postgres::set_traceparent(&transaction, traceparent).await.unwrap();
    payment::tokio_postgres::enqueue(&transaction, &instruction(1)).await.unwrap();
    transaction.commit().await.unwrap();
    payment::tokio_postgres::enqueue(&client, &instruction(2)).await.unwrap();

    let sql = "select traceparent from symphony.payment_outbox_pending order by sequence_id";
    let kept: Vec<Option<String>> =
        fixture.root.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(kept, [Some(traceparent.to_owned()), None]);
}

#[tokio::test]
async fn what_is_not_an_object_is_no_payload() {
    let fixture = Fixture::new().await;
    let payload = json!([1, 2, 3]).into();
    let error =
        payment::tokio_postgres::enqueue(&fixture.root, &changed(instruction(1), |it| it.payload = payload))
            .await
            .unwrap_err();
    assert_eq!(error.to_string(), "p_payload must be a JSON object, not a JSON array");
}

#[tokio::test]
async fn a_scheduled_payment_is_not_claimed_before_its_time_and_a_replay_keeps_the_first_time() {
    let fixture = Fixture::new().await;
    let client = fixture.login("symphony_ingest").await;
    let hour = Timestamp::now() + SignedDuration::from_hours(1);
    let first = payment::tokio_postgres::enqueue(&client, &instruction(1).not_before(hour)).await.unwrap();
    let batch =
        [instruction(2).not_before(hour), instruction(3), instruction(4).not_before(Timestamp::UNIX_EPOCH)];
    payment::tokio_postgres::enqueue_batch(&client, &batch).await.unwrap();

    let scheduled = "select string_agg(instruction_id, ' ' order by sequence_id)
                     from symphony.payment_outbox_pending where next_attempt_at = not_before";
    assert_eq!(fixture.text(scheduled).await, "instruction-1 instruction-2");
    let claim = "select string_agg(instruction_id, ' ' order by sequence_id)
                 from symphony.claim_outbox_batch(100, 'worker', 60)";
    assert_eq!(fixture.text(claim).await, "instruction-3 instruction-4", "a time that has passed means now");

    for time in [None, Some(hour + SignedDuration::from_hours(1))] {
        let again = changed(instruction(1), |it| it.not_before = time);
        let again = payment::tokio_postgres::enqueue(&client, &again).await.unwrap();
        assert_eq!((again.replayed, again.outbox_id), (true, first.outbox_id));
    }
    assert_eq!(fixture.text(scheduled).await, "instruction-1 instruction-2");
}

#[tokio::test]
async fn a_time_without_end_or_beyond_a_year_is_refused_and_names_the_argument() {
    let fixture = Fixture::new().await;
    let single = "select symphony.enqueue_payment_outbox('i', 'p', 'k', 'sepa', '{}', $1::text::timestamptz)";
    let batch = r#"select symphony.enqueue_payment_outbox_batch(
                   '{i,j}', '{p,p}', '{k,l}', '{sepa,sepa}', '{"{}","{}"}', array[null, $1::text::timestamptz])"#;
    let year = Timestamp::now() + SignedDuration::from_hours(366 * 24);
    for time in ["infinity", "-infinity", &(year + SignedDuration::from_mins(1)).to_string()] {
        for (call, argument) in [(single, "p_not_before "), (batch, "p_not_before[2] ")] {
            let error = fixture.root.execute(call, &[&time]).await.unwrap_err();
            let error = error.as_db_error().unwrap();
            assert_eq!(error.code().code(), "P7005", "{call} {time}");
            assert!(error.message().starts_with(argument) && error.hint().is_some(), "{error:?}");
        }
    }
    for times in ["'{}'", "array[[now()], [now()]]", "array[now()]"] {
        let call = format!(
            "select symphony.enqueue_payment_outbox_batch('{{i,j}}', '{{p,p}}', '{{k,l}}', '{{sepa,sepa}}', '{{\"{{}}\",\"{{}}\"}}', {times})"
        );
        let error = fixture.root.execute(&call, &[]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "P7005", "{call}");
    }
    assert_eq!(fixture.count(PAYMENTS).await, 0);
    let almost = year - SignedDuration::from_mins(1);
    payment::tokio_postgres::enqueue(&fixture.root, &instruction(1).not_before(almost)).await.unwrap();
}

#[tokio::test]
async fn a_payment_is_cancelled_with_its_business_row_or_not_at_all_and_its_outcome_says_so() {
    let fixture = Fixture::new().await;
    let mut client = fixture.login("symphony_ingest").await;
    let enqueued = fixture.enqueue(1).await;
    let (instruction, key) = ("instruction-1", "key-1");
    for commit in [false, true] {
        let transaction = client.transaction().await.unwrap();
        transaction.execute("insert into orders values ('cancelled')", &[]).await.unwrap();
        let cancelled = payment::tokio_postgres::cancel(&transaction, instruction, key, "shop", "no stock").await;
        assert_eq!(cancelled.unwrap().outbox_id, enqueued.outbox_id);
        let state = if commit {
            transaction.commit().await.unwrap();
            PaymentState::Failed
        } else {
            transaction.rollback().await.unwrap();
            PaymentState::Pending
        };
        let outcome = payment::tokio_postgres::outcome(&client, instruction, key).await.unwrap().unwrap();
        assert_eq!((outcome.state, outcome.attempts, outcome.outcome_unknown), (state, 0, false));
        assert_eq!(outcome.ended_at.is_some(), commit);
        assert_eq!(outcome.next_attempt_at.is_some(), !commit);
    }
    let again = payment::tokio_postgres::cancel(&client, instruction, key, "shop", "no stock").await.unwrap_err();
    assert!(matches!(again, CancelError::Ended(_)), "{again:?}");
    let unknown = payment::tokio_postgres::cancel(&client, instruction, "key-2", "shop", "no stock").await;
    assert!(matches!(unknown.unwrap_err(), CancelError::InvalidArgument(_)));
    assert_eq!(payment::tokio_postgres::outcome(&client, instruction, "key-2").await.unwrap(), None);
}

#[tokio::test]
async fn an_outcome_follows_a_payment_from_its_lease_to_its_resolution() {
    let fixture = Fixture::new().await;
    let client = fixture.login("symphony_ingest").await;
    fixture.enqueue(1).await;
    let outcome =
        async || payment::tokio_postgres::outcome(&client, "instruction-1", "key-1").await.unwrap().unwrap();
    let claim = "select set_config('test.lease', outbox_id || ' ' || lease_token, false)
                 from symphony.claim_outbox_batch(1, 'worker', 60)";
    let complete = |state: &str| {
        format!(
            "select symphony.complete_outbox_attempt(split_part(l, ' ', 1)::uuid, split_part(l, ' ', 2)::uuid, 'worker',
               '{state}', p_rail_code => 'HTTP 504', p_error_code => 'OUTCOME_UNKNOWN',
               p_retry_delay_seconds => case '{state}' when 'RETRYABLE' then 0 end)
             from current_setting('test.lease') l"
        )
    };
    fixture.root.batch_execute(claim).await.unwrap();
    let leased = outcome().await;
    assert_eq!((leased.state, leased.next_attempt_at), (PaymentState::Pending, None));
    let refused = payment::tokio_postgres::cancel(&client, "instruction-1", "key-1", "shop", "no stock").await;
    assert!(matches!(refused.unwrap_err(), CancelError::MayBeSent(_)));

    fixture.root.batch_execute(&complete("RETRYABLE")).await.unwrap();
    let retry = outcome().await;
    assert_eq!((retry.state, retry.attempts, retry.outcome_unknown), (PaymentState::Pending, 1, true));
    assert_eq!(retry.rail_code.as_deref(), Some("HTTP 504"));
    assert!(retry.last_attempt_at.is_some() && retry.next_attempt_at.is_some());

    fixture.root.batch_execute(claim).await.unwrap();
    fixture.root.batch_execute(&complete("FAILED")).await.unwrap();
    let failed = outcome().await;
    assert_eq!((failed.state, failed.attempts, failed.outcome_unknown), (PaymentState::Failed, 2, true));
    assert_eq!((failed.resolution, failed.ended_at), (None, failed.last_attempt_at));
    let resolve = "select symphony.resolve_payment_outbox(outbox_id, 'PAID', 'ada', 'statement')
                   from symphony.payment_outbox_dlq";
    fixture.root.batch_execute(resolve).await.unwrap();
    assert_eq!(outcome().await.resolution.as_deref(), Some("PAID"));
}
