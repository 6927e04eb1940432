//! On an ordered rail with `on_failure` HOLD a failure holds the later payments of its participant until an operator acts.

use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::evidence::{Evidence, Failure, Recorder, require};
use super::sessions::{
    Lease, Outcome, Payment, Sessions, claim, claim_with_followers, complete, count, enqueue, enqueue_batch,
    redrive, release, repair, resolve, set_rail, text,
};
use symphony_testkit::bulk_rows::clear_pending;
use symphony_testkit::test_database::Database;

const HOLD: &str = r#"{"ordered": true, "on_failure": "HOLD"}"#;
const STATUS: &str = "select string_agg(sequence_id || ' ' || status, ', ' order by sequence_id)
                      from symphony.outbox_operational_status where participant_id = $1";

/// Proof 45: `a_failure_on_a_rail_that_holds_stops_the_later_payments_of_its_participant`.
pub(super) async fn wait_for_an_operator(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "hold", HOLD).await?;
    set_rail(&sessions.operator, "twice", r#"{"ordered": true, "on_failure": "HOLD", "max_attempts": 2}"#).await?;
    set_rail(&sessions.operator, "go-on", r#"{"ordered": true}"#).await?;
    policies(&sessions, &mut recorder).await?;
    only_the_stream_waits(&sessions, &mut recorder).await?;
    each_release(&sessions, &mut recorder).await?;
    each_failure(&sessions, &mut recorder).await?;
    in_place(&sessions, &mut recorder).await?;
    a_run(&sessions, &mut recorder).await?;
    a_change_of_the_policy(&sessions, &mut recorder).await?;
    a_long_queue(&sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

/// The participant and the sequence number of each lease.
fn names(leases: &[Lease]) -> String {
    let names: Vec<_> =
        leases.iter().map(|lease| format!("{} {}", lease.participant, lease.sequence_id)).collect();
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}

/// Enqueues three payments of a participant and claims the first; nothing else is due.
async fn a_stream(sessions: &Sessions, participant: &str, rail: &str) -> Result<Lease, Failure> {
    for number in 1..=3 {
        enqueue(&sessions.ingest, &Payment::new(format!("{participant}-{number}"), participant, rail)).await?;
    }
    let mut heads = claim(&sessions.executor, 100, "worker").await?;
    require(|| "claiming the head".into(), format!("{participant} 1"), names(&heads))?;
    Ok(heads.remove(0))
}

/// What can be claimed, after claims have parked what waits.
async fn claimable(executor: &Client) -> Result<Vec<Lease>, Failure> {
    let first = claim(executor, 100, "worker").await?;
    if first.is_empty() { Ok(claim(executor, 100, "worker").await?) } else { Ok(first) }
}

/// Dispatches all that becomes claimable, and returns its names in that order.
async fn drain(sessions: &Sessions) -> Result<String, Failure> {
    let mut order = Vec::new();
    loop {
        let leases = claimable(&sessions.executor).await?;
        if leases.is_empty() {
            return Ok(if order.is_empty() { "nothing".into() } else { order.join(", ") });
        }
        order.push(names(&leases));
        for lease in &leases {
            complete(&sessions.executor, lease, Outcome::DISPATCHED).await?;
        }
    }
}

async fn policies(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    set_rail(&sessions.operator, "plain", "{}").await?;
    for (rail, policy) in [
        ("plain", r#"{"on_failure": "HOLD"}"#),
        ("new", r#"{"on_failure": "HOLD"}"#),
        ("hold", r#"{"ordered": false}"#),
        ("hold", r#"{"on_failure": "STOP"}"#),
        ("hold", r#"{"on_failure": null}"#),
    ] {
        let refused = set_rail(&sessions.operator, rail, policy).await;
        recorder.check_refused(format!("setting {policy} on rail {rail}"), "P7005", refused)?;
    }
    Ok(())
}

async fn only_the_stream_waits(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let head = a_stream(sessions, "alice", "hold").await?;
    complete(&sessions.executor, &head, Outcome::REJECTED).await?;
    enqueue(&sessions.ingest, &Payment::new("alice-4", "alice", "hold")).await?;
    let waiting = names(&claimable(&sessions.executor).await?);
    enqueue(&sessions.ingest, &Payment::new("alice-5", "alice", "hold")).await?;
    enqueue(&sessions.ingest, &Payment::new("alice-6", "alice", "go-on")).await?;
    enqueue(&sessions.ingest, &Payment::new("bob-1", "bob", "hold")).await?;
    enqueue(&sessions.ingest, &Payment::new("bob-2", "bob", "hold")).await?;
    recorder.check_equal(
        "claiming after the head of alice failed, before and after others and she enqueued more",
        "claimed",
        "nothing; alice 6, bob 1, bob 2".to_owned(),
        format!("{waiting}; {}", drain(sessions).await?),
    )?;
    recorder.check_equal(
        "reading the status of her payments",
        "statuses",
        "2 HELD_BY_FAILURE, 3 HELD_BY_FAILURE, 4 HELD_BY_FAILURE, 5 HELD_BY_FAILURE".to_owned(),
        text(&sessions.operator, STATUS, &[&"alice"]).await?,
    )?;
    let held = "select string_agg(concat_ws(' ', participant_id, sequence_id, error_code, resolution), ', ')
                from symphony.held_payment_streams where rail_type = 'hold'";
    let counted = "select (jsonb_path_query_first(rails, '$[*] ? (@.rail_type == \"hold\").held_streams'))::text
                   from symphony.supervisor_outbox_status";
    recorder.check_equal(
        "reading the held streams and their number",
        "streams",
        "alice 1 REJECTED; 1".to_owned(),
        format!(
            "{}; {}",
            text(&sessions.operator, held, &[]).await?,
            text(&sessions.operator, counted, &[]).await?
        ),
    )?;
    resolve(&sessions.operator, &head.outbox_id, "SKIPPED").await?;
    recorder.check_equal(
        "skipping the failure",
        "claimed",
        "alice 2, alice 3, alice 4, alice 5".to_owned(),
        drain(sessions).await?,
    )
}

/// What an operator does, and what can be claimed then.
async fn each_release(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for (participant, outcome, steps) in [
        ("paid", Outcome::UNKNOWN, &[("PAID", "2")][..]),
        ("skipped", Outcome::REJECTED, &[("SKIPPED", "2")]),
        ("redriven", Outcome::REJECTED, &[("REDRIVE", "1")]),
        ("not-paid", Outcome::UNKNOWN, &[("NOT_PAID", "nothing"), ("REDRIVE", "1")]),
        ("given-up", Outcome::UNKNOWN, &[("NOT_PAID", "nothing"), ("SKIPPED", "2")]),
        ("corrected", Outcome::UNKNOWN, &[("NOT_PAID", "nothing"), ("PAID", "2")]),
    ] {
        let head = a_stream(sessions, participant, "hold").await?;
        complete(&sessions.executor, &head, outcome).await?;
        let waits = names(&claimable(&sessions.executor).await?);
        require(|| format!("claiming after the failure of {participant}"), "nothing".to_owned(), waits)?;
        for (step, expected) in steps {
            if *step == "REDRIVE" {
                redrive(&sessions.operator, &head.outbox_id).await?;
            } else {
                resolve(&sessions.operator, &head.outbox_id, step).await?;
            }
            let leases = claimable(&sessions.executor).await?;
            let claimed =
                leases.first().map_or_else(|| "nothing".to_owned(), |lease| lease.sequence_id.to_string());
            recorder.check_equal(
                format!("{step} of a failure with {:?} that holds", outcome.error_code),
                "claimed next",
                (*expected).to_owned(),
                claimed,
            )?;
            if !leases.is_empty() {
                release(&sessions.executor, &leases).await?;
            }
        }
        drain(sessions).await?;
        require(|| format!("draining {participant}"), 0, pending(&sessions.owner).await?)?;
    }
    let head = a_stream(sessions, "unknown", "hold").await?;
    complete(&sessions.executor, &head, Outcome::UNKNOWN).await?;
    let refused = resolve(&sessions.operator, &head.outbox_id, "SKIPPED").await;
    recorder.check_refused("skipping a failure that may have been paid", "P7003", refused)?;
    resolve(&sessions.operator, &head.outbox_id, "PAID").await?;
    drain(sessions).await.map(drop)
}

/// Every terminal failure holds; a retry does not, and on another rail nothing does.
async fn each_failure(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for how in ["exhausted", "repaired", "taken over"] {
        let mut head = a_stream(sessions, how, "twice").await?;
        complete(&sessions.executor, &head, Outcome::RETRY_NOW).await?;
        head = claimable(&sessions.executor).await?.remove(0);
        match how {
            "exhausted" => drop(complete(&sessions.executor, &head, Outcome::RETRY_NOW).await?),
            "repaired" => {
                expire(&sessions.owner, &head.outbox_id).await?;
                repair(&sessions.executor, 10).await?;
            }
            _ => drop(expire(&sessions.owner, &head.outbox_id).await?),
        }
        make_due(&sessions.owner).await?;
        recorder.check_equal(
            format!("claiming after the head ended at max_attempts: {how}"),
            "claimed",
            "nothing".to_owned(),
            names(&claimable(&sessions.executor).await?),
        )?;
        resolve(&sessions.operator, &head.outbox_id, if how == "exhausted" { "SKIPPED" } else { "PAID" }).await?;
        let then = drain(sessions).await?;
        require(|| format!("draining after {how}"), format!("{how} 2, {how} 3"), then)?;
    }
    let head = a_stream(sessions, "other", "go-on").await?;
    complete(&sessions.executor, &head, Outcome::REJECTED).await?;
    recorder.check_equal(
        "failing the head on a rail with on_failure CONTINUE",
        "claimed",
        "other 2, other 3".to_owned(),
        drain(sessions).await?,
    )
}

/// A redrive has the number of its failure, goes first, and holds again if it fails.
async fn in_place(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let head = a_stream(sessions, "carol", "hold").await?;
    complete(&sessions.executor, &head, Outcome::REJECTED).await?;
    let mut failed = head.outbox_id;
    for round in 1..=2 {
        require(|| "waiting".into(), "nothing".to_owned(), names(&claimable(&sessions.executor).await?))?;
        let redriven = redrive(&sessions.operator, &failed).await?;
        require(|| format!("the number of redrive {round}"), 1, redriven.sequence_id)?;
        let mut leases = claimable(&sessions.executor).await?;
        let meanwhile = names(&claimable(&sessions.executor).await?);
        recorder.check_equal(
            format!("redriving the failure, and claiming twice, round {round}"),
            "claimed",
            "carol 1, then nothing".to_owned(),
            format!("{}, then {meanwhile}", names(&leases)),
        )?;
        let lease = leases.remove(0);
        let outcome = if round == 1 { Outcome::REJECTED } else { Outcome::DISPATCHED };
        complete(&sessions.executor, &lease, outcome).await?;
        failed = lease.outbox_id;
    }
    enqueue(&sessions.ingest, &Payment::new("carol-4", "carol", "hold")).await?;
    recorder.check_equal(
        "dispatching the second redrive, and one more payment",
        "claimed",
        "carol 2, carol 3, carol 4".to_owned(),
        drain(sessions).await?,
    )
}

/// A run, in the order in which a worker dispatches it.
async fn claim_run(executor: &Client) -> Result<Vec<Lease>, Failure> {
    let mut run = claim_with_followers(executor, 100, "worker", "hold", 10).await?;
    run.sort_by_key(|lease| lease.sequence_id);
    Ok(run)
}

/// The rest of a run does not pass the failure of its head.
async fn a_run(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for number in 1..=4 {
        enqueue(&sessions.ingest, &Payment::new(format!("dave-{number}"), "dave", "hold")).await?;
    }
    let run = claim_run(&sessions.executor).await?;
    require(|| "claiming a run".into(), "dave 1, dave 2, dave 3, dave 4".to_owned(), names(&run))?;
    complete(&sessions.executor, &run[0], Outcome::DISPATCHED).await?;
    complete(&sessions.executor, &run[1], Outcome::REJECTED).await?;
    release(&sessions.executor, &run[2..]).await?;
    let first = names(&claim_run(&sessions.executor).await?);
    let again = names(&claim_run(&sessions.executor).await?);
    redrive(&sessions.operator, &run[1].outbox_id).await?;
    let run = claim_run(&sessions.executor).await?;
    recorder.check_equal(
        "failing the second payment of a run, releasing the rest, claiming runs, then redriving it",
        "claimed",
        "nothing, nothing, then dave 2, dave 3, dave 4".to_owned(),
        format!("{first}, {again}, then {}", names(&run)),
    )?;
    for lease in &run {
        complete(&sessions.executor, lease, Outcome::DISPATCHED).await?;
    }
    Ok(())
}

async fn a_change_of_the_policy(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for policy in [r#"{"on_failure": "CONTINUE"}"#, r#"{"on_failure": "CONTINUE", "ordered": false}"#] {
        let participant = if policy.contains("ordered") { "erin" } else { "fred" };
        let head = a_stream(sessions, participant, "hold").await?;
        complete(&sessions.executor, &head, Outcome::REJECTED).await?;
        require(|| "waiting".into(), "nothing".to_owned(), names(&claimable(&sessions.executor).await?))?;
        set_rail(&sessions.operator, "hold", policy).await?;
        let then = drain(sessions).await?;
        let redriven = redrive(&sessions.operator, &head.outbox_id).await?.sequence_id;
        recorder.check(
            format!("setting {policy} while a failure holds, then redriving it"),
            "2 and 3 are claimed; the redrive has number 4",
            format!("{then}; number {redriven}"),
            then.contains(" 2") && then.contains(" 3") && redriven == 4,
        )?;
        drain(sessions).await?;
        set_rail(&sessions.operator, "hold", HOLD).await?;
        let holds = count(&sessions.owner, "select count(*) from symphony.payment_stream_holds", &[]).await?;
        require(|| "counting holds".into(), 0, holds)?;
    }
    Ok(())
}

/// Claims do not read held rows again and again: they are parked, and others do not wait behind them.
async fn a_long_queue(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let head = a_stream(sessions, "gina", "hold").await?;
    complete(&sessions.executor, &head, Outcome::REJECTED).await?;
    let payments: Vec<Payment> =
        (4..2500).map(|number| Payment::new(format!("gina-{number}"), "gina", "hold")).collect();
    for payments in payments.chunks(500) {
        enqueue_batch(&sessions.ingest, payments).await?;
    }
    enqueue(&sessions.ingest, &Payment::new("hans", "hans", "hold")).await?;
    let mut claims = 0;
    let mut claimed = Vec::new();
    while claims < 10 && claimed.is_empty() {
        claimed = claim(&sessions.executor, 100, "worker").await?;
        claims += 1;
    }
    for _ in 0..3 {
        claim(&sessions.executor, 100, "worker").await?;
    }
    let unparked = "select count(*) from symphony.payment_outbox_pending where not parked and lease_token is null";
    let unparked = count(&sessions.owner, unparked, &[]).await?;
    recorder.check(
        "claiming with 2498 held payments of gina before the one of hans",
        "hans 1 within 4 claims, and then no row left that claims would read",
        format!("{} after {claims} claims, {unparked} rows left", names(&claimed)),
        names(&claimed) == "hans 1" && claims <= 4 && unparked == 0,
    )?;
    resolve(&sessions.operator, &head.outbox_id, "SKIPPED").await?;
    let next = names(&claimable(&sessions.executor).await?);
    recorder.check_equal("skipping the failure of gina", "claimed", "gina 2".to_owned(), next)?;
    clear_pending(&sessions.owner).await?;
    Ok(())
}

async fn pending(owner: &Client) -> Result<i64, Failure> {
    Ok(count(owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?)
}
