//! The ceiling: a row is tried as often as its rail allows, and then goes to people.

use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::crew::{Crew, Lease, Order, Outcome, claim, complete, count, enqueue, repair, set_rail, text};
use super::evidence::{Evidence, Failure, Trial, require};
use crate::kit::scratch::Database;

/// How the last attempt goes wrong, and how that is recorded.
#[derive(Clone, Copy, Debug)]
enum Last {
    Busy,
    Unknown,
    Repaired,
    TakenOver,
}

/// Proof 15.
pub(super) async fn ends_rows(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    let crew = Crew::hire(database).await?;
    for ceiling in [1, 3, 20] {
        set_rail(&crew.operator, "bank", &format!(r#"{{"max_attempts": {ceiling}}}"#)).await?;
        for last in [Last::Busy, Last::Unknown, Last::Repaired, Last::TakenOver] {
            at_the_ceiling(&crew, &mut trial, ceiling, last).await?;
        }
    }
    a_ceiling_that_is_lowered(&crew, &mut trial).await?;
    let dead =
        "select count(*) || ', ' || count(*) filter (where outcome_unknown) from symphony.payment_outbox_dlq";
    let dead = text(&crew.operator, dead, &[]).await?;
    trial.same("looking at the dead letters", "all, and of unknown outcome", "14, 9", dead.as_str())?;
    Ok(trial.evidence())
}

async fn at_the_ceiling(crew: &Crew, trial: &mut Trial, ceiling: i32, last: Last) -> Result<(), Failure> {
    let order = Order::new(format!("{ceiling}-{last:?}"), "alice", "bank");
    let outbox_id = enqueue(&crew.ingest, &order).await?.outbox_id;
    for attempt in 1..ceiling {
        let lease = claim_one(&crew.executor, &outbox_id).await?;
        if attempt % 3 == 2 {
            expire(&crew.owner, &outbox_id).await?;
            require(|| format!("repairing attempt {attempt}"), 1, repair(&crew.executor, 10).await?.len())?;
        } else {
            let recorded = complete(&crew.executor, &lease, Outcome::RETRYABLE).await?;
            require(
                || format!("attempt {attempt} of {ceiling}"),
                format!("{attempt} RETRYABLE false"),
                format!("{} {} {}", recorded.attempt_no, recorded.state, recorded.ended),
            )?;
        }
        make_due(&crew.owner).await?;
    }
    let lease = claim_one(&crew.executor, &outbox_id).await?;
    let code = match last {
        Last::Busy => {
            let recorded = complete(&crew.executor, &lease, Outcome::RETRYABLE).await?;
            require(
                || "the answer to the last attempt".into(),
                "FAILED true".into(),
                format!("{} {}", recorded.state, recorded.ended),
            )?;
            "RETRIES_EXHAUSTED"
        }
        Last::Unknown => {
            let unknown = Outcome { error_code: Some("OUTCOME_UNKNOWN"), ..Outcome::RETRYABLE };
            complete(&crew.executor, &lease, unknown).await?;
            "OUTCOME_UNKNOWN"
        }
        Last::Repaired => {
            expire(&crew.owner, &outbox_id).await?;
            require(|| "repairing the last attempt".into(), 1, repair(&crew.executor, 10).await?.len())?;
            "LEASE_EXPIRED"
        }
        Last::TakenOver => {
            expire(&crew.owner, &outbox_id).await?;
            require(|| "claiming at the ceiling".into(), 0, claim(&crew.executor, 10, "next").await?.len())?;
            "LEASE_EXPIRED"
        }
    };
    let ended = ended(&crew.owner, &outbox_id).await?;
    let expected = format!("attempt {ceiling} FAILED {code}, {ceiling} ledger rows, 0 pending");
    trial.same(format!("attempt {ceiling} of {ceiling} ends as {last:?}"), "the outbox", expected, ended)
}

/// A ceiling below what was tried already ends a row at its next attempt, whatever the number.
async fn a_ceiling_that_is_lowered(crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    for last in [Outcome::RETRYABLE, Outcome { error_code: None, ..Outcome::RETRYABLE }] {
        set_rail(&crew.operator, "bank", r#"{"max_attempts": 20}"#).await?;
        let order = Order::new(format!("lowered-{}", last.error_code.unwrap_or("silent")), "bob", "bank");
        let outbox_id = enqueue(&crew.ingest, &order).await?.outbox_id;
        for _ in 0..5 {
            complete(&crew.executor, &claim_one(&crew.executor, &outbox_id).await?, Outcome::AGAIN).await?;
        }
        set_rail(&crew.operator, "bank", r#"{"max_attempts": 2}"#).await?;
        complete(&crew.executor, &claim_one(&crew.executor, &outbox_id).await?, last).await?;
        let expected = "attempt 6 FAILED RETRIES_EXHAUSTED, 6 ledger rows, 0 pending";
        let ended = ended(&crew.owner, &outbox_id).await?;
        trial.same(
            "lowering the ceiling to 2 after 5 attempts, and trying once more",
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
    require(|| "claiming the one row there is".into(), outbox_id.to_owned(), ids.join(", "))?;
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
