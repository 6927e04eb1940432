//! A paused rail and a rail at its in-flight limit grant no lease, to any number of workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::evidence::{Evidence, Failure, Recorder, require};
use super::sessions::{
    Lease, Outcome, Payment, Sessions, claim, complete, complete_batch, connect_many, count, enqueue_batch,
    release, repair, set_rail,
};
use symphony_testkit::bulk_rows::clear_pending;
use symphony_testkit::test_database::Database;

const PAUSE: &str = "select symphony.pause_payment_rail($1, 'operator', 'a proof')";
const RESUME: &str = "select symphony.resume_payment_rail($1, 'operator', 'a proof')";
const LIVE: &str =
    "select count(*) from symphony.payment_outbox_pending where rail_type = $1 and lease_expires_at > now()";

/// Proof 19: `a_paused_rail_and_a_rail_at_its_in_flight_limit_grant_no_lease`.
pub(super) async fn limit_leases(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    a_paused_rail(database, &sessions, &mut recorder).await?;
    a_pause_among_claims(database, &sessions, &mut recorder).await?;
    in_flight_limit(database, &sessions, &mut recorder).await?;
    changed_in_flight_limit(&sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

async fn fill(sessions: &Sessions, rail: &str, rows: usize) -> Result<(), Failure> {
    let payments: Vec<Payment> = (0..rows)
        .map(|number| Payment::new(format!("{rail}-{number}"), &format!("{rail}-{number}"), rail))
        .collect();
    enqueue_batch(&sessions.ingest, &payments).await?;
    Ok(())
}

/// Claims from many sessions at once and returns all leases.
async fn claim_at_once(database: &Database, claimers: usize, batch: i32) -> Result<Vec<Lease>, Failure> {
    let barrier = Arc::new(Barrier::new(claimers));
    let mut tasks = JoinSet::new();
    for (number, client) in connect_many(database, "symphony_executor", claimers).await?.into_iter().enumerate() {
        let barrier = Arc::clone(&barrier);
        tasks.spawn(async move {
            barrier.wait().await;
            claim(&client, batch, &format!("worker-{number}")).await
        });
    }
    let mut leases = Vec::new();
    while let Some(done) = tasks.join_next().await {
        leases.extend(done??);
    }
    Ok(leases)
}

async fn a_paused_rail(database: &Database, sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    set_rail(&sessions.operator, "paused", "{}").await?;
    set_rail(&sessions.operator, "open", "{}").await?;
    fill(sessions, "paused", 40).await?;
    fill(sessions, "open", 40).await?;
    let before: Vec<Lease> =
        claim(&sessions.executor, 4, "worker").await?.into_iter().filter(|lease| lease.rail == "paused").collect();
    require(|| "leasing before the pause".into(), 4, before.len())?;
    sessions.operator.execute(PAUSE, &[&"paused"]).await?;
    let mut leases = claim_at_once(database, 12, 20).await?;
    // Rows that SKIP LOCKED skipped, if any.
    leases.extend(claim(&sessions.executor, 100, "last").await?);
    let paused = leases.iter().filter(|lease| lease.rail == "paused").count();
    recorder.check(
        "12 workers claim at once, and then one more, from a paused rail with 36 rows and another with 40",
        "0 of the paused rail, 40 of the other",
        format!("{paused} of the paused rail, {} of the other", leases.len() - paused),
        paused == 0 && leases.len() == 40,
    )?;
    expire(&sessions.owner, &before[3].outbox_id).await?;
    let again = claim_at_once(database, 4, 20).await?.len();
    let repaired = repair(&sessions.executor, 10).await?.len();
    let recorded = complete_batch(&sessions.executor, &before[..3], Outcome::DISPATCHED).await?;
    let recorded = recorded.iter().filter(|result| result.is_ok()).count();
    recorder.check(
        "claiming, repairing and completing the leases from before the pause, one of them expired",
        "0 claimed, 1 repaired, 3 recorded",
        format!("{again} claimed, {repaired} repaired, {recorded} recorded"),
        again == 0 && repaired == 1 && recorded == 3,
    )?;
    sessions.operator.execute(RESUME, &[&"paused"]).await?;
    make_due(&sessions.owner).await?;
    let mut leases = claim_at_once(database, 4, 20).await?;
    leases.extend(claim(&sessions.executor, 100, "last").await?);
    recorder.check_equal(
        "4 workers, and then one more, claim after it was resumed",
        "claimed",
        37,
        leases.len(),
    )?;
    clear_pending(&sessions.owner).await?;
    Ok(())
}

/// After a pause returns no further lease is granted, though claims continue.
async fn a_pause_among_claims(
    database: &Database,
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    const ROUNDS: usize = 12;
    set_rail(&sessions.operator, "stopped", "{}").await?;
    let operator = database.connect_as("symphony_operator").await?;
    let mut stopped_at = Vec::new();
    for round in 0..ROUNDS {
        let payments: Vec<Payment> = (0..300)
            .map(|number| Payment::new(format!("stop-{round}-{number}"), &format!("{number}"), "stopped"))
            .collect();
        enqueue_batch(&sessions.ingest, &payments).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let (claims, mut claimed) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for client in connect_many(database, "symphony_executor", 8).await? {
            tasks.spawn(claim_until(client, Arc::clone(&stop), claims.clone()));
        }
        // After the first successful claim, while the others continue.
        for _ in 0..=round {
            claimed.recv().await;
        }
        operator.execute(PAUSE, &[&"stopped"]).await?;
        let at_return = count(&sessions.owner, LIVE, &[&"stopped"]).await?;
        // Every claimer claims once more after this.
        stop.store(true, Ordering::Relaxed);
        let mut claimed = 0;
        while let Some(done) = tasks.join_next().await {
            claimed += done??;
        }
        let in_the_end = count(&sessions.owner, LIVE, &[&"stopped"]).await?;
        require(|| format!("pausing a rail while 8 workers claim, round {round}"), at_return, in_the_end)?;
        require(|| format!("adding up what they got, round {round}"), at_return, claimed)?;
        stopped_at.push(at_return);
        operator.execute(RESUME, &[&"stopped"]).await?;
        clear_pending(&sessions.owner).await?;
    }
    let in_between = stopped_at.iter().filter(|leased| (1..300).contains(*leased)).count();
    recorder.check(
        format!("pausing a rail with 300 rows while 8 workers claim one after the other, {ROUNDS} times"),
        "as many leases when the pause returns as at the end",
        format!("equal each time: {stopped_at:?}; {in_between} times with rows left"),
        // Each round has required it. How many rows were claimed by then depends on the scheduler.
        stopped_at.len() == ROUNDS,
    )
}

async fn claim_until(
    client: Client,
    stop: Arc<AtomicBool>,
    claims: mpsc::UnboundedSender<usize>,
) -> Result<i64, Failure> {
    let mut claimed = 0;
    loop {
        let last = stop.load(Ordering::Relaxed);
        let leases = claim(&client, 2, "worker").await?.len();
        claimed += i64::try_from(leases).unwrap_or_default();
        let _ = claims.send(leases);
        if last {
            return Ok(claimed);
        }
    }
}

/// Twelve workers on a rail with max_in_flight 5: always five leases while rows are due.
async fn in_flight_limit(
    database: &Database,
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    set_rail(&sessions.operator, "full", r#"{"max_in_flight": 5}"#).await?;
    fill(sessions, "full", 200).await?;
    let leases = claim_at_once(database, 12, 3).await?;
    let live = count(&sessions.owner, LIVE, &[&"full"]).await?;
    recorder.check(
        "12 workers claim 3 each at once from a rail with max_in_flight 5",
        "5 claimed, 5 live",
        format!("{} claimed, {live} live", leases.len()),
        leases.len() == 5 && live == 5,
    )?;
    for lease in &leases {
        complete(&sessions.executor, lease, Outcome::DISPATCHED).await?;
    }

    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for (number, client) in connect_many(database, "symphony_executor", 12).await?.into_iter().enumerate() {
        let done = Arc::clone(&done);
        tasks.spawn(async move {
            let worker = format!("worker-{number}");
            let mut ended = 0;
            while !done.load(Ordering::Relaxed) {
                let leases = claim(&client, 3, &worker).await?;
                for lease in &leases {
                    complete(&client, lease, Outcome::DISPATCHED).await?;
                    ended += 1;
                }
            }
            Ok::<i64, Failure>(ended)
        });
    }
    let (mut most, mut counts) = (0, 0);
    while count(&sessions.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await? > 0 {
        most = most.max(count(&sessions.owner, LIVE, &[&"full"]).await?);
        counts += 1;
    }
    done.store(true, Ordering::Relaxed);
    let mut ended = 0;
    while let Some(done) = tasks.join_next().await {
        ended += done??;
    }
    recorder.check(
        "12 workers claim and complete the other 195 rows, while another session keeps counting the live leases",
        "195 ended, never more than 5 at a time",
        format!("{ended} ended, at most {most} at a time in {counts} counts"),
        ended == 195 && most <= 5,
    )
}

/// A limit that is set, raised and lowered counts all live leases.
async fn changed_in_flight_limit(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    set_rail(&sessions.operator, "changing", "{}").await?;
    fill(sessions, "changing", 100).await?;
    let mut held = claim(&sessions.executor, 8, "worker").await?;
    let mut steps = vec![held.len()];
    let mut next = async |held: &mut Vec<Lease>| {
        let leases = claim(&sessions.executor, 50, "worker").await?;
        steps.push(leases.len());
        held.extend(leases);
        Ok::<_, Failure>(())
    };
    set_rail(&sessions.operator, "changing", r#"{"max_in_flight": 5}"#).await?;
    next(&mut held).await?; // 8 live: none
    for lease in held.drain(..4) {
        complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
    }
    next(&mut held).await?; // 4 live: one
    set_rail(&sessions.operator, "changing", r#"{"max_in_flight": 7}"#).await?;
    next(&mut held).await?; // two more
    release(&sessions.executor, &held[..3]).await?;
    held.drain(..3);
    next(&mut held).await?; // three were released
    expire(&sessions.owner, &held[0].outbox_id).await?;
    next(&mut held).await?; // one has expired
    complete(&sessions.executor, &held[1], Outcome::RETRYABLE).await?;
    next(&mut held).await?; // one waits for a retry
    set_rail(&sessions.operator, "changing", r#"{"max_in_flight": 3}"#).await?;
    next(&mut held).await?; // seven live
    set_rail(&sessions.operator, "changing", r#"{"max_in_flight": null}"#).await?;
    next(&mut held).await?; // no limit: the whole batch
    recorder.check_equal(
        "8 leased without a limit; limit 5; 4 end; limit 7; 3 released; 1 expires; 1 is scheduled for a retry; limit 3; no limit",
        "claimed after each",
        "[8, 0, 1, 2, 3, 1, 1, 0, 50]".to_owned(),
        format!("{steps:?}"),
    )
}
