//! Reports what a worker knows about a payment and could not complete. The database decides whether that proves a loss of
//! history, and keeps it then.

use jiff::Timestamp;
use tokio_postgres::types::Type;

use super::complete::milliseconds;
use crate::WorkerId;
use crate::error::CompleteError;
use crate::executor::Executor;
use crate::payment::{Completion, OrphanKind};

const RECORD: &str = "\
    select symphony.record_payment_orphan(\
      $1, $2, $3, $4, $5::symphony.outbox_attempt_state, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) as recorded";

/// What identifies a payment for the bank and its producer, as a claim returned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The producer's own id of the payment.
    pub instruction_id: String,
    /// The participant.
    pub participant_id: String,
    /// The idempotency key.
    pub idempotency_key: String,
    /// The rail.
    pub rail_type: String,
}

/// What may be an orphan: the outcome of a lease, and what is known about its payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// What it would prove.
    pub kind: OrphanKind,
    /// The outcome, with its lease.
    pub completion: Completion,
    /// The payment, if it is known.
    pub identity: Option<Identity>,
    /// Where it was sent.
    pub endpoint: Option<String>,
    /// The epoch in which the lease was granted.
    pub epoch: Option<i64>,
    /// When it was granted, by the clock of the server that granted it.
    pub claimed_at: Option<Timestamp>,
}

/// Reports an outcome. Whether it is an orphan that was not recorded before.
///
/// # Errors
///
/// See [`CompleteError`].
pub async fn record_orphan(
    client: &impl Executor,
    worker: &WorkerId,
    orphan: &Orphan,
) -> Result<bool, CompleteError> {
    let Completion { lease, outcome, latency } = &orphan.completion;
    let (reason, identity) = (outcome.reason(), orphan.identity.as_ref());
    let row = client
        .fetch_one(
            RECORD,
            &[
                (&orphan.kind.as_str(), Type::TEXT),
                (&worker.as_str(), Type::TEXT),
                (&lease.outbox_id.0, Type::UUID),
                (&lease.token.0, Type::UUID),
                (&outcome.state().as_str(), Type::TEXT),
                (&outcome.rail().reference, Type::TEXT),
                (&outcome.rail().code, Type::TEXT),
                (&reason.map(|r| r.code.as_str()), Type::TEXT),
                (&reason.and_then(|r| r.message.as_deref()), Type::TEXT),
                (&latency.map(milliseconds), Type::INT4),
                (&identity.map(|payment| payment.instruction_id.as_str()), Type::TEXT),
                (&identity.map(|payment| payment.participant_id.as_str()), Type::TEXT),
                (&identity.map(|payment| payment.idempotency_key.as_str()), Type::TEXT),
                (&identity.map(|payment| payment.rail_type.as_str()), Type::TEXT),
                (&orphan.endpoint, Type::TEXT),
                (&orphan.epoch, Type::INT8),
                (&orphan.claimed_at, Type::TIMESTAMPTZ),
            ],
        )
        .await?;
    Ok(row.try_get("recorded")?)
}
