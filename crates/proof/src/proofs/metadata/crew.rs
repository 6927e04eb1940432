//! The moves of the metadata lane, entries brought into every status, and time, moved by the owner.

use symphony_outbox::metadata::Status;
use tokio_postgres::{Client, Error};

use super::super::crew::{Crew, text};
use super::super::evidence::Failure;

/// An entry and the token of its claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::proofs) struct Held {
    pub(in crate::proofs) id: String,
    pub(in crate::proofs) token: String,
}

/// Creates an entry for an entity, and returns its id.
pub(in crate::proofs) async fn create(ingest: &Client, entity: &str, max_retries: i32) -> Result<String, Error> {
    let call = "select symphony.create_metadata_entry('document', $1, '{\"title\": \"A\"}', $2)::text";
    Ok(ingest.query_one(call, &[&entity, &max_retries]).await?.get(0))
}

pub(in crate::proofs) async fn claim(executor: &Client, worker: &str, size: i32) -> Result<Vec<Held>, Error> {
    let call = "select id::text, claim_token::text from symphony.claim_metadata_batch($1, $2)";
    let rows = executor.query(call, &[&worker, &size]).await?;
    Ok(rows.iter().map(|row| Held { id: row.get(0), token: row.get(1) }).collect())
}

/// Makes a move of one entry, by its function: `published`, `failed` or `dlq`.
pub(in crate::proofs) async fn mark(
    executor: &Client,
    outcome: &str,
    id: &str,
    token: Option<&str>,
) -> Result<(), Error> {
    let call = match outcome {
        "published" => "select symphony.mark_metadata_published($1::text::uuid, $2::text::uuid)",
        "failed" => "select symphony.mark_metadata_failed($1::text::uuid, $2::text::uuid, 'it is away')",
        _ => "select symphony.mark_metadata_dlq($1::text::uuid, $2::text::uuid, 'it is hopeless')",
    };
    executor.query_one(call, &[&id, &token]).await.map(drop)
}

/// Repairs, and returns what became of each entry.
pub(in crate::proofs) async fn repair(executor: &Client) -> Result<Vec<(String, String)>, Error> {
    let call = "select id::text, status::text from symphony.repair_metadata_entries()";
    Ok(executor.query(call, &[]).await?.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Moves time: what failed is due now.
pub(in crate::proofs) async fn make_due(owner: &Client) -> Result<(), Error> {
    let update = "update symphony.metadata_outbox set next_retry_at = now() where next_retry_at > now()";
    owner.execute(update, &[]).await.map(drop)
}

/// Moves time: the claim on this entry is so old.
pub(in crate::proofs) async fn age_claim(owner: &Client, id: &str, age: &str) -> Result<(), Error> {
    let update = "update symphony.metadata_outbox set processing_started_at = now() - $2::text::interval
                  where id = $1::text::uuid and status = 'PROCESSING'";
    owner.execute(update, &[&id, &age]).await.map(drop)
}

/// Every entry there is, with every column.
pub(in crate::proofs) async fn everything(owner: &Client) -> Result<String, Error> {
    text(owner, "select string_agg(o::text, '|' order by id) from symphony.metadata_outbox o", &[]).await
}

/// One entry, with every column.
pub(in crate::proofs) async fn row(owner: &Client, id: &str) -> Result<String, Error> {
    text(owner, "select o::text from symphony.metadata_outbox o where id = $1::text::uuid", &[&id]).await
}

pub(in crate::proofs) async fn status(owner: &Client, id: &str) -> Result<String, Error> {
    text(owner, "select status::text from symphony.metadata_outbox where id = $1::text::uuid", &[&id]).await
}

/// A new entry in this status, brought there by legal moves; the token where it is claimed. Nothing else must be claimable.
pub(in crate::proofs) async fn entry_in(
    crew: &Crew,
    entity: &str,
    status: Status,
) -> Result<(String, Option<String>), Failure> {
    let id = create(&crew.ingest, entity, 3).await?;
    if status == Status::Pending {
        return Ok((id, None));
    }
    let held = claim_this(crew, &id).await?;
    match status {
        Status::Pending | Status::Processing => return Ok((id, Some(held.token))),
        Status::Published => mark(&crew.executor, "published", &id, Some(&held.token)).await?,
        Status::Failed => mark(&crew.executor, "failed", &id, Some(&held.token)).await?,
        Status::Dlq => {
            mark(&crew.executor, "failed", &id, Some(&held.token)).await?;
            mark(&crew.executor, "dlq", &id, None).await?;
        }
    }
    Ok((id, None))
}

/// Claims until this entry comes.
pub(in crate::proofs) async fn claim_this(crew: &Crew, id: &str) -> Result<Held, Failure> {
    let held = claim(&crew.executor, "worker", 1000).await?;
    held.into_iter().find(|held| held.id == id).ok_or_else(|| Failure {
        tried: format!("claiming entry {id}"),
        expected: "it comes".into(),
        happened: "it did not".into(),
    })
}
