//! Tells the engine what became of leases and completions, and logs the payments that ended as FAILED.

use symphony_db::OutboxId;
use symphony_db::error::{CompleteError, DatabaseError};
use symphony_db::payment::worker;
use symphony_db::payment::{AttemptState, Completed};

use super::run::RunEnd;
use crate::lane::{CompletionResult, LaneError, Repaired};

/// The error code of a payment whose lease expired.
const LEASE_EXPIRED: &str = "LEASE_EXPIRED";

/// Counts the expired leases that were requeued or ended, and logs each payment that ended.
pub(super) fn ended_leases(leases: &[worker::Repaired]) -> Repaired {
    let mut all = Repaired::default();
    for lease in leases {
        if lease.state == AttemptState::Failed {
            all.ended += 1;
            log_failed(lease.outbox_id, &lease.rail_type, LEASE_EXPIRED);
        } else {
            all.requeued += 1;
        }
        *all.attempts.entry((lease.rail_type.clone(), lease.state.as_str())).or_insert(0) += 1;
        all.lost_workers.insert(lease.lost_worker.to_string());
    }
    all
}

/// Logs the line that alert rules match, one per payment that ends as FAILED. It contains ids and error codes only.
pub(super) fn log_failed(outbox_id: OutboxId, rail: &str, error_code: &str) {
    tracing::warn!(event = "PAYMENT_FAILED", %outbox_id, rail, error_code, "a payment ended as FAILED");
}

pub(super) fn completion_result(
    result: Result<Completed, CompleteError>,
    run: Option<&RunEnd>,
) -> CompletionResult {
    if let (Err(_), Some(run)) = (&result, run) {
        run.stop();
    }
    match result {
        Ok(completed) => CompletionResult::Recorded {
            state: completed.state.as_str(),
            retry_scheduled: completed.next_attempt_at.is_some(),
            unblocks_rows: completed.state == AttemptState::Dispatched && run.is_some_and(RunEnd::is_last),
        },
        Err(CompleteError::LeaseLost(_)) => CompletionResult::LeaseLost,
        Err(CompleteError::AlreadyTerminal(_)) => CompletionResult::AlreadyTerminal,
        Err(CompleteError::Database(DatabaseError::TerminalBackstop(_))) => CompletionResult::Backstop,
        Err(
            error @ (CompleteError::InvalidState(_)
            | CompleteError::NotFound(_)
            | CompleteError::InvalidArgument(_)
            | CompleteError::Database(_)),
        ) => CompletionResult::Refused(LaneError::from(error).to_string()),
    }
}
