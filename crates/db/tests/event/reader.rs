//! What those who read may see.

use symphony_client::event::tokio_postgres as publisher;
use symphony_db::BatchSize;
use symphony_db::event::worker::{Outcome, complete};
use symphony_db::event::{EventId, reader};

use crate::fixture::{Fixture, changed, event};

#[tokio::test]
async fn an_event_that_waits_for_its_next_attempt_is_as_old_as_it_is_and_not_due() {
    let fixture = Fixture::new().await;
    let old = "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload, created_at, retry_count, process_after)
               values ('order', 'old', 'placed', '{}', now() - interval '3 hours', 9, now() + interval '10 minutes')";
    fixture.root.batch_execute(old).await.unwrap();
    let reader = fixture.login("symphony_readonly").await;
    let ages = "select oldest_pending_age_seconds::float8, oldest_due_age_seconds::float8 from m10_recovery.outbox_status";
    let row = reader.query_one(ages, &[]).await.unwrap();
    let (pending, due): (f64, f64) = (row.get(0), row.get(1));
    assert!((10_800.0..11_100.0).contains(&pending) && due == 0.0, "{pending} {due}");
    let backlog = reader::backlog(&reader).await.unwrap();
    assert!(
        backlog.oldest_pending_age_seconds >= 10_800.0 && backlog.oldest_due_age_seconds == 0.0,
        "{backlog:?}"
    );
}

#[tokio::test]
async fn the_totals_tell_due_claimed_stuck_and_scheduled_apart_and_leave_out_what_is_processed() {
    let fixture = Fixture::new().await;
    for number in 1..=2 {
        fixture.publish(number).await;
    }
    let held = fixture.claim().await;
    complete(&fixture.root, &held.processor, held.events[0].id, &Outcome::Delivered).await.unwrap();
    complete(&fixture.root, &held.processor, held.events[1].id, &Outcome::Failed { error: None }).await.unwrap();
    fixture.publish(3).await;
    fixture.claim().await;
    fixture.expire_claims().await;
    fixture.publish(4).await;
    let claim =
        "update m10_recovery.outbox set claimed_at = now(), claimed_by = 'x' where aggregate_id = 'order-4'";
    fixture.root.batch_execute(claim).await.unwrap();
    let other = changed(event(5), |it| it.aggregate_type = "invoice".to_owned());
    let due = publisher::publish(&fixture.root, &other).await.unwrap();
    let waits = "update m10_recovery.outbox set process_after = now() - interval '90 seconds' where id = $1";
    fixture.root.execute(waits, &[&due.0]).await.unwrap();

    for role in ["symphony_readonly", "symphony_auditor", "symphony_operator"] {
        let status = reader::status(&fixture.login(role).await).await.unwrap();
        assert_eq!((status.due, status.claimed, status.stuck, status.scheduled), (1, 1, 1, 1));
        assert!(status.oldest_due_age_seconds >= 90.0, "{status:?}");
        assert!(status.oldest_pending_age_seconds < 90.0, "of the publishing, not of the schedule: {status:?}");
        let kinds: Vec<_> = status.by_aggregate_type.iter().map(|kind| kind.aggregate_type.as_str()).collect();
        assert_eq!((status.aggregate_types, kinds), (2, vec!["invoice", "order"]));
        assert_eq!((status.by_aggregate_type[0].due, status.by_aggregate_type[1].due), (1, 0));
    }
}

#[tokio::test]
async fn counts_stop_at_their_limit_say_so_and_are_exact_on_request() {
    let fixture = Fixture::new().await;
    fixture
        .root
        .batch_execute(
            "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload, created_at, process_after, claimed_at, claimed_by)
             select 'order', 'order-' || i, 'placed', '{}', now() - interval '1 hour',
                    case when i > 12000 and i <= 12100 then now() - interval '2 hours' when i > 12100 and i <= 24000 then now() + interval '1 hour' end,
                    case when i > 24000 then now() end,
                    case when i > 24000 then 'processor' end
             from generate_series(1, 24050) i;
             analyze m10_recovery.outbox",
        )
        .await
        .unwrap();
    let readonly = fixture.login("symphony_readonly").await;
    let status = reader::status(&readonly).await.unwrap();
    assert_eq!((status.due, status.scheduled, status.claimed, status.stuck), (10_100, 10_000, 50, 0));
    assert_eq!((status.more_due, status.more_scheduled), (true, true));
    assert_eq!((status.more_claimed, status.more_stuck), (false, false), "those counts are exact");
    assert!((20_000..30_000).contains(&status.estimate), "{status:?}");
    assert!((7200.0..7500.0).contains(&status.oldest_due_age_seconds), "{status:?}");
    let exact = reader::exact_status(&readonly).await.unwrap();
    assert_eq!((exact.due, exact.scheduled, exact.claimed, exact.stuck), (12_100, 11_900, 50, 0));
    assert_eq!((exact.is_capped(), exact.estimate, exact.by_aggregate_type[0].due), (false, 24_050, 12_100));
}

#[tokio::test]
async fn the_totals_by_type_have_an_end() {
    let fixture = Fixture::new().await;
    let many = "select m10_recovery.publish_outbox('type-' || least(g, 150), 'x', 'y', '{}') from generate_series(1, 200) g";
    fixture.root.execute(many, &[]).await.unwrap();
    let status = reader::status(&fixture.root).await.unwrap();
    assert_eq!((status.due, status.aggregate_types, status.by_aggregate_type.len()), (200, 150, 100));
    let most = status.by_aggregate_type.iter().find(|kind| kind.aggregate_type == "type-150");
    assert_eq!(most.map(|kind| kind.due), Some(51), "the type with most is among them");
}

#[tokio::test]
async fn an_event_and_what_was_said_about_it_can_be_read_without_its_payload() {
    let fixture = Fixture::new().await;
    let id = fixture.publish(1).await;
    for number in 1..=3 {
        let held = fixture.claim().await;
        let error = Some(format!("try {number} for ann@example.org"));
        complete(&fixture.root, &held.processor, id, &Outcome::Failed { error }).await.unwrap();
        fixture.root.batch_execute("update m10_recovery.outbox set process_after = now()").await.unwrap();
    }
    let reader = fixture.login("symphony_readonly").await;
    let state = reader::event(&reader, id).await.unwrap().unwrap();
    assert_eq!((state.id, state.retry_count, state.aggregate_id.as_str()), (id, 3, "order-1"));
    assert_eq!((state.processed_at, state.claimed_by), (None, None));
    assert!(!serde_json::to_string(&reader::event(&reader, id).await.unwrap()).unwrap().contains("10.50"));
    assert_eq!(reader::event(&reader, EventId(4711)).await.unwrap(), None);

    let errors = reader::errors(&reader, id, BatchSize::try_from(2).unwrap()).await.unwrap();
    let errors: Vec<_> =
        errors.iter().map(|error| (error.retry_count, error.succeeded, error.error.as_str())).collect();
    assert_eq!(errors, [(3, false, "try 3 for [e-mail]"), (2, false, "try 2 for [e-mail]")]);
}
