//! A claim that was lost is lost: who held it cannot finish the event, though the contract has no token.
//!
//! What tells one claim from another is the processor id, so each claim must have a fresh one. What happens otherwise
//! is shown as well.

use symphony_outbox::event::{EventId, worker};
use symphony_outbox::{BatchSize, WorkerId, error};

use super::super::crew::{Crew, count, sessions, text};
use super::super::evidence::{Failure, Trial, code, require};
use super::super::signals::{pid, waits};
use super::crew::{STATE, age_claims, claim, complete, publish};
use super::refusals::refused;
use crate::kit::scratch::Database;

const LATE: &str = "5 minutes 1 second";

/// Proof 25, for the event lane.
pub(in crate::proofs) async fn lost_is_lost(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let crew = Crew::hire(database).await?;
    taken_over(&crew, trial).await?;
    by_the_same_worker(&crew, trial).await?;
    an_id_used_twice(&crew, trial).await?;
    nobody_took_it(&crew, trial).await?;
    at_the_same_moment(database, &crew, trial).await?;
    one_of_many(database, &crew, trial).await
}

async fn taken_over(crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    let id = publish(&crew.ingest, "order", "taken over").await?;
    claim(&crew.executor, "A#1", 1).await?;
    age_claims(&crew.owner, LATE).await?;
    require(|| "taking over".into(), format!("[{id}]"), format!("{:?}", claim(&crew.executor, "B#1", 1).await?))?;
    let (executor, owner) = (&crew.executor, &crew.owner);
    refused(executor, owner, trial, "the late processor, while another holds the event", id, "A#1").await?;
    complete(executor, id, "B#1", false, Some("busy")).await?;
    refused(executor, owner, trial, "the late processor, after the other has failed", id, "A#1").await?;
    super::crew::make_due(owner).await?;
    claim(executor, "B#2", 1).await?;
    refused(executor, owner, trial, "the late processor, while the event is tried again", id, "A#1").await?;
    refused(executor, owner, trial, "the other's earlier claim", id, "B#1").await?;
    complete(executor, id, "B#2", true, None).await?;
    refused(executor, owner, trial, "the late processor, after the event is processed", id, "A#1").await
}

/// The typed calls give each claim a name of its own.
async fn by_the_same_worker(crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    let id = publish(&crew.ingest, "order", "the same worker").await?;
    let worker = WorkerId::from("relayer-1");
    let first = worker::claim(&crew.executor, &worker, BatchSize::ONE).await.map_err(stopped)?;
    age_claims(&crew.owner, LATE).await?;
    let second = worker::claim(&crew.executor, &worker, BatchSize::ONE).await.map_err(stopped)?;
    let again = second.events.first().is_some_and(|event| event.id == EventId(id));
    require(|| "claiming again as the same worker".into(), true, again && first.processor != second.processor)?;
    let late = worker::complete(&crew.executor, &first.processor, EventId(id), &worker::Outcome::Delivered).await;
    let lost = matches!(late, Err(error::event::CompleteError::ClaimLost(_)));
    trial.holds(
        "one worker, through the typed calls: claims, is late, claims the same event again, and its first attempt completes",
        "refused: the claim was lost",
        format!("{late:?}").chars().take(120).collect::<String>(),
        lost,
    )?;
    refused(&crew.executor, &crew.owner, trial, "the same in SQL", id, first.processor.as_str()).await?;
    worker::complete(&crew.executor, &second.processor, EventId(id), &worker::Outcome::Delivered)
        .await
        .map_err(stopped)?;
    let state = text(&crew.owner, STATE, &[&id]).await?;
    let expected =
        format!("processed before, 0 failures, due in - s, claimed by {} at some time", second.processor);
    trial.same("its second attempt completes", "event", expected, state)
}

/// Why an id must be fresh: the contract cannot tell two claims of one name apart.
async fn an_id_used_twice(crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    let id = publish(&crew.ingest, "order", "an id used twice").await?;
    claim(&crew.executor, "A", 1).await?;
    age_claims(&crew.owner, LATE).await?;
    claim(&crew.executor, "A", 1).await?;
    let late = complete(&crew.executor, id, "A", true, None).await;
    trial.holds(
        "two claims under one processor id, and the first completes late: what the fresh ids are for",
        "allowed, as the contract has no token",
        late.as_ref().map_or_else(|error| code(error).to_owned(), |()| "allowed".into()),
        late.is_ok(),
    )
}

/// Only a claim that somebody took over is lost.
async fn nobody_took_it(crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    let id = publish(&crew.ingest, "order", "nobody took it").await?;
    claim(&crew.executor, "A#9", 1).await?;
    age_claims(&crew.owner, "1 day").await?;
    let late = complete(&crew.executor, id, "A#9", true, None).await;
    trial.holds(
        "completing a day late what nobody took over",
        "allowed: it still holds the claim",
        late.as_ref().map_or_else(|error| code(error).to_owned(), |()| "allowed".into()),
        late.is_ok(),
    )
}

/// A takeover and a late completion meet on the row: whoever is first decides, and the other sees it.
async fn at_the_same_moment(database: &Database, crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    let id = publish(&crew.ingest, "order", "takeover first").await?;
    claim(&crew.executor, "A#2", 1).await?;
    age_claims(&crew.owner, LATE).await?;
    let other = database.connect_as("symphony_executor").await?;
    let late = database.connect_as("symphony_executor").await?;
    let late_pid = pid(&late).await?;
    other.batch_execute("begin").await?;
    require(|| "taking over".into(), 1, claim(&other, "B#3", 1).await?.len())?;
    let completes = tokio::spawn(async move { complete(&late, id, "A#2", true, None).await });
    let waited = waits(&crew.owner, late_pid, &completes).await?;
    other.batch_execute("commit").await?;
    trial.refused(
        format!("completing while another's takeover is being committed (waited for it: {waited})"),
        "P7002",
        completes.await?,
    )?;
    complete(&other, id, "B#3", true, None).await?;

    let id = publish(&crew.ingest, "order", "completion first").await?;
    claim(&crew.executor, "A#3", 1).await?;
    age_claims(&crew.owner, LATE).await?;
    crew.executor.batch_execute("begin").await?;
    complete(&crew.executor, id, "A#3", true, None).await?;
    let found = claim(&other, "B#4", 10).await?.len();
    crew.executor.batch_execute("commit").await?;
    let after = claim(&other, "B#5", 10).await?.len();
    trial.holds(
        "taking over while the late holder's completion is being committed, and afterwards",
        "nothing to claim, without waiting",
        format!("{found} and {after} events"),
        found == 0 && after == 0,
    )
}

/// However many complete one claim at once, one is recorded.
async fn one_of_many(database: &Database, crew: &Crew, trial: &mut Trial) -> Result<(), Failure> {
    let id = publish(&crew.ingest, "order", "one of many").await?;
    claim(&crew.executor, "A#4", 1).await?;
    let mut racing = tokio::task::JoinSet::new();
    for (number, session) in sessions(database, "symphony_executor", 8).await?.into_iter().enumerate() {
        racing.spawn(async move { complete(&session, id, "A#4", number % 2 == 0, Some("one of many")).await });
    }
    let (mut recorded, mut lost) = (0, 0);
    while let Some(done) = racing.join_next().await {
        match done? {
            Ok(()) => recorded += 1,
            Err(error) => {
                require(|| "a completion that came second".into(), "P7002", code(&error))?;
                lost += 1;
            }
        }
    }
    let kept =
        count(&crew.owner, "select count(*) from m10_recovery.outbox_errors where event_id = $1", &[&id]).await?;
    trial.holds(
        "completing one claim from 8 sessions at once, half with success and half with failure",
        "1 recorded with its error, 7 refused with P7002",
        format!("{recorded} recorded with {kept} errors, {lost} refused with P7002"),
        recorded == 1 && lost == 7 && kept == 1,
    )
}

fn stopped(error: impl std::error::Error) -> Failure {
    Failure { tried: "a typed call".into(), expected: "an answer".into(), happened: error.to_string() }
}
