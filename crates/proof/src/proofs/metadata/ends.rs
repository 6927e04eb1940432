//! What has ended does not change, and what has not ended stays.

use symphony_outbox::metadata::Status;

use super::super::crew::Crew;
use super::super::evidence::{Failure, Trial, code, require};
use super::crew::{entry_in, everything, row};
use crate::kit::scratch::Database;

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

pub(super) async fn do_not_change(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let crew = Crew::hire(database).await?;
    let replica = database.connect().await?;
    replica.batch_execute("set session_replication_role = replica").await?;
    for status in [Status::Published, Status::Dlq] {
        require(|| status.to_string(), true, status.is_terminal())?;
        let (id, _) = entry_in(&crew, "ended", status).await?;
        let before = row(&crew.owner, &id).await?;
        for (who, client) in [("the owner", &crew.owner), ("a superuser as a replica", &replica)] {
            for change in CHANGES {
                let update = format!("update symphony.metadata_outbox set {change} where id = $1::text::uuid");
                let happened = client
                    .execute(&update, &[&id])
                    .await
                    .err()
                    .map_or("allowed".to_owned(), |error| code(&error).to_owned());
                require(|| format!("{update}, {status}, as {who}"), "P7007".to_owned(), happened)?;
            }
            let same = row(&crew.owner, &id).await? == before;
            trial.holds(
                format!("{} changes of an entry that is {status}, one for each column, as {who}", CHANGES.len()),
                "each refused with P7007, nothing changed",
                format!("each refused with P7007, changed: {}", !same),
                same,
            )?;
        }
    }
    Ok(())
}

/// What was created cannot be changed, and what has not ended cannot be taken away.
pub(super) async fn the_rest_is_kept(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let crew = Crew::hire(database).await?;
    // The last one is not claimed by those before it.
    for status in [Status::Processing, Status::Failed, Status::Pending] {
        entry_in(&crew, "kept", status).await?;
    }
    let before = everything(&crew.owner).await?;
    let replica = database.connect().await?;
    replica.batch_execute("set session_replication_role = replica").await?;
    for (who, client) in [("the owner", &crew.owner), ("a superuser as a replica", &replica)] {
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
            trial.refused(format!("{statement}, as {who}"), "P0001", client.execute(statement, &[]).await)?;
        }
    }
    let same = everything(&crew.owner).await? == before;
    trial.holds("looking at every entry afterwards", "nothing changed", format!("changed: {}", !same), same)
}
