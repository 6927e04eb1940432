//! Removes what is past its retention, in the repair pass of each lane. By default nothing is.

use std::time::Duration;

use symphony_db::connect::Session;
use symphony_db::error::ClaimError;
use tokio::time::timeout;

use crate::session_pool::SessionPool;

/// The rows that a pass removes at most. `symphony maintain` removes the rest.
const MAX_REMOVED_PER_PASS: i32 = 1_000;
/// The timeout of a removal. It is within the engine's timeout of a repair.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Removes a batch and logs how many rows that were. A failure can wait for the next pass.
pub(crate) async fn remove(
    what: &'static str,
    pool: &SessionPool,
    batch: impl AsyncFnOnce(&Session, i32) -> Result<i64, ClaimError>,
) {
    let removal = pool.call(async |session| batch(session, MAX_REMOVED_PER_PASS).await);
    match timeout(REMOVAL_TIMEOUT, removal).await {
        Ok(Ok(0)) => {}
        Ok(Ok(removed)) => tracing::info!(removed, what, "removed past their retention"),
        Ok(Err(error)) => tracing::warn!(%error, what, "cannot remove what is past its retention"),
        Err(_) => tracing::warn!(what, after = ?REMOVAL_TIMEOUT, "removing what is past its retention timed out"),
    }
}
