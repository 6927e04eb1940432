//! Calls of the functions of the event lane, and timestamps changed by the owner.

use tokio_postgres::{Client, Error};

use super::super::sessions::text;

/// Publishes an event of an aggregate and returns its id.
pub(crate) async fn publish(ingest: &Client, kind: &str, id: &str) -> Result<i64, Error> {
    let call = "select m10_recovery.publish_outbox($1, $2, 'Happened', '{\"amount\": \"10.00\"}')";
    Ok(ingest.query_one(call, &[&kind, &id]).await?.get(0))
}

/// Claims and returns the ids in the order of the result.
pub(crate) async fn claim(executor: &Client, processor: &str, size: i32) -> Result<Vec<i64>, Error> {
    let call = "select id from m10_recovery.claim_outbox_events($1, $2)";
    Ok(executor.query(call, &[&processor, &size]).await?.iter().map(|row| row.get(0)).collect())
}

pub(crate) async fn complete(
    executor: &Client,
    event: i64,
    processor: &str,
    success: bool,
    error: Option<&str>,
) -> Result<(), Error> {
    let call = "select m10_recovery.complete_outbox_event($1, $2, $3, $4)";
    executor.query_one(call, &[&event, &processor, &success, &error]).await.map(drop)
}

/// Makes every scheduled row due.
pub(crate) async fn make_due(owner: &Client) -> Result<(), Error> {
    let update = "update m10_recovery.outbox set process_after = now()
                  where processed_at is null and process_after > now()";
    owner.execute(update, &[]).await.map(drop)
}

/// Makes every claim on an unprocessed event this old.
pub(crate) async fn age_claims(owner: &Client, age: &str) -> Result<u64, Error> {
    let update = "update m10_recovery.outbox set claimed_at = now() - $1::text::interval
                  where processed_at is null and claimed_at is not null";
    owner.execute(update, &[&age]).await
}

/// All events and errors, with every column.
pub(crate) async fn all_rows(owner: &Client) -> Result<String, Error> {
    let rows = "select coalesce((select string_agg(o::text, '|' order by id) from m10_recovery.outbox o), '')
                || '#' || coalesce((select string_agg(e::text, '|' order by error_id) from m10_recovery.outbox_errors e), '')";
    text(owner, rows, &[]).await
}

/// One event as text: processed or not, its retry count, its delay in seconds, its claim.
pub(crate) const STATE: &str =
    "select format('%s, %s failures, due in %s s, claimed by %s at %s',
            case when processed_at is null then 'open' when processed_at = now() then 'processed now' else 'processed before' end,
            retry_count, coalesce(extract(epoch from process_after - now())::numeric(20, 6)::text, '-'),
            coalesce(claimed_by, 'none'), case when claimed_at is null then '-' when claimed_at = now() then 'now' else 'some time' end)
     from m10_recovery.outbox where id = $1";
