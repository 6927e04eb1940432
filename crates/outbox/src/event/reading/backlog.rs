//! How many events are not processed, counted no further than it takes to know that there are many.

use serde::Serialize;
use tokio_postgres::GenericClient;

use super::IS_OURS;
use crate::error::Fault;

/// The question that [`backlog`] asks, for whoever wants to see its plan. Every unprocessed event is in one of three indexes; each is
/// read from its end up to the same bound.
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

/// What is not processed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct EventBacklog {
    /// Events that may be claimed now.
    pub due: i64,
    /// Events under a claim that is not older than 5 minutes.
    pub claimed: i64,
    /// Events under an older claim, which the next claim takes over.
    pub stuck: i64,
    /// Events that failed and whose time has not come again.
    pub scheduled: i64,
    /// How long ago the oldest event of those counted was published, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due event has waited.
    pub oldest_due_age_seconds: f64,
    /// Whether there may be more: ten thousand are counted of what is fresh, of what failed before, and of what is claimed.
    pub more: bool,
}

/// What is not processed now.
///
/// # Errors
///
/// See [`Fault`].
pub async fn backlog(client: &impl GenericClient) -> Result<EventBacklog, Fault> {
    client.batch_execute(IS_OURS).await?;
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
