//! What a worker asks of the database: leases, and to record how they ended.
//!
//! Every call is a transaction of its own; run them on a client, not inside a transaction. For a login with the
//! role `symphony_executor`. Knows no rail and decides nothing: not when to claim, nor what an answer means.
//!
//! Where a result has a state, the SQL casts it to text: for a type of the schema the driver would first ask the
//! server what it is, by statements of its own.

mod advice;
mod claim;
mod complete;
mod leases;
mod schedule;
mod traces;

use std::time::Duration;

use uuid::Uuid;

use super::Lease;

pub use advice::{Advice, advise_on_unknown_outcome};
pub use claim::{Claimed, ClaimedBatch, claim, claim_within};
pub use complete::{complete, complete_batch};
pub use leases::{Released, Renewed, Repaired, quarantined_total, release, renew, repair};
pub use schedule::{Rooms, next_due};
pub use traces::trace_contexts;

fn columns(leases: impl Iterator<Item = Lease>) -> (Vec<Uuid>, Vec<Uuid>) {
    leases.map(|lease| (lease.outbox_id.0, lease.token.0)).unzip()
}

/// Rounded up, so that nothing ends or starts before it was meant to. What no int can hold is far outside the
/// ranges of the database, which refuses it.
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
