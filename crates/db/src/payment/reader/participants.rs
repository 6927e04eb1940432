//! Lists participants.

use serde::Serialize;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use crate::error::DatabaseError;

const PARTICIPANTS: &str = "\
    select participant_id \
    from symphony.payment_participants \
    where participant_id > $1 \
    order by participant_id \
    limit $2";

/// A participant, whose payments are numbered in one sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Participant {
    /// Its name.
    pub participant_id: String,
}

/// At most `at_most` participants by name, after `after`.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn participants(
    client: &impl GenericClient,
    after: &str,
    at_most: i32,
) -> Result<Vec<Participant>, DatabaseError> {
    let at_most = i64::from(at_most);
    let rows = client.query_typed(PARTICIPANTS, &[(&after, Type::TEXT), (&at_most, Type::INT8)]).await?;
    let participant =
        |row: &tokio_postgres::Row| Ok(Participant { participant_id: row.try_get("participant_id")? });
    rows.iter().map(participant).collect()
}
