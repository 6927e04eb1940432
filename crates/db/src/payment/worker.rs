//! The calls of a worker: claim, complete, confirm, renew, release, repair, and the upkeep of the ledger.
//!
//! Each call is one transaction: run it on a client, not inside a transaction. The login needs the role
//! `symphony_executor`. When to claim, and what a rail's answer means, is the worker's decision.
//!
//! The SQL casts states to text, because for a type of the schema the driver would send further statements to look it
//! up.

mod advice;
mod claim;
mod complete;
mod confirm;
mod history;
mod leases;
mod ledger;
mod orphan;
mod schedule;
mod traces;

use std::time::Duration;

use uuid::Uuid;

use super::Lease;

pub use advice::{Advice, advise_on_unknown_outcome};
pub use claim::{Claimed, ClaimedBatch, claim, claim_with_limits};
pub use complete::{complete, complete_batch};
pub use confirm::{Confirmation, Confirmed, confirm};
pub use history::{CheckedHistory, Commit, check_history};
pub use leases::{Released, Renewed, Repaired, quarantined_total, release, renew, repair, repair_all};
pub use ledger::{LedgerExtension, extend_ledger};
pub use orphan::{Identity, Orphan, record_orphan};
pub use schedule::{ClaimLimits, next_due};
pub use traces::trace_contexts;

fn columns(leases: impl Iterator<Item = Lease>) -> (Vec<Uuid>, Vec<Uuid>) {
    leases.map(|lease| (lease.outbox_id.0, lease.token.0)).unzip()
}

/// Rounded up, so that no lease ends and no retry starts early. The database refuses what does not fit an int.
fn whole_seconds(duration: Duration) -> i32 {
    let up = u64::from(duration.subsec_nanos() > 0);
    i32::try_from(duration.as_secs().saturating_add(up)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_second_counts_as_a_whole_one() {
        assert_eq!(whole_seconds(Duration::ZERO), 0);
        assert_eq!(whole_seconds(Duration::from_nanos(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(2)), 2);
        assert_eq!(whole_seconds(Duration::MAX), i32::MAX);
    }
}
