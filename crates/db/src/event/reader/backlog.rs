//! The backlog: unprocessed events, with counts that stop at a limit.

use serde::Serialize;
use tokio_postgres::GenericClient;

use super::CHECK_OWNER;
use crate::error::DatabaseError;

/// The query of [`backlog`](fn@backlog), public so that a test can check its plan. Every unprocessed event is in one of
/// three indexes; the query reads each from its start up to the same limit.
pub const BACKLOG: &str = "\
    select f.due + r.due as due, r.scheduled, c.claimed, c.stuck, \
           greatest(coalesce(extract(epoch from now() - least(f.oldest, r.created, c.created)), 0), 0)::float8 \
             as oldest_pending_age_seconds, \
           coalesce(extract(epoch from now() - least(f.oldest, r.oldest)), 0)::float8 as oldest_due_age_seconds, \
           f.seen = 10000 or r.seen = 10000 or c.seen = 10000 as more \
    from (select count(*) as seen, count(*) as due, min(w.created_at) as oldest \
          from (select o.created_at from m10_recovery.outbox o \
                where o.processed_at is null and o.claimed_at is null and o.process_after is null \
                order by o.id limit 10000) w) f \
    cross join (select count(*) as seen, count(*) filter (where w.process_after <= now()) as due, \
                       count(*) filter (where w.process_after > now()) as scheduled, \
                       min(w.process_after) filter (where w.process_after <= now()) as oldest, min(w.created_at) as created \
                from (select o.process_after, o.created_at from m10_recovery.outbox o \
                      where o.processed_at is null and o.claimed_at is null and o.process_after is not null \
                      order by o.process_after, o.id limit 10000) w) r \
    cross join (select count(*) as seen, count(*) filter (where w.claimed_at >= now() - interval '5 minutes') as claimed, \
                       count(*) filter (where w.claimed_at < now() - interval '5 minutes') as stuck, \
                       min(w.created_at) as created \
                from (select o.claimed_at, o.created_at from m10_recovery.outbox o \
                      where o.processed_at is null and o.claimed_at is not null \
                      order by o.claimed_at, o.id limit 10000) w) c";

/// The unprocessed events.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct EventBacklog {
    /// Events that are due.
    pub due: i64,
    /// Events under a claim of at most 5 minutes.
    pub claimed: i64,
    /// Events under an older claim, which the next claim takes over.
    pub stuck: i64,
    /// Events whose retry is due later.
    pub scheduled: i64,
    /// The age of the oldest counted event, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due event has been due.
    pub oldest_due_age_seconds: f64,
    /// Whether a count reached its limit of 10,000: of new, of failed or of claimed events.
    pub more: bool,
}

/// Counts the unprocessed events.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn backlog(client: &impl GenericClient) -> Result<EventBacklog, DatabaseError> {
    client.batch_execute(CHECK_OWNER).await?;
    let row = client.query_typed_one(BACKLOG, &[]).await?;
    Ok(EventBacklog {
        due: row.try_get("due")?,
        claimed: row.try_get("claimed")?,
        stuck: row.try_get("stuck")?,
        scheduled: row.try_get("scheduled")?,
        oldest_pending_age_seconds: row.try_get("oldest_pending_age_seconds")?,
        oldest_due_age_seconds: row.try_get("oldest_due_age_seconds")?,
        more: row.try_get("more")?,
    })
}
