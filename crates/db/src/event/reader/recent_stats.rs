//! Throughput and latency of recently processed events.

use tokio_postgres::GenericClient;

use super::CHECK_OWNER;
use crate::error::DatabaseError;
use crate::lane_stats::LaneStats;

/// The query of [`recent_stats`](fn@recent_stats), public so that a test can check its plan. It reads the latest
/// processed events by their index, and the latest errors by their key.
pub const RECENT_STATS: &str = "\
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

/// Statistics of the latest processed events: at most 5000 of the last 15 minutes. Events have no terminal failure.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn recent_stats(client: &impl GenericClient) -> Result<LaneStats, DatabaseError> {
    client.batch_execute(CHECK_OWNER).await?;
    let row = client.query_typed_one(RECENT_STATS, &[]).await?;
    Ok(LaneStats::from_row(&row, 0, Some(row.try_get("again")?))?)
}
