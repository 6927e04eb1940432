//! Ordered rails, one move at a time: who must wait, who must not, and who is let go by whom.

use std::collections::BTreeMap;

use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::crew::{
    Crew, Lease, Order, Outcome, claim, complete, count, enqueue, enqueue_batch, release, repair, set_rail,
};
use super::evidence::{Evidence, Failure, Trial, code, require};
use super::handover;
use super::signals::{pid, waits};
use crate::kit::crowd::clear_pending;
use crate::kit::scratch::Database;

/// Proof 17.
pub(super) async fn is_kept(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    let crew = Crew::hire(database).await?;
    set_rail(&crew.operator, "ordered", r#"{"ordered": true}"#).await?;
    heads_only(&crew, &mut trial).await?;
    an_open_producer(database, &crew, &mut trial).await?;
    parking_beside_a_completion(database, &crew, &mut trial).await?;
    a_long_queue(&crew, &mut trial).await?;
    handover::under_load(database, &mut trial).await?;
    handover::while_switched(database, &mut trial).await?;
    Ok(trial.evidence())
}

/// The rows that a claim hands out, as `alice 1, bob 1`.
fn names(leases: &[Lease]) -> String {
    let mut names: Vec<_> =
        leases.iter().map(|lease| format!("{} {}", lease.participant, lease.sequence_id)).collect();
    names.sort();
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}

async fn heads_only(crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    for number in 1..=4 {
        for participant in ["alice", "bob", "carol"] {
            enqueue(&crew.ingest, &Order::new(format!("{participant}-{number}"), participant, "ordered")).await?;
        }
    }
    let mut held: BTreeMap<String, Lease> = BTreeMap::new();
    let expect = async |trial: &mut Trial, tried: &str, expected: &str, held: &mut BTreeMap<String, Lease>| {
        let leases = claim(&crew.executor, 100, "worker").await?;
        trial.same(tried, "handed out", expected.to_owned(), names(&leases))?;
        held.extend(leases.into_iter().map(|lease| (lease.participant.clone(), lease)));
        Ok::<_, Failure>(())
    };
    expect(trial, "claiming 100 of 12 rows of 3 participants", "alice 1, bob 1, carol 1", &mut held).await?;
    expect(trial, "claiming while the first of each is leased", "nothing", &mut held).await?;
    complete(&crew.executor, &held["alice"], Outcome::RETRYABLE).await?;
    complete(&crew.executor, &held["bob"], Outcome::DISPATCHED).await?;
    expect(trial, "claiming after alice 1 is to be tried again later and bob 1 is dispatched", "bob 2", &mut held)
        .await?;
    require(|| "expiring carol 1".into(), true, expire(&crew.owner, &held["carol"].outbox_id).await?)?;
    require(|| "repairing carol 1".into(), 1, repair(&crew.executor, 10).await?.len())?;
    expect(trial, "claiming after carol 1 was repaired and is due in a second", "nothing", &mut held).await?;
    make_due(&crew.owner).await?;
    expect(trial, "claiming when that time has come", "alice 1, carol 1", &mut held).await?;
    release(&crew.executor, std::slice::from_ref(&held["carol"])).await?;
    expect(trial, "claiming after carol 1 was given back", "carol 1", &mut held).await?;
    complete(&crew.executor, &held["carol"], Outcome::REJECTED).await?;
    require(|| "expiring alice 1".into(), true, expire(&crew.owner, &held["alice"].outbox_id).await?)?;
    expect(
        trial,
        "claiming after carol 1 FAILED for good and the lease of alice 1 ran out",
        "alice 1, carol 2",
        &mut held,
    )
    .await?;
    for turn in 0..10 {
        for lease in std::mem::take(&mut held).into_values() {
            complete(&crew.executor, &lease, if turn == 2 { Outcome::AGAIN } else { Outcome::DISPATCHED }).await?;
        }
        held.extend(
            claim(&crew.executor, 100, "worker")
                .await?
                .into_iter()
                .map(|lease| (lease.participant.clone(), lease)),
        );
    }
    let left = count(&crew.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    trial.same("going on until nothing is handed out", "rows left", 0, left)?;
    let overtaken = handover::overtaken(&crew.owner, "ordered").await?;
    trial.same("reading the ledger for rows that went before an earlier one had ended", "rows", 0, overtaken)
}

/// A row whose transaction is open while the head before it ends must be found when it commits.
async fn an_open_producer(database: &Database, crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    for (ending, expected) in [("commit", "dora 2"), ("rollback", "nothing")] {
        let participant = if ending == "commit" { "dora" } else { "dirk" };
        enqueue(&crew.ingest, &Order::new(format!("{participant}-1"), participant, "ordered")).await?;
        let head = claim(&crew.executor, 100, "worker").await?.remove(0);
        let producer = database.connect_as("symphony_ingest").await?;
        producer.batch_execute("begin").await?;
        enqueue(&producer, &Order::new(format!("{participant}-2"), participant, "ordered")).await?;
        // A claim that looks meanwhile sees neither, and a completion does not wait for the producer.
        require(
            || "claiming meanwhile".into(),
            "nothing".into(),
            names(&claim(&crew.executor, 100, "worker").await?),
        )?;
        complete(&crew.executor, &head, Outcome::DISPATCHED).await?;
        producer.batch_execute(ending).await?;
        let leases = claim(&crew.executor, 100, "worker").await?;
        let tried =
            format!("the head ends while the next is in an open transaction, which then ends with {ending}");
        trial.same(tried, "handed out", expected.to_owned(), names(&leases))?;
        for lease in leases {
            complete(&crew.executor, &lease, Outcome::DISPATCHED).await?;
        }
    }
    Ok(())
}

/// A claim parks rows behind a head that is completed at the same moment, in either order of commit.
async fn parking_beside_a_completion(database: &Database, crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    for isolation in ["read committed", "repeatable read", "serializable"] {
        let participant = format!("erin-{}", &isolation[..4]);
        let head = a_stream_of_three(crew, &participant).await?;
        let parker = database.connect_as("symphony_executor").await?;
        parker.batch_execute("begin").await?;
        require(|| "parking".into(), "nothing".into(), names(&claim(&parker, 100, "parker").await?))?;
        let completer = database.connect_as("symphony_executor").await?;
        completer.batch_execute(&format!("set default_transaction_isolation = '{isolation}'")).await?;
        let completer_pid = pid(&completer).await?;
        let task_head = head.clone();
        let task =
            tokio::spawn(async move { complete(&completer, &task_head, Outcome::DISPATCHED).await.map(drop) });
        let waited = waits(&crew.owner, completer_pid, &task).await?;
        parker.batch_execute("commit").await?;
        let mut happened = format!("waited: {waited}");
        if let Err(error) = task.await? {
            // To refuse is as good as to hand over; then the worker asks as it should.
            require(|| format!("completing in {isolation}"), "25000", code(&error))?;
            happened.push_str(", refused with 25000");
            complete(&crew.executor, &head, Outcome::DISPATCHED).await?;
        }
        let leases = claim(&crew.executor, 100, "worker").await?;
        trial.holds(
            format!(
                "completing a head in {isolation} while a claim that parks the rows behind it has not committed"
            ),
            format!("{participant} 2 is handed out next"),
            format!("{happened}; {} is handed out next", names(&leases)),
            names(&leases) == format!("{participant} 2"),
        )?;
        finish(&crew.executor, leases).await?;
    }

    let head = a_stream_of_three(crew, "fred").await?;
    let completer = database.connect_as("symphony_executor").await?;
    completer.batch_execute("begin").await?;
    complete(&completer, &head, Outcome::DISPATCHED).await?;
    let meanwhile = names(&claim(&crew.executor, 100, "worker").await?);
    completer.batch_execute("commit").await?;
    let leases = claim(&crew.executor, 100, "worker").await?;
    trial.holds(
        "claiming while the completion of a head has not committed, and after it has",
        "nothing, then fred 2",
        format!("{meanwhile}, then {}", names(&leases)),
        meanwhile == "nothing" && names(&leases) == "fred 2",
    )?;
    finish(&crew.executor, leases).await
}

/// Three rows of a participant, the first under a lease; nothing else is pending.
async fn a_stream_of_three(crew: &Crew, participant: &str) -> Result<Lease, Failure> {
    enqueue(&crew.ingest, &Order::new(format!("{participant}-1"), participant, "ordered")).await?;
    let mut heads = claim(&crew.executor, 100, "worker").await?;
    require(|| "claiming the head".into(), format!("{participant} 1"), names(&heads))?;
    for number in 2..=3 {
        enqueue(&crew.ingest, &Order::new(format!("{participant}-{number}"), participant, "ordered")).await?;
    }
    Ok(heads.remove(0))
}

/// Completes what is held and what follows, until nothing is left.
async fn finish(executor: &Client, mut leases: Vec<Lease>) -> Result<(), Failure> {
    while !leases.is_empty() {
        for lease in &leases {
            complete(executor, lease, Outcome::DISPATCHED).await?;
        }
        leases = claim(executor, 100, "worker").await?;
    }
    Ok(())
}

/// One participant with thousands of rows in front does not hold up another behind them.
async fn a_long_queue(crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    let orders: Vec<Order> =
        (0..2500).map(|number| Order::new(format!("gina-{number}"), "gina", "ordered")).collect();
    for orders in orders.chunks(500) {
        enqueue_batch(&crew.ingest, orders).await?;
    }
    enqueue(&crew.ingest, &Order::new("hans", "hans", "ordered")).await?;
    let mut claims = 0;
    let mut handed = Vec::new();
    while claims < 10 && !handed.iter().any(|lease: &Lease| lease.participant == "hans") {
        handed.extend(claim(&crew.executor, 100, "worker").await?);
        claims += 1;
    }
    trial.holds(
        "claiming with 2500 rows of gina before the one row of hans",
        "gina 1 and hans 1, within 4 claims",
        format!("{}, after {claims} claims", names(&handed)),
        names(&handed) == "gina 1, hans 1" && claims <= 4,
    )?;
    let parked =
        count(&crew.owner, "select count(*) from symphony.payment_outbox_pending where parked", &[]).await?;
    for lease in &handed {
        complete(&crew.executor, lease, Outcome::DISPATCHED).await?;
    }
    let next = claim(&crew.executor, 100, "worker").await?;
    trial.holds(
        format!("ending the head of gina, behind which {parked} rows were taken out of the claim order"),
        "gina 2 is handed out next, and some had been taken out",
        format!("{} is handed out next", names(&next)),
        names(&next) == "gina 2" && parked > 0,
    )?;
    // Not needed any more, and completions would take their time.
    clear_pending(&crew.owner).await?;
    Ok(())
}
