//! The claim limits of a worker per rail, and when its next scheduled row is due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::{Json, Type};

use crate::error::ClaimError;
use crate::executor::Executor;

const NEXT_DUE: &str = "select symphony.next_outbox_due($1) as after_ms";

/// How many rows of each rail a claim may return at most: backpressure per rail.
///
/// A claim returns no row of a rail that is not listed here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimLimits {
    rows: BTreeMap<String, u32>,
    followers: BTreeMap<String, u32>,
    endpoints: Arc<BTreeMap<String, String>>,
    first_attempts: Vec<String>,
}

impl ClaimLimits {
    /// Allows followers: on these rails, if they are ordered, at most this many rows may follow another row of the same
    /// claim. The worker must dispatch the rows of a participant one after the other, and release the rest when one does
    /// not end as DISPATCHED. [`ClaimedBatch::run_rails`](super::ClaimedBatch::run_rails) has the rails with followers.
    #[must_use]
    pub fn with_followers(mut self, followers: impl IntoIterator<Item = (String, u32)>) -> Self {
        self.followers = followers.into_iter().collect();
        self
    }

    /// Says where this worker sends to on each rail: a name of the bank there. The ledger keeps it with each attempt, however
    /// the lease ends. See [`Advice::other_endpoint`](super::Advice::other_endpoint).
    #[must_use]
    pub fn with_endpoints(mut self, endpoints: Arc<BTreeMap<String, String>>) -> Self {
        self.endpoints = endpoints;
        self
    }

    /// Of these rails the claim returns only payments that have not been attempted, the newest first. With a limit of
    /// one, such a payment shows whether a failing rail works again.
    #[must_use]
    pub fn with_first_attempts(mut self, rails: impl IntoIterator<Item = String>) -> Self {
        self.first_attempts = rails.into_iter().collect();
        self
    }

    /// As the argument `p_limits` of the database's functions.
    pub(super) fn to_limits(&self) -> Json<&BTreeMap<String, u32>> {
        Json(&self.rows)
    }

    /// As the argument `p_followers` of a claim.
    pub(super) fn to_followers(&self) -> Option<Json<&BTreeMap<String, u32>>> {
        (!self.followers.is_empty()).then_some(Json(&self.followers))
    }

    /// As the argument `p_endpoints` of a claim.
    pub(super) fn to_endpoints(&self) -> Option<Json<&BTreeMap<String, String>>> {
        (!self.endpoints.is_empty()).then(|| Json(&*self.endpoints))
    }

    /// As the argument `p_first_attempts` of a claim.
    pub(super) fn to_first_attempts(&self) -> Option<&[String]> {
        (!self.first_attempts.is_empty()).then_some(&*self.first_attempts)
    }
}

impl FromIterator<(String, u32)> for ClaimLimits {
    fn from_iter<T: IntoIterator<Item = (String, u32)>>(limits: T) -> Self {
        Self { rows: limits.into_iter().collect(), ..Self::default() }
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
