//! What becomes of leases besides an outcome: they are prolonged, given back, or run out.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;

use super::{columns, whole_seconds};
use crate::ask::Ask;
use crate::error::LeaseError;
use crate::payment::{AttemptState, Lease};
use crate::{BatchSize, OutboxId, WorkerId};

const RENEW: &str = "select outbox_id, lease_expires_at from symphony.renew_outbox_leases($1, $2, $3, $4)";
const RELEASE: &str = "select outbox_id, released from symphony.release_outbox_leases($1, $2, $3, $4)";
const QUARANTINED: &str = "select symphony.quarantined_outboxes_total() as total";
/// The leases that the call ended are in a setting of its transaction, with their rails: see `end_expired_leases`.
const REPAIR: &str = "\
    select r.outbox_id, r.attempt_no, r.state::text, r.next_attempt_at, r.lost_worker, \
           case when r.ordinality = 1 then current_setting('symphony.ended_leases', true) end as ended_leases \
    from symphony.repair_expired_leases(case when set_config('symphony.ended_leases', '', true) = '' then $1 end, $2) \
         with ordinality r";

/// What became of a lease that was to last longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Renewed {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// When the lease ends now; none where it is lost. Drop the work then: its outcome is unknown.
    pub lease_expires_at: Option<Timestamp>,
}

/// What became of a lease that was to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Released {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// Whether it was given back; false where it had been lost before.
    pub released: bool,
}

/// A lease that ran out, and what became of its row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repaired {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// Its rail.
    pub rail_type: String,
    /// The number of the attempt that was lost.
    pub attempt_no: i32,
    /// Requeued, or failed at the rail's last attempt.
    pub state: AttemptState,
    /// When it may be claimed again; none once it has ended.
    pub next_attempt_at: Option<Timestamp>,
    /// The worker that was not heard of again.
    pub lost_worker: WorkerId,
}

/// Makes leases last longer, from now. Answers in the order given.
///
/// # Errors
///
/// See [`LeaseError`]. A lost lease is none: see [`Renewed`].
pub async fn renew(
    client: &impl Ask,
    worker: &WorkerId,
    leases: &[Lease],
    lease: Duration,
) -> Result<Vec<Renewed>, LeaseError> {
    let (outbox_ids, tokens) = columns(leases.iter().copied());
    let rows = client
        .ask(
            RENEW,
            &[
                (&outbox_ids, Type::UUID_ARRAY),
                (&tokens, Type::UUID_ARRAY),
                (&worker.as_str(), Type::TEXT),
                (&whole_seconds(lease), Type::INT4),
            ],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(Renewed {
                outbox_id: row.try_get("outbox_id")?,
                lease_expires_at: row.try_get("lease_expires_at")?,
            })
        })
        .collect()
}

/// Gives back leases whose dispatch was never started. Answers in the order given.
///
/// With a delay, rounded up to whole seconds, the rows are not due before it has passed.
///
/// # Errors
///
/// See [`LeaseError`]. A lost lease is none: see [`Released`].
pub async fn release(
    client: &impl Ask,
    worker: &WorkerId,
    leases: &[Lease],
    delay: Option<Duration>,
) -> Result<Vec<Released>, LeaseError> {
    let (outbox_ids, tokens) = columns(leases.iter().copied());
    let rows = client
        .ask(
            RELEASE,
            &[
                (&outbox_ids, Type::UUID_ARRAY),
                (&tokens, Type::UUID_ARRAY),
                (&worker.as_str(), Type::TEXT),
                (&delay.map(whole_seconds), Type::INT4),
            ],
        )
        .await?;
    rows.iter()
        .map(|row| Ok(Released { outbox_id: row.try_get("outbox_id")?, released: row.try_get("released")? }))
        .collect()
}

/// Ends leases whose worker was not heard of again. `worker` is who found them.
///
/// # Errors
///
/// See [`LeaseError`].
pub async fn repair(
    client: &impl Ask,
    worker: &WorkerId,
    at_most: BatchSize,
) -> Result<Vec<Repaired>, LeaseError> {
    let rows =
        client.ask(REPAIR, &[(&i32::from(at_most.get()), Type::INT4), (&worker.as_str(), Type::TEXT)]).await?;
    let ended = match rows.first() {
        Some(row) => ended_leases(row.try_get("ended_leases")?),
        None => Vec::new(),
    };
    let rails: HashMap<_, _> = ended.into_iter().map(|lease| (lease.outbox_id, lease.rail_type)).collect();
    rows.iter()
        .map(|row| {
            let outbox_id = row.try_get("outbox_id")?;
            Ok(Repaired {
                outbox_id,
                rail_type: rails.get(&outbox_id).cloned().unwrap_or_default(),
                attempt_no: row.try_get("attempt_no")?,
                state: row.try_get("state")?,
                next_attempt_at: row.try_get("next_attempt_at")?,
                lost_worker: row.try_get("lost_worker")?,
            })
        })
        .collect()
}

/// How many pending rows were ever quarantined because the ledger had ended them already; see the view `symphony.quarantined_outboxes`.
///
/// # Errors
///
/// See [`LeaseError`].
pub async fn quarantined_total(client: &impl Ask) -> Result<u64, LeaseError> {
    let total: i64 = client.ask_one(QUARANTINED, &[]).await?.try_get("total")?;
    Ok(u64::try_from(total).unwrap_or_default())
}

/// The leases that a call of the database ended, as `end_expired_leases` wrote them: a JSON array on each line.
pub(super) fn ended_leases(setting: Option<&str>) -> Vec<Repaired> {
    let lines = setting.unwrap_or_default().lines();
    lines.filter_map(|line| serde_json::from_str::<Vec<Repaired>>(line).ok()).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_setting_is_read_and_what_is_none_of_ours_is_passed_over() {
        assert!(ended_leases(None).is_empty() && ended_leases(Some("")).is_empty());
        let lease = |attempt: u8, at: &str| {
            format!(
                r#"{{"outbox_id": "01a1ed2a-6149-70a0-8c71-cfae0a09bc8d", "rail_type": "sepa", "attempt_no": {attempt},
                    "state": "FAILED", "lost_worker": "w", "next_attempt_at": {at}}}"#
            )
            .replace('\n', " ")
        };
        let at = r#""2026-11-18T05:39:00.039226+00:00""#;
        let setting = format!("nonsense\n[{}, {}]\n[{}]", lease(1, "null"), lease(2, at), lease(3, at));
        let read = ended_leases(Some(&setting));
        assert_eq!(read.iter().map(|lease| lease.attempt_no).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((read[0].rail_type.as_str(), read[0].state), ("sepa", AttemptState::Failed));
        assert!(read[0].next_attempt_at.is_none() && read[1].next_attempt_at.is_some());
    }
}
