//! A worker that lost its claim can neither publish, fail nor dead-letter the entry.

use tokio_postgres::Client;

use super::super::evidence::{Failure, Recorder, require, sqlstate};
use super::super::server_state::{pid, waits_for_lock};
use super::super::sessions::{Sessions, connect_many, count};
use super::calls::{ClaimedEntry, age_claim, claim, claim_this, create, make_due, mark, repair, row, status};
use symphony_testkit::test_database::Database;

const LATE: &str = "5 minutes 1 second";

/// Proof 25, for the metadata lane.
pub(crate) async fn late_completion_is_refused(
    database: &Database,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    taken_over(&sessions, recorder).await?;
    expired_but_not_taken_over(&sessions, recorder).await?;
    at_the_same_moment(database, &sessions, recorder).await?;
    one_of_many(database, &sessions, recorder).await
}

/// Every call by which the late worker could complete: mark_metadata_* and the batch.
async fn refused(
    sessions: &Sessions,
    recorder: &mut Recorder,
    tried: &str,
    late: &ClaimedEntry,
    expected: &str,
) -> Result<(), Failure> {
    let before = row(&sessions.owner, &late.id).await?;
    for outcome in ["published", "failed", "dlq"] {
        let result = mark(&sessions.executor, outcome, &late.id, Some(&late.token)).await;
        let happened = result.as_ref().err().map_or("allowed", |error| sqlstate(error));
        require(|| format!("{tried}: {outcome}"), expected, happened)?;
    }
    for outcome in ["PUBLISHED", "FAILED"] {
        let happened = in_a_batch(&sessions.executor, late, outcome).await?;
        require(|| format!("{tried}: {outcome} in a batch"), expected.to_owned(), happened)?;
    }
    let same = row(&sessions.owner, &late.id).await? == before;
    recorder.check(
        format!("{tried}: publishing, failing and dead-lettering, alone and in a batch"),
        format!("5 refused with {expected}, nothing changed"),
        format!("5 refused with {expected}, changed: {}", !same),
        same,
    )
}

async fn in_a_batch(executor: &Client, claimed: &ClaimedEntry, outcome: &str) -> Result<String, Failure> {
    let call = "select coalesce(refusal, 'allowed')
                from symphony.complete_metadata_batch(array[$1::text::uuid], array[$2::text::uuid], array[$3::text], array['late'])";
    Ok(executor.query_one(call, &[&claimed.id, &claimed.token, &outcome]).await?.get(0))
}

async fn taken_over(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    // With one retry left, so that DLQ would be legal for the worker with the claim.
    let id = create(&sessions.ingest, "taken over", 3).await?;
    let late = claim_this(sessions, &id).await?;
    age_claim(&sessions.owner, &id, LATE).await?;
    require(|| "repairing".into(), 1, repair(&sessions.executor).await?.len())?;
    refused(sessions, recorder, "a late worker, after its claim on an entry was repaired", &late, "P7003").await?;
    make_due(&sessions.owner).await?;
    let second = claim_this(sessions, &id).await?;
    refused(sessions, recorder, "a late worker, while another holds the entry", &late, "P7002").await?;
    mark(&sessions.executor, "failed", &id, Some(&second.token)).await?;
    make_due(&sessions.owner).await?;
    let third = claim_this(sessions, &id).await?;
    refused(sessions, recorder, "a late worker, in the last retry of another", &late, "P7002").await?;
    refused(sessions, recorder, "the other's earlier claim", &second, "P7002").await?;
    mark(&sessions.executor, "published", &id, Some(&third.token)).await?;
    refused(sessions, recorder, "a late worker, after the entry is published", &late, "P7001").await?;
    refused(sessions, recorder, "the one who published it, once more", &third, "P7001").await
}

/// A claim that was not repaired is still valid.
async fn expired_but_not_taken_over(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let id = create(&sessions.ingest, "not taken over", 3).await?;
    let claimed = claim_this(sessions, &id).await?;
    age_claim(&sessions.owner, &id, "1 day").await?;
    let late = mark(&sessions.executor, "published", &id, Some(&claimed.token)).await;
    recorder.check(
        "publishing a day late an entry that was not repaired",
        "allowed: the claim is still its own",
        late.as_ref().map_or_else(|error| sqlstate(error).to_owned(), |()| "allowed".into()),
        late.is_ok(),
    )
}

/// A repair and a late completion race for the row: the first one wins, and the other is refused.
async fn at_the_same_moment(
    database: &Database,
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let other = database.connect_as("symphony_executor").await?;
    let id = create(&sessions.ingest, "repair first", 3).await?;
    let claimed = claim_this(sessions, &id).await?;
    age_claim(&sessions.owner, &id, LATE).await?;
    let late = database.connect_as("symphony_executor").await?;
    let late_pid = pid(&late).await?;
    other.batch_execute("begin").await?;
    require(|| "repairing".into(), 1, repair(&other).await?.len())?;
    let completes = tokio::spawn(async move { mark(&late, "published", &claimed.id, Some(&claimed.token)).await });
    let waited = waits_for_lock(&sessions.owner, late_pid, &completes).await?;
    other.batch_execute("commit").await?;
    recorder.check_refused(
        format!("publishing while a repair of the entry is being committed (waited for it: {waited})"),
        "P7003",
        completes.await?,
    )?;

    let id = create(&sessions.ingest, "completion first", 3).await?;
    let claimed = claim_this(sessions, &id).await?;
    age_claim(&sessions.owner, &id, LATE).await?;
    sessions.executor.batch_execute("begin").await?;
    mark(&sessions.executor, "published", &id, Some(&claimed.token)).await?;
    let found = repair(&other).await?.len();
    sessions.executor.batch_execute("commit").await?;
    let after = repair(&other).await?.len();
    recorder.check(
        "repairing while the late success is being committed, and afterwards",
        "nothing to repair, without waiting; the entry is PUBLISHED",
        format!("{found} and {after} entries; it is {}", status(&sessions.owner, &id).await?),
        found == 0 && after == 0 && status(&sessions.owner, &id).await? == "PUBLISHED",
    )
}

/// Of concurrent completions of one claim, one is recorded; and no entry is claimed twice.
async fn one_of_many(database: &Database, sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    make_due(&sessions.owner).await?;
    claim(&sessions.executor, "clears the table", 1000).await?;
    let id = create(&sessions.ingest, "one of many", 3).await?;
    let claimed = claim_this(sessions, &id).await?;
    let mut racing = tokio::task::JoinSet::new();
    for (number, session) in connect_many(database, "symphony_executor", 8).await?.into_iter().enumerate() {
        let claimed = claimed.clone();
        let outcome = if number % 2 == 0 { "published" } else { "failed" };
        racing.spawn(async move { mark(&session, outcome, &claimed.id, Some(&claimed.token)).await });
    }
    let mut recorded = 0;
    while let Some(done) = racing.join_next().await {
        match done? {
            Ok(()) => recorded += 1,
            Err(error) => {
                let lost = matches!(sqlstate(&error), "P7001" | "P7003");
                require(|| format!("an end that came second: {}", sqlstate(&error)), true, lost)?;
            }
        }
    }
    recorder.check_equal(
        "ending one claim from 8 sessions at once, half with success and half with failure",
        "recorded",
        1,
        recorded,
    )?;

    let create =
        "select symphony.create_metadata_entry('document', (g % 7)::text, '{}') from generate_series(1, 400) g";
    sessions.ingest.execute(create, &[]).await?;
    let mut claimers = tokio::task::JoinSet::new();
    for (number, session) in connect_many(database, "symphony_executor", 8).await?.into_iter().enumerate() {
        claimers.spawn(async move {
            let mut claimed = Vec::new();
            loop {
                let more = claim(&session, &format!("claimer-{number}"), 7).await?;
                if more.is_empty() {
                    return Ok::<_, Failure>(claimed);
                }
                claimed.extend(more);
            }
        });
    }
    let (mut ids, mut tokens) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    let mut claims = 0;
    while let Some(claimed) = claimers.join_next().await {
        for claimed in claimed?? {
            claims += 1;
            ids.insert(claimed.id);
            tokens.insert(claimed.token);
        }
    }
    let left =
        count(&sessions.owner, "select count(*) from symphony.metadata_outbox where status = 'PENDING'", &[])
            .await?;
    recorder.check(
        "claiming 400 entries with 8 sessions at once, 7 at a time, until each finds nothing",
        "400 claims of 400 entries under 400 tokens, none left",
        format!("{claims} claims of {} entries under {} tokens, {left} left", ids.len(), tokens.len()),
        (claims, ids.len(), tokens.len(), left) == (400, 400, 400, 0),
    )
}
