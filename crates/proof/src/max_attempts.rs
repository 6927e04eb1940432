//! max_attempts: a row is attempted as often as its rail allows, and then moves to the dead-letter queue.

use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::evidence::{Evidence, Failure, Recorder, require};
use super::sessions::{
    Lease, Outcome, Payment, Sessions, claim, complete, count, enqueue, repair, set_rail, text,
};
use symphony_testkit::test_database::Database;

/// How the last attempt fails.
#[derive(Clone, Copy, Debug)]
enum Last {
    Busy,
    Unknown,
    Repaired,
    TakenOver,
}

/// Proof 15: `after_max_attempts_a_row_moves_to_the_dead_letter_queue`.
pub(super) async fn ends_rows(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    for max_attempts in [1, 3, 20] {
        set_rail(&sessions.operator, "bank", &format!(r#"{{"max_attempts": {max_attempts}}}"#)).await?;
        for last in [Last::Busy, Last::Unknown, Last::Repaired, Last::TakenOver] {
            last_attempt(&sessions, &mut recorder, max_attempts, last).await?;
        }
    }
    lowered_max_attempts(&sessions, &mut recorder).await?;
    let dead =
        "select count(*) || ', ' || count(*) filter (where outcome_unknown) from symphony.payment_outbox_dlq";
    let dead = text(&sessions.operator, dead, &[]).await?;
    recorder.check_equal(
        "counting the dead letters",
        "all, and those of unknown outcome",
        "14, 9",
        dead.as_str(),
    )?;
    Ok(recorder.finish())
}

async fn last_attempt(
    sessions: &Sessions,
    recorder: &mut Recorder,
    max_attempts: i32,
    last: Last,
) -> Result<(), Failure> {
    let payment = Payment::new(format!("{max_attempts}-{last:?}"), "alice", "bank");
    let outbox_id = enqueue(&sessions.ingest, &payment).await?.outbox_id;
    for attempt in 1..max_attempts {
        let lease = claim_one(&sessions.executor, &outbox_id).await?;
        if attempt % 3 == 2 {
            expire(&sessions.owner, &outbox_id).await?;
            require(|| format!("repairing attempt {attempt}"), 1, repair(&sessions.executor, 10).await?.len())?;
        } else {
            let recorded = complete(&sessions.executor, &lease, Outcome::RETRYABLE).await?;
            require(
                || format!("attempt {attempt} of {max_attempts}"),
                format!("{attempt} RETRYABLE false"),
                format!("{} {} {}", recorded.attempt_no, recorded.state, recorded.ended),
            )?;
        }
        make_due(&sessions.owner).await?;
    }
    let lease = claim_one(&sessions.executor, &outbox_id).await?;
    let code = match last {
        Last::Busy => {
            let recorded = complete(&sessions.executor, &lease, Outcome::RETRYABLE).await?;
            require(
                || "the result of the last attempt".into(),
                "FAILED true".into(),
                format!("{} {}", recorded.state, recorded.ended),
            )?;
            "RETRIES_EXHAUSTED"
        }
        Last::Unknown => {
            let unknown = Outcome { error_code: Some("OUTCOME_UNKNOWN"), ..Outcome::RETRYABLE };
            complete(&sessions.executor, &lease, unknown).await?;
            "OUTCOME_UNKNOWN"
        }
        Last::Repaired => {
            expire(&sessions.owner, &outbox_id).await?;
            require(|| "repairing the last attempt".into(), 1, repair(&sessions.executor, 10).await?.len())?;
            "LEASE_EXPIRED"
        }
        Last::TakenOver => {
            expire(&sessions.owner, &outbox_id).await?;
            require(
                || "claiming an expired lease at max_attempts".into(),
                0,
                claim(&sessions.executor, 10, "next").await?.len(),
            )?;
            "LEASE_EXPIRED"
        }
    };
    let ended = ended(&sessions.owner, &outbox_id).await?;
    let expected = format!("attempt {max_attempts} FAILED {code}, {max_attempts} ledger rows, 0 pending");
    recorder.check_equal(
        format!("attempt {max_attempts} of {max_attempts} ends as {last:?}"),
        "the outbox",
        expected,
        ended,
    )
}

/// A row with more attempts than a lowered max_attempts ends at its next attempt.
async fn lowered_max_attempts(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for last in [Outcome::RETRYABLE, Outcome { error_code: None, ..Outcome::RETRYABLE }] {
        set_rail(&sessions.operator, "bank", r#"{"max_attempts": 20}"#).await?;
        let payment = Payment::new(format!("lowered-{}", last.error_code.unwrap_or("silent")), "bob", "bank");
        let outbox_id = enqueue(&sessions.ingest, &payment).await?.outbox_id;
        for _ in 0..5 {
            complete(&sessions.executor, &claim_one(&sessions.executor, &outbox_id).await?, Outcome::RETRY_NOW)
                .await?;
        }
        set_rail(&sessions.operator, "bank", r#"{"max_attempts": 2}"#).await?;
        complete(&sessions.executor, &claim_one(&sessions.executor, &outbox_id).await?, last).await?;
        let expected = "attempt 6 FAILED RETRIES_EXHAUSTED, 6 ledger rows, 0 pending";
        let ended = ended(&sessions.owner, &outbox_id).await?;
        recorder.check_equal(
            "lowering max_attempts to 2 after 5 attempts, and completing another attempt",
            "the outbox",
            expected,
            ended.as_str(),
        )?;
    }
    Ok(())
}

async fn claim_one(executor: &Client, outbox_id: &str) -> Result<Lease, Failure> {
    let mut leases = claim(executor, 10, "worker").await?;
    let ids: Vec<_> = leases.iter().map(|lease| lease.outbox_id.as_str()).collect();
    require(|| "claiming the only row".into(), outbox_id.to_owned(), ids.join(", "))?;
    Ok(leases.remove(0))
}

async fn ended(owner: &Client, outbox_id: &str) -> Result<String, Failure> {
    let last = "select format('attempt %s %s %s', attempt_no, state, error_code)
                from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid order by attempt_no desc limit 1";
    let last = text(owner, last, &[&outbox_id]).await?;
    let rows = "select count(*) from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid";
    let rows = count(owner, rows, &[&outbox_id]).await?;
    let pending = "select count(*) from symphony.payment_outbox_pending where outbox_id = $1::text::uuid";
    let pending = count(owner, pending, &[&outbox_id]).await?;
    Ok(format!("{last}, {rows} ledger rows, {pending} pending"))
}
