//! Runs on an ordered rail, step by step: which rows a claim with followers leases, and what ends a run.

use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::evidence::{Failure, Recorder, require};
use super::sessions::{
    Lease, Outcome, Payment, Sessions, claim, claim_with_followers, complete, complete_batch, count, enqueue,
    enqueue_batch, release, repair, set_rail,
};
use symphony_testkit::bulk_rows::clear_pending;

const RAIL: &str = "runs";

/// Claims with followers lease runs without a gap, and every end of a run but DISPATCHED leaves the rest waiting.
pub(super) async fn are_without_a_gap(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    set_rail(&sessions.operator, RAIL, r#"{"ordered": true}"#).await?;
    whole_runs(sessions, recorder).await?;
    a_second_claim_in_a_transaction(sessions, recorder).await?;
    a_retry_in_the_middle(sessions, recorder).await?;
    a_lost_head(sessions, recorder).await?;
    rows_that_may_not_follow(sessions, recorder).await?;
    limits(sessions, recorder).await?;
    parked_rows(sessions, recorder).await
}

/// The rows as `alice 1, bob 1`, in the order of participant and sequence.
fn names(leases: &[Lease]) -> String {
    let mut rows: Vec<_> = leases.iter().map(|lease| (lease.participant.as_str(), lease.sequence_id)).collect();
    rows.sort_unstable();
    let names: Vec<_> = rows.iter().map(|(participant, number)| format!("{participant} {number}")).collect();
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}

async fn stream(sessions: &Sessions, participant: &str, length: i32) -> Result<(), Failure> {
    let payments: Vec<_> =
        (1..=length).map(|number| Payment::new(format!("{participant}-{number}"), participant, RAIL)).collect();
    for payments in payments.chunks(500) {
        enqueue_batch(&sessions.ingest, payments).await?;
    }
    Ok(())
}

/// Claims up to 100 rows, up to `followers` of them behind a head.
async fn take(executor: &Client, followers: i32) -> Result<Vec<Lease>, Failure> {
    Ok(claim_with_followers(executor, 100, "worker", RAIL, followers).await?)
}

async fn whole_runs(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    stream(sessions, "run-a", 3).await?;
    stream(sessions, "run-b", 3).await?;
    let heads = claim(&sessions.executor, 100, "worker").await?;
    recorder.check_equal(
        "claiming without followers on an ordered rail",
        "claimed",
        "run-a 1, run-b 1".to_owned(),
        names(&heads),
    )?;
    release(&sessions.executor, &heads).await?;
    let few = take(&sessions.executor, 3).await?;
    recorder.check_equal(
        "claiming with 3 followers of 2 participants with 3 rows each",
        "claimed",
        "run-a 1, run-a 2, run-a 3, run-b 1, run-b 2".to_owned(),
        names(&few),
    )?;
    let setting = "select current_setting('symphony.claimed_runs', true) = ''";
    let is_local: bool = sessions.executor.query_one(setting, &[]).await?.get(0);
    require(|| "the list of rails with followers ends with its transaction".into(), true, is_local)?;
    require(|| "claiming behind a run".into(), "nothing".into(), names(&take(&sessions.executor, 100).await?))?;
    complete_batch(&sessions.executor, &few, Outcome::DISPATCHED).await?;
    let rest = take(&sessions.executor, 100).await?;
    recorder.check_equal(
        "claiming after all of a run were DISPATCHED in one batch",
        "claimed",
        "run-b 3".to_owned(),
        names(&rest),
    )?;
    complete_batch(&sessions.executor, &rest, Outcome::DISPATCHED).await?;
    Ok(())
}

/// The list of rails with followers is of the last claim, also when that claim leases the usual batch.
async fn a_second_claim_in_a_transaction(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    stream(sessions, "run-twice", 2).await?;
    set_rail(&sessions.operator, "runs-unordered", "{}").await?;
    enqueue(&sessions.ingest, &Payment::new("run-unordered", "run-unordered", "runs-unordered")).await?;
    let executor = &sessions.executor;
    let rails = async || -> Result<String, Failure> {
        let setting = "select coalesce(current_setting('symphony.claimed_runs', true), '')";
        Ok(executor.query_one(setting, &[]).await?.get(0))
    };
    executor.batch_execute("begin").await?;
    let run = claim_with_followers(executor, 2, "worker", RAIL, 1).await?;
    let rails_of_run = rails().await?;
    let unordered = claim(executor, 100, "worker").await?;
    let rails_of_unordered = rails().await?;
    executor.batch_execute("rollback").await?;
    recorder.check_equal(
        "claiming a run and then a row of an unordered rail, in one transaction",
        "claimed rows and rails with followers",
        r#"run-twice 1, run-twice 2 ["runs"]; run-unordered 1 []"#.to_owned(),
        format!("{} {rails_of_run}; {} [{rails_of_unordered}]", names(&run), names(&unordered)),
    )?;
    clear_pending(&sessions.owner).await?;
    Ok(())
}

/// The second of four is to be tried again: the worker releases the others.
async fn a_retry_in_the_middle(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for (outcome, state) in
        [(Outcome::RETRYABLE, "RETRYABLE"), (Outcome::REJECTED, "FAILED"), (Outcome::UNKNOWN, "OUTCOME_UNKNOWN")]
    {
        let participant = format!("run-{state}");
        stream(sessions, &participant, 4).await?;
        let mut run = take(&sessions.executor, 100).await?;
        run.sort_by_key(|lease| lease.sequence_id);
        require(|| "claiming a run of four".into(), 4, run.len())?;
        complete(&sessions.executor, &run[0], Outcome::DISPATCHED).await?;
        complete(&sessions.executor, &run[1], outcome).await?;
        let released = release(&sessions.executor, &run[2..]).await?;
        let used = "select count(*) from symphony.payment_outbox_pending p
                    where p.participant_id = $1 and p.sequence_id > 2
                      and (p.attempt_count > 0 or exists (select from symphony.payment_outbox_attempts a where a.outbox_id = p.outbox_id))";
        let used = count(&sessions.owner, used, &[&participant]).await?;
        let next = take(&sessions.executor, 100).await?;
        let expected =
            if state == "RETRYABLE" { "nothing".to_owned() } else { format!("{participant} 3, {participant} 4") };
        recorder.check(
            format!("row 2 of a run of 4 ends as {state}, and the worker releases rows 3 and 4"),
            format!("2 released, 0 attempts used, then a claim returns {expected}"),
            format!("{} released, {used} attempts used, then a claim returns {}", released.len(), names(&next)),
            released == [true, true] && used == 0 && names(&next) == expected,
        )?;
        make_due(&sessions.owner).await?;
        let mut rest = next;
        if rest.is_empty() {
            rest = take(&sessions.executor, 100).await?;
            require(
                || "claiming when row 2 is due again".into(),
                format!("{participant} 2, {participant} 3, {participant} 4"),
                names(&rest),
            )?;
        }
        complete_batch(&sessions.executor, &rest, Outcome::DISPATCHED).await?;
    }
    Ok(())
}

/// The lease of a head expires while its followers are leased: another worker gets the head alone.
async fn a_lost_head(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    stream(sessions, "run-lost", 3).await?;
    let mut run = take(&sessions.executor, 100).await?;
    run.sort_by_key(|lease| lease.sequence_id);
    require(|| "expiring the head".into(), true, expire(&sessions.owner, &run[0].outbox_id).await?)?;
    let taken = claim_with_followers(&sessions.executor, 100, "other", RAIL, 100).await?;
    recorder.check_equal(
        "another worker claims after the lease of the head of a run of 3 expired",
        "claimed",
        "run-lost 1".to_owned(),
        names(&taken),
    )?;
    let late = complete_batch(&sessions.executor, &run[..1], Outcome::DISPATCHED).await?;
    require(
        || "whether a completion of the lost head is refused".into(),
        true,
        late == [Err("P7002".to_owned())],
    )?;
    release(&sessions.executor, &run[1..]).await?;
    complete_batch(&sessions.executor, &taken, Outcome::DISPATCHED).await?;

    // The worker dies: each lease of the run gets its ledger row, and no row overtakes another afterwards.
    let run = take(&sessions.executor, 100).await?;
    for lease in &run {
        expire(&sessions.owner, &lease.outbox_id).await?;
    }
    let repaired = repair(&sessions.executor, 100).await?.len();
    make_due(&sessions.owner).await?;
    let mut order = Vec::new();
    for _ in 0..2 {
        let leases = take(&sessions.executor, 100).await?;
        let unknown = leases.iter().all(|lease| lease.outcome_unknown);
        order.push(format!("{}, outcome unknown: {unknown}", names(&leases)));
        complete_batch(&sessions.executor, &leases, Outcome::DISPATCHED).await?;
    }
    recorder.check(
        format!("the worker of a run of 2 dies, and {repaired} leases are repaired"),
        "run-lost 2, outcome unknown: true; then run-lost 3, outcome unknown: true",
        order.join("; then "),
        repaired == 2 && order == ["run-lost 2, outcome unknown: true", "run-lost 3, outcome unknown: true"],
    )
}

/// A row that was attempted, is scheduled, is leased or is locked ends the run before it.
async fn rows_that_may_not_follow(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let changes = [
        ("was attempted before", "attempt_count = 1"),
        ("is scheduled for later", "next_attempt_at = now() + interval '1 hour'"),
        (
            "is leased",
            "claimed_by = 'x', claimed_at = now(), lease_token = gen_random_uuid(), lease_expires_at = now() + interval '1 hour'",
        ),
    ];
    for (place, (what, change)) in changes.into_iter().enumerate() {
        let participant = format!("run-not-{place}");
        stream(sessions, &participant, 4).await?;
        let change = format!(
            "update symphony.payment_outbox_pending set {change} where participant_id = '{participant}' and sequence_id = 3"
        );
        sessions.owner.batch_execute(&change).await?;
        let run = take(&sessions.executor, 100).await?;
        recorder.check_equal(
            format!("claiming 4 rows of which the third {what}"),
            "claimed",
            format!("{participant} 1, {participant} 2"),
            names(&run),
        )?;
        clear_pending(&sessions.owner).await?;
    }
    stream(sessions, "run-locked", 4).await?;
    let lock = "begin;
                select from symphony.payment_outbox_pending where participant_id = 'run-locked' and sequence_id = 3 for update";
    sessions.owner.batch_execute(lock).await?;
    let run = take(&sessions.executor, 100).await?;
    sessions.owner.batch_execute("rollback").await?;
    recorder.check_equal(
        "claiming 4 rows of which another session has locked the third",
        "claimed",
        "run-locked 1, run-locked 2".to_owned(),
        names(&run),
    )?;
    clear_pending(&sessions.owner).await?;
    // What a dead worker would leave to an operator, though it was never sent.
    for (participant, without_runs, before) in [
        ("run-stop", r#"{"on_unknown": "STOP"}"#, r#"{"on_unknown": "INQUIRE"}"#),
        ("run-once", r#"{"max_attempts": 1}"#, r#"{"max_attempts": 20}"#),
    ] {
        stream(sessions, participant, 3).await?;
        set_rail(&sessions.operator, RAIL, without_runs).await?;
        let run = take(&sessions.executor, 100).await?;
        set_rail(&sessions.operator, RAIL, before).await?;
        recorder.check_equal(
            format!("claiming on a rail with {without_runs}"),
            "claimed",
            format!("{participant} 1"),
            names(&run),
        )?;
        clear_pending(&sessions.owner).await?;
    }
    Ok(())
}

/// Every leased row counts, also those that wait.
async fn limits(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    stream(sessions, "run-long", 40).await?;
    let run = take(&sessions.executor, 100).await?;
    recorder.check_equal("claiming with 100 followers of 40 rows", "rows of the run", 16, run.len())?;
    release(&sessions.executor, &run).await?;
    let batch = claim_with_followers(&sessions.executor, 5, "worker", RAIL, 100).await?;
    recorder.check_equal("claiming 5 rows", "rows of the run", 5, batch.len())?;
    release(&sessions.executor, &batch).await?;
    set_rail(&sessions.operator, RAIL, r#"{"max_in_flight": 7}"#).await?;
    let limited = take(&sessions.executor, 100).await?;
    let full = take(&sessions.executor, 100).await?;
    set_rail(&sessions.operator, RAIL, r#"{"max_in_flight": null}"#).await?;
    recorder.check(
        "claiming with an in-flight limit of 7, twice",
        "7 rows, then 0",
        format!("{} rows, then {}", limited.len(), full.len()),
        limited.len() == 7 && full.is_empty(),
    )?;
    release(&sessions.executor, &limited).await?;
    let pause = "select symphony.pause_payment_rail($1, 'operator', 'a proof')";
    sessions.operator.execute(pause, &[&RAIL]).await?;
    let paused = take(&sessions.executor, 100).await?.len();
    let resume = "select symphony.resume_payment_rail($1, 'operator', 'a proof')";
    sessions.operator.execute(resume, &[&RAIL]).await?;
    recorder.check_equal("claiming on a paused rail", "rows", 0, paused)?;
    clear_pending(&sessions.owner).await?;
    Ok(())
}

/// Parked rows are leased as followers, and each row of a long queue is dispatched in order.
async fn parked_rows(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    stream(sessions, "run-parked", 400).await?;
    enqueue(&sessions.ingest, &Payment::new("run-other", "run-other", RAIL)).await?;
    let (mut expected, mut parked, mut claims) = (1, 0, 0);
    loop {
        let mut leases = take(&sessions.executor, 10).await?;
        claims += 1;
        leases.retain(|lease| lease.participant == "run-parked");
        leases.sort_by_key(|lease| lease.sequence_id);
        if leases.is_empty() {
            break;
        }
        for lease in &leases {
            require(|| "the next row of the participant".into(), expected, lease.sequence_id)?;
            expected += 1;
        }
        let now = "select count(*) from symphony.payment_outbox_pending where parked";
        parked = parked.max(count(&sessions.owner, now, &[]).await?);
        complete_batch(&sessions.executor, &leases, Outcome::DISPATCHED).await?;
    }
    recorder.check(
        format!("draining 400 rows of one participant in runs, while up to {parked} rows were parked"),
        "400 rows in sequence, in at most 42 claims",
        format!("{} rows in sequence, in {claims} claims", expected - 1),
        expected == 401 && parked > 0 && claims <= 42,
    )?;
    clear_pending(&sessions.owner).await?;
    Ok(())
}
