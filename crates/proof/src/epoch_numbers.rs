//! Numbers and versions across epochs: what a failover may have lost is never given out again.

use tokio::task::JoinSet;

use super::event::calls as events;
use super::evidence::{Evidence, Failure, Recorder, require};
use super::metadata::calls as entries;
use super::sessions::{Payment, Sessions, claim, connect_many, count, enqueue, enqueue_batch, set_rail};
use symphony_testkit::epoch::change_server;
use symphony_testkit::test_database::Database;

/// The numbers of an epoch: the range that begins after this one.
const RANGE: i64 = 1_000_000_000_000;

/// Proof 37: `no_number_of_an_earlier_epoch_is_given_out_again_and_later_versions_win`.
pub(super) async fn are_never_reused(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "bank", "{}").await?;
    sequences(&sessions, &mut recorder).await?;
    event_ids(database, &sessions, &mut recorder).await?;
    versions(&sessions, &mut recorder).await?;
    restores_of_one_backup(&sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

/// Opens the epoch of the changed server.
async fn first_claim(sessions: &Sessions) -> Result<(), Failure> {
    claim(&sessions.executor, 100, "worker").await?;
    Ok(())
}

/// The number after which those of the newest epoch begin.
async fn floor(sessions: &Sessions) -> Result<i64, Failure> {
    Ok((count(&sessions.owner, "select max(counter) from symphony.epoch", &[]).await? - 1) * RANGE)
}

async fn sequences(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let next = async |name: &str, participant: &str| {
        enqueue(&sessions.ingest, &Payment::new(name, participant, "bank")).await.map(|made| made.sequence_id)
    };
    let first = [next("a", "alice").await?, next("b", "alice").await?];
    change_server(&sessions.owner).await?;
    let before_claim = [next("c", "alice").await?, next("d", "alice").await?, next("e", "bob").await?];
    let batch =
        ["f", "g", "h"].map(|name| Payment::new(name, if name == "h" { "carol" } else { "alice" }, "bank"));
    let batch: Vec<_> =
        enqueue_batch(&sessions.ingest, &batch).await?.iter().map(|made| made.sequence_id).collect();
    first_claim(sessions).await?;
    let after_claim = [next("i", "alice").await?, next("j", "bob").await?, next("k", "dave").await?];
    let expected = format!(
        "{:?}, then {:?}, {:?} before the first claim, {:?} after it",
        [1, 2],
        [RANGE + 1, RANGE + 2, RANGE + 1],
        [RANGE + 3, RANGE + 4, RANGE + 1],
        [RANGE + 5, RANGE + 2, RANGE + 1]
    );
    let happened =
        format!("{first:?}, then {before_claim:?}, {batch:?} before the first claim, {after_claim:?} after it");
    recorder.check(
        "the sequence numbers of alice and others, one by one and in a batch, across a change of the server",
        &expected,
        &happened,
        expected == happened,
    )
}

async fn event_ids(database: &Database, sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    const PUBLISHERS: usize = 8;
    const EVENTS: usize = 40;
    let lost = events::publish(&sessions.ingest, "order", "1").await?;
    change_server(&sessions.owner).await?;
    let next = floor(sessions).await? + RANGE;
    let interim = events::publish(&sessions.ingest, "order", "2").await?;
    let mut tasks = JoinSet::new();
    for client in connect_many(database, "symphony_ingest", PUBLISHERS).await? {
        tasks.spawn(async move {
            let mut ids = Vec::new();
            for _ in 0..EVENTS {
                ids.push(events::publish(&client, "order", "3").await?);
            }
            Ok::<_, tokio_postgres::Error>(ids)
        });
    }
    // The claim moves the sequence while they publish.
    first_claim(sessions).await?;
    let mut ids = vec![interim];
    while let Some(done) = tasks.join_next().await {
        ids.extend(done??);
    }
    let before_last = ids.iter().copied().max().unwrap_or_default();
    let last = events::publish(&sessions.ingest, "order", "4").await?;
    ids.push(last);
    let in_range = ids.iter().filter(|id| (next + 1..=next + RANGE).contains(id)).count();
    recorder.check(
        format!(
            "event ids after event {lost} and a change of the server: 1 before the first claim, {} around it, 1 afterwards",
            PUBLISHERS * EVENTS
        ),
        format!("all in the range of the new epoch, above {next}; no producer fails; the last is the highest"),
        format!("{in_range} of {} in it; the highest before {before_last}, the last {last}", ids.len()),
        in_range == ids.len() && last > before_last,
    )
}

async fn versions(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let newest = "select max(symphony.metadata_version(created_at, epoch)) from symphony.metadata_outbox where entity_id = $1";
    let version = async |entity: &str| {
        entries::create(&sessions.ingest, entity, 3).await?;
        count(&sessions.owner, newest, &[&entity]).await
    };
    // What the second store has of an entry that was lost, written by a server whose clock was 30 s ahead of this one.
    let lost = "select symphony.metadata_version(now() + interval '30 seconds', max(counter)) from symphony.epoch";
    let lost = count(&sessions.owner, lost, &[]).await?;
    let kept = version("kept").await?;
    require(|| "the clock of the lost server was ahead".into(), true, kept < lost)?;
    change_server(&sessions.owner).await?;
    let before_claim = [version("lost").await?, version("kept").await?];
    let nothing = "select count(*) from symphony.claim_metadata_batch('worker', 100)";
    count(&sessions.executor, nothing, &[]).await?;
    let after_claim = [version("lost").await?, version("kept").await?];
    let claimed = "select count(*) from symphony.claim_metadata_batch('worker', 100) where version > $1";
    let claimed = count(&sessions.executor, claimed, &[&lost]).await?;
    recorder.check(
        format!("versions after an entry of version {lost} was lost and the clock is 30 s behind"),
        "later than that, before and after the first claim, in the order of commits, and as the claim returns them",
        format!("{before_claim:?} before the first claim, {after_claim:?} after it, {claimed} claimed"),
        before_claim.iter().all(|version| *version > lost)
            && after_claim[0] > before_claim[0]
            && after_claim[1] > before_claim[1]
            && claimed == 2,
    )?;
    let found = "select count(*) from symphony.find_metadata_by_entity('lost', 'document') where version > $1";
    let found = count(&sessions.ingest, found, &[&lost]).await?;
    recorder.check_equal("reading the versions of that entity", "later than the lost one", 2, found)
}

/// Two servers that were restored from one backup have different timelines, and give out different numbers.
async fn restores_of_one_backup(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let next =
        async |timeline: i32| count(&sessions.owner, "select symphony.next_epoch(1, $1)", &[&timeline]).await;
    let (first, second) = (next(2).await?, next(3).await?);
    recorder.check(
        "the epochs that two restores of one backup open after epoch 1, on timelines 2 and 3",
        "two epochs",
        format!("{first} and {second}"),
        first == 2 && second == 3,
    )
}
