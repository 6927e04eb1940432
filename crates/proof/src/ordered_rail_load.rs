//! Ordered rails under load: dispatch stays in sequence, and no row waits for a head that has ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::evidence::{Failure, Recorder, require};
use super::seeded_rng::{SeededRng, rerun_hint, seed};
use super::sessions::{
    Lease, Outcome, Payment, Sessions, claim, claim_with_followers, complete_batch, count, enqueue, release,
    repair, set_rail,
};
use symphony_testkit::bulk_rows::clear_pending;
use symphony_testkit::test_database::Database;

const WORKERS: usize = 8;
const PRODUCERS: usize = 4;
const STREAMS: usize = 12;
/// How many empty claims in a row stop a worker; the proof counts what is left afterwards.
const EMPTY_CLAIMS: usize = 10;

/// Rows with an outcome recorded before an earlier row of their participant had ended. Ids of ledger rows are in the
/// order of their recording. The expired leases of a run do not count: its followers were leased and never dispatched.
pub(super) async fn out_of_order(owner: &Client, rail: &str) -> Result<i64, Failure> {
    let out_of_order = "select count(distinct l.outbox_id)
                     from symphony.payment_outbox_attempts l
                     join symphony.payment_outbox_attempts e
                       on e.participant_id = l.participant_id and e.rail_type = l.rail_type and e.sequence_id < l.sequence_id
                     where l.rail_type = $1 and e.attempt_id > l.attempt_id and l.state <> 'ZOMBIE_REQUEUE'";
    Ok(count(owner, out_of_order, &[&rail]).await?)
}

/// Producers, workers with every outcome, and a participant whose head is never completed.
pub(super) async fn under_load(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let seed = seed();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "load", r#"{"ordered": true}"#).await?;
    for number in 0..5 {
        enqueue(&sessions.ingest, &Payment::new(format!("stuck-{number}"), "stuck", "load")).await?;
    }
    let stuck = claim(&sessions.executor, 1, "stuck").await?;
    require(|| "leasing the head of a participant for the whole run".into(), 1, stuck.len())?;

    let (claimed, made) = run(database, seed, "load").await?;
    drain(&sessions).await?;
    let others = "select count(*) from symphony.payment_outbox_pending where rail_type = 'load' and participant_id <> 'stuck'";
    let others = count(&sessions.owner, others, &[]).await?;
    let stuck_rows = "select count(*) from symphony.payment_outbox_pending where rail_type = 'load' and participant_id = 'stuck'";
    let stuck_rows = count(&sessions.owner, stuck_rows, &[]).await?;
    recorder.check(
        format!(
            "{WORKERS} workers that retry, die and release, {PRODUCERS} producers that commit and roll back, {STREAMS} \
             participants and one whose head stays leased; {claimed} leases ({})",
            rerun_hint(seed)
        ),
        format!("all of {made} rows end, the 5 of the stuck participant wait"),
        format!("{others} rows of other participants are left, {stuck_rows} of the stuck one"),
        others == 0 && stuck_rows == 5 && made > 100,
    )?;
    let out_of_order = out_of_order(&sessions.owner, "load").await?;
    let dispatched =
        "select count(*) from symphony.payment_outbox_attempts where rail_type = 'load' and state = 'DISPATCHED'";
    let dispatched = count(&sessions.owner, dispatched, &[]).await?;
    let ways = "select count(distinct state) from symphony.payment_outbox_attempts where rail_type = 'load'";
    let ways = count(&sessions.owner, ways, &[]).await?;
    recorder.check(
        "reading their order from the ledger",
        format!("{made} DISPATCHED in sequence, none out of order, with retries and expired leases in between"),
        format!("{dispatched} DISPATCHED, {out_of_order} out of order, {ways} kinds of outcomes"),
        dispatched == made && out_of_order == 0 && ways == 3,
    )?;
    let sequence = "select count(*) from (
                      select sequence_id, lag(sequence_id) over (partition by participant_id order by attempt_id) as before
                      from symphony.payment_outbox_attempts where rail_type = 'load' and state = 'DISPATCHED') s
                    where sequence_id <> coalesce(before, 0) + 1";
    let sequence = count(&sessions.owner, sequence, &[]).await?;
    recorder.check_equal(
        "reading the DISPATCHED rows of each participant in order",
        "gaps in the sequence",
        0,
        sequence,
    )?;
    clear_pending(&sessions.owner).await?;
    Ok(())
}

/// The same load while an operator switches the rail from ordered to unordered and back.
pub(super) async fn while_switched(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let seed = seed();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "switched", r#"{"ordered": true}"#).await?;
    let operator = database.connect_as("symphony_operator").await?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let switching = tokio::spawn(async move {
        let mut switches = 0;
        while !stopped.load(Ordering::Relaxed) {
            set_rail(&operator, "switched", &format!(r#"{{"ordered": {}}}"#, switches % 2 == 1)).await?;
            switches += 1;
        }
        set_rail(&operator, "switched", r#"{"ordered": true}"#).await?;
        Ok::<i64, Failure>(switches)
    });
    let (claimed, made) = run(database, seed, "switched").await?;
    stop.store(true, Ordering::Relaxed);
    let switches = switching.await??;
    drain(&sessions).await?;
    let left = count(&sessions.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    recorder.check(
        format!(
            "switching a rail between ordered and unordered {switches} times under that load, {claimed} leases ({})",
            rerun_hint(seed)
        ),
        format!("all of {made} rows end"),
        format!("{left} rows are left"),
        left == 0 && made > 100 && switches >= 10,
    )
}

/// Runs the load until every claim is empty. Returns how many leases were granted and how many rows were enqueued.
async fn run(database: &Database, seed: u64, rail: &'static str) -> Result<(i64, i64), Failure> {
    let produced = Arc::new(AtomicBool::new(false));
    let mut producers = JoinSet::new();
    for number in 0..PRODUCERS {
        let client = database.connect_as("symphony_ingest").await?;
        producers.spawn(produce(client, SeededRng::new(seed, number), number, rail));
    }
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        let sessions = Sessions::connect(database).await?;
        workers.spawn(work(sessions, SeededRng::new(seed, 100 + number), number, rail, Arc::clone(&produced)));
    }
    let mut made = 0;
    while let Some(done) = producers.join_next().await {
        made += done??;
    }
    produced.store(true, Ordering::Relaxed);
    let mut claimed = 0;
    while let Some(done) = workers.join_next().await {
        claimed += done??;
    }
    Ok((claimed, made))
}

/// Transactions of one participant each, a few of them rolled back; returns how many rows were committed.
async fn produce(client: Client, mut rng: SeededRng, number: usize, rail: &str) -> Result<i64, Failure> {
    let mut made = 0;
    for transaction in 0..25 {
        let participant = format!("{rail}-{}", rng.below(STREAMS));
        let payments = rng.up_to(4);
        client.batch_execute("begin").await?;
        for payment in 0..payments {
            enqueue(
                &client,
                &Payment::new(format!("{rail}-{number}-{transaction}-{payment}"), &participant, rail),
            )
            .await?;
        }
        if rng.chance(15) {
            client.batch_execute("rollback").await?;
        } else {
            client.batch_execute("commit").await?;
            made += i64::from(payments);
        }
    }
    Ok(made)
}

async fn work(
    sessions: Sessions,
    mut rng: SeededRng,
    number: usize,
    rail: &str,
    produced: Arc<AtomicBool>,
) -> Result<i64, Failure> {
    let worker = format!("worker-{number}");
    let (mut idle, mut claimed) = (0, 0);
    while idle < EMPTY_CLAIMS || !produced.load(Ordering::Relaxed) {
        let batch = rng.up_to(10);
        let leases = match rng.below(2) {
            0 => claim(&sessions.executor, batch, &worker).await?,
            _ => claim_with_followers(&sessions.executor, batch, &worker, rail, batch).await?,
        };
        claimed += i64::try_from(leases.len()).unwrap_or_default();
        if leases.is_empty() {
            idle += 1;
            continue;
        }
        idle = 0;
        end(&sessions, &mut rng, &leases).await?;
    }
    Ok(claimed)
}

/// Ends leases with a random outcome, mostly DISPATCHED. Of each run, a random part is DISPATCHED before, in sequence; of
/// what is left, only its first row is retried and the others are released.
async fn end(sessions: &Sessions, rng: &mut SeededRng, leases: &[Lease]) -> Result<(), Failure> {
    let mut runs: BTreeMap<&str, Vec<Lease>> = BTreeMap::new();
    for lease in leases {
        runs.entry(&lease.participant).or_default().push(lease.clone());
    }
    let (mut firsts, mut rest) = (Vec::new(), Vec::new());
    for mut run in runs.into_values() {
        run.sort_by_key(|lease| lease.sequence_id);
        let mut run = run.split_off(rng.below(run.len()));
        rest.extend(run.split_off(1));
        firsts.append(&mut run);
    }
    let done: Vec<_> =
        sorted(leases).into_iter().filter(|lease| !holds(&firsts, lease) && !holds(&rest, lease)).collect();
    if !done.is_empty() {
        complete_batch(&sessions.executor, &done, Outcome::DISPATCHED).await?;
    }
    let outcome = rng.below(10);
    if matches!(outcome, 1 | 2) && !rest.is_empty() {
        release(&sessions.executor, &rest).await?;
        rest.clear();
    }
    let left = sorted(&[firsts, rest].concat());
    let leases = left.as_slice();
    match outcome {
        0 => drop(release(&sessions.executor, leases).await?),
        1 | 2 => drop(complete_batch(&sessions.executor, leases, Outcome::RETRY_NOW).await?),
        3 => {
            // The worker dies, and its leases expire.
            for lease in leases {
                expire(&sessions.owner, &lease.outbox_id).await?;
            }
            if rng.chance(50) {
                repair(&sessions.executor, 10).await?;
                for lease in leases {
                    let due = "update symphony.payment_outbox_pending set next_attempt_at = now()
                               where outbox_id = $1::text::uuid and next_attempt_at > now()";
                    sessions.owner.execute(due, &[&lease.outbox_id]).await?;
                }
            }
        }
        _ => drop(complete_batch(&sessions.executor, leases, Outcome::DISPATCHED).await?),
    }
    Ok(())
}

fn holds(leases: &[Lease], lease: &Lease) -> bool {
    leases.iter().any(|held| held.outbox_id == lease.outbox_id)
}

/// By sequence, so that a batch is recorded in the order in which its rows were dispatched.
fn sorted(leases: &[Lease]) -> Vec<Lease> {
    let mut leases = leases.to_vec();
    leases.sort_by_key(|lease| lease.sequence_id);
    leases
}

/// Drains the queue with one worker: a row that it cannot claim is stranded.
async fn drain(sessions: &Sessions) -> Result<(), Failure> {
    let kept = "update symphony.payment_outbox_pending set lease_expires_at = now() - interval '1 second'
                where lease_token is not null and claimed_by <> 'stuck'";
    sessions.owner.execute(kept, &[]).await?;
    make_due(&sessions.owner).await?;
    let mut empty = 0;
    while empty < 3 {
        let leases = claim(&sessions.executor, 100, "drain").await?;
        if leases.is_empty() {
            empty += 1;
            continue;
        }
        empty = 0;
        complete_batch(&sessions.executor, &leases, Outcome::DISPATCHED).await?;
    }
    Ok(())
}
