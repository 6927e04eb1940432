//! A PUBLISHED or DLQ entry does not change, and an unfinished entry cannot be deleted.

use symphony_db::metadata::Status;

use super::super::evidence::{Failure, Recorder, require, sqlstate};
use super::super::sessions::Sessions;
use super::calls::{all_rows, entry_in, row};
use symphony_testkit::test_database::Database;

/// A change of each column.
const CHANGES: [&str; 16] = [
    "id = gen_random_uuid()",
    "entity_id = 'another'",
    "entity_type = 'another'",
    "metadata = '[]'",
    "status = status",
    "retry_count = retry_count + 1",
    "max_retries = 99",
    "last_error = 'another'",
    "next_retry_at = now()",
    "processing_started_at = now()",
    "claim_token = gen_random_uuid()",
    "claimed_by = 'another'",
    "processed_at = now() + interval '1 day'",
    "created_at = now() + interval '1 day'",
    "updated_at = now() + interval '1 day'",
    "updated_at = updated_at",
];

pub(super) async fn is_immutable(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    let replica = database.connect().await?;
    replica.batch_execute("set session_replication_role = replica").await?;
    for status in [Status::Published, Status::Dlq] {
        require(|| status.to_string(), true, status.is_terminal())?;
        let (id, _) = entry_in(&sessions, "ended", status).await?;
        let before = row(&sessions.owner, &id).await?;
        for (who, client) in [("the owner", &sessions.owner), ("a superuser as a replica", &replica)] {
            for change in CHANGES {
                let update = format!("update symphony.metadata_outbox set {change} where id = $1::text::uuid");
                let happened = client
                    .execute(&update, &[&id])
                    .await
                    .err()
                    .map_or("allowed".to_owned(), |error| sqlstate(&error).to_owned());
                require(|| format!("{update}, {status}, as {who}"), "P7007".to_owned(), happened)?;
            }
            let same = row(&sessions.owner, &id).await? == before;
            recorder.check(
                format!("{} changes of an entry that is {status}, one for each column, as {who}", CHANGES.len()),
                "each refused with P7007, nothing changed",
                format!("each refused with P7007, changed: {}", !same),
                same,
            )?;
        }
    }
    Ok(())
}

/// The content of an entry cannot be changed, and an unfinished entry cannot be deleted.
pub(super) async fn content_is_immutable(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    // The last one is not claimed by those before it.
    for status in [Status::Processing, Status::Failed, Status::Pending] {
        entry_in(&sessions, "kept", status).await?;
    }
    let before = all_rows(&sessions.owner).await?;
    let replica = database.connect().await?;
    replica.batch_execute("set session_replication_role = replica").await?;
    for (who, client) in [("the owner", &sessions.owner), ("a superuser as a replica", &replica)] {
        for statement in [
            "truncate symphony.metadata_outbox",
            "delete from symphony.metadata_outbox where status = 'PENDING'",
            "delete from symphony.metadata_outbox where status = 'PROCESSING'",
            "delete from symphony.metadata_outbox where status = 'FAILED'",
            "update symphony.metadata_outbox set metadata = '[]' where status = 'PENDING'",
            "update symphony.metadata_outbox set entity_id = 'another' where status = 'PROCESSING'",
            "update symphony.metadata_outbox set entity_type = 'another' where status = 'FAILED'",
            "update symphony.metadata_outbox set created_at = now() where status = 'FAILED'",
            "update symphony.metadata_outbox set retry_count = 0 where status = 'FAILED'",
        ] {
            recorder.check_refused(
                format!("{statement}, as {who}"),
                "P0001",
                client.execute(statement, &[]).await,
            )?;
        }
    }
    let same = all_rows(&sessions.owner).await? == before;
    recorder.check("reading every entry afterwards", "nothing changed", format!("changed: {}", !same), same)
}
