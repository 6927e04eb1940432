//! What those who read may see.

use symphony_db::BatchSize;
use symphony_db::error::ClaimError;
use symphony_db::metadata::{Entity, Status, reader};

use crate::fixture::{Fixture, entity, reason};

#[tokio::test]
async fn every_role_that_may_do_anything_finds_what_an_entity_has() {
    let fixture = Fixture::new().await;
    let first = fixture.claimed(3).await;
    let first_id = first.id();
    first.published(&fixture.root).await.unwrap();
    let second = fixture.create(1).await;
    fixture.create(2).await;
    for role in
        ["symphony_ingest", "symphony_executor", "symphony_operator", "symphony_readonly", "symphony_auditor"]
    {
        let client = fixture.login(role).await;
        let found = reader::find_by_entity(&client, &entity(1), BatchSize::MAX).await.unwrap();
        let states: Vec<_> = found.iter().map(|state| (state.id, state.status)).collect();
        assert_eq!(states, [(second, Status::Pending), (first_id, Status::Published)], "{role}");
        let latest = reader::find_by_entity(&client, &entity(1), BatchSize::ONE).await.unwrap();
        assert_eq!(latest.len(), 1);
        assert!(reader::find_by_entity(&client, &entity(3), BatchSize::ONE).await.unwrap().is_empty());
    }
    let long = Entity::new("x".repeat(201), "1").unwrap();
    let error = reader::find_by_entity(&fixture.root, &long, BatchSize::ONE).await.unwrap_err();
    assert!(matches!(error, ClaimError::InvalidArgument(_)), "{error:?}");
}

#[tokio::test]
async fn no_reader_sees_metadata_or_tokens() {
    let fixture = Fixture::new().await;
    let held = fixture.claimed(3).await;
    for role in ["symphony_operator", "symphony_readonly", "symphony_auditor"] {
        let client = fixture.login(role).await;
        let state = reader::entry(&client, held.id()).await.unwrap().unwrap();
        let shown = serde_json::to_string(&state).unwrap();
        assert!(!shown.contains("Contract") && !shown.contains("token"), "{shown}");
        let columns = "select count(*) from information_schema.columns \
                       where table_name = 'metadata_outbox_entries' and column_name in ('metadata', 'claim_token')";
        assert_eq!(client.query_one(columns, &[]).await.unwrap().get::<_, i64>(0), 0);
        client.query("select * from symphony.metadata_outbox", &[]).await.unwrap_err();
    }
}

#[tokio::test]
async fn an_entry_that_waits_for_its_retry_is_as_old_as_it_is_and_not_due() {
    let fixture = Fixture::new().await;
    let old = "insert into symphony.metadata_outbox (id, entity_id, entity_type, metadata, max_retries, created_at, updated_at)
               values (gen_random_uuid(), 'old', 'document', '{}', 5, now() - interval '3 hours', now())";
    fixture.root.batch_execute(old).await.unwrap();
    let failed = "select symphony.mark_metadata_failed(c.id, c.claim_token, 'away') from symphony.claim_metadata_batch('w', 1) c";
    fixture.root.execute(failed, &[]).await.unwrap();
    let later = "update symphony.metadata_outbox set next_retry_at = now() + interval '1 hour'";
    fixture.root.execute(later, &[]).await.unwrap();
    let reader = fixture.login("symphony_readonly").await;
    let ages = "select oldest_pending_age_seconds::float8, oldest_due_age_seconds::float8 from symphony.metadata_outbox_status";
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
async fn counts_stop_at_their_limit_except_those_of_dead_letters_and_are_exact_on_request() {
    let fixture = Fixture::new().await;
    fixture
        .root
        .batch_execute(
            "alter table symphony.metadata_outbox disable trigger user;
             insert into symphony.metadata_outbox
               (id, entity_id, entity_type, metadata, max_retries, retry_count, status, last_error, created_at, updated_at)
             select gen_random_uuid(), i, 'document', '{}', 20, case when i > 12000 then 20 else 0 end,
                    case when i > 12000 then 'DLQ' else 'PENDING' end::symphony.metadata_status,
                    case when i > 12000 then 'away' end, now() - interval '1 hour', now()
             from generate_series(1, 23000) i;
             alter table symphony.metadata_outbox enable trigger user;
             analyze symphony.metadata_outbox",
        )
        .await
        .unwrap();
    let readonly = fixture.login("symphony_readonly").await;
    let totals = reader::totals(&readonly).await.unwrap();
    assert_eq!((totals.due, totals.more_due, totals.dlq), (10_000, true, 11_000));
    assert!((10_000..15_000).contains(&totals.estimate), "{totals:?}");
    assert!((3600.0..3900.0).contains(&totals.oldest_due_age_seconds), "{totals:?}");
    let backlog = reader::backlog(&readonly).await.unwrap();
    assert_eq!((backlog.dlq, backlog.more_dlq, backlog.more_stuck), (10_000, true, false), "for the console");
    let exact = reader::exact_totals(&readonly).await.unwrap();
    assert_eq!((exact.due, exact.is_capped(), exact.dlq, exact.estimate), (12_000, false, 11_000, 12_000));
}

#[tokio::test]
async fn the_totals_tell_what_is_due_processing_stuck_scheduled_and_dead() {
    let fixture = Fixture::new().await;
    // Published, and so not looked at.
    fixture.claimed(3).await.published(&fixture.root).await.unwrap();
    let dead = fixture.claimed(3).await.failed(&fixture.root, &reason("away")).await.unwrap();
    dead.dead_letter(&fixture.root, &reason("hopeless")).await.unwrap();
    // Stuck: without retries, and under a claim that is too old.
    fixture.claimed(1).await.failed(&fixture.root, &reason("away")).await.unwrap();
    fixture.claimed(3).await;
    fixture.expire_claims().await;
    fixture.claimed(3).await;
    let scheduled = fixture.claimed(3).await.failed(&fixture.root, &reason("away")).await.unwrap();
    let later = "update symphony.metadata_outbox set next_retry_at = now() + interval '1 hour' where id = $1";
    fixture.root.execute(later, &[&scheduled.id.0]).await.unwrap();
    let other = "select symphony.create_metadata_entry('picture', '1', '{}')";
    fixture.root.execute(other, &[]).await.unwrap();

    for role in ["symphony_operator", "symphony_readonly", "symphony_auditor"] {
        let totals = reader::totals(&fixture.login(role).await).await.unwrap();
        assert_eq!((totals.due, totals.processing, totals.stuck, totals.scheduled, totals.dlq), (1, 1, 2, 1, 1));
        assert!(totals.oldest_due_age_seconds >= 60.0, "{totals:?}");
        let kinds: Vec<_> =
            totals.by_entity_type.iter().map(|kind| (kind.entity_type.as_str(), kind.due)).collect();
        assert_eq!((totals.entity_types, kinds), (2, vec![("document", 0), ("picture", 1)]));
    }
}
