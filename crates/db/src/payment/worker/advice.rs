//! The rail's policy for an attempt with an unknown outcome.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::whole_seconds;
use crate::WorkerId;
use crate::error::CompleteError;
use crate::executor::Executor;
use crate::payment::{Lease, OnUnknown};

const ADVISE: &str = "\
    select on_unknown, key_remembered, endpoint, other_endpoint, awaiting_confirmation \
    from symphony.advise_on_unknown_outcome($1, $2, $3, $4)";

/// The rail's policy, and whether its "key never seen" can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What to do if an inquiry is impossible or inconclusive.
    pub on_unknown: OnUnknown,
    /// Whether the rail still remembers the idempotency key, and will until the next dispatch has ended.
    pub key_remembered: bool,
    /// Where this worker sends to, as its claim said; `unnamed` if it named nothing.
    pub endpoint: String,
    /// Where an earlier attempt with an unknown outcome went, if that is another bank. Then this worker must neither inquire
    /// nor send: the bank that it reaches does not know what became of the payment.
    pub other_endpoint: Option<String>,
    /// Whether the rail has accepted the payment: then it is only inquired about, whatever the policy says.
    pub awaiting_confirmation: bool,
}

/// Returns the policy for a payment whose last attempt has an unknown outcome, if a dispatch takes at most `sending`.
///
/// # Errors
///
/// See [`CompleteError`]: the lease may be lost.
pub async fn advise_on_unknown_outcome(
    client: &impl Executor,
    worker: &WorkerId,
    lease: Lease,
    sending: Duration,
) -> Result<Advice, CompleteError> {
    let row = client
        .fetch_one(
            ADVISE,
            &[
                (&lease.outbox_id.0, Type::UUID),
                (&lease.token.0, Type::UUID),
                (&worker.as_str(), Type::TEXT),
                (&whole_seconds(sending), Type::INT4),
            ],
        )
        .await?;
    Ok(Advice {
        on_unknown: row.try_get("on_unknown")?,
        key_remembered: row.try_get("key_remembered")?,
        endpoint: row.try_get("endpoint")?,
        other_endpoint: row.try_get("other_endpoint")?,
        awaiting_confirmation: row.try_get("awaiting_confirmation")?,
    })
}
