//! One key is one outbox, however many enqueue it at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::crew::{Crew, Enqueued, Order, count, enqueue, enqueue_batch, sessions, set_rail};
use super::dice::{Dice, repeat, seed};
use super::evidence::{Evidence, Failure, Trial, require};
use super::signals::{all_wait, pid};
use crate::kit::scratch::Database;

const PRODUCERS: usize = 16;
const ROUNDS: usize = 10;

/// Proof 6.
pub(super) async fn one_key_gives_one_outbox(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    let crew = Crew::hire(database).await?;
    set_rail(&crew.operator, "bank", "{}").await?;
    singles(database, &crew, &mut trial).await?;
    batches(database, &crew, &mut trial).await?;
    a_winner_that_rolls_back(database, &mut trial).await?;
    Ok(trial.evidence())
}

async fn singles(database: &Database, crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    let barrier = Arc::new(Barrier::new(PRODUCERS));
    let mut tasks = JoinSet::new();
    for client in sessions(database, "symphony_ingest", PRODUCERS).await? {
        let barrier = Arc::clone(&barrier);
        tasks.spawn(async move {
            let mut answers = Vec::new();
            for round in 0..ROUNDS {
                barrier.wait().await;
                answers.push(enqueue(&client, &Order::new(format!("{round}"), "alice", "bank")).await?);
            }
            Ok::<Vec<Enqueued>, Failure>(answers)
        });
    }
    let mut answers = Vec::new();
    while let Some(done) = tasks.join_next().await {
        answers.push(done??);
    }
    for round in 0..ROUNDS {
        let of_round: Vec<&Enqueued> = answers.iter().map(|answers| &answers[round]).collect();
        let ids: BTreeSet<_> = of_round.iter().map(|answer| &answer.outbox_id).collect();
        let numbers: BTreeSet<_> = of_round.iter().map(|answer| answer.sequence_id).collect();
        let created = of_round.iter().filter(|answer| !answer.replayed).count();
        let happened = (ids.len(), numbers.len(), created);
        require(
            || format!("{PRODUCERS} enqueues of one key at once, round {round}"),
            "1 outbox, 1 number, 1 of them new".to_owned(),
            format!("{} outbox, {} number, {} of them new", happened.0, happened.1, happened.2),
        )?;
    }
    let rows = count(&crew.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    let next = "select next_sequence_id from symphony.participant_outbox_sequences where participant_id = 'alice'";
    let next = count(&crew.owner, next, &[]).await?;
    let replays = ROUNDS * (PRODUCERS - 1);
    trial.holds(
        format!("{PRODUCERS} sessions enqueue the same key at once, {ROUNDS} times"),
        format!("{ROUNDS} outboxes, {ROUNDS} sequence numbers taken, {replays} replays"),
        format!("{rows} outboxes, {} sequence numbers taken, {replays} replays", next - 1),
        rows == 10 && next == 11,
    )
}

/// Batches that share their keys, in different orders: they must neither double anything nor wait in a circle.
async fn batches(database: &Database, crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    const CALLERS: usize = 8;
    let seed = seed();
    let barrier = Arc::new(Barrier::new(CALLERS));
    let participants = ["bob", "carol", "dave", "erin"];
    let orders: Vec<Order> = (0..40)
        .map(|number| Order::new(format!("batch-{number}"), participants[number % participants.len()], "bank"))
        .collect();
    let mut tasks = JoinSet::new();
    for (caller, client) in sessions(database, "symphony_ingest", CALLERS).await?.into_iter().enumerate() {
        let barrier = Arc::clone(&barrier);
        let mut orders = orders.clone();
        tasks.spawn(async move {
            Dice::new(seed, caller).shuffle(&mut orders);
            // One twice in the same call: that is a replay as well.
            orders.push(orders[0].clone());
            barrier.wait().await;
            let answers = enqueue_batch(&client, &orders).await?;
            Ok::<_, Failure>(orders.into_iter().map(|order| order.key).zip(answers).collect::<Vec<_>>())
        });
    }
    let mut pairs = BTreeSet::new();
    let (mut created, mut replays) = (0, 0);
    while let Some(done) = tasks.join_next().await {
        for (key, answer) in done?? {
            pairs.insert((key, answer.outbox_id, answer.sequence_id));
            if answer.replayed { replays += 1 } else { created += 1 }
        }
    }
    trial.holds(
        format!(
            "{CALLERS} batches at once of the same 40 keys in random orders, each with one key twice ({})",
            repeat(seed)
        ),
        "40 outboxes, one for each key, 288 replays, no deadlock",
        format!("{created} outboxes, {} pairs of key and outbox, {replays} replays, no deadlock", pairs.len()),
        created == 40 && pairs.len() == 40 && replays == 288,
    )?;
    let gaps = "select count(*) from (
                  select from symphony.payment_outbox_pending group by participant_id
                  having max(sequence_id) <> count(*) or min(sequence_id) <> 1) g";
    let gaps = count(&crew.owner, gaps, &[]).await?;
    trial.same("numbering what the batches made", "participants with a gap", 0, gaps)
}

/// Whoever waited for the winner gets its place, and its number, when it rolls back.
async fn a_winner_that_rolls_back(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let order = Order::new("withdrawn", "frank", "bank");
    let watcher = database.connect().await?;
    let first = database.connect_as("symphony_ingest").await?;
    first.batch_execute("begin").await?;
    let withdrawn = enqueue(&first, &order).await?;
    let mut pids = Vec::new();
    let mut tasks = JoinSet::new();
    for client in sessions(database, "symphony_ingest", 4).await? {
        pids.push(pid(&client).await?);
        let order = order.clone();
        tasks.spawn(async move { enqueue(&client, &order).await });
    }
    all_wait(&watcher, &pids).await?;
    first.batch_execute("rollback").await?;
    let mut answers = Vec::new();
    while let Some(done) = tasks.join_next().await {
        answers.push(done??);
    }
    let created: Vec<_> = answers.iter().filter(|answer| !answer.replayed).collect();
    let ids: BTreeSet<_> = answers.iter().map(|answer| &answer.outbox_id).collect();
    trial.holds(
        "4 enqueues wait for a fifth of the same key, which took number 1 and rolls back",
        "1 of the 4 is new with number 1, 3 are replays of it, none has the outbox that was rolled back",
        format!(
            "{} new with number {}, {} outbox in all, the same as the one rolled back: {}",
            created.len(),
            created.first().map_or(0, |answer| answer.sequence_id),
            ids.len(),
            ids.contains(&withdrawn.outbox_id)
        ),
        created.len() == 1 && created[0].sequence_id == 1 && ids.len() == 1 && !ids.contains(&withdrawn.outbox_id),
    )
}
