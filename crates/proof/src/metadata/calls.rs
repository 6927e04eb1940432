//! Calls of the functions of the metadata lane, entries in every status, and timestamps changed by the owner.

use symphony_db::metadata::Status;
use tokio_postgres::{Client, Error};

use super::super::evidence::Failure;
use super::super::sessions::{Sessions, text};

/// An entry and the token of its claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimedEntry {
    pub(crate) id: String,
    pub(crate) token: String,
}

/// Creates an entry for an entity, and returns its id.
pub(crate) async fn create(ingest: &Client, entity: &str, max_retries: i32) -> Result<String, Error> {
    let call = "select symphony.create_metadata_entry('document', $1, '{\"title\": \"A\"}', $2)::text";
    Ok(ingest.query_one(call, &[&entity, &max_retries]).await?.get(0))
}

pub(crate) async fn claim(executor: &Client, worker: &str, size: i32) -> Result<Vec<ClaimedEntry>, Error> {
    let call = "select id::text, claim_token::text from symphony.claim_metadata_batch($1, $2)";
    let rows = executor.query(call, &[&worker, &size]).await?;
    Ok(rows.iter().map(|row| ClaimedEntry { id: row.get(0), token: row.get(1) }).collect())
}

/// Calls mark_metadata_published, mark_metadata_failed or mark_metadata_dlq.
pub(crate) async fn mark(executor: &Client, outcome: &str, id: &str, token: Option<&str>) -> Result<(), Error> {
    let call = match outcome {
        "published" => "select symphony.mark_metadata_published($1::text::uuid, $2::text::uuid)",
        "failed" => "select symphony.mark_metadata_failed($1::text::uuid, $2::text::uuid, 'it is away')",
        _ => "select symphony.mark_metadata_dlq($1::text::uuid, $2::text::uuid, 'rejected')",
    };
    executor.query_one(call, &[&id, &token]).await.map(drop)
}

/// Repairs expired claims and returns each entry with its new status.
pub(crate) async fn repair(executor: &Client) -> Result<Vec<(String, String)>, Error> {
    let call = "select id::text, status::text from symphony.repair_metadata_entries()";
    Ok(executor.query(call, &[]).await?.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Makes every FAILED entry due.
pub(crate) async fn make_due(owner: &Client) -> Result<(), Error> {
    let update = "update symphony.metadata_outbox set next_retry_at = now() where next_retry_at > now()";
    owner.execute(update, &[]).await.map(drop)
}

/// Makes the claim on this entry this old.
pub(crate) async fn age_claim(owner: &Client, id: &str, age: &str) -> Result<(), Error> {
    let update = "update symphony.metadata_outbox set processing_started_at = now() - $2::text::interval
                  where id = $1::text::uuid and status = 'PROCESSING'";
    owner.execute(update, &[&id, &age]).await.map(drop)
}

/// All entries, with every column.
pub(crate) async fn all_rows(owner: &Client) -> Result<String, Error> {
    text(owner, "select string_agg(o::text, '|' order by id) from symphony.metadata_outbox o", &[]).await
}

/// One entry, with every column.
pub(crate) async fn row(owner: &Client, id: &str) -> Result<String, Error> {
    text(owner, "select o::text from symphony.metadata_outbox o where id = $1::text::uuid", &[&id]).await
}

pub(crate) async fn status(owner: &Client, id: &str) -> Result<String, Error> {
    text(owner, "select status::text from symphony.metadata_outbox where id = $1::text::uuid", &[&id]).await
}

/// Creates an entry and brings it into this status by legal transitions; with its token if it is claimed. No other
/// entry may be claimable.
pub(crate) async fn entry_in(
    sessions: &Sessions,
    entity: &str,
    status: Status,
) -> Result<(String, Option<String>), Failure> {
    let id = create(&sessions.ingest, entity, 3).await?;
    if status == Status::Pending {
        return Ok((id, None));
    }
    let claimed = claim_this(sessions, &id).await?;
    match status {
        Status::Pending | Status::Processing => return Ok((id, Some(claimed.token))),
        Status::Published => mark(&sessions.executor, "published", &id, Some(&claimed.token)).await?,
        Status::Failed => mark(&sessions.executor, "failed", &id, Some(&claimed.token)).await?,
        Status::Dlq => {
            mark(&sessions.executor, "failed", &id, Some(&claimed.token)).await?;
            mark(&sessions.executor, "dlq", &id, None).await?;
        }
    }
    Ok((id, None))
}

/// Claims everything and returns the claim of this entry.
pub(crate) async fn claim_this(sessions: &Sessions, id: &str) -> Result<ClaimedEntry, Failure> {
    let claimed = claim(&sessions.executor, "worker", 1000).await?;
    claimed.into_iter().find(|claimed| claimed.id == id).ok_or_else(|| Failure {
        tried: format!("claiming entry {id}"),
        expected: "it comes".into(),
        happened: "it did not".into(),
    })
}
