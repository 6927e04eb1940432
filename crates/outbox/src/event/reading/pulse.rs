//! How the event lane went lately, from the end of what is processed and of what was said.

use tokio_postgres::GenericClient;

use super::IS_OURS;
use crate::error::Fault;
use crate::pulse::LanePulse;

/// The question that [`pulse`] asks, for whoever wants to see its plan: the latest that were processed by their index, and the latest
/// failures by their key.
pub const PULSE: &str = "\
    select d.done, d.span_seconds, d.took_p50_ms, d.took_p95_ms, d.took_p99_ms, d.total_p50_ms, d.total_p95_ms, \
           (select count(*) \
            from (select e.created_at, e.succeeded from m10_recovery.outbox_errors e order by e.error_id desc limit 5000) s \
            where not s.succeeded and s.created_at > now() - make_interval(secs => d.span_seconds)) as again \
    from (select count(*) as done, \
                 case when count(*) < 5000 then 900 else greatest(1, extract(epoch from now() - min(l.processed_at))) end::float8 \
                   as span_seconds, \
                 percentile_disc(0.5) within group (order by l.took_ms) as took_p50_ms, \
                 percentile_disc(0.95) within group (order by l.took_ms) as took_p95_ms, \
                 percentile_disc(0.99) within group (order by l.took_ms) as took_p99_ms, \
                 percentile_disc(0.5) within group (order by l.total_ms) as total_p50_ms, \
                 percentile_disc(0.95) within group (order by l.total_ms) as total_p95_ms \
          from (select o.processed_at, \
                       (extract(epoch from o.processed_at - o.claimed_at) * 1000)::bigint as took_ms, \
                       (extract(epoch from o.processed_at - o.created_at) * 1000)::bigint as total_ms \
                from m10_recovery.outbox o \
                where o.processed_at > now() - interval '15 minutes' \
                order by o.processed_at desc \
                limit 5000) l) d";

/// What was published lately: at most five thousand, of the last quarter of an hour. No event fails for good.
///
/// # Errors
///
/// See [`Fault`].
pub async fn pulse(client: &impl GenericClient) -> Result<LanePulse, Fault> {
    client.batch_execute(IS_OURS).await?;
    let row = client.query_typed_one(PULSE, &[]).await?;
    Ok(LanePulse {
        span_seconds: row.try_get("span_seconds")?,
        done: row.try_get("done")?,
        failed: 0,
        again: Some(row.try_get("again")?),
        took_p50_ms: row.try_get("took_p50_ms")?,
        took_p95_ms: row.try_get("took_p95_ms")?,
        took_p99_ms: row.try_get("took_p99_ms")?,
        total_p50_ms: row.try_get("total_p50_ms")?,
        total_p95_ms: row.try_get("total_p95_ms")?,
    })
}
