//! Asks the database for the last commits that it has acknowledged to this worker.

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Claimed, whole_seconds};
use crate::epoch::{OpenedEpoch, opened_epoch};
use crate::error::ClaimError;
use crate::executor::Executor;
use crate::payment::Lease;
use crate::{LeaseToken, OutboxId, WorkerId};

/// The setting is of the same transaction as the call.
const CHECK: &str = "\
    select h.epoch, current_setting('symphony.opened_epoch', true) as opened_epoch \
    from symphony.check_worker_history($1, $2, $3, $4, $5) as h (epoch)";

/// A commit that the database has acknowledged: a claim, or a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Commit {
    /// An outbox that it leased or completed.
    pub outbox_id: OutboxId,
    /// When its lease was granted, by the clock of the database.
    pub claimed_at: Timestamp,
    /// The token of a claim, whose lease may still be live; none for a completion.
    pub lease_token: Option<LeaseToken>,
}

impl Commit {
    /// The claim that granted this lease, whose length was given then.
    #[must_use]
    pub fn of_claim(claimed: &Claimed, lease: Duration) -> Self {
        let length = Duration::from_secs(u64::try_from(whole_seconds(lease)).unwrap_or_default());
        Self {
            outbox_id: claimed.outbox_id,
            claimed_at: claimed.lease_expires_at - length,
            lease_token: Some(claimed.lease_token),
        }
    }

    /// The completion of its lease.
    #[must_use]
    pub fn completed(self) -> Self {
        Self { lease_token: None, ..self }
    }

    /// Whether it is the claim that granted this lease.
    #[must_use]
    pub fn granted(&self, lease: &Lease) -> bool {
        self.lease_token == Some(lease.token)
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedHistory {
    /// The current epoch. A worker that has seen a higher one must not work on this server: it may be an old primary.
    pub epoch: i64,
    /// The epoch that the check opened, because a commit is missing or the server is another one.
    pub opened_epoch: Option<OpenedEpoch>,
}

/// Checks that these commits of the worker are there, and opens a new epoch if one is not. `epoch` is the newest that the
/// worker has seen.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn check_history(
    client: &impl Executor,
    worker: &WorkerId,
    epoch: Option<i64>,
    commits: &[Commit],
) -> Result<CheckedHistory, ClaimError> {
    let outbox_ids: Vec<Uuid> = commits.iter().map(|commit| commit.outbox_id.0).collect();
    let claimed_ats: Vec<Timestamp> = commits.iter().map(|commit| commit.claimed_at).collect();
    let tokens: Vec<Option<Uuid>> = commits.iter().map(|commit| commit.lease_token.map(|token| token.0)).collect();
    let row = client
        .fetch_one(
            CHECK,
            &[
                (&worker.as_str(), Type::TEXT),
                (&epoch, Type::INT8),
                (&outbox_ids, Type::UUID_ARRAY),
                (&claimed_ats, Type::TIMESTAMPTZ_ARRAY),
                (&tokens, Type::UUID_ARRAY),
            ],
        )
        .await?;
    Ok(CheckedHistory { epoch: row.try_get("epoch")?, opened_epoch: opened_epoch(row.try_get("opened_epoch")?) })
}
