//! Ordered rails, step by step: which rows wait for their head-of-line, and when they become claimable.

use std::collections::BTreeMap;

use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::evidence::{Evidence, Failure, Recorder, require, sqlstate};
use super::server_state::{pid, waits_for_lock};
use super::sessions::{
    Lease, Outcome, Payment, Sessions, claim, complete, count, enqueue, enqueue_batch, release, repair, set_rail,
};
use super::{ordered_rail_load, ordered_rail_runs};
use symphony_testkit::bulk_rows::clear_pending;
use symphony_testkit::test_database::Database;

/// Proof 17: `an_ordered_rail_dispatches_in_sequence_and_strands_no_row`.
pub(super) async fn is_kept(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "ordered", r#"{"ordered": true}"#).await?;
    heads_only(&sessions, &mut recorder).await?;
    an_open_producer(database, &sessions, &mut recorder).await?;
    parking_beside_a_completion(database, &sessions, &mut recorder).await?;
    a_long_queue(&sessions, &mut recorder).await?;
    ordered_rail_runs::are_without_a_gap(&sessions, &mut recorder).await?;
    ordered_rail_load::under_load(database, &mut recorder).await?;
    ordered_rail_load::while_switched(database, &mut recorder).await?;
    Ok(recorder.finish())
}

/// The claimed rows, as `alice 1, bob 1`.
fn names(leases: &[Lease]) -> String {
    let mut names: Vec<_> =
        leases.iter().map(|lease| format!("{} {}", lease.participant, lease.sequence_id)).collect();
    names.sort();
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}

async fn heads_only(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for number in 1..=4 {
        for participant in ["alice", "bob", "carol"] {
            enqueue(&sessions.ingest, &Payment::new(format!("{participant}-{number}"), participant, "ordered"))
                .await?;
        }
    }
    let mut held: BTreeMap<String, Lease> = BTreeMap::new();
    let expect =
        async |recorder: &mut Recorder, tried: &str, expected: &str, held: &mut BTreeMap<String, Lease>| {
            let leases = claim(&sessions.executor, 100, "worker").await?;
            recorder.check_equal(tried, "claimed", expected.to_owned(), names(&leases))?;
            held.extend(leases.into_iter().map(|lease| (lease.participant.clone(), lease)));
            Ok::<_, Failure>(())
        };
    expect(recorder, "claiming 100 of 12 rows of 3 participants", "alice 1, bob 1, carol 1", &mut held).await?;
    expect(recorder, "claiming while the first of each is leased", "nothing", &mut held).await?;
    complete(&sessions.executor, &held["alice"], Outcome::RETRYABLE).await?;
    complete(&sessions.executor, &held["bob"], Outcome::DISPATCHED).await?;
    expect(
        recorder,
        "claiming after alice 1 is to be tried again later and bob 1 is dispatched",
        "bob 2",
        &mut held,
    )
    .await?;
    require(|| "expiring carol 1".into(), true, expire(&sessions.owner, &held["carol"].outbox_id).await?)?;
    require(|| "repairing carol 1".into(), 1, repair(&sessions.executor, 10).await?.len())?;
    expect(recorder, "claiming after carol 1 was repaired and is due in a second", "nothing", &mut held).await?;
    make_due(&sessions.owner).await?;
    expect(recorder, "claiming when that time has come", "alice 1, carol 1", &mut held).await?;
    release(&sessions.executor, std::slice::from_ref(&held["carol"])).await?;
    expect(recorder, "claiming after carol 1 was released", "carol 1", &mut held).await?;
    complete(&sessions.executor, &held["carol"], Outcome::REJECTED).await?;
    require(|| "expiring alice 1".into(), true, expire(&sessions.owner, &held["alice"].outbox_id).await?)?;
    expect(
        recorder,
        "claiming after carol 1 FAILED and the lease of alice 1 expired",
        "alice 1, carol 2",
        &mut held,
    )
    .await?;
    for turn in 0..10 {
        for lease in std::mem::take(&mut held).into_values() {
            complete(&sessions.executor, &lease, if turn == 2 { Outcome::RETRY_NOW } else { Outcome::DISPATCHED })
                .await?;
        }
        held.extend(
            claim(&sessions.executor, 100, "worker")
                .await?
                .into_iter()
                .map(|lease| (lease.participant.clone(), lease)),
        );
    }
    let left = count(&sessions.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    recorder.check_equal("claiming and completing until a claim is empty", "rows left", 0, left)?;
    let out_of_order = ordered_rail_load::out_of_order(&sessions.owner, "ordered").await?;
    recorder.check_equal(
        "reading the ledger for rows dispatched before an earlier one had ended",
        "rows",
        0,
        out_of_order,
    )
}

/// A row that commits after its head has ended must be claimable.
async fn an_open_producer(
    database: &Database,
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    for (ending, expected) in [("commit", "dora 2"), ("rollback", "nothing")] {
        let participant = if ending == "commit" { "dora" } else { "dirk" };
        enqueue(&sessions.ingest, &Payment::new(format!("{participant}-1"), participant, "ordered")).await?;
        let head = claim(&sessions.executor, 100, "worker").await?.remove(0);
        let producer = database.connect_as("symphony_ingest").await?;
        producer.batch_execute("begin").await?;
        enqueue(&producer, &Payment::new(format!("{participant}-2"), participant, "ordered")).await?;
        // A claim in between finds no row, and a completion does not wait for the producer.
        require(
            || "claiming meanwhile".into(),
            "nothing".into(),
            names(&claim(&sessions.executor, 100, "worker").await?),
        )?;
        complete(&sessions.executor, &head, Outcome::DISPATCHED).await?;
        producer.batch_execute(ending).await?;
        let leases = claim(&sessions.executor, 100, "worker").await?;
        let tried =
            format!("the head ends while the next is in an open transaction, which then ends with {ending}");
        recorder.check_equal(tried, "claimed", expected.to_owned(), names(&leases))?;
        for lease in leases {
            complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
        }
    }
    Ok(())
}

/// A claim parks rows behind a head that is completed at the same moment, in either order of commit.
async fn parking_beside_a_completion(
    database: &Database,
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    for isolation in ["read committed", "repeatable read", "serializable"] {
        let participant = format!("erin-{}", &isolation[..4]);
        let head = a_stream_of_three(sessions, &participant).await?;
        let parker = database.connect_as("symphony_executor").await?;
        parker.batch_execute("begin").await?;
        require(|| "parking".into(), "nothing".into(), names(&claim(&parker, 100, "parker").await?))?;
        let completer = database.connect_as("symphony_executor").await?;
        completer.batch_execute(&format!("set default_transaction_isolation = '{isolation}'")).await?;
        let completer_pid = pid(&completer).await?;
        let task_head = head.clone();
        let task =
            tokio::spawn(async move { complete(&completer, &task_head, Outcome::DISPATCHED).await.map(drop) });
        let waited = waits_for_lock(&sessions.owner, completer_pid, &task).await?;
        parker.batch_execute("commit").await?;
        let mut happened = format!("waited: {waited}");
        if let Err(error) = task.await? {
            // A refusal is acceptable: the worker then completes in READ COMMITTED.
            require(|| format!("completing in {isolation}"), "25000", sqlstate(&error))?;
            happened.push_str(", refused with 25000");
            complete(&sessions.executor, &head, Outcome::DISPATCHED).await?;
        }
        let leases = claim(&sessions.executor, 100, "worker").await?;
        recorder.check(
            format!(
                "completing a head in {isolation} while a claim that parks the rows behind it has not committed"
            ),
            format!("{participant} 2 is claimed next"),
            format!("{happened}; {} is claimed next", names(&leases)),
            names(&leases) == format!("{participant} 2"),
        )?;
        finish(&sessions.executor, leases).await?;
    }

    let head = a_stream_of_three(sessions, "fred").await?;
    let completer = database.connect_as("symphony_executor").await?;
    completer.batch_execute("begin").await?;
    complete(&completer, &head, Outcome::DISPATCHED).await?;
    let meanwhile = names(&claim(&sessions.executor, 100, "worker").await?);
    completer.batch_execute("commit").await?;
    let leases = claim(&sessions.executor, 100, "worker").await?;
    recorder.check(
        "claiming while the completion of a head has not committed, and after it has",
        "nothing, then fred 2",
        format!("{meanwhile}, then {}", names(&leases)),
        meanwhile == "nothing" && names(&leases) == "fred 2",
    )?;
    finish(&sessions.executor, leases).await
}

/// Three rows of a participant, the first under a lease; nothing else is pending.
async fn a_stream_of_three(sessions: &Sessions, participant: &str) -> Result<Lease, Failure> {
    enqueue(&sessions.ingest, &Payment::new(format!("{participant}-1"), participant, "ordered")).await?;
    let mut heads = claim(&sessions.executor, 100, "worker").await?;
    require(|| "claiming the head".into(), format!("{participant} 1"), names(&heads))?;
    for number in 2..=3 {
        enqueue(&sessions.ingest, &Payment::new(format!("{participant}-{number}"), participant, "ordered"))
            .await?;
    }
    Ok(heads.remove(0))
}

/// Completes the leases and what becomes claimable, until nothing is left.
async fn finish(executor: &Client, mut leases: Vec<Lease>) -> Result<(), Failure> {
    while !leases.is_empty() {
        for lease in &leases {
            complete(executor, lease, Outcome::DISPATCHED).await?;
        }
        leases = claim(executor, 100, "worker").await?;
    }
    Ok(())
}

/// A participant with thousands of rows does not block another behind them.
async fn a_long_queue(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let payments: Vec<Payment> =
        (0..2500).map(|number| Payment::new(format!("gina-{number}"), "gina", "ordered")).collect();
    for payments in payments.chunks(500) {
        enqueue_batch(&sessions.ingest, payments).await?;
    }
    enqueue(&sessions.ingest, &Payment::new("hans", "hans", "ordered")).await?;
    let mut claims = 0;
    let mut claimed = Vec::new();
    while claims < 10 && !claimed.iter().any(|lease: &Lease| lease.participant == "hans") {
        claimed.extend(claim(&sessions.executor, 100, "worker").await?);
        claims += 1;
    }
    recorder.check(
        "claiming with 2500 rows of gina before the one row of hans",
        "gina 1 and hans 1, within 4 claims",
        format!("{}, after {claims} claims", names(&claimed)),
        names(&claimed) == "gina 1, hans 1" && claims <= 4,
    )?;
    let parked =
        count(&sessions.owner, "select count(*) from symphony.payment_outbox_pending where parked", &[]).await?;
    for lease in &claimed {
        complete(&sessions.executor, lease, Outcome::DISPATCHED).await?;
    }
    let next = claim(&sessions.executor, 100, "worker").await?;
    recorder.check(
        format!("completing the head of gina, behind which {parked} rows were parked"),
        "gina 2 is claimed next, and some rows were parked",
        format!("{} is claimed next", names(&next)),
        names(&next) == "gina 2" && parked > 0,
    )?;
    // Remove the rest: completions would take long.
    clear_pending(&sessions.owner).await?;
    Ok(())
}
