//! A worker that lost its claim cannot complete the event, though the contract has no token.
//!
//! Only the processor id distinguishes two claims, so each claim must use a new one. One case shows what happens
//! without it.

use symphony_db::event::{EventId, worker};
use symphony_db::{BatchSize, WorkerId, error};

use super::super::evidence::{Failure, Recorder, require, sqlstate};
use super::super::server_state::{pid, waits_for_lock};
use super::super::sessions::{Sessions, connect_many, count, text};
use super::calls::{STATE, age_claims, claim, complete, publish};
use super::refusals::refused;
use symphony_testkit::test_database::Database;

const LATE: &str = "5 minutes 1 second";

/// Proof 25, for the event lane.
pub(crate) async fn late_completion_is_refused(
    database: &Database,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    taken_over(&sessions, recorder).await?;
    by_the_same_worker(&sessions, recorder).await?;
    an_id_used_twice(&sessions, recorder).await?;
    expired_but_not_taken_over(&sessions, recorder).await?;
    at_the_same_moment(database, &sessions, recorder).await?;
    one_of_many(database, &sessions, recorder).await
}

async fn taken_over(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let id = publish(&sessions.ingest, "order", "taken over").await?;
    claim(&sessions.executor, "A#1", 1).await?;
    age_claims(&sessions.owner, LATE).await?;
    require(
        || "taking over".into(),
        format!("[{id}]"),
        format!("{:?}", claim(&sessions.executor, "B#1", 1).await?),
    )?;
    let (executor, owner) = (&sessions.executor, &sessions.owner);
    refused(executor, owner, recorder, "the late processor, while another has claimed the event", id, "A#1")
        .await?;
    complete(executor, id, "B#1", false, Some("busy")).await?;
    refused(executor, owner, recorder, "the late processor, after the failure of the other", id, "A#1").await?;
    super::calls::make_due(owner).await?;
    claim(executor, "B#2", 1).await?;
    refused(executor, owner, recorder, "the late processor, during the retry", id, "A#1").await?;
    refused(executor, owner, recorder, "the other's earlier claim", id, "B#1").await?;
    complete(executor, id, "B#2", true, None).await?;
    refused(executor, owner, recorder, "the late processor, after the event is processed", id, "A#1").await
}

/// The typed calls give each claim its own processor id.
async fn by_the_same_worker(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let id = publish(&sessions.ingest, "order", "the same worker").await?;
    let worker = WorkerId::from("relayer-1");
    let first = worker::claim(&sessions.executor, &worker, BatchSize::ONE).await.map_err(stopped)?;
    age_claims(&sessions.owner, LATE).await?;
    let second = worker::claim(&sessions.executor, &worker, BatchSize::ONE).await.map_err(stopped)?;
    let again = second.events.first().is_some_and(|event| event.id == EventId(id));
    require(|| "claiming again as the same worker".into(), true, again && first.processor != second.processor)?;
    let late =
        worker::complete(&sessions.executor, &first.processor, EventId(id), &worker::Outcome::Delivered).await;
    let lost = matches!(late, Err(error::CompleteError::LeaseLost(_)));
    recorder.check(
        "one worker, through the typed calls: its claim expires, it claims the same event again, and the first claim completes",
        "refused: the claim was lost",
        format!("{late:?}").chars().take(120).collect::<String>(),
        lost,
    )?;
    refused(&sessions.executor, &sessions.owner, recorder, "the same in SQL", id, first.processor.as_str())
        .await?;
    worker::complete(&sessions.executor, &second.processor, EventId(id), &worker::Outcome::Delivered)
        .await
        .map_err(stopped)?;
    let state = text(&sessions.owner, STATE, &[&id]).await?;
    let expected =
        format!("processed before, 0 failures, due in - s, claimed by {} at some time", second.processor);
    recorder.check_equal("its second attempt completes", "event", expected, state)
}

/// Why each claim needs a new id: the contract cannot distinguish two claims of one processor id.
async fn an_id_used_twice(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let id = publish(&sessions.ingest, "order", "an id used twice").await?;
    claim(&sessions.executor, "A", 1).await?;
    age_claims(&sessions.owner, LATE).await?;
    claim(&sessions.executor, "A", 1).await?;
    let late = complete(&sessions.executor, id, "A", true, None).await;
    recorder.check(
        "two claims under one processor id, and the first completes late",
        "allowed, as the contract has no token",
        late.as_ref().map_or_else(|error| sqlstate(error).to_owned(), |()| "allowed".into()),
        late.is_ok(),
    )
}

/// A claim that no other worker took over is still valid.
async fn expired_but_not_taken_over(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let id = publish(&sessions.ingest, "order", "not taken over").await?;
    claim(&sessions.executor, "A#9", 1).await?;
    age_claims(&sessions.owner, "1 day").await?;
    let late = complete(&sessions.executor, id, "A#9", true, None).await;
    recorder.check(
        "completing a day late an event that no other processor claimed",
        "allowed: the claim is still its own",
        late.as_ref().map_or_else(|error| sqlstate(error).to_owned(), |()| "allowed".into()),
        late.is_ok(),
    )
}

/// A takeover and a late completion race for the row: the first one wins, and the other is refused.
async fn at_the_same_moment(
    database: &Database,
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let id = publish(&sessions.ingest, "order", "takeover first").await?;
    claim(&sessions.executor, "A#2", 1).await?;
    age_claims(&sessions.owner, LATE).await?;
    let other = database.connect_as("symphony_executor").await?;
    let late = database.connect_as("symphony_executor").await?;
    let late_pid = pid(&late).await?;
    other.batch_execute("begin").await?;
    require(|| "taking over".into(), 1, claim(&other, "B#3", 1).await?.len())?;
    let completes = tokio::spawn(async move { complete(&late, id, "A#2", true, None).await });
    let waited = waits_for_lock(&sessions.owner, late_pid, &completes).await?;
    other.batch_execute("commit").await?;
    recorder.check_refused(
        format!("completing while another's takeover is being committed (waited for it: {waited})"),
        "P7002",
        completes.await?,
    )?;
    complete(&other, id, "B#3", true, None).await?;

    let id = publish(&sessions.ingest, "order", "completion first").await?;
    claim(&sessions.executor, "A#3", 1).await?;
    age_claims(&sessions.owner, LATE).await?;
    sessions.executor.batch_execute("begin").await?;
    complete(&sessions.executor, id, "A#3", true, None).await?;
    let found = claim(&other, "B#4", 10).await?.len();
    sessions.executor.batch_execute("commit").await?;
    let after = claim(&other, "B#5", 10).await?.len();
    recorder.check(
        "claiming while the late completion is being committed, and afterwards",
        "nothing to claim, without waiting",
        format!("{found} and {after} events"),
        found == 0 && after == 0,
    )
}

/// Of concurrent completions of one claim, one is recorded.
async fn one_of_many(database: &Database, sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let id = publish(&sessions.ingest, "order", "one of many").await?;
    claim(&sessions.executor, "A#4", 1).await?;
    let mut racing = tokio::task::JoinSet::new();
    for (number, session) in connect_many(database, "symphony_executor", 8).await?.into_iter().enumerate() {
        racing.spawn(async move { complete(&session, id, "A#4", number % 2 == 0, Some("one of many")).await });
    }
    let (mut recorded, mut lost) = (0, 0);
    while let Some(done) = racing.join_next().await {
        match done? {
            Ok(()) => recorded += 1,
            Err(error) => {
                require(|| "a completion that came second".into(), "P7002", sqlstate(&error))?;
                lost += 1;
            }
        }
    }
    let kept =
        count(&sessions.owner, "select count(*) from m10_recovery.outbox_errors where event_id = $1", &[&id])
            .await?;
    recorder.check(
        "completing one claim from 8 sessions at once, half with success and half with failure",
        "1 recorded with its error, 7 refused with P7002",
        format!("{recorded} recorded with {kept} errors, {lost} refused with P7002"),
        recorded == 1 && lost == 7 && kept == 1,
    )
}

fn stopped(error: impl std::error::Error) -> Failure {
    Failure { tried: "a typed call".into(), expected: "an answer".into(), happened: error.to_string() }
}
