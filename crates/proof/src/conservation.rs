//! Conservation: every lease that was ever granted is live, released or in the ledger.

use super::evidence::{Evidence, Failure, Recorder};
use super::seeded_rng::{rerun_hint, seed};
use super::sessions::{Sessions, count};
use super::workload::{self, ledger_rows};
use symphony_testkit::test_database::Database;

/// Proof 4: `every_lease_ever_granted_is_accounted_for`.
pub(super) async fn holds(database: &Database) -> Result<Evidence, Failure> {
    let seed = seed();
    let tally = workload::run(database, seed).await?;
    let mut recorder = Recorder::default();
    let owner = Sessions::connect(database).await?.owner;
    let live = "select count(*) from symphony.payment_outbox_pending where lease_token is not null";
    let live = count(&owner, live, &[]).await?;
    // Neither a confirmation of the bank nor a cancellation is a lease: without one its row has no time of a claim.
    let ledger = "select count(*) from symphony.payment_outbox_attempts where claimed_at is not null";
    let ledger = count(&owner, ledger, &[]).await?;
    let cancelled = "select count(*) from symphony.payment_outbox_attempts where error_code = 'CANCELLED'";
    let cancelled = count(&owner, cancelled, &[]).await?;
    recorder.check_equal("counting the cancellations in the ledger", "cancelled", tally.cancelled, cancelled)?;

    let tried = format!(
        "a random workload of 6 workers, with {} expired leases, {} calls with a lost lease, {} confirmations of the bank, {} redrives and {} cancellations ({})",
        tally.expired,
        tally.lost,
        tally.confirmed,
        tally.redriven,
        tally.cancelled,
        rerun_hint(seed)
    );
    recorder.check(
        tried,
        "leases granted = live + released + rows in the ledger that have ended a lease",
        format!("{} granted = {live} live + {} released + {ledger} in the ledger", tally.granted, tally.released),
        tally.granted == live + tally.released + ledger,
    )?;
    let different = i64::try_from(tally.tokens.len()).unwrap_or_default();
    recorder.check_equal("comparing the tokens of all leases", "different tokens", tally.granted, different)?;

    // Expired leases end without a completion, as ZOMBIE_REQUEUE or FAILED.
    let expired = "select count(*) from symphony.payment_outbox_attempts where error_code = 'LEASE_EXPIRED'";
    let expired = count(&owner, expired, &[]).await?;
    let confirmations = "select count(*), count(*) filter (where claimed_at is not null)
                         from symphony.payment_outbox_attempts where confirmation_id is not null";
    let confirmations = owner.query_one(confirmations, &[]).await?;
    let (confirmed, with_lease): (i64, i64) = (confirmations.get(0), confirmations.get(1));
    recorder.check_equal(
        "counting the ledger rows of confirmations",
        "payments that confirmations settled",
        tally.confirmed,
        confirmed,
    )?;
    recorder.check_equal(
        "counting the ledger rows of leases that neither an expiry nor a confirmation explains",
        "outcomes that completions returned as recorded",
        tally.recorded,
        ledger - expired - with_lease,
    )?;
    let twice = "select count(*) from (select from symphony.payment_outbox_attempts where claimed_at is not null group by outbox_id, claimed_at, worker_id
                 having count(*) > 1) d";
    recorder.check_equal(
        "looking for a lease with two ledger rows",
        "leases",
        0,
        count(&owner, twice, &[]).await?,
    )?;

    // A workload that missed a case would prove less than it claims.
    let mut seen = vec![
        ("released", tally.released),
        ("repaired", tally.repaired),
        ("lease lost", tally.lost),
        ("confirmed without a lease", confirmed - with_lease),
    ];
    for state in ["DISPATCHED", "FAILED", "RETRYABLE", "ZOMBIE_REQUEUE"] {
        seen.push((state, ledger_rows(&owner, state).await?));
    }
    let words: Vec<String> = seen.iter().map(|(what, number)| format!("{what} {number}")).collect();
    recorder.check(
        "counting the cases of the workload",
        "each of them at least once",
        words.join(", "),
        seen.iter().all(|(_, number)| *number > 0),
    )?;
    Ok(recorder.finish())
}
