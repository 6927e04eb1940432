//! Reads of the payment lane: what the CLI, the API and the dashboard rely on.

use symphony_db::BatchSize;
use symphony_db::payment::operator::{redrive, resolve};
use symphony_db::payment::worker::{complete, repair};
use symphony_db::payment::{
    AttemptState, EventKind, OUTCOME_UNKNOWN, OperationKind, OutboxStatus, Resolution, reader,
};

use crate::fixture::{AUDIT, Fixture, RAIL, completion, dispatched, failed, retryable, worker};

#[tokio::test]
async fn the_totals_count_each_row_where_it_stands() {
    let fixture = Fixture::new().await;
    let readonly = fixture.login("symphony_readonly").await;
    for number in 1..=4 {
        fixture.enqueue(number).await;
    }
    let claimed = fixture.claim().await;
    complete(&fixture.root, &worker(), &completion(&claimed[0], failed(OUTCOME_UNKNOWN))).await.unwrap();
    complete(&fixture.root, &worker(), &completion(&claimed[1], failed("NO_ACCOUNT"))).await.unwrap();
    complete(&fixture.root, &worker(), &completion(&claimed[2], retryable(None))).await.unwrap();
    fixture.enqueue(5).await;

    let status = reader::status(&readonly).await.unwrap();
    let counts =
        (status.due_unleased_count, status.leased_count, status.expired_lease_count, status.scheduled_count);
    assert_eq!(counts, (1, 1, 0, 1));
    assert_eq!((status.dlq, status.dlq_unknown), (2, 1));
    assert!(status.oldest_due_age_seconds >= 0.0);
    assert_eq!(status.rails.len(), 1);
    let rail = &status.rails[0];
    assert_eq!((rail.rail_type.as_str(), rail.due_unleased_count, rail.dlq), (RAIL, 1, 2));

    fixture.let_leases_expire().await;
    assert_eq!(reader::status(&readonly).await.unwrap().expired_lease_count, 1);
}

#[tokio::test]
async fn a_payment_in_backoff_for_hours_is_as_old_as_it_is_and_not_due() {
    let fixture = Fixture::new().await;
    let readonly = fixture.login("symphony_readonly").await;
    fixture.enqueue(1).await;
    fixture
        .root
        .batch_execute(
            "insert into symphony.payment_outbox_pending
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, next_attempt_at, created_at)
             select gen_random_uuid(), 'old', 'old', 1, 'old', rail_type, '{}', now() + interval '1 hour', now() - interval '3 hours'
             from symphony.payment_rails;
             update symphony.payment_outbox_pending set next_attempt_at = now() - interval '1 minute' where instruction_id <> 'old'",
        )
        .await
        .unwrap();
    let ages = "select oldest_pending_age_seconds::float8, oldest_due_age_seconds::float8 from symphony.supervisor_outbox_status";
    let row = readonly.query_one(ages, &[]).await.unwrap();
    let (pending, due): (f64, f64) = (row.get(0), row.get(1));
    assert!((10_800.0..11_100.0).contains(&pending) && (60.0..360.0).contains(&due), "{pending} {due}");
    let rail = reader::backlog(&readonly).await.unwrap().rails.remove(0);
    assert!(rail.oldest_pending_age_seconds >= 10_800.0 && rail.oldest_due_age_seconds < 360.0, "{rail:?}");
}

#[tokio::test]
async fn the_counts_and_ages_of_single_rows_add_up_to_the_totals() {
    let fixture = Fixture::new().await;
    for number in 1..=6 {
        fixture.enqueue(number).await;
    }
    let claimed = fixture.claim().await;
    complete(&fixture.root, &worker(), &completion(&claimed[0], retryable(None))).await.unwrap();
    fixture
        .root
        .execute(
            "update symphony.payment_outbox_pending set lease_expires_at = now() where outbox_id = any ($1)",
            &[&vec![claimed[1].outbox_id.0, claimed[2].outbox_id.0]],
        )
        .await
        .unwrap();
    fixture.enqueue(7).await;
    for role in ["symphony_readonly", "symphony_auditor", "symphony_operator"] {
        let row = fixture
            .login(role)
            .await
            .query_one(
                "select (select (s.due_unleased_count, s.leased_count, s.expired_lease_count, s.oldest_pending_age_seconds, s.oldest_due_age_seconds)::text
                         from symphony.supervisor_outbox_status s),
                        (select (sum(o.due_unleased_count), sum(o.leased_count), sum(o.expired_lease_count), max(o.oldest_pending_age_seconds), max(o.oldest_due_age_seconds))::text
                         from symphony.outbox_operational_status o),
                        (select (s.due_unleased_count, s.leased_count, s.expired_lease_count)::text from symphony.supervisor_outbox_status s)",
                &[],
            )
            .await
            .unwrap();
        let [totals, sums, counts]: [String; 3] = [row.get(0), row.get(1), row.get(2)];
        assert_eq!((totals.as_str(), counts.as_str()), (sums.as_str(), "(1,3,2)"));
    }
}

/// Inserts 25,000 due and 11,000 scheduled payments, past the functions, and before them one that has been retried for
/// three hours and is due behind all others.
async fn insert_long_backlog(fixture: &Fixture) {
    let fill = "
        insert into symphony.payment_outbox_pending
          (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, next_attempt_at, created_at)
        select '00000000-0000-7000-8000-000000000001'::uuid, 'oldest', 'oldest', 1, 'key', $1::text, '{}'::jsonb, now() - interval '1 second',
               now() - interval '3 hours'
        union all
        select symphony.uuidv7(), 'due-' || i, 'due-' || i, 1, 'key', $1, '{}', now() - interval '1 hour' + i * interval '1 millisecond',
               now() - interval '1 hour'
        from generate_series(1, 25000) i
        union all
        select symphony.uuidv7(), 'later-' || i, 'later-' || i, 1, 'key', $1, '{}', now() + interval '1 hour', now()
        from generate_series(1, 11000) i";
    fixture.root.execute(fill, &[&RAIL]).await.unwrap();
}

#[tokio::test]
async fn counts_stop_at_their_limit_say_so_and_are_exact_on_request() {
    let fixture = Fixture::new().await;
    let readonly = fixture.login("symphony_readonly").await;
    insert_long_backlog(&fixture).await;
    let leased = fixture.claim().await.len();
    let leased = i64::try_from(leased).unwrap();

    let status = reader::status(&readonly).await.unwrap();
    assert_eq!((status.due_unleased_count, status.leased_count), (10_000 - leased, leased));
    assert_eq!((status.scheduled_count, status.more_due, status.more_scheduled), (10_000, true, true));
    assert!((status.rails[0].more_due, status.rails[0].more_scheduled) == (true, true), "{status:?}");
    assert!(status.estimate >= 20_000, "{status:?}");
    assert!((3599.0..3900.0).contains(&status.oldest_due_age_seconds), "exact: {status:?}");
    assert!((10_800.0..11_100.0).contains(&status.oldest_pending_age_seconds), "exact: {status:?}");
    let backlog = reader::backlog(&readonly).await.unwrap();
    assert_eq!((backlog.total, backlog.more, backlog.max_rows), (20_000, true, 10_000));
    assert!(backlog.rails[0].oldest_pending_age_seconds >= 10_800.0, "{backlog:?}");

    let exact = reader::exact_status(&readonly).await.unwrap();
    assert_eq!((exact.due_unleased_count, exact.leased_count), (25_001 - leased, leased));
    assert_eq!((exact.scheduled_count, exact.more_due, exact.more_scheduled), (11_000, false, false));
    assert_eq!(exact.estimate, 36_001);
    assert!((10_800.0..11_100.0).contains(&exact.oldest_pending_age_seconds), "{exact:?}");
}

#[tokio::test]
async fn many_rails_share_the_limit_of_the_counts() {
    let fixture = Fixture::new().await;
    let rails =
        "select symphony.register_payment_rail('rail-' || i, '{}', 'test', 'many') from generate_series(1, 39) i";
    fixture.root.execute(rails, &[]).await.unwrap();
    insert_long_backlog(&fixture).await;
    let status = reader::status(&fixture.root).await.unwrap();
    assert_eq!((status.due_unleased_count, status.scheduled_count, status.more_due), (500, 500, true));
    assert_eq!(reader::exact_status(&fixture.root).await.unwrap().due_unleased_count, 25_001);
    let refused = fixture.root.execute("select symphony.payment_backlog(0)", &[]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "P7005");
}

#[tokio::test]
async fn a_pending_outbox_is_shown_with_its_latest_attempt() {
    let fixture = Fixture::new().await;
    let readonly = fixture.login("symphony_auditor").await;
    let claimed = fixture.claimed(1).await;

    let leased = reader::pending(&readonly, claimed.outbox_id).await.unwrap().unwrap();
    assert_eq!((leased.status, leased.claimed_by), (OutboxStatus::Leased, Some(worker())));
    assert_eq!((leased.last_attempt_no, leased.last_state), (None, None));

    complete(&fixture.root, &worker(), &completion(&claimed, retryable(None))).await.unwrap();
    let again = reader::pending(&readonly, claimed.outbox_id).await.unwrap().unwrap();
    assert_eq!((again.status, again.attempt_count), (OutboxStatus::Scheduled, 1));
    assert_eq!((again.last_attempt_no, again.last_state), (Some(1), Some(AttemptState::Retryable)));
    assert_eq!(again.last_error_code.as_deref(), Some("RAIL_BUSY"));
}

#[tokio::test]
async fn an_outbox_that_has_ended_is_no_longer_pending() {
    let fixture = Fixture::new().await;
    let claimed = fixture.claimed(1).await;
    complete(&fixture.root, &worker(), &completion(&claimed, dispatched())).await.unwrap();
    assert_eq!(reader::pending(&fixture.root, claimed.outbox_id).await.unwrap(), None);
}

#[tokio::test]
async fn the_story_of_an_instruction_goes_on_over_its_redrive() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    let first = fixture.claimed(1).await;
    fixture.let_leases_expire().await;
    repair(&fixture.root, &worker(), BatchSize::MAX).await.unwrap();
    fixture
        .root
        .batch_execute("update symphony.payment_outbox_pending set next_attempt_at = now()")
        .await
        .unwrap();
    let claimed = fixture.claim().await.remove(0);
    complete(&fixture.root, &worker(), &completion(&claimed, failed("NO_ACCOUNT"))).await.unwrap();
    let second = redrive(&operator, first.outbox_id, AUDIT).await.unwrap();
    let claimed = fixture.claim().await.remove(0);
    complete(&fixture.root, &worker(), &completion(&claimed, dispatched())).await.unwrap();

    let events_of_row = reader::instruction_timeline(&operator, "instruction-1").await.unwrap();
    let events: Vec<_> = events_of_row.iter().map(|event| (event.sequence_id, event.event)).collect();
    assert_eq!(
        events,
        [
            (1, EventKind::Enqueued),
            (1, EventKind::LeaseClaimed),
            (1, EventKind::LeaseExpiredRepaired),
            (1, EventKind::LeaseClaimed),
            (1, EventKind::AttemptCompleted),
            (1, EventKind::Redriven),
            (2, EventKind::Enqueued),
            (2, EventKind::LeaseClaimed),
            (2, EventKind::AttemptCompleted),
        ]
    );
    assert_eq!(events_of_row[5].related_outbox_id, Some(second.outbox_id));
    assert_eq!(events_of_row[6].related_outbox_id, Some(first.outbox_id));
    assert_eq!(events_of_row[8].state, Some(AttemptState::Dispatched));

    let alone = reader::timeline(&operator, second.outbox_id).await.unwrap();
    assert_eq!(alone, events_of_row[6..]);
}

#[tokio::test]
async fn dead_letters_show_unknown_outcomes_first_and_go_when_a_person_acted() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    let known = fixture.claimed(1).await;
    complete(&fixture.root, &worker(), &completion(&known, failed("NO_ACCOUNT"))).await.unwrap();
    let unknown = fixture.claimed(2).await;
    complete(&fixture.root, &worker(), &completion(&unknown, failed(OUTCOME_UNKNOWN))).await.unwrap();

    let letters =
        reader::dead_letters(&operator, &reader::DeadLetterFilter::default(), BatchSize::MAX).await.unwrap();
    let ids: Vec<_> = letters.iter().map(|letter| (letter.outbox_id, letter.outcome_unknown)).collect();
    assert_eq!(ids, [(unknown.outbox_id, true), (known.outbox_id, false)]);
    assert_eq!(
        reader::dead_letters(&operator, &reader::DeadLetterFilter::default(), BatchSize::ONE).await.unwrap(),
        letters[..1]
    );

    resolve(&operator, unknown.outbox_id, Resolution::Paid, AUDIT).await.unwrap();
    assert_eq!(
        reader::dead_letters(&operator, &reader::DeadLetterFilter::default(), BatchSize::MAX).await.unwrap(),
        letters[1..]
    );
}

#[tokio::test]
async fn operations_on_an_outbox_are_listed_on_both_sides_of_a_redrive() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    let claimed = fixture.claimed(1).await;
    complete(&fixture.root, &worker(), &completion(&claimed, failed(OUTCOME_UNKNOWN))).await.unwrap();
    let resolved = resolve(&operator, claimed.outbox_id, Resolution::NotPaid, AUDIT).await.unwrap();
    let redriven = redrive(&operator, claimed.outbox_id, AUDIT).await.unwrap();

    let done = reader::operations(&operator, claimed.outbox_id).await.unwrap();
    let kinds: Vec<_> = done.iter().map(|operation| (operation.operation, operation.resolution)).collect();
    assert_eq!(kinds, [(OperationKind::Resolve, Some(Resolution::NotPaid)), (OperationKind::Redrive, None)]);
    assert_eq!(done[0].operation_id, resolved.operation_id);
    assert_eq!((done[1].actor.as_str(), done[1].reason.as_str()), (AUDIT.actor, AUDIT.reason));
    assert_eq!(done[1].new_outbox_id, Some(redriven.outbox_id));
    assert_eq!(reader::operations(&operator, redriven.outbox_id).await.unwrap(), done[1..]);
}

#[tokio::test]
async fn the_rails_are_listed_as_they_were_set() {
    let fixture = Fixture::new().await;
    let readonly = fixture.login("symphony_readonly").await;
    let rails = reader::rails(&readonly).await.unwrap();
    assert_eq!(rails.len(), 1);
    assert_eq!((rails[0].rail_type.as_str(), rails[0].max_attempts, rails[0].paused), (RAIL, 20, false));
}

#[tokio::test]
async fn what_is_read_is_serialised_under_the_names_of_the_columns() {
    let fixture = Fixture::new().await;
    let claimed = fixture.claimed(1).await;
    let events_of_row =
        serde_json::to_value(reader::timeline(&fixture.root, claimed.outbox_id).await.unwrap()).unwrap();
    assert_eq!(events_of_row[0]["outbox_id"], claimed.outbox_id.to_string());
    assert_eq!(events_of_row[0]["event"], "ENQUEUED");
    assert!(events_of_row[0]["occurred_at"].as_str().unwrap().ends_with('Z'), "{events_of_row}");
}
