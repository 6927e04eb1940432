//! Sequence order is commit order: no gaps, and no number visible before an earlier one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::evidence::{Evidence, Failure, Recorder};
use super::seeded_rng::{SeededRng, rerun_hint, seed};
use super::server_state::{pid, waits_for_lock};
use super::sessions::{Payment, Sessions, connect_many, count, enqueue, enqueue_batch, set_rail};
use symphony_testkit::test_database::Database;

const PRODUCERS: usize = 12;
const TRANSACTIONS: usize = 20;
const PARTICIPANTS: [&str; 3] = ["alice", "bob", "carol"];

/// Proof 9: `sequences_are_gapless_and_visible_in_order`.
pub(super) async fn are_gapless(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "bank", "{}").await?;
    under_load(database, &sessions, &mut recorder).await?;
    waits_for_open_enqueue(database, &sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

async fn under_load(database: &Database, sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let seed = seed();
    let mut tasks = JoinSet::new();
    for (number, client) in connect_many(database, "symphony_ingest", PRODUCERS).await?.into_iter().enumerate() {
        tasks.spawn(produce(client, SeededRng::new(seed, number), number));
    }
    let finished = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(watch(database.connect_as("symphony_readonly").await?, Arc::clone(&finished)));
    let (mut committed, mut rolled_back) = (0, 0);
    while let Some(done) = tasks.join_next().await {
        let (kept, withdrawn) = done??;
        committed += kept;
        rolled_back += withdrawn;
    }
    finished.store(true, Ordering::Relaxed);
    let (reads, moments) = reader.await??;
    recorder.check(
        format!(
            "reading all participants repeatedly while {PRODUCERS} producers commit and roll back ({})",
            rerun_hint(seed)
        ),
        "in every read the numbers of each participant are 1 to their count",
        format!("true in all of {reads} reads, which saw {moments} different states"),
        moments >= 10,
    )?;
    let broken = "select count(*) from (
                    select s.participant_id
                    from symphony.participant_outbox_sequences s
                    left join symphony.payment_outbox_pending p on p.participant_id = s.participant_id
                    group by s.participant_id, s.next_sequence_id
                    having count(*) <> s.next_sequence_id - 1 or max(p.sequence_id) <> count(*) or min(p.sequence_id) <> 1) b";
    let broken = count(&sessions.owner, broken, &[]).await?;
    let rows = count(&sessions.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    recorder.check(
        format!("{committed} enqueues committed and {rolled_back} rolled back"),
        format!("{committed} rows, no gap, the counter is at the next number"),
        format!("{rows} rows, {broken} participants with a gap"),
        rows == committed && broken == 0 && rolled_back > 20,
    )
}

/// Transactions of 1 to 3 enqueues for one participant, a third of which are rolled back.
async fn produce(client: Client, mut rng: SeededRng, number: usize) -> Result<(i64, i64), Failure> {
    let (mut committed, mut rolled_back) = (0, 0);
    for transaction in 0..TRANSACTIONS {
        let participant = rng.pick(&PARTICIPANTS);
        let payments: Vec<Payment> = (0..rng.up_to(3))
            .map(|payment| Payment::new(format!("{number}-{transaction}-{payment}"), participant, "bank"))
            .collect();
        client.batch_execute("begin").await?;
        if rng.chance(50) {
            enqueue_batch(&client, &payments).await?;
        } else {
            for payment in &payments {
                enqueue(&client, payment).await?;
            }
        }
        let made = i64::try_from(payments.len()).unwrap_or_default();
        if rng.chance(33) {
            client.batch_execute("rollback").await?;
            rolled_back += made;
        } else {
            client.batch_execute("commit").await?;
            committed += made;
        }
    }
    Ok((committed, rolled_back))
}

/// Reads until `finished`. Returns the number of reads and of different states.
async fn watch(reader: Client, finished: Arc<AtomicBool>) -> Result<(usize, usize), Failure> {
    let read = "select participant_id, count(*), min(sequence_id), max(sequence_id)
                from symphony.payment_outbox_pending group by participant_id";
    let mut moments = BTreeSet::new();
    let mut reads = 0;
    while !finished.load(Ordering::Relaxed) {
        let mut total = 0;
        for row in reader.query(read, &[]).await? {
            let (participant, rows, first, last): (String, i64, i64, i64) =
                (row.get(0), row.get(1), row.get(2), row.get(3));
            if first != 1 || last != rows {
                return Err(Failure {
                    tried: format!("reading the numbers of {participant} while others commit"),
                    expected: format!("1 to {rows}"),
                    happened: format!("{rows} rows from {first} to {last}"),
                });
            }
            total += rows;
        }
        moments.insert(total);
        reads += 1;
    }
    Ok((reads, moments.len()))
}

/// The next enqueue of a participant waits for the open one, and reuses its number only after a rollback.
async fn waits_for_open_enqueue(
    database: &Database,
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    for (ending, expected) in [("rollback", 1), ("commit", 2)] {
        let participant = format!("dave-{ending}");
        sessions.ingest.batch_execute("begin").await?;
        enqueue(&sessions.ingest, &Payment::new(format!("first-{ending}"), &participant, "bank")).await?;
        let next = database.connect_as("symphony_ingest").await?;
        let next_pid = pid(&next).await?;
        let payment = Payment::new(format!("second-{ending}"), &participant, "bank");
        let second = tokio::spawn(async move { enqueue(&next, &payment).await });
        let waited = waits_for_lock(&sessions.owner, next_pid, &second).await?;
        let bystander = database.connect_as("symphony_ingest").await?;
        let payment = Payment::new(format!("other-{ending}"), &format!("erin-{ending}"), "bank");
        let other = enqueue(&bystander, &payment).await?;
        sessions.ingest.batch_execute(ending).await?;
        let second = second.await??;
        recorder.check(
            format!("an enqueue for a participant whose number 1 is in an open transaction, which then ends with {ending}"),
            format!("it waits and gets number {expected}; another participant does not wait"),
            format!("waited: {waited}, number {}; the other got number {}", second.sequence_id, other.sequence_id),
            waited && second.sequence_id == expected && other.sequence_id == 1,
        )?;
    }
    Ok(())
}
