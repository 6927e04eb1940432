//! What becomes of leases besides an outcome: they are prolonged, given back, or run out.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;

use super::{columns, whole_seconds};
use crate::ask::Ask;
use crate::error::LeaseError;
use crate::payment::{AttemptState, Lease};
use crate::{BatchSize, OutboxId, WorkerId};

const RENEW: &str = "select outbox_id, lease_expires_at from symphony.renew_outbox_leases($1, $2, $3, $4)";
const RELEASE: &str = "select outbox_id, released from symphony.release_outbox_leases($1, $2, $3, $4)";
const REPAIR: &str = "\
    select outbox_id, attempt_no, state::text, next_attempt_at, lost_worker \
    from symphony.repair_expired_leases($1, $2)";

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// The outbox.
    pub outbox_id: OutboxId,
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
    rows.iter()
        .map(|row| {
            Ok(Repaired {
                outbox_id: row.try_get("outbox_id")?,
                attempt_no: row.try_get("attempt_no")?,
                state: row.try_get("state")?,
                next_attempt_at: row.try_get("next_attempt_at")?,
                lost_worker: row.try_get("lost_worker")?,
            })
        })
        .collect()
}
