//! Sequence order is commit order: no gaps, and no number visible before an earlier one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::crew::{Crew, Order, count, enqueue, enqueue_batch, sessions, set_rail};
use super::dice::{Dice, repeat, seed};
use super::evidence::{Evidence, Failure, Trial};
use super::signals::{pid, waits};
use crate::kit::scratch::Database;

const PRODUCERS: usize = 12;
const TRANSACTIONS: usize = 20;
const PARTICIPANTS: [&str; 3] = ["alice", "bob", "carol"];

/// Proof 9.
pub(super) async fn are_gapless(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    let crew = Crew::hire(database).await?;
    set_rail(&crew.operator, "bank", "{}").await?;
    under_load(database, &crew, &mut trial).await?;
    one_behind_the_other(database, &crew, &mut trial).await?;
    Ok(trial.evidence())
}

async fn under_load(database: &Database, crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    let seed = seed();
    let mut tasks = JoinSet::new();
    for (number, client) in sessions(database, "symphony_ingest", PRODUCERS).await?.into_iter().enumerate() {
        tasks.spawn(produce(client, Dice::new(seed, number), number));
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
    let (looks, moments) = reader.await??;
    trial.holds(
        format!(
            "looking at all participants again and again while {PRODUCERS} producers commit and roll back ({})",
            repeat(seed)
        ),
        "in every look the numbers of each participant are 1 to their count",
        format!("so in all of {looks} looks, which saw {moments} different moments"),
        moments >= 10,
    )?;
    let broken = "select count(*) from (
                    select s.participant_id
                    from symphony.participant_outbox_sequences s
                    left join symphony.payment_outbox_pending p on p.participant_id = s.participant_id
                    group by s.participant_id, s.next_sequence_id
                    having count(*) <> s.next_sequence_id - 1 or max(p.sequence_id) <> count(*) or min(p.sequence_id) <> 1) b";
    let broken = count(&crew.owner, broken, &[]).await?;
    let rows = count(&crew.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    trial.holds(
        format!("{committed} enqueues committed and {rolled_back} rolled back"),
        format!("{committed} rows, no gap, the next number is the next"),
        format!("{rows} rows, {broken} participants with a gap"),
        rows == committed && broken == 0 && rolled_back > 20,
    )
}

/// Transactions of 1 to 3 enqueues for one participant, a third of which are rolled back.
async fn produce(client: Client, mut dice: Dice, number: usize) -> Result<(i64, i64), Failure> {
    let (mut committed, mut rolled_back) = (0, 0);
    for transaction in 0..TRANSACTIONS {
        let participant = dice.any(&PARTICIPANTS);
        let orders: Vec<Order> = (0..dice.up_to(3))
            .map(|order| Order::new(format!("{number}-{transaction}-{order}"), participant, "bank"))
            .collect();
        client.batch_execute("begin").await?;
        if dice.chance(50) {
            enqueue_batch(&client, &orders).await?;
        } else {
            for order in &orders {
                enqueue(&client, order).await?;
            }
        }
        let made = i64::try_from(orders.len()).unwrap_or_default();
        if dice.chance(33) {
            client.batch_execute("rollback").await?;
            rolled_back += made;
        } else {
            client.batch_execute("commit").await?;
            committed += made;
        }
    }
    Ok((committed, rolled_back))
}

/// Looks until told to stop; returns how often, and how many different moments it saw.
async fn watch(reader: Client, finished: Arc<AtomicBool>) -> Result<(usize, usize), Failure> {
    let look = "select participant_id, count(*), min(sequence_id), max(sequence_id)
                from symphony.payment_outbox_pending group by participant_id";
    let mut moments = BTreeSet::new();
    let mut looks = 0;
    while !finished.load(Ordering::Relaxed) {
        let mut total = 0;
        for row in reader.query(look, &[]).await? {
            let (participant, rows, first, last): (String, i64, i64, i64) =
                (row.get(0), row.get(1), row.get(2), row.get(3));
            if first != 1 || last != rows {
                return Err(Failure {
                    tried: format!("looking at the numbers of {participant} while others commit"),
                    expected: format!("1 to {rows}"),
                    happened: format!("{rows} rows from {first} to {last}"),
                });
            }
            total += rows;
        }
        moments.insert(total);
        looks += 1;
    }
    Ok((looks, moments.len()))
}

/// The next of a participant waits for the one before, and takes its number only if that one gives it back.
async fn one_behind_the_other(database: &Database, crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    for (ending, expected) in [("rollback", 1), ("commit", 2)] {
        let participant = format!("dave-{ending}");
        crew.ingest.batch_execute("begin").await?;
        enqueue(&crew.ingest, &Order::new(format!("first-{ending}"), &participant, "bank")).await?;
        let next = database.connect_as("symphony_ingest").await?;
        let next_pid = pid(&next).await?;
        let order = Order::new(format!("second-{ending}"), &participant, "bank");
        let second = tokio::spawn(async move { enqueue(&next, &order).await });
        let waited = waits(&crew.owner, next_pid, &second).await?;
        let bystander = database.connect_as("symphony_ingest").await?;
        let order = Order::new(format!("other-{ending}"), &format!("erin-{ending}"), "bank");
        let other = enqueue(&bystander, &order).await?;
        crew.ingest.batch_execute(ending).await?;
        let second = second.await??;
        trial.holds(
            format!("an enqueue for a participant whose number 1 is in an open transaction, which then ends with {ending}"),
            format!("it waits and gets number {expected}; another participant does not wait"),
            format!("waited: {waited}, number {}; the other got number {}", second.sequence_id, other.sequence_id),
            waited && second.sequence_id == expected && other.sequence_id == 1,
        )?;
    }
    Ok(())
}
