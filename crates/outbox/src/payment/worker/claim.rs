//! Taking work.

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::leases::ended_leases;
use super::{Repaired, Rooms, whole_seconds};
use crate::ask::Ask;
use crate::error::LeaseError;
use crate::payment::{Lease, Payload};
use crate::{BatchSize, LeaseToken, OutboxId, WorkerId};

const CLAIM: &str = "\
    select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, \
           attempt_count, lease_token, lease_expires_at, outcome_unknown \
    from symphony.claim_outbox_batch($1, $2, $3)";
/// The room is a setting of this statement alone. The claim takes it as an argument of a sort, so that it is set first. Two functions
/// in a row are read and planned in half the time of a common table expression.
///
/// The leases that the claim took over are in another setting: see `end_expired_leases`. It is emptied before the claim and read after it, in the
/// first row, which is there also where the claim brings nothing.
const CLAIM_WITHIN: &str = "\
    select c.outbox_id, c.instruction_id, c.participant_id, c.sequence_id, c.idempotency_key, c.rail_type, c.payload, \
           c.attempt_count, c.lease_token, c.lease_expires_at, c.outcome_unknown, \
           case when coalesce(c.ordinality, 1) = 1 then current_setting('symphony.ended_leases', true) end as ended_leases \
    from set_config('symphony.claim_rooms', $4, true) said \
    left join symphony.claim_outbox_batch( \
           case when said is not null and set_config('symphony.ended_leases', '', true) = '' then $1 end, $2, $3) \
         with ordinality c on true";

/// An instruction under a lease.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// The order to pay.
    pub instruction_id: String,
    /// The party whose instructions are sequenced.
    pub participant_id: String,
    /// Its place in the order of that participant.
    pub sequence_id: i64,
    /// The name under which the rail must not pay twice.
    pub idempotency_key: String,
    /// The rail that carries it.
    pub rail_type: String,
    /// What the rail is given.
    pub payload: Payload,
    /// Attempts before this one.
    pub attempt_count: i32,
    /// The proof of the lease.
    pub lease_token: LeaseToken,
    /// When the lease ends, by the clock of the database: not to be compared with any other.
    pub lease_expires_at: Timestamp,
    /// Whether nobody knows how the last attempt ended: it may have been paid.
    pub outcome_unknown: bool,
}

/// What a claim brought.
#[derive(Clone, Debug, Default)]
pub struct ClaimedBatch {
    /// The instructions, each under a fresh lease.
    pub claimed: Vec<Claimed>,
    /// Leases of other workers that had expired, and that the claim ended first. Some of their rows are among those claimed.
    pub taken_over: Vec<Repaired>,
}

impl Claimed {
    /// The lease that it is under.
    pub fn lease(&self) -> Lease {
        Lease { outbox_id: self.outbox_id, token: self.lease_token }
    }
}

/// Takes due instructions, each under a fresh lease. None is due: none is returned.
///
/// The lease is rounded up to whole seconds.
///
/// # Errors
///
/// See [`LeaseError`].
pub async fn claim(
    client: &impl Ask,
    worker: &WorkerId,
    at_most: BatchSize,
    lease: Duration,
) -> Result<Vec<Claimed>, LeaseError> {
    let rows = client
        .ask(
            CLAIM,
            &[
                (&i32::from(at_most.get()), Type::INT4),
                (&worker.as_str(), Type::TEXT),
                (&whole_seconds(lease), Type::INT4),
            ],
        )
        .await?;
    rows.iter().map(claimed).collect()
}

/// The same, with at most so many of each rail, and with the leases that the claim took over. A rail that has no room here gives
/// nothing.
///
/// # Errors
///
/// See [`LeaseError`].
pub async fn claim_within(
    client: &impl Ask,
    worker: &WorkerId,
    at_most: BatchSize,
    lease: Duration,
    rooms: &Rooms,
) -> Result<ClaimedBatch, LeaseError> {
    let rows = client
        .ask(
            CLAIM_WITHIN,
            &[
                (&i32::from(at_most.get()), Type::INT4),
                (&worker.as_str(), Type::TEXT),
                (&whole_seconds(lease), Type::INT4),
                (&rooms.to_setting(), Type::TEXT),
            ],
        )
        .await?;
    let Some(first) = rows.first() else { return Ok(ClaimedBatch::default()) };
    let taken_over = ended_leases(first.try_get("ended_leases")?);
    // A claim that brings nothing leaves one row without a lease.
    let nothing = first.try_get::<_, Option<OutboxId>>("outbox_id")?.is_none();
    let claimed = if nothing { Vec::new() } else { rows.iter().map(claimed).collect::<Result<_, _>>()? };
    Ok(ClaimedBatch { claimed, taken_over })
}

fn claimed(row: &Row) -> Result<Claimed, LeaseError> {
    Ok(Claimed {
        outbox_id: row.try_get("outbox_id")?,
        instruction_id: row.try_get("instruction_id")?,
        participant_id: row.try_get("participant_id")?,
        sequence_id: row.try_get("sequence_id")?,
        idempotency_key: row.try_get("idempotency_key")?,
        rail_type: row.try_get("rail_type")?,
        payload: row.try_get("payload")?,
        attempt_count: row.try_get("attempt_count")?,
        lease_token: LeaseToken(row.try_get("lease_token")?),
        lease_expires_at: row.try_get("lease_expires_at")?,
        outcome_unknown: row.try_get("outcome_unknown")?,
    })
}
