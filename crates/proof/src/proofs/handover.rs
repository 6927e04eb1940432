//! Ordered rails under load: nothing overtakes, and nothing is left waiting for a head that is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::crew::{Crew, Lease, Order, Outcome, claim, complete_batch, count, enqueue, release, repair, set_rail};
use super::dice::{Dice, repeat, seed};
use super::evidence::{Failure, Trial, require};
use crate::kit::crowd::clear_pending;
use crate::kit::scratch::Database;

const WORKERS: usize = 8;
const PRODUCERS: usize = 4;
const STREAMS: usize = 12;
/// How often in a row a worker finds nothing before it stops; what it leaves is looked for afterwards.
const IDLE: usize = 10;

/// Rows with an attempt recorded before an earlier row of their participant had ended. Ids of ledger rows are in the
/// order of their recording.
pub(super) async fn overtaken(owner: &Client, rail: &str) -> Result<i64, Failure> {
    let overtaken = "select count(distinct l.outbox_id)
                     from symphony.payment_outbox_attempts l
                     join symphony.payment_outbox_attempts e
                       on e.participant_id = l.participant_id and e.rail_type = l.rail_type and e.sequence_id < l.sequence_id
                     where l.rail_type = $1 and e.attempt_id > l.attempt_id";
    Ok(count(owner, overtaken, &[&rail]).await?)
}

/// Producers, workers that fail in every way, and a participant whose head is never completed.
pub(super) async fn under_load(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let seed = seed();
    let crew = Crew::hire(database).await?;
    set_rail(&crew.operator, "load", r#"{"ordered": true}"#).await?;
    for number in 0..5 {
        enqueue(&crew.ingest, &Order::new(format!("stuck-{number}"), "stuck", "load")).await?;
    }
    let stuck = claim(&crew.executor, 1, "stuck").await?;
    require(|| "leasing the head of a participant for the whole run".into(), 1, stuck.len())?;

    let (handed, made) = run(database, seed, "load").await?;
    drain(&crew).await?;
    let others = "select count(*) from symphony.payment_outbox_pending where rail_type = 'load' and participant_id <> 'stuck'";
    let others = count(&crew.owner, others, &[]).await?;
    let stuck_rows = "select count(*) from symphony.payment_outbox_pending where rail_type = 'load' and participant_id = 'stuck'";
    let stuck_rows = count(&crew.owner, stuck_rows, &[]).await?;
    trial.holds(
        format!(
            "{WORKERS} workers that retry, die and give back, {PRODUCERS} producers that commit and roll back, {STREAMS} \
             participants and one whose head stays leased; {handed} leases ({})",
            repeat(seed)
        ),
        format!("all of {made} rows end, the 5 of the stuck participant wait"),
        format!("{others} rows are left of the others, {stuck_rows} of the stuck one"),
        others == 0 && stuck_rows == 5 && made > 100,
    )?;
    let overtaken = overtaken(&crew.owner, "load").await?;
    let dispatched =
        "select count(*) from symphony.payment_outbox_attempts where rail_type = 'load' and state = 'DISPATCHED'";
    let dispatched = count(&crew.owner, dispatched, &[]).await?;
    let ways = "select count(distinct state) from symphony.payment_outbox_attempts where rail_type = 'load'";
    let ways = count(&crew.owner, ways, &[]).await?;
    trial.holds(
        "reading their order from the ledger",
        format!("{made} DISPATCHED in sequence, none overtaken, with retries and zombies in between"),
        format!("{dispatched} DISPATCHED, {overtaken} overtaken, {ways} kinds of outcomes"),
        dispatched == made && overtaken == 0 && ways == 3,
    )?;
    let sequence = "select count(*) from (
                      select sequence_id, lag(sequence_id) over (partition by participant_id order by attempt_id) as before
                      from symphony.payment_outbox_attempts where rail_type = 'load' and state = 'DISPATCHED') s
                    where sequence_id <> coalesce(before, 0) + 1";
    let sequence = count(&crew.owner, sequence, &[]).await?;
    trial.same(
        "walking through the DISPATCHED of each participant",
        "steps that are not to the next number",
        0,
        sequence,
    )?;
    clear_pending(&crew.owner).await?;
    Ok(())
}

/// The same load while an operator switches the rail from ordered to unordered and back.
pub(super) async fn while_switched(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let seed = seed();
    let crew = Crew::hire(database).await?;
    set_rail(&crew.operator, "switched", r#"{"ordered": true}"#).await?;
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
    let (handed, made) = run(database, seed, "switched").await?;
    stop.store(true, Ordering::Relaxed);
    let switches = switching.await??;
    drain(&crew).await?;
    let left = count(&crew.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    trial.holds(
        format!(
            "switching a rail between ordered and unordered {switches} times under that load, {handed} leases ({})",
            repeat(seed)
        ),
        format!("all of {made} rows end"),
        format!("{left} rows are left"),
        left == 0 && made > 100 && switches >= 10,
    )
}

/// Runs the load until nobody finds anything. Returns how many leases were handed out and how many rows were made.
async fn run(database: &Database, seed: u64, rail: &'static str) -> Result<(i64, i64), Failure> {
    let produced = Arc::new(AtomicBool::new(false));
    let mut producers = JoinSet::new();
    for number in 0..PRODUCERS {
        let client = database.connect_as("symphony_ingest").await?;
        producers.spawn(produce(client, Dice::new(seed, number), number, rail));
    }
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        let crew = Crew::hire(database).await?;
        workers.spawn(work(crew, Dice::new(seed, 100 + number), number, Arc::clone(&produced)));
    }
    let mut made = 0;
    while let Some(done) = producers.join_next().await {
        made += done??;
    }
    produced.store(true, Ordering::Relaxed);
    let mut handed = 0;
    while let Some(done) = workers.join_next().await {
        handed += done??;
    }
    Ok((handed, made))
}

/// Transactions of one participant each, a few of them rolled back; returns how many rows were committed.
async fn produce(client: Client, mut dice: Dice, number: usize, rail: &str) -> Result<i64, Failure> {
    let mut made = 0;
    for transaction in 0..25 {
        let participant = format!("{rail}-{}", dice.below(STREAMS));
        let orders = dice.up_to(4);
        client.batch_execute("begin").await?;
        for order in 0..orders {
            enqueue(&client, &Order::new(format!("{rail}-{number}-{transaction}-{order}"), &participant, rail))
                .await?;
        }
        if dice.chance(15) {
            client.batch_execute("rollback").await?;
        } else {
            client.batch_execute("commit").await?;
            made += i64::from(orders);
        }
    }
    Ok(made)
}

async fn work(crew: Crew, mut dice: Dice, number: usize, produced: Arc<AtomicBool>) -> Result<i64, Failure> {
    let worker = format!("worker-{number}");
    let (mut idle, mut handed) = (0, 0);
    while idle < IDLE || !produced.load(Ordering::Relaxed) {
        let leases = claim(&crew.executor, dice.up_to(10), &worker).await?;
        handed += i64::try_from(leases.len()).unwrap_or_default();
        if leases.is_empty() {
            idle += 1;
            continue;
        }
        idle = 0;
        end(&crew, &mut dice, &leases).await?;
    }
    Ok(handed)
}

/// Ends leases in one of the ways there are: mostly well.
async fn end(crew: &Crew, dice: &mut Dice, leases: &[Lease]) -> Result<(), Failure> {
    match dice.below(10) {
        0 => drop(release(&crew.executor, leases).await?),
        1 | 2 => drop(complete_batch(&crew.executor, leases, Outcome::AGAIN).await?),
        3 => {
            // It dies, and time passes.
            for lease in leases {
                expire(&crew.owner, &lease.outbox_id).await?;
            }
            if dice.chance(50) {
                repair(&crew.executor, 10).await?;
                for lease in leases {
                    let due = "update symphony.payment_outbox_pending set next_attempt_at = now()
                               where outbox_id = $1::text::uuid and next_attempt_at > now()";
                    crew.owner.execute(due, &[&lease.outbox_id]).await?;
                }
            }
        }
        _ => drop(complete_batch(&crew.executor, leases, Outcome::DISPATCHED).await?),
    }
    Ok(())
}

/// One worker alone, without trouble: whatever it is not handed is handed to nobody.
async fn drain(crew: &Crew) -> Result<(), Failure> {
    let kept = "update symphony.payment_outbox_pending set lease_expires_at = now() - interval '1 second'
                where lease_token is not null and claimed_by <> 'stuck'";
    crew.owner.execute(kept, &[]).await?;
    make_due(&crew.owner).await?;
    let mut empty = 0;
    while empty < 3 {
        let leases = claim(&crew.executor, 100, "drain").await?;
        if leases.is_empty() {
            empty += 1;
            continue;
        }
        empty = 0;
        complete_batch(&crew.executor, &leases, Outcome::DISPATCHED).await?;
    }
    Ok(())
}
