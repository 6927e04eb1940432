//! Conservation: no lease that was ever granted is unaccounted for.

use super::crew::{Crew, count};
use super::dice::{repeat, seed};
use super::evidence::{Evidence, Failure, Trial};
use super::mix::{self, ledger_rows};
use crate::kit::scratch::Database;

/// Proof 4.
pub(super) async fn holds(database: &Database) -> Result<Evidence, Failure> {
    let seed = seed();
    let tally = mix::run(database, seed).await?;
    let mut trial = Trial::default();
    let owner = Crew::hire(database).await?.owner;
    let live = "select count(*) from symphony.payment_outbox_pending where lease_token is not null";
    let live = count(&owner, live, &[]).await?;
    let ledger = count(&owner, "select count(*) from symphony.payment_outbox_attempts", &[]).await?;

    let tried = format!(
        "a random mix by 6 workers, in which {} leases were left to run out, {} moves came too late and {} failures \
         were tried again ({})",
        tally.expired,
        tally.lost,
        tally.redriven,
        repeat(seed)
    );
    trial.holds(
        tried,
        "leases granted = live + given back + rows in the ledger",
        format!(
            "{} granted = {live} live + {} given back + {ledger} in the ledger",
            tally.granted, tally.given_back
        ),
        tally.granted == live + tally.given_back + ledger,
    )?;
    let different = i64::try_from(tally.tokens.len()).unwrap_or_default();
    trial.same("comparing the tokens of all leases", "different tokens", tally.granted, different)?;

    // Expired leases end without a completion: as zombies, or at the ceiling.
    let expired = "select count(*) from symphony.payment_outbox_attempts where error_code = 'LEASE_EXPIRED'";
    let expired = count(&owner, expired, &[]).await?;
    trial.same(
        "counting the ledger rows that no expiry explains",
        "outcomes that workers were told were recorded",
        tally.recorded,
        ledger - expired,
    )?;
    let twice = "select count(*) from (select from symphony.payment_outbox_attempts group by outbox_id, claimed_at, worker_id
                 having count(*) > 1) d";
    trial.same("looking for a lease with two ledger rows", "leases", 0, count(&owner, twice, &[]).await?)?;

    // A mix that did not do everything would prove less than it says.
    let mut seen = vec![("given back", tally.given_back), ("repaired", tally.repaired), ("too late", tally.lost)];
    for state in ["DISPATCHED", "FAILED", "RETRYABLE", "ZOMBIE_REQUEUE"] {
        seen.push((state, ledger_rows(&owner, state).await?));
    }
    let words: Vec<String> = seen.iter().map(|(what, number)| format!("{what} {number}")).collect();
    trial.holds(
        "counting what the mix did",
        "each of them at least once",
        words.join(", "),
        seen.iter().all(|(_, number)| *number > 0),
    )?;
    Ok(trial.evidence())
}
