//! Claims due payments.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::leases::repaired_leases;
use super::{ClaimLimits, Repaired, whole_seconds};
use crate::epoch::{OpenedEpoch, opened_epoch};
use crate::error::ClaimError;
use crate::executor::Executor;
use crate::payment::{Lease, Payload};
use crate::{BatchSize, LeaseToken, OutboxId, WorkerId};

const CLAIM: &str = "\
    select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, \
           attempt_count, lease_token, lease_expires_at, outcome_unknown \
    from symphony.claim_outbox_batch($1, $2, $3)";
/// The leases that the claim took over are in a setting of its transaction: see `end_expired_leases`. So are the
/// rails on
/// which it leased followers, the epoch that it opened, and whether a rate limit bounded it. The first row carries them. The left join keeps that row
/// if the claim returns nothing.
const CLAIM_WITH_LIMITS: &str = "\
    select c.outbox_id, c.instruction_id, c.participant_id, c.sequence_id, c.idempotency_key, c.rail_type, c.payload, \
           c.attempt_count, c.lease_token, c.lease_expires_at, c.outcome_unknown, \
           case when coalesce(c.ordinality, 1) = 1 then current_setting('symphony.repaired_leases', true) end as repaired_leases, \
           case when coalesce(c.ordinality, 1) = 1 then current_setting('symphony.claimed_runs', true) end as claimed_runs, \
           case when coalesce(c.ordinality, 1) = 1 then current_setting('symphony.opened_epoch', true) end as opened_epoch, \
           coalesce(c.ordinality, 1) = 1 and coalesce(current_setting('symphony.claim_used_rate_limit', true), '') = 'true' \
             as used_rate_limit, \
           case when coalesce(c.ordinality, 1) = 1 then nullif(current_setting('symphony.epoch', true), '')::bigint end as epoch \
    from (values (1)) one \
    left join symphony.claim_outbox_batch($1, $2, $3, $4, $5, $6, $7) with ordinality c on true";

/// A payment under a lease.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// The producer's own id of the payment.
    pub instruction_id: String,
    /// The participant whose payments are numbered in one sequence.
    pub participant_id: String,
    /// Its position in the participant's sequence.
    pub sequence_id: i64,
    /// The idempotency key, under which the rail pays at most once.
    pub idempotency_key: String,
    /// The rail that dispatches it.
    pub rail_type: String,
    /// The payload for the rail.
    pub payload: Payload,
    /// The number of attempts before this one.
    pub attempt_count: i32,
    /// The fencing token of the lease.
    pub lease_token: LeaseToken,
    /// When the lease expires, by the database's clock. Do not compare it with another clock.
    pub lease_expires_at: Timestamp,
    /// Whether the last attempt has an unknown outcome: it may have been paid.
    pub outcome_unknown: bool,
}

/// The result of a claim.
#[derive(Clone, Debug, Default)]
pub struct ClaimedBatch {
    /// The payments, each under a new lease.
    pub claimed: Vec<Claimed>,
    /// Expired leases of other workers that the claim ended first. It may have claimed some of their rows.
    pub taken_over: Vec<Repaired>,
    /// The rails on which several rows of a participant may be in `claimed`: they are a run, to be dispatched one after
    /// the other in the order of their sequence. See [`ClaimLimits::with_followers`].
    pub run_rails: BTreeSet<String>,
    /// The epoch that the claim opened, because the server is not the one of the newest epoch.
    pub opened_epoch: Option<OpenedEpoch>,
    /// Whether a rail with a rate limit had due rows: [`next_due`](super::next_due) then says when it has its next token.
    pub used_rate_limit: bool,
    /// The epoch in which the leases were granted.
    pub epoch: Option<i64>,
}

impl Claimed {
    /// Its lease.
    pub fn lease(&self) -> Lease {
        Lease { outbox_id: self.outbox_id, token: self.lease_token }
    }
}

/// Claims due payments, each under a new lease. Returns none if none is due.
///
/// The lease is rounded up to whole seconds.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn claim(
    client: &impl Executor,
    worker: &WorkerId,
    at_most: BatchSize,
    lease: Duration,
) -> Result<Vec<Claimed>, ClaimError> {
    let rows = client
        .fetch_all(
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

/// The same with a limit per rail; it also returns the expired leases that the claim took over.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn claim_with_limits(
    client: &impl Executor,
    worker: &WorkerId,
    at_most: BatchSize,
    lease: Duration,
    limits: &ClaimLimits,
) -> Result<ClaimedBatch, ClaimError> {
    let rows = client
        .fetch_all(
            CLAIM_WITH_LIMITS,
            &[
                (&i32::from(at_most.get()), Type::INT4),
                (&worker.as_str(), Type::TEXT),
                (&whole_seconds(lease), Type::INT4),
                (&limits.to_limits(), Type::JSONB),
                (&limits.to_followers(), Type::JSONB),
                (&limits.to_endpoints(), Type::JSONB),
                (&limits.to_first_attempts(), Type::TEXT_ARRAY),
            ],
        )
        .await?;
    let Some(first) = rows.first() else { return Ok(ClaimedBatch::default()) };
    let taken_over = repaired_leases(first.try_get("repaired_leases")?);
    // A claim that brings nothing leaves one row without a lease.
    let nothing = first.try_get::<_, Option<OutboxId>>("outbox_id")?.is_none();
    let claimed = if nothing { Vec::new() } else { rows.iter().map(claimed).collect::<Result<_, _>>()? };
    let run_rails =
        first.try_get::<_, Option<&str>>("claimed_runs")?.and_then(|rails| serde_json::from_str(rails).ok());
    let opened_epoch = opened_epoch(first.try_get("opened_epoch")?);
    Ok(ClaimedBatch {
        claimed,
        taken_over,
        run_rails: run_rails.unwrap_or_default(),
        opened_epoch,
        used_rate_limit: first.try_get("used_rate_limit")?,
        epoch: first.try_get("epoch")?,
    })
}

fn claimed(row: &Row) -> Result<Claimed, ClaimError> {
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
