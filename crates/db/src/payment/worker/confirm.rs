//! Records what a rail says about a payment by itself, in a callback.

use tokio_postgres::types::Type;

use crate::error::CompleteError;
use crate::executor::Executor;
use crate::payment::{ConfirmationResult, ConfirmedOutcome, RailAnswer, Reason};
use crate::{OutboxId, WorkerId};

const CONFIRM: &str = "\
    select result, outbox_id \
    from symphony.confirm_payment_outbox($1, $2, $3, $4, $5, $6, $7, $8, coalesce($9, 'RAIL_REFUSED'), $10)";

/// An outcome that a rail reports by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// The rail.
    pub rail_type: String,
    /// The key by which the bank names the payment.
    pub idempotency_key: String,
    /// What became of it.
    pub outcome: ConfirmedOutcome,
    /// The id of the message that says so.
    pub confirmation_id: String,
    /// The endpoint of the bank that sent it.
    pub endpoint: Option<String>,
    /// The bank's reference and code.
    pub rail: RailAnswer,
    /// Why it was refused; none if it was executed.
    pub reason: Option<Reason>,
}

/// What the database did with a confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// The result.
    pub result: ConfirmationResult,
    /// The outbox that it is about; none if the database does not know which.
    pub outbox_id: Option<OutboxId>,
}

/// Records a confirmation.
///
/// # Errors
///
/// See [`CompleteError`]. A confirmation that contradicts what is known is no error, but a [`ConfirmationResult`].
pub async fn confirm(
    client: &impl Executor,
    worker: &WorkerId,
    confirmation: &Confirmation,
) -> Result<Confirmed, CompleteError> {
    let reason = confirmation.reason.as_ref();
    let row = client
        .fetch_one(
            CONFIRM,
            &[
                (&confirmation.rail_type, Type::TEXT),
                (&confirmation.idempotency_key, Type::TEXT),
                (&confirmation.outcome.as_str(), Type::TEXT),
                (&confirmation.confirmation_id, Type::TEXT),
                (&worker.as_str(), Type::TEXT),
                (&confirmation.endpoint, Type::TEXT),
                (&confirmation.rail.reference, Type::TEXT),
                (&confirmation.rail.code, Type::TEXT),
                (&reason.map(|reason| reason.code.as_str()), Type::TEXT),
                (&reason.and_then(|reason| reason.message.as_deref()), Type::TEXT),
            ],
        )
        .await?;
    Ok(Confirmed { result: row.try_get("result")?, outbox_id: row.try_get("outbox_id")? })
}
