//! A payment of which nobody knows whether it was made is not made again before a person has found out.

use super::clock::expire;
use super::crew::{
    Crew, Enqueued, Order, Outcome, claim, complete, count, enqueue, redrive, repair, resolve, set_rail,
};
use super::evidence::{Evidence, Failure, Trial, require, words};
use crate::kit::scratch::Database;

/// How an outbox came to its end without anybody knowing whether it was paid.
const WAYS: [&str; 4] = ["told", "told at the ceiling", "repaired at the ceiling", "taken over at the ceiling"];

/// Proof 18.
pub(super) async fn waits_for_a_person(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    let crew = Crew::hire(database).await?;
    set_rail(&crew.operator, "bank", r#"{"max_attempts": 1}"#).await?;
    for way in WAYS {
        let first = of_unknown_outcome(&crew, way, "not paid").await?;
        let refused = redrive(&crew.operator, &first).await;
        trial.refused(format!("redriving an unknown outcome ({way}) before it is resolved"), "P7003", refused)?;
        let refused = resolve(&crew.operator, &first, "SKIPPED").await;
        trial.refused(format!("skipping an unknown outcome ({way})"), "P7003", refused)?;
        resolve(&crew.operator, &first, "NOT_PAID").await?;
        let again = redrive(&crew.operator, &first).await?;
        keeps_what_it_was(&crew, &mut trial, &first, &again, way).await?;
        let refused = redrive(&crew.operator, &first).await;
        trial.refused("redriving the same failure again while that redrive is pending", "P7003", refused)?;
        let refused = redrive(&crew.operator, &again.outbox_id).await;
        trial.refused("redriving the redrive while it is pending", "P7003", refused)?;
        let lease = claim(&crew.executor, 1, "worker").await?.remove(0);
        complete(&crew.executor, &lease, Outcome::DISPATCHED).await?;
        let refused = redrive(&crew.operator, &first).await;
        trial.refused("redriving the same failure again after its redrive was dispatched", "P7003", refused)?;
        let refused = redrive(&crew.operator, &again.outbox_id).await;
        trial.refused("redriving the redrive that was dispatched", "P7003", refused)?;

        let paid = of_unknown_outcome(&crew, way, "paid").await?;
        resolve(&crew.operator, &paid, "PAID").await?;
        let refused = redrive(&crew.operator, &paid).await;
        trial.refused(
            format!("redriving an unknown outcome ({way}) that was resolved as PAID"),
            "P7003",
            refused,
        )?;
        let refused = resolve(&crew.operator, &paid, "NOT_PAID").await;
        trial.refused("resolving it as NOT_PAID after all", "P7003", refused)?;

        let corrected = of_unknown_outcome(&crew, way, "corrected").await?;
        resolve(&crew.operator, &corrected, "NOT_PAID").await?;
        resolve(&crew.operator, &corrected, "PAID").await?;
        let refused = redrive(&crew.operator, &corrected).await;
        trial.refused("redriving what was corrected from NOT_PAID to PAID", "P7003", refused)?;
    }
    known_failures(&crew, &mut trial).await?;
    old_snapshots(database, &crew, &mut trial).await?;
    let rows = count(&crew.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    trial.same("looking for what the refused redrives left", "rows in pending", 0, rows)?;
    Ok(trial.evidence())
}

/// An outbox that has ended, and nobody knows how.
async fn of_unknown_outcome(crew: &Crew, way: &str, name: &str) -> Result<String, Failure> {
    let outbox_id = enqueue(&crew.ingest, &Order::new(format!("{way} {name}"), "alice", "bank")).await?.outbox_id;
    let lease = claim(&crew.executor, 1, "worker").await?.remove(0);
    match way {
        "told" => drop(complete(&crew.executor, &lease, Outcome::UNKNOWN).await?),
        "told at the ceiling" => {
            let unknown = Outcome { error_code: Some("OUTCOME_UNKNOWN"), ..Outcome::RETRYABLE };
            complete(&crew.executor, &lease, unknown).await?;
        }
        "repaired at the ceiling" => {
            expire(&crew.owner, &outbox_id).await?;
            repair(&crew.executor, 10).await?;
        }
        _ => {
            expire(&crew.owner, &outbox_id).await?;
            claim(&crew.executor, 10, "next").await?;
        }
    }
    let first =
        "select count(*) from symphony.payment_outbox_dlq where outbox_id = $1::text::uuid and outcome_unknown";
    require(
        || format!("finding it among the dead letters ({way})"),
        1,
        count(&crew.operator, first, &[&outbox_id]).await?,
    )?;
    Ok(outbox_id)
}

async fn keeps_what_it_was(
    crew: &Crew,
    trial: &mut Trial,
    first: &str,
    again: &Enqueued,
    way: &str,
) -> Result<(), Failure> {
    let kept = "select count(*)
                from symphony.payment_outbox_pending p
                join symphony.payment_outbox_attempts a on a.outbox_id = p.redrive_of and a.state = 'FAILED'
                where p.outbox_id = $1::text::uuid and a.outbox_id = $2::text::uuid and p.outbox_id <> a.outbox_id
                  and (p.instruction_id, p.participant_id, p.idempotency_key, p.rail_type, p.payload::jsonb)
                      = (a.instruction_id, a.participant_id, a.idempotency_key, a.rail_type, a.payload)
                  and p.sequence_id > a.sequence_id and p.sequence_id = $3 and p.attempt_count = 0";
    let kept = count(&crew.owner, kept, &[&again.outbox_id, &first, &again.sequence_id]).await?;
    let written = "select count(*) from symphony.payment_outbox_operations_log
                   where operation = 'REDRIVE' and outbox_id = $1::text::uuid and new_outbox_id = $2::text::uuid and actor = 'operator'";
    let written = count(&crew.operator, written, &[&first, &again.outbox_id]).await?;
    trial.holds(
        format!("redriving it ({way}) after it was resolved as NOT_PAID"),
        "1 new outbox with the same key and a new number, 1 line in the log of operations",
        format!("{kept} new outbox, {written} line"),
        kept == 1 && written == 1,
    )
}

/// What is not a failure cannot be redriven; a failure that is known needs nobody's word.
async fn known_failures(crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    let pending = enqueue(&crew.ingest, &Order::new("pending", "bob", "bank")).await?.outbox_id;
    trial.refused("redriving what is pending", "P7003", redrive(&crew.operator, &pending).await)?;
    let lease = claim(&crew.executor, 1, "worker").await?.remove(0);
    trial.refused("redriving what is leased", "P7003", redrive(&crew.operator, &pending).await)?;
    complete(&crew.executor, &lease, Outcome::DISPATCHED).await?;
    trial.refused("redriving what was dispatched", "P7003", redrive(&crew.operator, &pending).await)?;
    trial.refused("resolving what was dispatched", "P7003", resolve(&crew.operator, &pending, "PAID").await)?;
    let nobody = "00000000-0000-7000-8000-000000000000";
    trial.refused("redriving what never was", "P7005", redrive(&crew.operator, nobody).await)?;

    for resolution in ["PAID", "SKIPPED"] {
        let let_be = enqueue(&crew.ingest, &Order::new(resolution, "bob", "bank")).await?.outbox_id;
        let lease = claim(&crew.executor, 1, "worker").await?.remove(0);
        complete(&crew.executor, &lease, Outcome::REJECTED).await?;
        resolve(&crew.operator, &let_be, resolution).await?;
        let refused = redrive(&crew.operator, &let_be).await;
        trial.refused(
            format!("redriving a failure that the rail has told, resolved as {resolution}"),
            "P7003",
            refused,
        )?;
    }
    let rejected = enqueue(&crew.ingest, &Order::new("rejected", "bob", "bank")).await?.outbox_id;
    let lease = claim(&crew.executor, 1, "worker").await?.remove(0);
    complete(&crew.executor, &lease, Outcome::REJECTED).await?;
    let again = redrive(&crew.operator, &rejected).await?;
    let lease = claim(&crew.executor, 1, "worker").await?.remove(0);
    trial.holds(
        "redriving a failure that the rail has told",
        "handed out under the key it had",
        format!("key {}", lease.key),
        lease.outbox_id == again.outbox_id && lease.key == "key-rejected",
    )?;
    complete(&crew.executor, &lease, Outcome::DISPATCHED).await?;
    Ok(())
}

/// An operator whose transaction began before a payment was found PAID, or was redriven, must not act on what it saw.
async fn old_snapshots(database: &Database, crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    for (what, name) in [("found to be PAID", "paid meanwhile"), ("redriven and dispatched", "redriven meanwhile")]
    {
        let outbox_id = of_unknown_outcome(crew, "told", name).await?;
        resolve(&crew.operator, &outbox_id, "NOT_PAID").await?;
        let late = database.connect_as("symphony_operator").await?;
        late.batch_execute("begin isolation level repeatable read; select from symphony.payment_outbox_dlq")
            .await?;
        if name == "paid meanwhile" {
            resolve(&crew.operator, &outbox_id, "PAID").await?;
        } else {
            redrive(&crew.operator, &outbox_id).await?;
            let lease = claim(&crew.executor, 1, "worker").await?.remove(0);
            complete(&crew.executor, &lease, Outcome::DISPATCHED).await?;
        }
        let result = redrive(&late, &outbox_id).await;
        late.batch_execute("rollback").await?;
        trial.holds(
            format!("redriving, in a REPEATABLE READ transaction, what was {what} after it began"),
            "refused",
            result.as_ref().err().map_or("it was allowed".into(), words),
            result.is_err(),
        )?;
    }
    Ok(())
}
