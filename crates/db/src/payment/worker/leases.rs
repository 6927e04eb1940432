//! Renews and releases leases, and repairs expired ones.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;

use super::{columns, whole_seconds};
use crate::error::ClaimError;
use crate::executor::Executor;
use crate::payment::{AttemptState, Lease};
use crate::{BatchSize, OutboxId, WorkerId};

const RENEW: &str = "select outbox_id, lease_expires_at from symphony.renew_outbox_leases($1, $2, $3, $4)";
const RELEASE: &str = "select outbox_id, released from symphony.release_outbox_leases($1, $2, $3, $4)";
const QUARANTINED: &str = "select symphony.quarantined_outboxes_total() as total";
/// The call reports the leases that it ended, with their rails, in a setting of its transaction: see
/// `end_expired_leases`.
macro_rules! select_repaired {
    ($call:literal) => {
        concat!(
            "select r.outbox_id, r.attempt_no, r.state::text, r.next_attempt_at, r.lost_worker, \
                    case when r.ordinality = 1 then current_setting('symphony.repaired_leases', true) end \
                      as repaired_leases \
             from ",
            $call,
            " with ordinality r"
        )
    };
}

const REPAIR: &str = select_repaired!("symphony.repair_expired_leases($1, $2)");
const REPAIR_ALL: &str = select_repaired!("symphony.repair_expired_leases($1, $2, null)");

/// The result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Renewed {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// When the lease now expires; none if it was lost. Drop the work then: its outcome is unknown.
    pub lease_expires_at: Option<Timestamp>,
}

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Released {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// Whether it was released; false if it was lost before.
    pub released: bool,
}

/// A lease that expired, and the new state of its row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repaired {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// Its rail.
    pub rail_type: String,
    /// The number of the attempt whose lease expired.
    pub attempt_no: i32,
    /// Requeued, or FAILED after the rail's `max_attempts`.
    pub state: AttemptState,
    /// When it is due again; none in a terminal state.
    pub next_attempt_at: Option<Timestamp>,
    /// The worker whose lease expired.
    pub lost_worker: WorkerId,
}

/// Extends leases by `lease` from now. The results are in the order of `leases`.
///
/// # Errors
///
/// See [`ClaimError`]. A lost lease is no error: see [`Renewed`].
pub async fn renew(
    client: &impl Executor,
    worker: &WorkerId,
    leases: &[Lease],
    lease: Duration,
) -> Result<Vec<Renewed>, ClaimError> {
    let (outbox_ids, tokens) = columns(leases.iter().copied());
    let rows = client
        .fetch_all(
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

/// Releases leases whose dispatch never began. The results are in the order of `leases`.
///
/// With a delay, rounded up to whole seconds, the rows are due only after it.
///
/// # Errors
///
/// See [`ClaimError`]. A lost lease is no error: see [`Released`].
pub async fn release(
    client: &impl Executor,
    worker: &WorkerId,
    leases: &[Lease],
    delay: Option<Duration>,
) -> Result<Vec<Released>, ClaimError> {
    let (outbox_ids, tokens) = columns(leases.iter().copied());
    let rows = client
        .fetch_all(
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

/// Ends expired leases and requeues their rows. `worker` is the worker that repairs them.
///
/// One call reads a bounded part of the queue: the front of each rail, and if there is more, the next part of the
/// table. So a number of calls that follows from the size of the table finds every expired lease.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn repair(
    client: &impl Executor,
    worker: &WorkerId,
    at_most: BatchSize,
) -> Result<Vec<Repaired>, ClaimError> {
    run_repair(client, REPAIR, worker, at_most).await
}

/// The same, but one call reads all due rows, however many there are.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn repair_all(
    client: &impl Executor,
    worker: &WorkerId,
    at_most: BatchSize,
) -> Result<Vec<Repaired>, ClaimError> {
    run_repair(client, REPAIR_ALL, worker, at_most).await
}

async fn run_repair(
    client: &impl Executor,
    query: &'static str,
    worker: &WorkerId,
    at_most: BatchSize,
) -> Result<Vec<Repaired>, ClaimError> {
    let rows = client
        .fetch_all(query, &[(&i32::from(at_most.get()), Type::INT4), (&worker.as_str(), Type::TEXT)])
        .await?;
    let ended = match rows.first() {
        Some(row) => repaired_leases(row.try_get("repaired_leases")?),
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

/// The total of pending rows that were quarantined because the ledger already had their terminal state. See the view
/// `symphony.quarantined_outboxes`.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn quarantined_total(client: &impl Executor) -> Result<u64, ClaimError> {
    let total: i64 = client.fetch_one(QUARANTINED, &[]).await?.try_get("total")?;
    Ok(u64::try_from(total).unwrap_or_default())
}

/// Parses the leases that a call ended, as `end_expired_leases` wrote them: one JSON array per line.
pub(super) fn repaired_leases(setting: Option<&str>) -> Vec<Repaired> {
    let lines = setting.unwrap_or_default().lines();
    lines.filter_map(|line| serde_json::from_str::<Vec<Repaired>>(line).ok()).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_setting_is_parsed_and_other_lines_are_ignored() {
        assert!(repaired_leases(None).is_empty() && repaired_leases(Some("")).is_empty());
        let lease = |attempt: u8, at: &str| {
            format!(
                r#"{{"outbox_id": "01a1ed2a-6149-70a0-8c71-cfae0a09bc8d", "rail_type": "sepa", "attempt_no": {attempt},
                    "state": "FAILED", "lost_worker": "w", "next_attempt_at": {at}}}"#
            )
            .replace('\n', " ")
        };
        let at = r#""2026-11-18T05:39:00.039226+00:00""#;
        let setting = format!("nonsense\n[{}, {}]\n[{}]", lease(1, "null"), lease(2, at), lease(3, at));
        let read = repaired_leases(Some(&setting));
        assert_eq!(read.iter().map(|lease| lease.attempt_no).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((read[0].rail_type.as_str(), read[0].state), ("sepa", AttemptState::Failed));
        assert!(read[0].next_attempt_at.is_none() && read[1].next_attempt_at.is_some());
    }
}
