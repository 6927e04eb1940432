//! A claim that was lost is lost: who held it can neither publish, fail nor dead-letter the entry.

use tokio_postgres::Client;

use super::super::crew::{Crew, count, sessions};
use super::super::evidence::{Failure, Trial, code, require};
use super::super::signals::{pid, waits};
use super::crew::{Held, age_claim, claim, claim_this, create, make_due, mark, repair, row, status};
use crate::kit::scratch::Database;

const LATE: &str = "5 minutes 1 second";

/// Proof 25, for the metadata lane.
pub(in crate::proofs) async fn lost_is_lost(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let crew = Crew::hire(database).await?;
    taken_over(&crew, trial).await?;
    nobody_took_it(&crew, trial).await?;
    at_the_same_moment(database, &crew, trial).await?;
    one_of_many(database, &crew, trial).await
}

/// Every way in which the late worker could finish: by the marks and by a batch.
async fn refused(crew: &Crew, trial: &mut Trial, tried: &str, late: &Held, expected: &str) -> Result<(), Failure> {
    let before = row(&crew.owner, &late.id).await?;
    for outcome in ["published", "failed", "dlq"] {
        let result = mark(&crew.executor, outcome, &late.id, Some(&late.token)).await;
        let happened = result.as_ref().err().map_or("allowed", |error| code(error));
        require(|| format!("{tried}: {outcome}"), expected, happened)?;
    }
    for outcome in ["PUBLISHED", "FAILED"] {
        let happened = in_a_batch(&crew.executor, late, outcome).await?;
        require(|| format!("{tried}: {outcome} in a batch"), expected.to_owned(), happened)?;
    }
    let same = row(&crew.owner, &late.id).await? == before;
    trial.holds(
        format!("{tried}: publishing, failing and dead-lettering, alone and in a batch"),
        format!("5 refused with {expected}, nothing changed"),
        format!("5 refused with {expected}, changed: {}", !same),
        same,
    )
}

async fn in_a_batch(executor: &Client, held: &Held, outcome: &str) -> Result<String, Failure> {
    let call = "select coalesce(refusal, 'allowed')
                from symphony.complete_metadata_batch(array[$1::text::uuid], array[$2::text::uuid], array[$3::text], array['late'])";
    Ok(executor.query_one(call, &[&held.id, &held.token, &outcome]).await?.get(0))
}

async fn taken_over(crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    // With one retry left, so that even DLQ would be a legal end for the holder.
    let id = create(&crew.ingest, "taken over", 3).await?;
    let late = claim_this(crew, &id).await?;
    age_claim(&crew.owner, &id, LATE).await?;
    require(|| "repairing".into(), 1, repair(&crew.executor).await?.len())?;
    refused(crew, trial, "a late worker, after its claim on an entry was repaired", &late, "P7003").await?;
    make_due(&crew.owner).await?;
    let second = claim_this(crew, &id).await?;
    refused(crew, trial, "a late worker, while another holds the entry", &late, "P7002").await?;
    mark(&crew.executor, "failed", &id, Some(&second.token)).await?;
    make_due(&crew.owner).await?;
    let third = claim_this(crew, &id).await?;
    refused(crew, trial, "a late worker, in the last retry of another", &late, "P7002").await?;
    refused(crew, trial, "the other's earlier claim", &second, "P7002").await?;
    mark(&crew.executor, "published", &id, Some(&third.token)).await?;
    refused(crew, trial, "a late worker, after the entry is published", &late, "P7001").await?;
    refused(crew, trial, "the one who published it, once more", &third, "P7001").await
}

/// Only a claim that was ended is lost.
async fn nobody_took_it(crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    let id = create(&crew.ingest, "nobody took it", 3).await?;
    let held = claim_this(crew, &id).await?;
    age_claim(&crew.owner, &id, "1 day").await?;
    let late = mark(&crew.executor, "published", &id, Some(&held.token)).await;
    trial.holds(
        "publishing a day late an entry that nobody repaired",
        "allowed: it still holds the claim",
        late.as_ref().map_or_else(|error| code(error).to_owned(), |()| "allowed".into()),
        late.is_ok(),
    )
}

/// A repair and a late completion meet on the row: whoever is first decides, and the other sees it.
async fn at_the_same_moment(database: &Database, crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    let other = database.connect_as("symphony_executor").await?;
    let id = create(&crew.ingest, "repair first", 3).await?;
    let held = claim_this(crew, &id).await?;
    age_claim(&crew.owner, &id, LATE).await?;
    let late = database.connect_as("symphony_executor").await?;
    let late_pid = pid(&late).await?;
    other.batch_execute("begin").await?;
    require(|| "repairing".into(), 1, repair(&other).await?.len())?;
    let completes = tokio::spawn(async move { mark(&late, "published", &held.id, Some(&held.token)).await });
    let waited = waits(&crew.owner, late_pid, &completes).await?;
    other.batch_execute("commit").await?;
    trial.refused(
        format!("publishing while a repair of the entry is being committed (waited for it: {waited})"),
        "P7003",
        completes.await?,
    )?;

    let id = create(&crew.ingest, "completion first", 3).await?;
    let held = claim_this(crew, &id).await?;
    age_claim(&crew.owner, &id, LATE).await?;
    crew.executor.batch_execute("begin").await?;
    mark(&crew.executor, "published", &id, Some(&held.token)).await?;
    let found = repair(&other).await?.len();
    crew.executor.batch_execute("commit").await?;
    let after = repair(&other).await?.len();
    trial.holds(
        "repairing while the late holder's success is being committed, and afterwards",
        "nothing to repair, without waiting; the entry is PUBLISHED",
        format!("{found} and {after} entries; it is {}", status(&crew.owner, &id).await?),
        found == 0 && after == 0 && status(&crew.owner, &id).await? == "PUBLISHED",
    )
}

/// However many end one claim at once, one is recorded; and no entry is claimed twice.
async fn one_of_many(database: &Database, crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    make_due(&crew.owner).await?;
    claim(&crew.executor, "clears the table", 1000).await?;
    let id = create(&crew.ingest, "one of many", 3).await?;
    let held = claim_this(crew, &id).await?;
    let mut racing = tokio::task::JoinSet::new();
    for (number, session) in sessions(database, "symphony_executor", 8).await?.into_iter().enumerate() {
        let held = held.clone();
        let outcome = if number % 2 == 0 { "published" } else { "failed" };
        racing.spawn(async move { mark(&session, outcome, &held.id, Some(&held.token)).await });
    }
    let mut recorded = 0;
    while let Some(done) = racing.join_next().await {
        match done? {
            Ok(()) => recorded += 1,
            Err(error) => {
                let lost = matches!(code(&error), "P7001" | "P7003");
                require(|| format!("an end that came second: {}", code(&error)), true, lost)?;
            }
        }
    }
    trial.same(
        "ending one claim from 8 sessions at once, half with success and half with failure",
        "recorded",
        1,
        recorded,
    )?;

    let create =
        "select symphony.create_metadata_entry('document', (g % 7)::text, '{}') from generate_series(1, 400) g";
    crew.ingest.execute(create, &[]).await?;
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
    let (mut ids, mut tokens) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    let mut claims = 0;
    while let Some(held) = claimers.join_next().await {
        for held in held?? {
            claims += 1;
            ids.insert(held.id);
            tokens.insert(held.token);
        }
    }
    let left =
        count(&crew.owner, "select count(*) from symphony.metadata_outbox where status = 'PENDING'", &[]).await?;
    trial.holds(
        "claiming 400 entries with 8 sessions at once, 7 at a time, until each finds nothing",
        "400 claims of 400 entries under 400 tokens, none left",
        format!("{claims} claims of {} entries under {} tokens, {left} left", ids.len(), tokens.len()),
        (claims, ids.len(), tokens.len(), left) == (400, 400, 400, 0),
    )
}
