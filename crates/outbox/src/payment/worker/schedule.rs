//! Which rails a worker has room for, and when the next scheduled row of theirs is due.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::types::Type;

use crate::ask::Ask;
use crate::error::LeaseError;

const NEXT_DUE: &str = "\
    select due.after_ms \
    from set_config('symphony.claim_rooms', $1, true) said, \
         lateral (select symphony.next_outbox_due() as after_ms where said is not null) due";

/// How many rows of each rail a worker can take. A rail that is not named gives nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rooms(BTreeMap<String, u32>);

impl Rooms {
    /// As the database reads it.
    pub(super) fn to_setting(&self) -> String {
        serde_json::to_string(&self.0).unwrap_or_default()
    }
}

impl FromIterator<(String, u32)> for Rooms {
    fn from_iter<T: IntoIterator<Item = (String, u32)>>(rooms: T) -> Self {
        Self(rooms.into_iter().collect())
    }
}

/// In how long the next scheduled row of these rails is due, by the clock of the database; none where nothing is scheduled.
///
/// What is due already does not count: a claim finds it.
///
/// # Errors
///
/// See [`LeaseError`].
pub async fn next_due(client: &impl Ask, rooms: &Rooms) -> Result<Option<Duration>, LeaseError> {
    let row = client.ask_one(NEXT_DUE, &[(&rooms.to_setting(), Type::TEXT)]).await?;
    let after_ms: Option<i64> = row.try_get("after_ms")?;
    Ok(after_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or_default())))
}
