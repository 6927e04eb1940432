//! What publishing, claiming and completing do, rule by rule.

use std::collections::BTreeSet;

use tokio_postgres::Client;

use super::super::evidence::{Failure, Recorder, require};
use super::super::sessions::{Sessions, connect_many, count, text};
use super::super::wakeup::Listener;
use super::calls::{STATE, age_claims, claim, complete, make_due, publish};
use symphony_testkit::test_database::Database;

const HOLD_WAKEUP_LOCK: &str = "select pg_advisory_lock(symphony.wakeup_lock_key('m10_outbox'))";

/// Publishing is part of the caller's transaction, and notifies an idle relayer.
pub(super) async fn publishing(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    let mut listener = Listener::start(database, "m10_outbox").await?;
    let idle_relayer = database.connect_as("symphony_executor").await?;
    idle_relayer.batch_execute(HOLD_WAKEUP_LOCK).await?;
    let rows = "select count(*) from m10_recovery.outbox";

    sessions.ingest.batch_execute("begin").await?;
    publish(&sessions.ingest, "order", "1").await?;
    sessions.ingest.batch_execute("rollback").await?;
    recorder.check_equal("publishing and rolling back", "events", 0, count(&sessions.owner, rows, &[]).await?)?;
    recorder.check_equal(
        "the same while a relayer is idle",
        "notifications",
        0,
        listener.notifications(&sessions.ingest).await?,
    )?;

    sessions.ingest.batch_execute("begin").await?;
    let id = publish(&sessions.ingest, "order", "1").await?;
    require(|| "counting events before the commit".into(), 0, count(&sessions.owner, rows, &[]).await?)?;
    sessions.ingest.batch_execute("commit").await?;
    recorder.check_equal(
        "publishing and committing while a relayer is idle",
        "notifications",
        1,
        listener.notifications(&sessions.ingest).await?,
    )?;
    let published = "select concat_ws(' ', aggregate_type, aggregate_id, event_type, payload::text, retry_count,
                              created_at <= now(), num_nulls(processed_at, process_after, claimed_at, claimed_by))
                     from m10_recovery.outbox where id = $1";
    let published = text(&sessions.owner, published, &[&id]).await?;
    recorder.check_equal(
        "reading what was published",
        "row",
        "order 1 Happened {\"amount\": \"10.00\"} 0 t 4".to_owned(),
        published,
    )?;
    complete_all(&sessions.executor).await?;
    Ok(())
}

/// Processed, scheduled and claimed, each on both sides of its limit.
const CLAIMABLE: [(&str, bool); 9] = [
    ("process_after = null", true),
    ("process_after = now() - interval '1 microsecond'", true),
    ("process_after = now() + interval '1 minute'", false),
    ("claimed_by = 'dead', claimed_at = now() - interval '4 minutes 50 seconds'", false),
    ("claimed_by = 'dead', claimed_at = now() - interval '5 minutes'", true),
    ("claimed_by = 'dead', claimed_at = now() - interval '1 year'", true),
    (
        "claimed_by = 'dead', claimed_at = now() - interval '1 year', process_after = now() + interval '1 minute'",
        false,
    ),
    (
        "claimed_by = 'dead', claimed_at = now() - interval '1 year', process_after = now() - interval '1 minute'",
        true,
    ),
    ("claimed_by = 'dead', claimed_at = now() - interval '1 year', processed_at = now()", false),
];

pub(super) async fn claiming(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    for (state, claimable) in CLAIMABLE {
        let id = publish(&sessions.ingest, "order", "1").await?;
        sessions.owner.execute(&format!("update m10_recovery.outbox set {state} where id = $1"), &[&id]).await?;
        let found = claim(&sessions.executor, "A", 10).await?;
        let expected = if claimable { vec![id] } else { vec![] };
        recorder.check_equal(
            format!("claiming an event with {state}"),
            "events",
            format!("{expected:?}"),
            format!("{found:?}"),
        )?;
        sessions
            .owner
            .execute(
                "update m10_recovery.outbox set processed_at = now() where id = $1 and processed_at is null",
                &[&id],
            )
            .await?;
    }

    let mut ids = Vec::new();
    for number in 0..30 {
        ids.push(publish(&sessions.ingest, "order", &number.to_string()).await?);
    }
    // Some are due for a retry, some have expired claims: the id alone decides the order.
    sessions.owner
        .batch_execute(
            "update m10_recovery.outbox set retry_count = 1, process_after = now() - make_interval(secs => id)
             where processed_at is null and id % 3 = 0;
             update m10_recovery.outbox set claimed_by = 'dead', claimed_at = now() - make_interval(mins => 10 + id::int % 7)
             where processed_at is null and id % 3 = 1",
        )
        .await?;
    let second = database.connect_as("symphony_executor").await?;
    sessions.executor.batch_execute("begin").await?;
    let call = "select id from m10_recovery.claim_outbox_events('A')";
    let first: Vec<i64> = sessions.executor.query(call, &[]).await?.iter().map(|row| row.get(0)).collect();
    recorder.check_equal(
        "claiming without a size, of 30 events that are new, due for a retry or have expired claims",
        "the 10 lowest ids, in order",
        format!("{:?}", &ids[..10]),
        format!("{first:?}"),
    )?;
    let other = claim(&second, "B", 15).await?;
    recorder.check_equal(
        "claiming 15 while the first claim is not committed",
        "the next ids, without waiting",
        format!("{:?}", &ids[10..25]),
        format!("{other:?}"),
    )?;
    sessions.executor.batch_execute("rollback").await?;
    let back = claim(&sessions.executor, "C", 1000).await?;
    let expected: Vec<_> = ids[..10].iter().chain(&ids[25..]).copied().collect();
    recorder.check_equal(
        "rolling the first claim back and claiming the rest",
        "numbers",
        format!("{expected:?}"),
        format!("{back:?}"),
    )?;
    require(|| "claiming once more".into(), 0, claim(&sessions.executor, "D", 1000).await?.len())?;
    age_claims(&sessions.owner, "5 minutes 1 second").await?;
    let back = claim(&sessions.executor, "E", 1000).await?;
    recorder.check_equal("five minutes after two processors died", "events claimable again", 30, back.len())?;
    let counted = "select count(*) from m10_recovery.outbox where processed_at is null and claimed_by = 'E' and claimed_at > now() - interval '1 minute'
                   and retry_count = case when id % 3 = 0 then 1 else 0 end";
    recorder.check_equal(
        "reading them",
        "claimed by the new processor, with unchanged retry counts",
        30,
        count(&sessions.owner, counted, &[]).await?,
    )?;
    for id in back {
        complete(&sessions.executor, id, "E", true, None).await?;
    }
    Ok(())
}

/// No event is claimed twice and none is skipped.
pub(super) async fn many_claimers(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    let publish =
        "select m10_recovery.publish_outbox('order', g::text, 'Happened', '{}') from generate_series(1, 400) g";
    sessions.ingest.execute(publish, &[]).await?;
    sessions.owner
        .batch_execute(
            "update m10_recovery.outbox set retry_count = 1, process_after = now() where processed_at is null and id % 2 = 0",
        )
        .await?;
    let mut claimers = tokio::task::JoinSet::new();
    for (number, session) in connect_many(database, "symphony_executor", 8).await?.into_iter().enumerate() {
        claimers.spawn(async move {
            let mut held = Vec::new();
            loop {
                let more = claim(&session, &format!("claimer-{number}"), 7).await?;
                if more.is_empty() {
                    return Ok::<_, Failure>(held);
                }
                held.extend(more);
            }
        });
    }
    let mut all = Vec::new();
    while let Some(held) = claimers.join_next().await {
        all.extend(held??);
    }
    let different: BTreeSet<_> = all.iter().collect();
    recorder.check(
        "claiming 400 events with 8 sessions at once, 7 at a time, until each finds nothing",
        "400 claims of 400 events",
        format!("{} claims of {} events", all.len(), different.len()),
        all.len() == 400 && different.len() == 400,
    )?;
    sessions
        .owner
        .execute("update m10_recovery.outbox set processed_at = now() where processed_at is null", &[])
        .await?;
    Ok(())
}

pub(super) async fn success(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    let id = publish(&sessions.ingest, "order", "1").await?;
    claim(&sessions.executor, "A", 1).await?;
    // As the owner: in one transaction, so that now() is the same.
    sessions.owner.batch_execute("begin").await?;
    complete(&sessions.owner, id, "A", true, None).await?;
    let state = text(&sessions.owner, STATE, &[&id]).await?;
    sessions.owner.batch_execute("commit").await?;
    let expected = "processed now, 0 failures, due in - s, claimed by A at some time";
    recorder.check_equal("completing with success", "event", expected.to_owned(), state)?;
    make_due(&sessions.owner).await?;
    recorder.check_equal("claiming afterwards", "events", 0, claim(&sessions.executor, "B", 10).await?.len())
}

/// Backoff of 1 s, 2 s, 4 s, … and then 1024 s without an end.
pub(super) async fn failure(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    let id = publish(&sessions.ingest, "order", "1").await?;
    let mut delays = Vec::new();
    for count in 0..14 {
        require(
            || format!("claiming after {count} failures"),
            1,
            claim(&sessions.executor, "A", 10).await?.len(),
        )?;
        sessions.owner.batch_execute("begin").await?;
        complete(&sessions.owner, id, "A", false, None).await?;
        let state = text(&sessions.owner, STATE, &[&id]).await?;
        sessions.owner.batch_execute("commit").await?;
        let delay = 1_u32 << count.min(10);
        let expected = format!("open, {} failures, due in {delay}.000000 s, claimed by none at -", count + 1);
        require(|| format!("failing after {count} failures"), expected, state)?;
        delays.push(delay.to_string());
        require(|| "claiming before it is due".into(), 0, claim(&sessions.executor, "B", 10).await?.len())?;
        make_due(&sessions.owner).await?;
    }
    recorder.check_equal(
        "failing 14 times",
        "seconds of backoff",
        "1 2 4 8 16 32 64 128 256 512 1024 1024 1024 1024".to_owned(),
        delays.join(" "),
    )?;
    sessions.owner.execute("update m10_recovery.outbox set retry_count = 1000000 where id = $1", &[&id]).await?;
    claim(&sessions.executor, "A", 1).await?;
    sessions.owner.batch_execute("begin").await?;
    complete(&sessions.owner, id, "A", false, None).await?;
    let state = text(&sessions.owner, STATE, &[&id]).await?;
    sessions.owner.batch_execute("commit").await?;
    let expected = "open, 1000001 failures, due in 1024.000000 s, claimed by none at -";
    recorder.check_equal("failing for the 1000001st time", "event", expected.to_owned(), state)?;
    make_due(&sessions.owner).await?;
    complete_all(&sessions.executor).await
}

/// Completes everything, so that the next rule starts with no claimable event.
async fn complete_all(executor: &Client) -> Result<(), Failure> {
    for id in claim(executor, "end", 1000).await? {
        complete(executor, id, "end", true, None).await?;
    }
    Ok(())
}
