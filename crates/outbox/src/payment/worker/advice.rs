//! What a rail's policy allows when nobody knows whether a payment was made.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::whole_seconds;
use crate::WorkerId;
use crate::ask::Ask;
use crate::error::CompleteError;
use crate::payment::{Lease, OnUnknown};

const ADVISE: &str = "select on_unknown, key_remembered from symphony.advise_on_unknown_outcome($1, $2, $3, $4)";

/// The policy of the rail, and how much "never seen" is worth there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What to do where the rail cannot be asked, or will not say.
    pub on_unknown: OnUnknown,
    /// Whether the rail still remembers the idempotency key, and will while it is sent once more.
    pub key_remembered: bool,
}

/// Asks what may be done with an instruction whose last attempt ended unknown, if sending it takes at most `sending`.
///
/// # Errors
///
/// See [`CompleteError`]: the lease may be lost.
pub async fn advise_on_unknown_outcome(
    client: &impl Ask,
    worker: &WorkerId,
    lease: Lease,
    sending: Duration,
) -> Result<Advice, CompleteError> {
    let row = client
        .ask_one(
            ADVISE,
            &[
                (&lease.outbox_id.0, Type::UUID),
                (&lease.token.0, Type::UUID),
                (&worker.as_str(), Type::TEXT),
                (&whole_seconds(sending), Type::INT4),
            ],
        )
        .await?;
    Ok(Advice { on_unknown: row.try_get("on_unknown")?, key_remembered: row.try_get("key_remembered")? })
}
