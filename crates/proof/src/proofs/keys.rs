//! A key names one payment for ever: used for another, it is refused, whatever became of the first.

use tokio_postgres::Client;

use super::clock::make_due;
use super::crew::{Crew, Order, Outcome, claim, complete, count, enqueue, enqueue_batch, redrive, set_rail};
use super::evidence::{Evidence, Failure, Trial, code, require};
use crate::kit::scratch::Database;

/// Proof 7.
pub(super) async fn cannot_be_reused(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    let crew = Crew::hire(database).await?;
    set_rail(&crew.operator, "bank", "{}").await?;
    set_rail(&crew.operator, "other", "{}").await?;
    let order = Order::new("rent", "alice", "bank");

    let first = enqueue(&crew.ingest, &order).await?;
    refused(&crew, &mut trial, &order, &first.outbox_id, "while it is pending").await?;

    let lease = claim(&crew.executor, 1, "worker").await?.remove(0);
    refused(&crew, &mut trial, &order, &first.outbox_id, "while it is leased").await?;

    complete(&crew.executor, &lease, Outcome::AGAIN).await?;
    make_due(&crew.owner).await?;
    refused(&crew, &mut trial, &order, &first.outbox_id, "between two attempts").await?;

    let lease = claim(&crew.executor, 1, "worker").await?.remove(0);
    complete(&crew.executor, &lease, Outcome::REJECTED).await?;
    refused(&crew, &mut trial, &order, &first.outbox_id, "after it FAILED").await?;

    let again = redrive(&crew.operator, &first.outbox_id).await?;
    refused(&crew, &mut trial, &order, &again.outbox_id, "while its redrive is pending").await?;

    let lease = claim(&crew.executor, 1, "worker").await?.remove(0);
    complete(&crew.executor, &lease, Outcome::DISPATCHED).await?;
    refused(&crew, &mut trial, &order, &again.outbox_id, "after its redrive was DISPATCHED").await?;

    an_older_snapshot(database, &crew, &mut trial).await?;

    // Within one batch, before anything is written.
    let mut twice = [Order::new("twice", "alice", "bank"), Order::new("twice", "alice", "bank")];
    twice[1].payload = r#"{"amount": "11.00"}"#.into();
    let result = enqueue_batch(&crew.ingest, &twice).await;
    trial.refused("one batch with one key for two payloads", "P7004", result)?;
    let rows = count(&crew.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    trial.same("looking for what that batch left", "rows in pending", 0, rows)?;

    // The boundary between instruction and key is no way around, nor is it in the way.
    let mut moved = order.clone();
    moved.instruction = order.instruction.clone() + "k";
    moved.key = order.key[1..].to_owned();
    let other = enqueue(&crew.ingest, &moved).await?;
    trial.same(
        "the same letters, divided otherwise between instruction and key",
        "replayed",
        false,
        other.replayed,
    )?;
    the_registry_is_kept(&crew, &mut trial).await?;
    Ok(trial.evidence())
}

/// What a key stands for cannot be forgotten nor changed, by the owner either.
async fn the_registry_is_kept(crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    for attack in [
        "delete from symphony.payment_outbox_keys",
        "truncate symphony.payment_outbox_keys",
        "update symphony.payment_outbox_keys set outbox_id = gen_random_uuid()",
        "update symphony.payment_outbox_keys set content_digest = sha256('another payment')",
        "update symphony.payment_outbox_keys set idempotency_key = 'another key'",
        "update symphony.payment_outbox_keys set instruction_id = 'another instruction'",
    ] {
        trial.refused(format!("{attack}, as the owner"), "P0001", crew.owner.batch_execute(attack).await)?;
    }
    Ok(())
}

/// Another payload, participant or rail is refused and takes nothing; the same is a replay of the newest outbox.
async fn refused(crew: &Crew, trial: &mut Trial, order: &Order, newest: &str, when: &str) -> Result<(), Failure> {
    let others = [
        Order { payload: r#"{"amount": "10.01", "name": "rent"}"#.into(), ..order.clone() },
        Order { participant: "bob".into(), ..order.clone() },
        Order { rail: "other".into(), ..order.clone() },
    ];
    let before = taken(&crew.owner).await?;
    let mut refusals = 0;
    for other in &others {
        let single = enqueue(&crew.ingest, other).await.map(drop);
        let fresh = Order::new("fresh", "carol", "bank");
        let batch = enqueue_batch(&crew.ingest, &[fresh, other.clone()]).await.map(drop);
        for result in [single, batch] {
            let happened = result.err().map_or("allowed".to_owned(), |error| code(&error).to_owned());
            require(|| format!("{other:?} under the key of {order:?} {when}"), "P7004".to_owned(), happened)?;
            refusals += 1;
        }
    }
    require(|| format!("counting rows and numbers after refusals {when}"), before, taken(&crew.owner).await?)?;
    let same = enqueue(&crew.ingest, order).await?;
    trial.holds(
        format!("the same key with another payload, participant or rail, alone and in a batch, {when}"),
        "6 refusals with P7004 that take nothing; the same order is a replay of the newest outbox",
        format!(
            "{refusals} refusals with P7004; replayed: {}, of the newest: {}",
            same.replayed,
            same.outbox_id == newest
        ),
        refusals == 6 && same.replayed && same.outbox_id == newest,
    )
}

/// A transaction that cannot see the first outbox of a key, because that came and ended after its snapshot, must not
/// make a second.
async fn an_older_snapshot(database: &Database, crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    for isolation in ["repeatable read", "serializable"] {
        let order = Order::new(format!("snapshot-{isolation}"), "dave", "bank");
        let late = database.connect_as("symphony_ingest").await?;
        late.batch_execute(&format!("begin isolation level {isolation}; select 1")).await?;
        enqueue(&crew.ingest, &order).await?;
        let lease = claim(&crew.executor, 1, "worker").await?.remove(0);
        complete(&crew.executor, &lease, Outcome::DISPATCHED).await?;
        let result = enqueue(&late, &order).await;
        trial.refused(
            format!("the same order in {isolation}, by a transaction older than it"),
            "40001",
            result,
        )?;
        late.batch_execute("rollback").await?;
        let rows = count(&crew.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
        require(|| "looking for a second outbox".into(), 0, rows)?;
    }
    Ok(())
}

/// Rows in pending and numbers taken.
async fn taken(owner: &Client) -> Result<String, Failure> {
    let rows = count(owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    let numbers =
        "select coalesce(sum(next_sequence_id - 1), 0)::bigint from symphony.participant_outbox_sequences";
    Ok(format!("{rows} rows, {} numbers", count(owner, numbers, &[]).await?))
}
