//! An instruction's idempotency key belongs to one payment for ever: its reuse with other content is refused in every
//! state of the first.

use tokio_postgres::Client;

use super::clock::make_due;
use super::evidence::{Evidence, Failure, Recorder, require, sqlstate};
use super::sessions::{
    Outcome, Payment, Sessions, claim, complete, count, enqueue, enqueue_batch, redrive, set_rail,
};
use symphony_testkit::test_database::Database;

/// Proof 7: `a_key_cannot_be_reused_for_another_payment`.
pub(super) async fn cannot_be_reused(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "bank", "{}").await?;
    set_rail(&sessions.operator, "other", "{}").await?;
    let payment = Payment::new("rent", "alice", "bank");

    let first = enqueue(&sessions.ingest, &payment).await?;
    refused(&sessions, &mut recorder, &payment, &first.outbox_id, "while it is pending").await?;

    let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
    refused(&sessions, &mut recorder, &payment, &first.outbox_id, "while it is leased").await?;

    complete(&sessions.executor, &lease, Outcome::RETRY_NOW).await?;
    make_due(&sessions.owner).await?;
    refused(&sessions, &mut recorder, &payment, &first.outbox_id, "between two attempts").await?;

    let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
    complete(&sessions.executor, &lease, Outcome::REJECTED).await?;
    refused(&sessions, &mut recorder, &payment, &first.outbox_id, "after it FAILED").await?;

    let again = redrive(&sessions.operator, &first.outbox_id).await?;
    refused(&sessions, &mut recorder, &payment, &again.outbox_id, "while its redrive is pending").await?;

    let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
    complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
    refused(&sessions, &mut recorder, &payment, &again.outbox_id, "after its redrive was DISPATCHED").await?;

    an_older_snapshot(database, &sessions, &mut recorder).await?;

    // Within one batch, before anything is written.
    let mut twice = [Payment::new("twice", "alice", "bank"), Payment::new("twice", "alice", "bank")];
    twice[1].payload = r#"{"amount": "11.00"}"#.into();
    let result = enqueue_batch(&sessions.ingest, &twice).await;
    recorder.check_refused("one batch with one key for two payloads", "P7004", result)?;
    let rows = count(&sessions.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    recorder.check_equal("counting the rows of that batch", "rows in pending", 0, rows)?;

    // Instruction and key are compared separately, not as one concatenated text.
    let mut moved = payment.clone();
    moved.instruction = payment.instruction.clone() + "k";
    moved.key = payment.key[1..].to_owned();
    let other = enqueue(&sessions.ingest, &moved).await?;
    recorder.check_equal(
        "the same characters, split differently between instruction and key",
        "replayed",
        false,
        other.replayed,
    )?;
    the_registry_is_kept(&sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

/// The owner cannot change or delete a row of the key registry either.
async fn the_registry_is_kept(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for attack in [
        "delete from symphony.payment_outbox_keys",
        "truncate symphony.payment_outbox_keys",
        "update symphony.payment_outbox_keys set outbox_id = gen_random_uuid()",
        "update symphony.payment_outbox_keys set content_digest = sha256('another payment')",
        "update symphony.payment_outbox_keys set idempotency_key = 'another key'",
        "update symphony.payment_outbox_keys set instruction_id = 'another instruction'",
    ] {
        recorder.check_refused(
            format!("{attack}, as the owner"),
            "P0001",
            sessions.owner.batch_execute(attack).await,
        )?;
    }
    Ok(())
}

/// Another payload, participant or rail is refused and uses up no sequence number; the same is a replay of the newest outbox.
async fn refused(
    sessions: &Sessions,
    recorder: &mut Recorder,
    payment: &Payment,
    newest: &str,
    when: &str,
) -> Result<(), Failure> {
    let others = [
        Payment { payload: r#"{"amount": "10.01", "name": "rent"}"#.into(), ..payment.clone() },
        Payment { participant: "bob".into(), ..payment.clone() },
        Payment { rail: "other".into(), ..payment.clone() },
    ];
    let before = taken(&sessions.owner).await?;
    let mut refusals = 0;
    for other in &others {
        let single = enqueue(&sessions.ingest, other).await.map(drop);
        let fresh = Payment::new("fresh", "carol", "bank");
        let batch = enqueue_batch(&sessions.ingest, &[fresh, other.clone()]).await.map(drop);
        for result in [single, batch] {
            let happened = result.err().map_or("allowed".to_owned(), |error| sqlstate(&error).to_owned());
            require(|| format!("{other:?} under the key of {payment:?} {when}"), "P7004".to_owned(), happened)?;
            refusals += 1;
        }
    }
    require(|| format!("counting rows and numbers after refusals {when}"), before, taken(&sessions.owner).await?)?;
    let same = enqueue(&sessions.ingest, payment).await?;
    recorder.check(
        format!("the same key with another payload, participant or rail, alone and in a batch, {when}"),
        "6 refusals with P7004 without a row or number; the same payment is a replay of the newest outbox",
        format!(
            "{refusals} refusals with P7004; replayed: {}, of the newest: {}",
            same.replayed,
            same.outbox_id == newest
        ),
        refusals == 6 && same.replayed && same.outbox_id == newest,
    )
}

/// A transaction whose snapshot is older than the first outbox of a key must not create a second one.
async fn an_older_snapshot(
    database: &Database,
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    for isolation in ["repeatable read", "serializable"] {
        let payment = Payment::new(format!("snapshot-{isolation}"), "dave", "bank");
        let late = database.connect_as("symphony_ingest").await?;
        late.batch_execute(&format!("begin isolation level {isolation}; select 1")).await?;
        enqueue(&sessions.ingest, &payment).await?;
        let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
        complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
        let result = enqueue(&late, &payment).await;
        recorder.check_refused(
            format!("the same payment in {isolation}, by a transaction with an older snapshot"),
            "40001",
            result,
        )?;
        late.batch_execute("rollback").await?;
        let rows = count(&sessions.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
        require(|| "looking for a second outbox".into(), 0, rows)?;
    }
    Ok(())
}

/// Rows in pending and sequence numbers taken.
async fn taken(owner: &Client) -> Result<String, Failure> {
    let rows = count(owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    let numbers =
        "select coalesce(sum(next_sequence_id - 1), 0)::bigint from symphony.participant_outbox_sequences";
    Ok(format!("{rows} rows, {} numbers", count(owner, numbers, &[]).await?))
}
