//! Concurrent enqueues of one idempotency key create one outbox.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::evidence::{Evidence, Failure, Recorder, require};
use super::seeded_rng::{SeededRng, rerun_hint, seed};
use super::server_state::{all_wait_for_locks, pid};
use super::sessions::{Enqueued, Payment, Sessions, connect_many, count, enqueue, enqueue_batch, set_rail};
use symphony_testkit::test_database::Database;

const PRODUCERS: usize = 16;
const ROUNDS: usize = 10;

/// Proof 6: `concurrent_enqueues_of_one_key_give_one_outbox`.
pub(super) async fn one_key_gives_one_outbox(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "bank", "{}").await?;
    singles(database, &sessions, &mut recorder).await?;
    batches(database, &sessions, &mut recorder).await?;
    first_enqueue_rolls_back(database, &mut recorder).await?;
    Ok(recorder.finish())
}

async fn singles(database: &Database, sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let barrier = Arc::new(Barrier::new(PRODUCERS));
    let mut tasks = JoinSet::new();
    for client in connect_many(database, "symphony_ingest", PRODUCERS).await? {
        let barrier = Arc::clone(&barrier);
        tasks.spawn(async move {
            let mut answers = Vec::new();
            for round in 0..ROUNDS {
                barrier.wait().await;
                answers.push(enqueue(&client, &Payment::new(format!("{round}"), "alice", "bank")).await?);
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
            "1 outbox, 1 sequence number, 1 created".to_owned(),
            format!("{} outbox, {} sequence number, {} created", happened.0, happened.1, happened.2),
        )?;
    }
    let rows = count(&sessions.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    let next = "select next_sequence_id from symphony.participant_outbox_sequences where participant_id = 'alice'";
    let next = count(&sessions.owner, next, &[]).await?;
    let replays = ROUNDS * (PRODUCERS - 1);
    recorder.check(
        format!("{PRODUCERS} sessions enqueue the same key at once, {ROUNDS} times"),
        format!("{ROUNDS} outboxes, {ROUNDS} sequence numbers taken, {replays} replays"),
        format!("{rows} outboxes, {} sequence numbers taken, {replays} replays", next - 1),
        rows == 10 && next == 11,
    )
}

/// Batches that share their keys, in different orders: they must create no duplicate and must not deadlock.
async fn batches(database: &Database, sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    const CALLERS: usize = 8;
    let seed = seed();
    let barrier = Arc::new(Barrier::new(CALLERS));
    let participants = ["bob", "carol", "dave", "erin"];
    let payments: Vec<Payment> = (0..40)
        .map(|number| Payment::new(format!("batch-{number}"), participants[number % participants.len()], "bank"))
        .collect();
    let mut tasks = JoinSet::new();
    for (caller, client) in connect_many(database, "symphony_ingest", CALLERS).await?.into_iter().enumerate() {
        let barrier = Arc::clone(&barrier);
        let mut payments = payments.clone();
        tasks.spawn(async move {
            SeededRng::new(seed, caller).shuffle(&mut payments);
            // One key twice in the same call is a replay too.
            payments.push(payments[0].clone());
            barrier.wait().await;
            let answers = enqueue_batch(&client, &payments).await?;
            Ok::<_, Failure>(payments.into_iter().map(|payment| payment.key).zip(answers).collect::<Vec<_>>())
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
    recorder.check(
        format!(
            "{CALLERS} batches at once of the same 40 keys in random order, each with one key twice ({})",
            rerun_hint(seed)
        ),
        "40 outboxes, one for each key, 288 replays, no deadlock",
        format!("{created} outboxes, {} pairs of key and outbox, {replays} replays, no deadlock", pairs.len()),
        created == 40 && pairs.len() == 40 && replays == 288,
    )?;
    let gaps = "select count(*) from (
                  select from symphony.payment_outbox_pending group by participant_id
                  having max(sequence_id) <> count(*) or min(sequence_id) <> 1) g";
    let gaps = count(&sessions.owner, gaps, &[]).await?;
    recorder.check_equal("reading the sequence numbers of the batches", "participants with a gap", 0, gaps)
}

/// A waiting enqueue gets the sequence number when the first one rolls back.
async fn first_enqueue_rolls_back(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let payment = Payment::new("withdrawn", "frank", "bank");
    let watcher = database.connect().await?;
    let first = database.connect_as("symphony_ingest").await?;
    first.batch_execute("begin").await?;
    let withdrawn = enqueue(&first, &payment).await?;
    let mut pids = Vec::new();
    let mut tasks = JoinSet::new();
    for client in connect_many(database, "symphony_ingest", 4).await? {
        pids.push(pid(&client).await?);
        let payment = payment.clone();
        tasks.spawn(async move { enqueue(&client, &payment).await });
    }
    all_wait_for_locks(&watcher, &pids).await?;
    first.batch_execute("rollback").await?;
    let mut answers = Vec::new();
    while let Some(done) = tasks.join_next().await {
        answers.push(done??);
    }
    let created: Vec<_> = answers.iter().filter(|answer| !answer.replayed).collect();
    let ids: BTreeSet<_> = answers.iter().map(|answer| &answer.outbox_id).collect();
    recorder.check(
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
