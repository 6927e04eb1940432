//! A claim that waits in vain for a synchronous standby: none of its payments is sent, and its leases are released.
//!
//! A failover may lose such a claim, and with it the record that its payments were sent: so they are not. A lease that nothing
//! was sent under must not use up an attempt either. If it expired, it would. So the wait is cancelled while the leases
//! live, and they are released. That release is not replicated either, and need not be: what a failover loses of
//! both is a claim that never was.

use std::pin::pin;
use std::time::Duration;

use symphony_db::connect::{Session, Target};
use symphony_db::payment::worker::{self, Claimed};
use symphony_db::{WorkerId, payment};
use tokio::time::{Instant, timeout_at};

use super::MAX_LEASES_PER_CALL;
use crate::lane::LaneError;

/// When a claim that is requested now is cancelled: after two thirds of the lease. Until its end the engine waits for the claim,
/// also while that waits for a session.
pub(super) fn claim_deadline(lease: Duration) -> Instant {
    Instant::now() + lease * 2 / 3
}

/// Releases the leases of such a claim, on its session because others may be waiting too, and returns its error. Half of what
/// is left of the leases is time enough for the call.
pub(super) async fn release(
    target: &Target,
    session: &Session,
    worker: &WorkerId,
    lease: Duration,
    claimed: &[Claimed],
) -> LaneError {
    tracing::error!(
        event = "CLAIM_NOT_REPLICATED",
        rows = claimed.len(),
        "the wait of a claim for the synchronous standby was cancelled: its payments are not sent, its leases are released"
    );
    let leases: Vec<payment::Lease> = claimed.iter().map(Claimed::lease).collect();
    for part in leases.chunks(MAX_LEASES_PER_CALL) {
        let release = worker::release(session, worker, part, None);
        if let Err(error) = cancel_at(Instant::now() + lease / 6, target, session, release).await {
            let error = LaneError::from(error);
            tracing::warn!(%error, "leases of a claim that was not replicated were not released: they expire");
        }
    }
    LaneError::Unavailable("the claim was not replicated to the synchronous standby".to_owned())
}

/// Makes a call, and asks the server to cancel it at this time: a call that waits for its commit returns its result then,
/// and one that is still executed fails.
pub(super) async fn cancel_at<T>(
    deadline: Instant,
    target: &Target,
    session: &Session,
    call: impl Future<Output = T>,
) -> T {
    let mut call = pin!(call);
    match timeout_at(deadline, &mut call).await {
        Ok(result) => result,
        Err(_) => tokio::join!(call, target.cancel(session.client())).0,
    }
}
