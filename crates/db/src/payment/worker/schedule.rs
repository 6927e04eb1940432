//! The claim limits of a worker per rail, and when its next scheduled row is due.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::types::{Json, Type};

use crate::error::ClaimError;
use crate::executor::Executor;

const NEXT_DUE: &str = "select symphony.next_outbox_due($1) as after_ms";

/// How many rows of each rail a claim may return at most: backpressure per rail.
///
/// A claim returns no row of a rail that is not listed here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimLimits(BTreeMap<String, u32>);

impl ClaimLimits {
    /// As the argument `p_limits` of the database's functions.
    pub(super) fn to_limits(&self) -> Json<&BTreeMap<String, u32>> {
        Json(&self.0)
    }
}

impl FromIterator<(String, u32)> for ClaimLimits {
    fn from_iter<T: IntoIterator<Item = (String, u32)>>(limits: T) -> Self {
        Self(limits.into_iter().collect())
    }
}

/// In how long the next scheduled row of these rails is due, by the clock of the database; none where nothing is scheduled.
///
/// What is due already does not count: a claim finds it.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn next_due(client: &impl Executor, limits: &ClaimLimits) -> Result<Option<Duration>, ClaimError> {
    let row = client.fetch_one(NEXT_DUE, &[(&limits.to_limits(), Type::JSONB)]).await?;
    let after_ms: Option<i64> = row.try_get("after_ms")?;
    Ok(after_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or_default())))
}
