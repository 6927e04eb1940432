//! Payments of an earlier epoch: their outcome is unknown until an attempt that was leased in the current one.

use super::clock::{expire, make_due};
use super::evidence::{Evidence, Failure, Recorder, require};
use super::sessions::{
    Lease, Outcome, Payment, Sessions, claim, claim_with_followers, complete, count, enqueue, redrive, release,
    repair, set_rail,
};
use symphony_testkit::epoch::change_server;
use symphony_testkit::test_database::Database;

/// Proof 36: `a_payment_of_an_earlier_epoch_has_an_unknown_outcome_until_an_attempt_of_this_one`.
pub(super) async fn are_unknown(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "plain", "{}").await?;
    set_rail(&sessions.operator, "ordered", r#"{"ordered": true}"#).await?;
    on_a_plain_rail(&sessions, &mut recorder).await?;
    under_a_lease_of_the_earlier_epoch(&sessions, &mut recorder).await?;
    on_an_ordered_rail(&sessions, &mut recorder).await?;
    redriven_from_an_earlier_epoch(&sessions, &mut recorder).await?;
    keys_count_from_the_enqueue(&sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

/// Opens the epoch of a changed server, without granting a row.
async fn new_epoch(sessions: &Sessions) -> Result<(), Failure> {
    change_server(&sessions.owner).await?;
    let nothing = "select count(*) from m10_recovery.claim_outbox_events('opener', 1)";
    require(|| "opening an epoch by a claim of events".into(), 0, count(&sessions.executor, nothing, &[]).await?)
}

/// Keys and whether their outcome is unknown, in the order of keys.
fn outcomes(leases: &[Lease]) -> Vec<(&str, bool)> {
    let mut outcomes: Vec<_> = leases.iter().map(|lease| (lease.key.as_str(), lease.outcome_unknown)).collect();
    outcomes.sort_unstable();
    outcomes
}

fn of<'a>(leases: &'a [Lease], key: &str) -> Result<&'a Lease, Failure> {
    leases.iter().find(|lease| lease.key == key).ok_or_else(|| Failure {
        tried: format!("claiming {key}"),
        expected: "it is claimed".into(),
        happened: "it is not".into(),
    })
}

async fn on_a_plain_rail(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for name in ["answered", "expired", "released"] {
        enqueue(&sessions.ingest, &Payment::new(name, name, "plain")).await?;
    }
    new_epoch(sessions).await?;
    enqueue(&sessions.ingest, &Payment::new("new", "new", "plain")).await?;
    let seen = "select count(*) from symphony.outbox_operational_status where outcome_unknown";
    let seen = count(&sessions.operator, seen, &[]).await?;
    let first = claim(&sessions.executor, 100, "worker").await?;
    recorder.check(
        "claiming payments of the earlier and of the new epoch",
        "the 3 of the earlier have an unknown outcome, and operators see that",
        format!("{:?}, operators see {seen}", outcomes(&first)),
        seen == 3
            && outcomes(&first)
                == [("key-answered", true), ("key-expired", true), ("key-new", false), ("key-released", true)],
    )?;
    complete(&sessions.executor, of(&first, "key-answered")?, Outcome::RETRY_NOW).await?;
    complete(&sessions.executor, of(&first, "key-new")?, Outcome::RETRY_NOW).await?;
    release(&sessions.executor, &[of(&first, "key-released")?.clone()]).await?;
    expire(&sessions.owner, &of(&first, "key-expired")?.outbox_id).await?;
    repair(&sessions.executor, 100).await?;
    make_due(&sessions.owner).await?;
    let second = claim(&sessions.executor, 100, "worker").await?;
    recorder.check(
        "claiming them again: one was answered as not paid, the lease of one expired, one was released",
        "only the answered one is certain",
        format!("{:?}", outcomes(&second)),
        outcomes(&second)
            == [("key-answered", false), ("key-expired", true), ("key-new", false), ("key-released", true)],
    )?;
    release(&sessions.executor, &second).await?;
    new_epoch(sessions).await?;
    let third = claim(&sessions.executor, 100, "worker").await?;
    recorder.check(
        "claiming them after yet another epoch was opened",
        "none is certain",
        format!("{:?}", outcomes(&third)),
        outcomes(&third).iter().all(|(_, is_unknown)| *is_unknown) && third.len() == 4,
    )?;
    for lease in &third {
        complete(&sessions.executor, lease, Outcome::DISPATCHED).await?;
    }
    Ok(())
}

/// A worker may repeat a completion whose first answer the failover lost; other workers may have sent the payment since.
async fn under_a_lease_of_the_earlier_epoch(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    enqueue(&sessions.ingest, &Payment::new("leased", "leased", "plain")).await?;
    let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
    require(|| "claiming a new payment".into(), false, lease.outcome_unknown)?;
    new_epoch(sessions).await?;
    complete(&sessions.executor, &lease, Outcome::RETRY_NOW).await?;
    let again = claim(&sessions.executor, 1, "worker").await?;
    recorder.check(
        "claiming a payment whose last attempt was leased in the earlier epoch and completed in this one",
        "its outcome is unknown",
        format!("{:?}", outcomes(&again)),
        outcomes(&again) == [("key-leased", true)],
    )?;
    complete(&sessions.executor, &again[0], Outcome::DISPATCHED).await?;
    let epochs =
        "select count(distinct epoch) from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid";
    let epochs = count(&sessions.owner, epochs, &[&lease.outbox_id]).await?;
    recorder.check_equal("its two attempts in the ledger", "epochs", 2, epochs)
}

async fn on_an_ordered_rail(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for number in 1..=3 {
        enqueue(&sessions.ingest, &Payment::new(format!("run-{number}"), "alice", "ordered")).await?;
    }
    let run = claim_with_followers(&sessions.executor, 10, "worker", "ordered", 10).await?;
    require(|| "claiming a head with followers".into(), 3, run.len())?;
    release(&sessions.executor, &run).await?;
    new_epoch(sessions).await?;
    enqueue(&sessions.ingest, &Payment::new("run-4", "alice", "ordered")).await?;
    // The last payment of the earlier epoch is a head, and the one of the new epoch may follow it.
    let expected =
        [&[("key-run-1", true)][..], &[("key-run-2", true)], &[("key-run-3", true), ("key-run-4", false)]];
    for expected in expected {
        let claimed = claim_with_followers(&sessions.executor, 10, "worker", "ordered", 10).await?;
        recorder.check(
            "claiming with followers on an ordered rail that has 3 payments of the earlier epoch and then 1 of the new",
            format!("{expected:?}"),
            format!("{:?}", outcomes(&claimed)),
            outcomes(&claimed) == expected,
        )?;
        for lease in &claimed {
            complete(&sessions.executor, lease, Outcome::DISPATCHED).await?;
        }
    }
    Ok(())
}

/// An earlier redrive of the same failure may have been paid, and lost with the epoch.
async fn redriven_from_an_earlier_epoch(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    enqueue(&sessions.ingest, &Payment::new("redriven", "redriven", "plain")).await?;
    let failed = claim(&sessions.executor, 1, "worker").await?.remove(0);
    complete(&sessions.executor, &failed, Outcome::REJECTED).await?;
    new_epoch(sessions).await?;
    redrive(&sessions.operator, &failed.outbox_id).await?;
    let claimed = claim(&sessions.executor, 10, "worker").await?;
    recorder.check(
        "claiming the redrive of a failure of the earlier epoch",
        "its outcome is unknown",
        format!("{:?}", outcomes(&claimed)),
        outcomes(&claimed) == [("key-redriven", true)],
    )?;
    complete(&sessions.executor, &claimed[0], Outcome::REJECTED).await?;
    redrive(&sessions.operator, &claimed[0].outbox_id).await?;
    let again = claim(&sessions.executor, 10, "worker").await?;
    recorder.check(
        "claiming the redrive of a failure of this epoch",
        "its outcome is certain",
        format!("{:?}", outcomes(&again)),
        outcomes(&again) == [("key-redriven", false)],
    )?;
    complete(&sessions.executor, &again[0], Outcome::DISPATCHED).await?;
    Ok(())
}

/// An attempt that was lost may be as old as the enqueue: the bank may have forgotten its key.
async fn keys_count_from_the_enqueue(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    set_rail(&sessions.operator, "plain", r#"{"on_unknown": "RESEND", "key_memory_seconds": 3600}"#).await?;
    let two_hours_old = "insert into symphony.payment_outbox_pending
          (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, created_at)
        select symphony.uuidv7(), $1::text, $1::text, 1, $1::text, 'plain', '{}', now() - interval '2 hours'";
    let remembered = "select key_remembered::int::bigint
                      from symphony.advise_on_unknown_outcome($1::text::uuid, $2::text::uuid, $3, 1)";
    sessions.owner.execute(two_hours_old, &[&"old"]).await?;
    new_epoch(sessions).await?;
    enqueue(&sessions.ingest, &Payment::new("fresh", "fresh", "plain")).await?;
    change_server(&sessions.owner).await?;
    let leases = claim(&sessions.executor, 10, "worker").await?;
    require(|| "claiming both".into(), 2, leases.len())?;
    for (key, expected) in [("old", 0), ("key-fresh", 1)] {
        let lease = of(&leases, key)?;
        let found =
            count(&sessions.executor, remembered, &[&lease.outbox_id, &lease.token, &lease.worker]).await?;
        recorder.check_equal(
            format!(
                "advice on {key}, of an earlier epoch, on a rail that remembers keys for an hour; old is 2 h old"
            ),
            "key remembered",
            expected,
            found,
        )?;
    }
    sessions.owner.execute(two_hours_old, &[&"certain"]).await?;
    let lease = claim(&sessions.executor, 10, "worker").await?.remove(0);
    let found = count(&sessions.executor, remembered, &[&lease.outbox_id, &lease.token, &lease.worker]).await?;
    recorder.check_equal(
        "advice on a payment of this epoch that is 2 h old and was never leased before",
        "key remembered",
        1,
        found,
    )
}
