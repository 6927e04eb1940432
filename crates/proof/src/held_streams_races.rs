//! Failures that hold their streams, while workers claim, producers enqueue and operators release at the same time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::evidence::{Evidence, Failure, Recorder, require};
use super::seeded_rng::{SeededRng, rerun_hint, seed};
use super::server_state::{pid, waits_for_lock};
use super::sessions::{
    Lease, Outcome, Payment, Sessions, claim, claim_with_followers, complete, connect_many, count, enqueue,
    redrive, release, resolve, set_rail,
};
use symphony_testkit::test_database::Database;

const WORKERS: usize = 6;
const PARTICIPANTS: usize = 4;
const PAYMENTS: usize = 25;

/// Proof 46: `no_payment_passes_a_failure_that_holds_its_stream_and_none_waits_for_ever`.
pub(super) async fn keep_the_order(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "hold", r#"{"ordered": true, "on_failure": "HOLD"}"#).await?;
    a_claim_that_parks(database, &sessions, &mut recorder).await?;
    open_transactions(database, &sessions, &mut recorder).await?;
    a_load(database, &sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

/// Three payments of a participant, of which the first has failed.
async fn a_held_stream(sessions: &Sessions, participant: &str) -> Result<Lease, Failure> {
    for number in 1..=3 {
        enqueue(&sessions.ingest, &Payment::new(format!("{participant}-{number}"), participant, "hold")).await?;
    }
    let head = claim(&sessions.executor, 100, "worker").await?.remove(0);
    complete(&sessions.executor, &head, Outcome::REJECTED).await?;
    Ok(head)
}

/// The sequence numbers of what can be claimed, all dispatched.
async fn dispatch_next(executor: &Client) -> Result<Vec<i64>, Failure> {
    let leases = claim(executor, 100, "worker").await?;
    for lease in &leases {
        complete(executor, lease, Outcome::DISPATCHED).await?;
    }
    Ok(leases.iter().map(|lease| lease.sequence_id).collect())
}

/// An operator waits for a claim that parks rows behind the hold, and then unparks what it parked.
async fn a_claim_that_parks(
    database: &Database,
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    for step in ["SKIPPED", "REDRIVE"] {
        let head = a_held_stream(sessions, &format!("parked-{}", step.to_lowercase())).await?;
        let parker = database.connect_as("symphony_executor").await?;
        parker.batch_execute("begin").await?;
        require(|| "parking".into(), 0, claim(&parker, 100, "parker").await?.len())?;
        let operator = database.connect_as("symphony_operator").await?;
        let operator_pid = pid(&operator).await?;
        let failed = head.outbox_id.clone();
        let task = tokio::spawn(async move { act(&operator, step, &failed).await });
        let waited = waits_for_lock(&sessions.owner, operator_pid, &task).await?;
        parker.batch_execute("commit").await?;
        task.await??;
        let mut order = Vec::new();
        while let [next] = dispatch_next(&sessions.executor).await?[..] {
            order.push(next);
        }
        let expected: &[i64] = if step == "REDRIVE" { &[1, 2, 3] } else { &[2, 3] };
        recorder.check(
            format!("{step} while a claim that parks the rows behind the failure has not committed"),
            format!("the operator waits; then {expected:?} are dispatched one after the other"),
            format!("waited: {waited}; {order:?}"),
            waited && order == expected,
        )?;
    }
    Ok(())
}

async fn act(operator: &Client, step: &str, failed: &str) -> Result<(), tokio_postgres::Error> {
    match step {
        "REDRIVE" => redrive(operator, failed).await.map(drop),
        resolution => resolve(operator, failed, resolution).await,
    }
}

/// Nothing passes a failure or a release that has not committed.
async fn open_transactions(
    database: &Database,
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    for number in 1..=2 {
        enqueue(&sessions.ingest, &Payment::new(format!("ida-{number}"), "ida", "hold")).await?;
    }
    let head = claim(&sessions.executor, 100, "worker").await?.remove(0);
    let completer = database.connect_as("symphony_executor").await?;
    completer.batch_execute("begin").await?;
    complete(&completer, &head, Outcome::REJECTED).await?;
    let during = claim(&sessions.executor, 100, "worker").await?.len();
    completer.batch_execute("commit").await?;
    let after = claim(&sessions.executor, 100, "worker").await?.len();
    let operator = database.connect_as("symphony_operator").await?;
    operator.batch_execute("begin").await?;
    act(&operator, "SKIPPED", &head.outbox_id).await?;
    let released = claim(&sessions.executor, 100, "worker").await?.len();
    operator.batch_execute("rollback").await?;
    let undone = claim(&sessions.executor, 100, "worker").await?.len();
    act(&sessions.operator, "SKIPPED", &head.outbox_id).await?;
    let next = dispatch_next(&sessions.executor).await?;
    recorder.check(
        "claiming while a failure has not committed, after it has, while a release has not, after its rollback, and after another",
        "nothing four times, then 2",
        format!("{during}, {after}, {released}, {undone} leases, then {next:?}"),
        [during, after, released, undone] == [0; 4] && next == [2],
    )
}

/// The failures that hold a stream now, as participant and sequence number, with a number that is never used again.
type Holds = Arc<Mutex<BTreeSet<(String, i64, String)>>>;

fn current(holds: &Holds) -> BTreeSet<(String, i64, String)> {
    holds.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Workers, producers and an operator at once: no lease is granted behind a failure that held before the claim and after it.
async fn a_load(database: &Database, sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let seed = seed();
    let (holds, stop) = (Holds::default(), Arc::new(AtomicBool::new(false)));
    let mut producers = JoinSet::new();
    for (number, ingest) in connect_many(database, "symphony_ingest", PARTICIPANTS).await?.into_iter().enumerate()
    {
        producers.spawn(async move {
            for payment in 0..PAYMENTS {
                let participant = format!("load-{number}");
                enqueue(&ingest, &Payment::new(format!("{participant}-{payment}"), &participant, "hold")).await?;
            }
            Ok::<(), Failure>(())
        });
    }
    let mut workers = JoinSet::new();
    for (number, executor) in connect_many(database, "symphony_executor", WORKERS).await?.into_iter().enumerate() {
        let (holds, stop) = (Arc::clone(&holds), Arc::clone(&stop));
        let rng = SeededRng::new(seed, number);
        workers.spawn(work(executor, format!("worker-{number}"), rng, holds, stop));
    }
    while let Some(done) = producers.join_next().await {
        done??;
    }
    // The operator releases until nothing is pending and nothing holds.
    let mut released = [0; 2];
    loop {
        let Some((participant, sequence_id, outbox_id)) = current(&holds).into_iter().next() else {
            let left = "select (select count(*) from symphony.payment_outbox_pending)
                             + (select count(*) from symphony.payment_stream_holds)";
            if count(&sessions.owner, left, &[]).await? == 0 {
                break;
            }
            tokio::task::yield_now().await;
            continue;
        };
        // Before the call, because the release may be seen before it returns.
        holds.lock().unwrap_or_else(PoisonError::into_inner).remove(&(
            participant,
            sequence_id,
            outbox_id.clone(),
        ));
        let redrives = sequence_id % 2 == 0;
        act(&sessions.operator, if redrives { "REDRIVE" } else { "SKIPPED" }, &outbox_id).await?;
        released[usize::from(redrives)] += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let (mut leases, mut passed) = (0, Vec::new());
    while let Some(done) = workers.join_next().await {
        let (mine, violations) = done??;
        leases += mine;
        passed.extend(violations);
    }
    let inverted = "select count(*) from (
                      select sequence_id < lag(sequence_id) over (partition by participant_id order by completed_at) as inverted
                      from symphony.payment_outbox_attempts where state = 'DISPATCHED' and participant_id like 'load-%') d
                    where d.inverted";
    let inverted = count(&sessions.owner, inverted, &[]).await?;
    let dispatched = "select count(*) from symphony.payment_outbox_attempts where state = 'DISPATCHED' and participant_id like 'load-%'";
    let dispatched = count(&sessions.owner, dispatched, &[]).await?;
    let [skipped, redriven] = released;
    let all = i64::try_from(PARTICIPANTS * PAYMENTS).unwrap_or_default();
    recorder.check(
        format!(
            "{WORKERS} workers, {PARTICIPANTS} producers of {PAYMENTS} payments each and an operator at once, {skipped} failures \
             skipped and {redriven} redriven ({})",
            rerun_hint(seed)
        ),
        format!("no lease behind a failure that holds, all of {all} but the skipped ones dispatched, each participant in sequence"),
        format!("{leases} leases, passed: {passed:?}; {dispatched} dispatched, {inverted} out of sequence"),
        passed.is_empty() && dispatched == all - skipped && inverted == 0 && skipped > 0 && redriven > 0,
    )
}

/// Claims and completes, some as failures. Returns its leases, and those behind a failure that held all the while.
async fn work(
    executor: Client,
    worker: String,
    mut rng: SeededRng,
    holds: Holds,
    stop: Arc<AtomicBool>,
) -> Result<(usize, Vec<String>), Failure> {
    let (mut count, mut violations) = (0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let before = current(&holds);
        let mut leases = if rng.below(2) == 0 {
            claim(&executor, 5, &worker).await?
        } else {
            claim_with_followers(&executor, 5, &worker, "hold", 5).await?
        };
        let held: Vec<_> = before.intersection(&current(&holds)).cloned().collect();
        // A run is dispatched in sequence.
        leases.sort_by_key(|lease| lease.sequence_id);
        count += leases.len();
        let mut failed = BTreeSet::new();
        for lease in leases {
            if held.iter().any(|(participant, at, _)| *participant == lease.participant && *at < lease.sequence_id)
            {
                violations.push(format!("{} {}", lease.participant, lease.sequence_id));
            }
            if failed.contains(&lease.participant) {
                // The rest of a run.
                release(&executor, &[lease]).await?;
            } else if rng.below(8) == 0 {
                complete(&executor, &lease, Outcome::REJECTED).await?;
                failed.insert(lease.participant.clone());
                holds.lock().unwrap_or_else(PoisonError::into_inner).insert((
                    lease.participant,
                    lease.sequence_id,
                    lease.outbox_id,
                ));
            } else {
                complete(&executor, &lease, Outcome::DISPATCHED).await?;
            }
        }
    }
    Ok((count, violations))
}
