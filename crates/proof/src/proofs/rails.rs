//! A rail that is paused or full hands out nothing more, whoever asks and however many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::crew::{
    Crew, Lease, Order, Outcome, claim, complete, complete_batch, count, enqueue_batch, release, repair, sessions,
    set_rail,
};
use super::evidence::{Evidence, Failure, Trial, require};
use crate::kit::crowd::clear_pending;
use crate::kit::scratch::Database;

const PAUSE: &str = "select symphony.pause_payment_rail($1, 'operator', 'a proof')";
const RESUME: &str = "select symphony.resume_payment_rail($1, 'operator', 'a proof')";
const LIVE: &str =
    "select count(*) from symphony.payment_outbox_pending where rail_type = $1 and lease_expires_at > now()";

/// Proof 19.
pub(super) async fn hold_back(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    let crew = Crew::hire(database).await?;
    a_paused_rail(database, &crew, &mut trial).await?;
    a_pause_among_claims(database, &crew, &mut trial).await?;
    a_full_rail(database, &crew, &mut trial).await?;
    a_cap_that_changes(&crew, &mut trial).await?;
    Ok(trial.evidence())
}

async fn fill(crew: &Crew, rail: &str, rows: usize) -> Result<(), Failure> {
    let orders: Vec<Order> = (0..rows)
        .map(|number| Order::new(format!("{rail}-{number}"), &format!("{rail}-{number}"), rail))
        .collect();
    enqueue_batch(&crew.ingest, &orders).await?;
    Ok(())
}

/// Lets many claim at once, and returns what all of them got.
async fn claim_at_once(database: &Database, claimers: usize, batch: i32) -> Result<Vec<Lease>, Failure> {
    let barrier = Arc::new(Barrier::new(claimers));
    let mut tasks = JoinSet::new();
    for (number, client) in sessions(database, "symphony_executor", claimers).await?.into_iter().enumerate() {
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

async fn a_paused_rail(database: &Database, crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    set_rail(&crew.operator, "paused", "{}").await?;
    set_rail(&crew.operator, "open", "{}").await?;
    fill(crew, "paused", 40).await?;
    fill(crew, "open", 40).await?;
    let before: Vec<Lease> =
        claim(&crew.executor, 4, "worker").await?.into_iter().filter(|lease| lease.rail == "paused").collect();
    require(|| "leasing before the pause".into(), 4, before.len())?;
    crew.operator.execute(PAUSE, &[&"paused"]).await?;
    let mut leases = claim_at_once(database, 12, 20).await?;
    // What each passed by because another had it at that moment, if there is any.
    leases.extend(claim(&crew.executor, 100, "last").await?);
    let paused = leases.iter().filter(|lease| lease.rail == "paused").count();
    trial.holds(
        "12 workers claim at once, and then one more, from a rail that is paused and one that is not, 36 and 40 rows",
        "0 of the one, 40 of the other",
        format!("{paused} of the one, {} of the other", leases.len() - paused),
        paused == 0 && leases.len() == 40,
    )?;
    expire(&crew.owner, &before[3].outbox_id).await?;
    let again = claim_at_once(database, 4, 20).await?.len();
    let repaired = repair(&crew.executor, 10).await?.len();
    let recorded = complete_batch(&crew.executor, &before[..3], Outcome::DISPATCHED).await?;
    let recorded = recorded.iter().filter(|result| result.is_ok()).count();
    trial.holds(
        "claiming, repairing and completing what was leased before the pause, one lease of which ran out",
        "0 handed out, 1 repaired, 3 recorded",
        format!("{again} handed out, {repaired} repaired, {recorded} recorded"),
        again == 0 && repaired == 1 && recorded == 3,
    )?;
    crew.operator.execute(RESUME, &[&"paused"]).await?;
    make_due(&crew.owner).await?;
    let mut leases = claim_at_once(database, 4, 20).await?;
    leases.extend(claim(&crew.executor, 100, "last").await?);
    trial.same("4 workers, and then one more, claim after it was resumed", "handed out", 37, leases.len())?;
    clear_pending(&crew.owner).await?;
    Ok(())
}

/// What is leased when a pause returns is all that ever is, though claims go on all the while.
async fn a_pause_among_claims(database: &Database, crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    const ROUNDS: usize = 12;
    set_rail(&crew.operator, "stopped", "{}").await?;
    let operator = database.connect_as("symphony_operator").await?;
    let mut stopped_at = Vec::new();
    for round in 0..ROUNDS {
        let orders: Vec<Order> = (0..300)
            .map(|number| Order::new(format!("stop-{round}-{number}"), &format!("{number}"), "stopped"))
            .collect();
        enqueue_batch(&crew.ingest, &orders).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let (claims, mut claimed) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for client in sessions(database, "symphony_executor", 8).await? {
            tasks.spawn(claim_until(client, Arc::clone(&stop), claims.clone()));
        }
        // In the middle of things: after a claim has handed something out, while the others go on.
        for _ in 0..=round {
            claimed.recv().await;
        }
        operator.execute(PAUSE, &[&"stopped"]).await?;
        let at_return = count(&crew.owner, LIVE, &[&"stopped"]).await?;
        // Every claimer asks once more after this.
        stop.store(true, Ordering::Relaxed);
        let mut handed = 0;
        while let Some(done) = tasks.join_next().await {
            handed += done??;
        }
        let in_the_end = count(&crew.owner, LIVE, &[&"stopped"]).await?;
        require(|| format!("pausing a rail while 8 workers claim, round {round}"), at_return, in_the_end)?;
        require(|| format!("adding up what they got, round {round}"), at_return, handed)?;
        stopped_at.push(at_return);
        operator.execute(RESUME, &[&"stopped"]).await?;
        clear_pending(&crew.owner).await?;
    }
    let in_between = stopped_at.iter().filter(|leased| (1..300).contains(*leased)).count();
    trial.holds(
        format!("pausing a rail with 300 rows while 8 workers claim one after the other, {ROUNDS} times"),
        "when the pause returns as much is leased as in the end",
        format!("the same each time: {stopped_at:?}; {in_between} times in the middle of the rows"),
        // Each round has required it. How far the others had come by then is the scheduler's.
        stopped_at.len() == ROUNDS,
    )
}

async fn claim_until(
    client: Client,
    stop: Arc<AtomicBool>,
    claims: mpsc::UnboundedSender<usize>,
) -> Result<i64, Failure> {
    let mut handed = 0;
    loop {
        let last = stop.load(Ordering::Relaxed);
        let leases = claim(&client, 2, "worker").await?.len();
        handed += i64::try_from(leases).unwrap_or_default();
        let _ = claims.send(leases);
        if last {
            return Ok(handed);
        }
    }
}

/// Twelve workers at a rail for five: never more than five, and never fewer while work is left.
async fn a_full_rail(database: &Database, crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    set_rail(&crew.operator, "full", r#"{"max_in_flight": 5}"#).await?;
    fill(crew, "full", 200).await?;
    let leases = claim_at_once(database, 12, 3).await?;
    let live = count(&crew.owner, LIVE, &[&"full"]).await?;
    trial.holds(
        "12 workers claim 3 each at once from a rail with max_in_flight 5",
        "5 handed out, 5 live",
        format!("{} handed out, {live} live", leases.len()),
        leases.len() == 5 && live == 5,
    )?;
    for lease in &leases {
        complete(&crew.executor, lease, Outcome::DISPATCHED).await?;
    }

    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for (number, client) in sessions(database, "symphony_executor", 12).await?.into_iter().enumerate() {
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
    let (mut most, mut looks) = (0, 0);
    while count(&crew.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await? > 0 {
        most = most.max(count(&crew.owner, LIVE, &[&"full"]).await?);
        looks += 1;
    }
    done.store(true, Ordering::Relaxed);
    let mut ended = 0;
    while let Some(done) = tasks.join_next().await {
        ended += done??;
    }
    trial.holds(
        "12 workers claim and complete the other 195 rows, while the live leases are counted again and again",
        "195 ended, never more than 5 at a time",
        format!("{ended} ended, at most {most} at a time in {looks} looks"),
        ended == 195 && most <= 5,
    )
}

/// A cap that comes, goes up and goes down while leases are out counts all of them.
async fn a_cap_that_changes(crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    set_rail(&crew.operator, "changing", "{}").await?;
    fill(crew, "changing", 100).await?;
    let mut held = claim(&crew.executor, 8, "worker").await?;
    let mut steps = vec![held.len()];
    let mut next = async |held: &mut Vec<Lease>| {
        let leases = claim(&crew.executor, 50, "worker").await?;
        steps.push(leases.len());
        held.extend(leases);
        Ok::<_, Failure>(())
    };
    set_rail(&crew.operator, "changing", r#"{"max_in_flight": 5}"#).await?;
    next(&mut held).await?; // 8 are out: nothing
    for lease in held.drain(..4) {
        complete(&crew.executor, &lease, Outcome::DISPATCHED).await?;
    }
    next(&mut held).await?; // 4 are out: one
    set_rail(&crew.operator, "changing", r#"{"max_in_flight": 7}"#).await?;
    next(&mut held).await?; // two more
    release(&crew.executor, &held[..3]).await?;
    held.drain(..3);
    next(&mut held).await?; // three were given back
    expire(&crew.owner, &held[0].outbox_id).await?;
    next(&mut held).await?; // one ran out
    complete(&crew.executor, &held[1], Outcome::RETRYABLE).await?;
    next(&mut held).await?; // one is to be tried later
    set_rail(&crew.operator, "changing", r#"{"max_in_flight": 3}"#).await?;
    next(&mut held).await?; // seven are out
    set_rail(&crew.operator, "changing", r#"{"max_in_flight": null}"#).await?;
    next(&mut held).await?; // no cap: as many as were asked for
    trial.same(
        "8 leased without a cap; cap 5; 4 end; cap 7; 3 given back; 1 runs out; 1 is to be tried later; cap 3; no cap",
        "handed out after each",
        "[8, 0, 1, 2, 3, 1, 1, 0, 50]".to_owned(),
        format!("{steps:?}"),
    )
}
