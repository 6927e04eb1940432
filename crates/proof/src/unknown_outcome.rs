//! A payment with an unknown outcome is not redriven before an operator resolves it as NOT_PAID.

use super::clock::expire;
use super::evidence::{Evidence, Failure, Recorder, describe, require};
use super::sessions::{
    Enqueued, Outcome, Payment, Sessions, claim, complete, count, enqueue, redrive, repair, resolve, set_rail,
};
use symphony_testkit::test_database::Database;

/// How an outbox ends with an unknown outcome.
const WAYS: [&str; 4] =
    ["reported", "reported at max_attempts", "repaired at max_attempts", "taken over at max_attempts"];

/// Proof 18: `an_unknown_outcome_is_not_redriven_before_it_is_resolved_as_not_paid`.
pub(super) async fn waits_for_an_operator(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "bank", r#"{"max_attempts": 1}"#).await?;
    for way in WAYS {
        let first = of_unknown_outcome(&sessions, way, "not paid").await?;
        let refused = redrive(&sessions.operator, &first).await;
        recorder.check_refused(
            format!("redriving an unknown outcome ({way}) before it is resolved"),
            "P7003",
            refused,
        )?;
        let refused = resolve(&sessions.operator, &first, "SKIPPED").await;
        recorder.check_refused(format!("skipping an unknown outcome ({way})"), "P7003", refused)?;
        resolve(&sessions.operator, &first, "NOT_PAID").await?;
        let again = redrive(&sessions.operator, &first).await?;
        redrive_keeps_the_payment(&sessions, &mut recorder, &first, &again, way).await?;
        let refused = redrive(&sessions.operator, &first).await;
        recorder.check_refused(
            "redriving the same failure again while that redrive is pending",
            "P7003",
            refused,
        )?;
        let refused = redrive(&sessions.operator, &again.outbox_id).await;
        recorder.check_refused("redriving the redrive while it is pending", "P7003", refused)?;
        let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
        complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
        let refused = redrive(&sessions.operator, &first).await;
        recorder.check_refused(
            "redriving the same failure again after its redrive was dispatched",
            "P7003",
            refused,
        )?;
        let refused = redrive(&sessions.operator, &again.outbox_id).await;
        recorder.check_refused("redriving the redrive that was dispatched", "P7003", refused)?;

        let paid = of_unknown_outcome(&sessions, way, "paid").await?;
        resolve(&sessions.operator, &paid, "PAID").await?;
        let refused = redrive(&sessions.operator, &paid).await;
        recorder.check_refused(
            format!("redriving an unknown outcome ({way}) that was resolved as PAID"),
            "P7003",
            refused,
        )?;
        let refused = resolve(&sessions.operator, &paid, "NOT_PAID").await;
        recorder.check_refused("resolving it as NOT_PAID after all", "P7003", refused)?;

        let corrected = of_unknown_outcome(&sessions, way, "corrected").await?;
        resolve(&sessions.operator, &corrected, "NOT_PAID").await?;
        resolve(&sessions.operator, &corrected, "PAID").await?;
        let refused = redrive(&sessions.operator, &corrected).await;
        recorder.check_refused(
            "redriving an outbox whose resolution was corrected from NOT_PAID to PAID",
            "P7003",
            refused,
        )?;
    }
    known_failures(&sessions, &mut recorder).await?;
    old_snapshots(database, &sessions, &mut recorder).await?;
    let rows = count(&sessions.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    recorder.check_equal("counting the rows of the refused redrives", "rows in pending", 0, rows)?;
    Ok(recorder.finish())
}

/// An outbox that has ended with an unknown outcome.
async fn of_unknown_outcome(sessions: &Sessions, way: &str, name: &str) -> Result<String, Failure> {
    let outbox_id =
        enqueue(&sessions.ingest, &Payment::new(format!("{way} {name}"), "alice", "bank")).await?.outbox_id;
    let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
    match way {
        "reported" => drop(complete(&sessions.executor, &lease, Outcome::UNKNOWN).await?),
        "reported at max_attempts" => {
            let unknown = Outcome { error_code: Some("OUTCOME_UNKNOWN"), ..Outcome::RETRYABLE };
            complete(&sessions.executor, &lease, unknown).await?;
        }
        "repaired at max_attempts" => {
            expire(&sessions.owner, &outbox_id).await?;
            repair(&sessions.executor, 10).await?;
        }
        _ => {
            expire(&sessions.owner, &outbox_id).await?;
            claim(&sessions.executor, 10, "next").await?;
        }
    }
    let first =
        "select count(*) from symphony.payment_outbox_dlq where outbox_id = $1::text::uuid and outcome_unknown";
    require(
        || format!("finding it among the dead letters ({way})"),
        1,
        count(&sessions.operator, first, &[&outbox_id]).await?,
    )?;
    Ok(outbox_id)
}

async fn redrive_keeps_the_payment(
    sessions: &Sessions,
    recorder: &mut Recorder,
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
    let kept = count(&sessions.owner, kept, &[&again.outbox_id, &first, &again.sequence_id]).await?;
    let written = "select count(*) from symphony.payment_outbox_operations_log
                   where operation = 'REDRIVE' and outbox_id = $1::text::uuid and new_outbox_id = $2::text::uuid and actor = 'operator'";
    let written = count(&sessions.operator, written, &[&first, &again.outbox_id]).await?;
    recorder.check(
        format!("redriving it ({way}) after it was resolved as NOT_PAID"),
        "1 new outbox with the same key and a new sequence number, 1 row in the audit log",
        format!("{kept} new outbox, {written} row"),
        kept == 1 && written == 1,
    )
}

/// Only a failure can be redriven; a failure with a known outcome needs no resolution.
async fn known_failures(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let pending = enqueue(&sessions.ingest, &Payment::new("pending", "bob", "bank")).await?.outbox_id;
    recorder.check_refused("redriving a pending outbox", "P7003", redrive(&sessions.operator, &pending).await)?;
    let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
    recorder.check_refused("redriving a leased outbox", "P7003", redrive(&sessions.operator, &pending).await)?;
    complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
    recorder.check_refused(
        "redriving a dispatched outbox",
        "P7003",
        redrive(&sessions.operator, &pending).await,
    )?;
    recorder.check_refused(
        "resolving a dispatched outbox",
        "P7003",
        resolve(&sessions.operator, &pending, "PAID").await,
    )?;
    let unknown_id = "00000000-0000-7000-8000-000000000000";
    recorder.check_refused(
        "redriving an outbox that does not exist",
        "P7005",
        redrive(&sessions.operator, unknown_id).await,
    )?;

    for resolution in ["PAID", "SKIPPED"] {
        let resolved = enqueue(&sessions.ingest, &Payment::new(resolution, "bob", "bank")).await?.outbox_id;
        let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
        complete(&sessions.executor, &lease, Outcome::REJECTED).await?;
        resolve(&sessions.operator, &resolved, resolution).await?;
        let refused = redrive(&sessions.operator, &resolved).await;
        recorder.check_refused(
            format!("redriving a failure that the bank reported, resolved as {resolution}"),
            "P7003",
            refused,
        )?;
    }
    let rejected = enqueue(&sessions.ingest, &Payment::new("rejected", "bob", "bank")).await?.outbox_id;
    let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
    complete(&sessions.executor, &lease, Outcome::REJECTED).await?;
    let again = redrive(&sessions.operator, &rejected).await?;
    let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
    recorder.check(
        "redriving a failure that the bank reported",
        "claimed under the same idempotency key",
        format!("key {}", lease.key),
        lease.outbox_id == again.outbox_id && lease.key == "key-rejected",
    )?;
    complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
    Ok(())
}

/// An operator with an older snapshot must not redrive a payment that was resolved as PAID or redriven since.
async fn old_snapshots(database: &Database, sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for (what, name) in [("resolved as PAID", "paid meanwhile"), ("redriven and dispatched", "redriven meanwhile")]
    {
        let outbox_id = of_unknown_outcome(sessions, "reported", name).await?;
        resolve(&sessions.operator, &outbox_id, "NOT_PAID").await?;
        let late = database.connect_as("symphony_operator").await?;
        late.batch_execute("begin isolation level repeatable read; select from symphony.payment_outbox_dlq")
            .await?;
        if name == "paid meanwhile" {
            resolve(&sessions.operator, &outbox_id, "PAID").await?;
        } else {
            redrive(&sessions.operator, &outbox_id).await?;
            let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
            complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
        }
        let result = redrive(&late, &outbox_id).await;
        late.batch_execute("rollback").await?;
        recorder.check(
            format!("redriving, in a REPEATABLE READ transaction, what was {what} after it began"),
            "refused",
            result.as_ref().err().map_or("allowed".into(), describe),
            result.is_err(),
        )?;
    }
    Ok(())
}
