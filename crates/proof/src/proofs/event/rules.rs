//! What publishing, claiming and completing do, to the letter.

use std::collections::BTreeSet;

use tokio_postgres::Client;

use super::super::crew::{Crew, count, sessions, text};
use super::super::evidence::{Failure, Trial, require};
use super::super::wakeup::Listener;
use super::crew::{STATE, age_claims, claim, complete, make_due, publish};
use crate::kit::scratch::Database;

const SLEEP: &str = "select pg_advisory_lock(symphony.wakeup_lock('m10_outbox'))";

/// In the caller's transaction, and it wakes who sleeps.
pub(super) async fn publishing(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let crew = Crew::hire(database).await?;
    let mut listener = Listener::start(database, "m10_outbox").await?;
    let sleeper = database.connect_as("symphony_executor").await?;
    sleeper.batch_execute(SLEEP).await?;
    let rows = "select count(*) from m10_recovery.outbox";

    crew.ingest.batch_execute("begin").await?;
    publish(&crew.ingest, "order", "1").await?;
    crew.ingest.batch_execute("rollback").await?;
    trial.same("publishing and rolling back", "events", 0, count(&crew.owner, rows, &[]).await?)?;
    trial.same("the same while a relayer sleeps", "calls", 0, listener.calls(&crew.ingest).await?)?;

    crew.ingest.batch_execute("begin").await?;
    let id = publish(&crew.ingest, "order", "1").await?;
    require(|| "looking before the commit".into(), 0, count(&crew.owner, rows, &[]).await?)?;
    crew.ingest.batch_execute("commit").await?;
    trial.same(
        "publishing and committing while a relayer sleeps",
        "calls",
        1,
        listener.calls(&crew.ingest).await?,
    )?;
    let published = "select concat_ws(' ', aggregate_type, aggregate_id, event_type, payload::text, retry_count,
                              created_at <= now(), num_nulls(processed_at, process_after, claimed_at, claimed_by))
                     from m10_recovery.outbox where id = $1";
    let published = text(&crew.owner, published, &[&id]).await?;
    trial.same(
        "reading what was published",
        "row",
        "order 1 Happened {\"amount\": \"10.00\"} 0 t 4".to_owned(),
        published,
    )?;
    complete_all(&crew.executor).await?;
    Ok(())
}

/// Processed, scheduled and claimed, each on either side of its border.
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

pub(super) async fn claiming(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let crew = Crew::hire(database).await?;
    for (state, claimable) in CLAIMABLE {
        let id = publish(&crew.ingest, "order", "1").await?;
        crew.owner.execute(&format!("update m10_recovery.outbox set {state} where id = $1"), &[&id]).await?;
        let found = claim(&crew.executor, "A", 10).await?;
        let expected = if claimable { vec![id] } else { vec![] };
        trial.same(
            format!("claiming an event with {state}"),
            "events",
            format!("{expected:?}"),
            format!("{found:?}"),
        )?;
        crew.owner
            .execute(
                "update m10_recovery.outbox set processed_at = now() where id = $1 and processed_at is null",
                &[&id],
            )
            .await?;
    }

    let mut ids = Vec::new();
    for number in 0..30 {
        ids.push(publish(&crew.ingest, "order", &number.to_string()).await?);
    }
    // Some have failed and are due again, some were held by the dead: numbers decide all the same.
    crew.owner
        .batch_execute(
            "update m10_recovery.outbox set retry_count = 1, process_after = now() - make_interval(secs => id)
             where processed_at is null and id % 3 = 0;
             update m10_recovery.outbox set claimed_by = 'dead', claimed_at = now() - make_interval(mins => 10 + id::int % 7)
             where processed_at is null and id % 3 = 1",
        )
        .await?;
    let second = database.connect_as("symphony_executor").await?;
    crew.executor.batch_execute("begin").await?;
    let call = "select id from m10_recovery.claim_outbox_events('A')";
    let first: Vec<i64> = crew.executor.query(call, &[]).await?.iter().map(|row| row.get(0)).collect();
    trial.same(
        "claiming without a size, of 30 that are fresh, due again or left by the dead",
        "the 10 lowest numbers, in order",
        format!("{:?}", &ids[..10]),
        format!("{first:?}"),
    )?;
    let other = claim(&second, "B", 15).await?;
    trial.same(
        "claiming 15 while the first claim is not committed",
        "the next numbers, without waiting",
        format!("{:?}", &ids[10..25]),
        format!("{other:?}"),
    )?;
    crew.executor.batch_execute("rollback").await?;
    let back = claim(&crew.executor, "C", 1000).await?;
    let expected: Vec<_> = ids[..10].iter().chain(&ids[25..]).copied().collect();
    trial.same(
        "rolling the first claim back and claiming the rest",
        "numbers",
        format!("{expected:?}"),
        format!("{back:?}"),
    )?;
    require(|| "claiming once more".into(), 0, claim(&crew.executor, "D", 1000).await?.len())?;
    age_claims(&crew.owner, "5 minutes 1 second").await?;
    let back = claim(&crew.executor, "E", 1000).await?;
    trial.same("five minutes after two processors died", "events back by themselves", 30, back.len())?;
    let counted = "select count(*) from m10_recovery.outbox where processed_at is null and claimed_by = 'E' and claimed_at > now() - interval '1 minute'
                   and retry_count = case when id % 3 = 0 then 1 else 0 end";
    trial.same(
        "reading them",
        "held by the new processor, with their counts as they were",
        30,
        count(&crew.owner, counted, &[]).await?,
    )?;
    for id in back {
        complete(&crew.executor, id, "E", true, None).await?;
    }
    Ok(())
}

/// Nothing is handed out twice and nothing is left behind.
pub(super) async fn many_claimers(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let crew = Crew::hire(database).await?;
    let publish =
        "select m10_recovery.publish_outbox('order', g::text, 'Happened', '{}') from generate_series(1, 400) g";
    crew.ingest.execute(publish, &[]).await?;
    crew.owner
        .batch_execute(
            "update m10_recovery.outbox set retry_count = 1, process_after = now() where processed_at is null and id % 2 = 0",
        )
        .await?;
    let mut claimers = tokio::task::JoinSet::new();
    for (number, session) in sessions(database, "symphony_executor", 8).await?.into_iter().enumerate() {
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
    trial.holds(
        "claiming 400 events with 8 sessions at once, 7 at a time, until each finds nothing",
        "400 claims of 400 events",
        format!("{} claims of {} events", all.len(), different.len()),
        all.len() == 400 && different.len() == 400,
    )?;
    crew.owner
        .execute("update m10_recovery.outbox set processed_at = now() where processed_at is null", &[])
        .await?;
    Ok(())
}

pub(super) async fn success(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let crew = Crew::hire(database).await?;
    let id = publish(&crew.ingest, "order", "1").await?;
    claim(&crew.executor, "A", 1).await?;
    // As the owner: in one transaction, so that now() is the same.
    crew.owner.batch_execute("begin").await?;
    complete(&crew.owner, id, "A", true, None).await?;
    let state = text(&crew.owner, STATE, &[&id]).await?;
    crew.owner.batch_execute("commit").await?;
    let expected = "processed now, 0 failures, due in - s, claimed by A at some time";
    trial.same("completing with success", "event", expected.to_owned(), state)?;
    make_due(&crew.owner).await?;
    trial.same("claiming afterwards", "events", 0, claim(&crew.executor, "B", 10).await?.len())
}

/// 1 s, 2 s, 4 s, … 1024 s, and that for ever.
pub(super) async fn failure(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let crew = Crew::hire(database).await?;
    let id = publish(&crew.ingest, "order", "1").await?;
    let mut delays = Vec::new();
    for count in 0..14 {
        require(|| format!("claiming after {count} failures"), 1, claim(&crew.executor, "A", 10).await?.len())?;
        crew.owner.batch_execute("begin").await?;
        complete(&crew.owner, id, "A", false, None).await?;
        let state = text(&crew.owner, STATE, &[&id]).await?;
        crew.owner.batch_execute("commit").await?;
        let delay = 1_u32 << count.min(10);
        let expected = format!("open, {} failures, due in {delay}.000000 s, claimed by nobody at -", count + 1);
        require(|| format!("failing after {count} failures"), expected, state)?;
        delays.push(delay.to_string());
        require(|| "claiming before it is due".into(), 0, claim(&crew.executor, "B", 10).await?.len())?;
        make_due(&crew.owner).await?;
    }
    trial.same(
        "failing 14 times",
        "seconds until it is due again, with the count as it stood before",
        "1 2 4 8 16 32 64 128 256 512 1024 1024 1024 1024".to_owned(),
        delays.join(" "),
    )?;
    crew.owner.execute("update m10_recovery.outbox set retry_count = 1000000 where id = $1", &[&id]).await?;
    claim(&crew.executor, "A", 1).await?;
    crew.owner.batch_execute("begin").await?;
    complete(&crew.owner, id, "A", false, None).await?;
    let state = text(&crew.owner, STATE, &[&id]).await?;
    crew.owner.batch_execute("commit").await?;
    let expected = "open, 1000001 failures, due in 1024.000000 s, claimed by nobody at -";
    trial.same("failing for the 1000001st time", "event", expected.to_owned(), state)?;
    make_due(&crew.owner).await?;
    complete_all(&crew.executor).await
}

/// Leaves nothing for what follows.
async fn complete_all(executor: &Client) -> Result<(), Failure> {
    for id in claim(executor, "end", 1000).await? {
        complete(executor, id, "end", true, None).await?;
    }
    Ok(())
}
