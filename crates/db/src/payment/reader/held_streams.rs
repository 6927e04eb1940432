//! The failures that hold the later payments of their participant.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use crate::error::DatabaseError;
use crate::payment::Resolution;
use crate::{BatchSize, OutboxId};

const HELD_STREAMS: &str = "\
    select rail_type, participant_id, sequence_id, outbox_id, instruction_id, error_code, outcome_unknown, resolution, \
           held_at \
    from symphony.held_payment_streams \
    order by held_at, outbox_id \
    limit $1";

/// A failure that holds the later payments of its participant, on an ordered rail with `on_failure` HOLD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct HeldStream {
    /// The ordered rail.
    pub rail_type: String,
    /// The participant whose later payments wait.
    pub participant_id: String,
    /// The position of the failure: later ones are held.
    pub sequence_id: i64,
    /// The failure.
    pub outbox_id: OutboxId,
    /// Its instruction.
    pub instruction_id: Option<String>,
    /// Its error code.
    pub error_code: Option<String>,
    /// Whether it may have been paid.
    pub outcome_unknown: bool,
    /// NOT_PAID once an operator has found that out: a redrive or SKIPPED ends the hold.
    pub resolution: Option<Resolution>,
    /// When it failed.
    pub held_at: Timestamp,
}

/// The failures that hold streams, the oldest first.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn held_streams(
    client: &impl GenericClient,
    at_most: BatchSize,
) -> Result<Vec<HeldStream>, DatabaseError> {
    let rows = client.query_typed(HELD_STREAMS, &[(&i64::from(at_most.get()), Type::INT8)]).await?;
    rows.iter()
        .map(|row| {
            Ok(HeldStream {
                rail_type: row.try_get("rail_type")?,
                participant_id: row.try_get("participant_id")?,
                sequence_id: row.try_get("sequence_id")?,
                outbox_id: row.try_get("outbox_id")?,
                instruction_id: row.try_get("instruction_id")?,
                error_code: row.try_get("error_code")?,
                outcome_unknown: row.try_get("outcome_unknown")?,
                resolution: row.try_get("resolution")?,
                held_at: row.try_get("held_at")?,
            })
        })
        .collect()
}
