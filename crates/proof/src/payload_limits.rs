//! Limits on the uncompressed size of a payload, and on the bytes that one claim returns.

use tokio_postgres::Client;

use super::evidence::{Evidence, Failure, Recorder};
use super::sessions::{Sessions, count, set_rail};
use symphony_testkit::test_database::Database;

/// A table with a column that PostgreSQL compresses about a hundred times: its stored size is within every limit.
const DOCUMENTS: &str = "
    create table public.documents (name text primary key, document jsonb);
    insert into public.documents values
      ('22 MB', jsonb_build_object('text', repeat('x', 22000000))),
      ('88 MB', jsonb_build_object('text', repeat('y', 88000000))),
      ('300 kB', jsonb_build_object('text', repeat('x', 300000))),
      ('200 kB', jsonb_build_object('text', repeat('x', 200000))),
      ('1 MB', jsonb_build_object('text', repeat('x', 1000000))),
      ('200 levels', (repeat('{\"a\":[', 100) || '1' || repeat(']}', 100))::jsonb),
      ('100 levels', (repeat('{\"a\":[', 50) || '1' || repeat(']}', 50))::jsonb);
    grant select on public.documents to public";

const ENQUEUE: &str = "select symphony.enqueue_payment_outbox(name, 'alice', name, 'bank', document) from public.documents where name = $1";
const ENQUEUE_BATCH: &str = "
    select symphony.enqueue_payment_outbox_batch(
      array_agg(name), array_agg('alice'::text), array_agg(name), array_agg('bank'::text), array_agg(document))
    from public.documents where name = $1";
const INSERT_PENDING: &str = "
    insert into symphony.payment_outbox_pending (instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload)
    select name, 'alice', 99, name, 'bank', document from public.documents where name = $1";
const PUBLISH: &str =
    "select m10_recovery.publish_outbox('order', '1', name, document) from public.documents where name = $1";
const CREATE: &str =
    "select symphony.create_metadata_entry('document', name, document) from public.documents where name = $1";
const INSERT_METADATA: &str = "
    insert into symphony.metadata_outbox (id, entity_type, entity_id, metadata, max_retries, created_at, updated_at)
    select gen_random_uuid(), 'document', name, document, 3, now(), now() from public.documents where name = $1";

/// Proof 32: `a_compressed_payload_counts_with_its_uncompressed_size`.
pub(super) async fn are_enforced(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "bank", "{}").await?;
    database.connect().await?.batch_execute(DOCUMENTS).await?;
    let stored = "select max(pg_column_size(document)) from public.documents where name in ('22 MB', '300 kB', '200 kB', '1 MB')";
    let stored: i32 = sessions.owner.query_one(stored, &[]).await?.get(0);
    recorder.check(
        "storing documents of 22 MB and less in a table of the caller",
        "compressed, each takes less than 256 KiB",
        format!("{stored} bytes at most"),
        stored < 262_144,
    )?;

    for (call, session, with, refused) in [
        ("enqueue", (&sessions.ingest, ENQUEUE), "P7005", ["22 MB", "300 kB", "200 levels"].as_slice()),
        ("enqueue in a batch", (&sessions.ingest, ENQUEUE_BATCH), "P7005", &["22 MB", "300 kB", "200 levels"]),
        ("insert as the owner", (&sessions.owner, INSERT_PENDING), "23514", &["22 MB", "300 kB", "200 levels"]),
        ("publish an event", (&sessions.ingest, PUBLISH), "P7005", &["22 MB", "88 MB", "200 levels"]),
        ("create an entry of metadata", (&sessions.ingest, CREATE), "P7005", &["22 MB", "88 MB", "200 levels"]),
        (
            "insert metadata as the owner",
            (&sessions.owner, INSERT_METADATA),
            "P7005",
            &["22 MB", "88 MB", "200 levels"],
        ),
    ] {
        for name in refused {
            recorder.check_refused(
                format!("{call}: the column of a table that holds {name}"),
                with,
                session.0.execute(session.1, &[name]).await,
            )?;
        }
    }
    for (call, session, taken) in [
        ("enqueue", (&sessions.ingest, ENQUEUE), "200 kB"),
        ("enqueue in a batch", (&sessions.ingest, ENQUEUE_BATCH), "100 levels"),
        ("publish an event", (&sessions.ingest, PUBLISH), "1 MB"),
        ("create an entry of metadata", (&sessions.ingest, CREATE), "1 MB"),
    ] {
        let rows = session.0.execute(session.1, &[&taken]).await?;
        recorder.check_equal(format!("{call}: {taken}"), "taken", 1, rows)?;
    }
    claims_are_bounded(&sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

/// Claims of each lane with more due bytes than one claim may return, some compressed and some not.
async fn claims_are_bounded(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    const LIMIT: i64 = 16 * 1024 * 1024;
    sessions
        .ingest
        .batch_execute(
            "select symphony.enqueue_payment_outbox('n' || i, 'p' || i % 7, 'n' || i, 'bank', document)
             from public.documents, generate_series(1, 120) i where name = '200 kB';
             select m10_recovery.publish_outbox('order', i::text, 'e', document)
             from public.documents, generate_series(1, 30) i where name = '1 MB';
             select symphony.create_metadata_entry('document', i::text, document)
             from public.documents, generate_series(1, 30) i where name = '1 MB'",
        )
        .await?;
    let claim = "select coalesce(sum(pg_column_size(payload #> '{}')), 0), count(*) from symphony.claim_outbox_batch(500, 'worker', 600)";
    all_in_parts(&sessions.executor, recorder, "payments of 200 kB", claim, LIMIT, 122).await?;
    let claim = "select coalesce(sum(pg_column_size(payload #> '{}')), 0), count(*)
                 from m10_recovery.claim_outbox_events(gen_random_uuid()::text, 500)";
    all_in_parts(&sessions.executor, recorder, "events of 1 MB", claim, LIMIT, 31).await?;
    let claim = "select coalesce(sum(pg_column_size(metadata #> '{}')), 0), count(*) from symphony.claim_metadata_batch('worker', 500)";
    all_in_parts(&sessions.executor, recorder, "entries of metadata of 1 MB", claim, LIMIT, 31).await?;

    // With order by aggregate, an event waits only for its own aggregate.
    sessions
        .ingest
        .batch_execute(
            "select m10_recovery.publish_outbox('stream', (i % 5)::text, 'e', document)
             from public.documents, generate_series(1, 30) i where name = '1 MB'",
        )
        .await?;
    let claim = "select coalesce(sum(pg_column_size(payload #> '{}')), 0), count(*)
                 from symphony.claim_events_in_order(gen_random_uuid()::text, 500, 100)";
    let row = sessions.executor.query_one(claim, &[]).await?;
    let (bytes, rows): (i64, i64) = (row.get(0), row.get(1));
    let skipped = count(
        &sessions.owner,
        "select count(*) from m10_recovery.outbox e join m10_recovery.outbox f using (aggregate_type, aggregate_id)
         where e.aggregate_type = 'stream' and e.claimed_at is null and f.claimed_at is not null and e.id < f.id",
        &[],
    )
    .await?;
    recorder.check(
        "claiming 30 events of 1 MB of 5 aggregates in order",
        "at most 16 MiB, at least one, none before an earlier one of its aggregate",
        format!("{bytes} bytes in {rows} events, {skipped} out of order"),
        bytes <= LIMIT && rows > 0 && skipped == 0,
    )
}

/// Claims until nothing is left: no claim returns more than the limit, and together they return every row.
async fn all_in_parts(
    executor: &Client,
    recorder: &mut Recorder,
    what: &str,
    claim: &str,
    limit: i64,
    expected: i64,
) -> Result<(), Failure> {
    let (mut claims, mut most, mut claimed) = (0, 0, 0);
    loop {
        let row = executor.query_one(claim, &[]).await?;
        let (bytes, rows): (i64, i64) = (row.get(0), row.get(1));
        if rows == 0 {
            break;
        }
        (claims, most, claimed) = (claims + 1, most.max(bytes), claimed + rows);
    }
    recorder.check(
        format!("claiming {expected} {what}, 500 at a time"),
        format!("all of them, at most {limit} bytes in one claim"),
        format!("{claimed} in {claims} claims, {most} bytes at most"),
        claimed == expected && most <= limit && claims > 1,
    )
}
