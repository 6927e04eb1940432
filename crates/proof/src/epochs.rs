//! Epochs: the first claim on another server opens one, whichever lane it is of.
//!
//! A changed server is simulated: the newest epoch gets another timeline, as if this server had been promoted since it
//! was opened, or another system identifier, as if the database had been copied to this server. `tests/promotion.rs` does the same with a standby that is promoted.

use super::event::calls as events;
use super::evidence::{Evidence, Failure, Recorder, require};
use super::metadata::calls as entries;
use super::server_state::{all_wait_for_locks, pid, waits_for_lock};
use super::sessions::{Payment, Sessions, claim, connect_many, count, enqueue, set_rail, text};
use symphony_testkit::epoch::{change_server, change_system};
use symphony_testkit::test_database::Database;

/// The claims of all lanes. Each brings at least one row after [`due_in_all_lanes`].
const CLAIMS: [(&str, &str); 4] = [
    ("claim_outbox_batch", "select count(*) from symphony.claim_outbox_batch(1, 'worker', 600)"),
    ("claim_outbox_events", "select count(*) from m10_recovery.claim_outbox_events('worker', 1)"),
    ("claim_events_in_order", "select count(*) from symphony.claim_events_in_order('worker', 1, 0)"),
    ("claim_metadata_batch", "select count(*) from symphony.claim_metadata_batch('worker', 1)"),
];
const EPOCHS: &str = "select count(*) from symphony.epoch";
/// The newest epoch is of this server, and every rail has it.
const IS_CURRENT: &str = "select count(*)
    from (select e.* from symphony.epoch e order by e.counter desc limit 1) e
    where e.system_identifier = (select system_identifier from pg_control_system())
      and e.timeline = symphony.server_timeline()
      and not exists (select from symphony.payment_rails r where (r.epoch, r.epoch_timeline) <> (e.counter, e.timeline))";

async fn due_in_all_lanes(sessions: &Sessions, name: &str) -> Result<(), Failure> {
    enqueue(&sessions.ingest, &Payment::new(name, name, "bank")).await?;
    for event in 0..2 {
        events::publish(&sessions.ingest, "order", &format!("{name}-{event}")).await?;
    }
    entries::create(&sessions.ingest, name, 3).await?;
    Ok(())
}

/// Proof 35: `no_claim_of_any_lane_is_granted_under_the_epoch_of_another_server`.
pub(super) async fn are_opened_by_claims(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "bank", "{}").await?;
    due_in_all_lanes(&sessions, "first").await?;
    for (_, claim) in CLAIMS {
        require(|| claim.to_owned(), 1, count(&sessions.executor, claim, &[]).await?)?;
    }
    let found = (count(&sessions.owner, EPOCHS, &[]).await?, count(&sessions.owner, IS_CURRENT, &[]).await?);
    recorder.check(
        "claiming in every lane on the server of the install",
        "1 epoch, of this server",
        format!("{} epoch, {} of this server", found.0, found.1),
        found == (1, 1),
    )?;
    for (name, claim) in CLAIMS {
        change_server(&sessions.owner).await?;
        by_one_claim(&sessions, &mut recorder, &format!("{name} after a promotion"), claim).await?;
        change_system(&sessions.owner).await?;
        by_one_claim(&sessions, &mut recorder, &format!("{name} of a copy on another system"), claim).await?;
    }
    by_one_of_many(database, &sessions, &mut recorder).await?;
    beside_a_producer(database, &sessions, &mut recorder).await?;
    by_an_operator(&sessions, &mut recorder).await?;
    holds(&sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

/// A claim under another server waits for the new epoch, opens it, and only then grants.
async fn by_one_claim(
    sessions: &Sessions,
    recorder: &mut Recorder,
    name: &str,
    claim: &'static str,
) -> Result<(), Failure> {
    due_in_all_lanes(sessions, name).await?;
    let before = count(&sessions.owner, EPOCHS, &[]).await?;
    sessions.executor.batch_execute("begin").await?;
    let granted = count(&sessions.executor, claim, &[]).await?;
    let told = text(
        &sessions.executor,
        "select current_setting('symphony.opened_epoch', true)::jsonb -> 'opened' ->> 'counter'",
        &[],
    )
    .await?;
    sessions.executor.batch_execute("commit").await?;
    let opened = count(&sessions.owner, EPOCHS, &[]).await? - before;
    let current = count(&sessions.owner, IS_CURRENT, &[]).await?;
    let newest = text(&sessions.owner, "select max(counter)::text from symphony.epoch", &[]).await?;
    let logged = "select count(*) from symphony.payment_outbox_operations_log
                  where operation = 'OPEN_EPOCH' and actor = 'worker' and policy_after ->> 'counter' = $1";
    let logged = count(&sessions.operator, logged, &[&newest]).await?;
    recorder.check(
        name,
        "grants 1 row, opens 1 epoch of this server, tells its worker, and is in the audit log once",
        format!("granted {granted}, opened {opened}, current {current}, told {}, logged {logged}", told == newest),
        (granted, opened, current, told == newest, logged) == (1, 1, 1, true, 1),
    )?;
    let again = count(&sessions.executor, claim, &[]).await;
    let opened = count(&sessions.owner, EPOCHS, &[]).await? - before;
    recorder.check_equal(format!("{name} again ({again:?})"), "epochs opened", 1, opened)
}

/// Many claims find the changed server at once.
async fn by_one_of_many(database: &Database, sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    const CLAIMERS: usize = 12;
    let executors = connect_many(database, "symphony_executor", CLAIMERS).await?;
    let watcher = database.connect().await?;
    for number in 0..CLAIMERS {
        due_in_all_lanes(sessions, &format!("race-{number}")).await?;
    }
    change_server(&sessions.owner).await?;
    let before = count(&sessions.owner, EPOCHS, &[]).await?;
    let granted = "select (select count(*) from symphony.payment_outbox_pending where lease_token is not null)
                        + (select count(*) from m10_recovery.outbox where claimed_at is not null)
                        + (select count(*) from symphony.metadata_outbox where claim_token is not null)";
    let held = count(&sessions.owner, granted, &[]).await?;
    // All of them wait for the epoch before any of them can open it.
    sessions.owner.batch_execute("begin; lock table symphony.epoch in exclusive mode").await?;
    let mut pids = Vec::new();
    for executor in &executors {
        pids.push(pid(executor).await?);
    }
    let mut tasks = tokio::task::JoinSet::new();
    for (number, executor) in executors.into_iter().enumerate() {
        tasks.spawn(async move { count(&executor, CLAIMS[number % CLAIMS.len()].1, &[]).await });
    }
    all_wait_for_locks(&watcher, &pids).await?;
    let while_waiting = count(&watcher, granted, &[]).await? - held;
    sessions.owner.batch_execute("commit").await?;
    let mut granted_after = 0;
    while let Some(done) = tasks.join_next().await {
        granted_after += done??;
    }
    let opened = count(&sessions.owner, EPOCHS, &[]).await? - before;
    recorder.check(
        format!(
            "{CLAIMERS} claims of all lanes at once after the server has changed, all waiting for the new epoch"
        ),
        format!("none is granted before; then 1 epoch is opened and {CLAIMERS} rows are granted"),
        format!("{while_waiting} granted before, {opened} epoch opened, {granted_after} rows granted"),
        while_waiting == 0 && opened == 1 && granted_after == i64::try_from(CLAIMERS).unwrap_or_default(),
    )
}

/// A producer's open transaction delays no epoch, and its rows are of the epoch in which they were written.
async fn beside_a_producer(
    database: &Database,
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let producer = database.connect_as("symphony_ingest").await?;
    producer.batch_execute("begin").await?;
    let open = enqueue(&producer, &Payment::new("open", "open", "bank")).await?;
    events::publish(&producer, "order", "open").await?;
    entries::create(&producer, "open", 3).await?;
    change_server(&sessions.owner).await?;
    let claimer = database.connect_as("symphony_executor").await?;
    let claimer_pid = pid(&claimer).await?;
    let claiming = tokio::spawn(async move { claim(&claimer, 100, "worker").await });
    let waited = waits_for_lock(&sessions.owner, claimer_pid, &claiming).await?;
    claiming.await??;
    producer.batch_execute("commit").await?;
    let late = claim(&sessions.executor, 100, "worker").await?;
    let unknown: Vec<_> =
        late.iter().map(|lease| (lease.outbox_id == open.outbox_id, lease.outcome_unknown)).collect();
    recorder.check(
        "a claim that opens an epoch while a producer's transaction is open, which then commits",
        "the claim does not wait; the producer's payment is of the earlier epoch: its outcome is unknown",
        format!("waited: {waited}, then (the payment, outcome unknown): {unknown:?}"),
        !waited && unknown == [(true, true)],
    )?;
    change_server(&sessions.owner).await?;
    sessions.executor.batch_execute("begin isolation level repeatable read").await?;
    let refused = sessions.executor.execute(CLAIMS[1].1, &[]).await;
    recorder.check_refused("a claim under REPEATABLE READ after the server has changed", "25000", refused)?;
    sessions.executor.batch_execute("rollback").await?;
    Ok(())
}

/// An operator opens an epoch by hand, where the server looks the same.
async fn by_an_operator(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    count(&sessions.executor, CLAIMS[0].1, &[]).await?;
    let newest = "select max(counter) from symphony.epoch";
    let before = count(&sessions.owner, newest, &[]).await?;
    let open = "select counter from symphony.open_epoch('ana', 'restored a copy of the files', $1)";
    let none: Option<i64> = None;
    let opened = count(&sessions.operator, open, &[&none]).await?;
    recorder.check_equal("opening an epoch by hand", "counter", before + 1, opened)?;
    let opened = count(&sessions.operator, open, &[&Some(before + 10)]).await?;
    recorder.check_equal("opening one that relayers have seen 9 of", "counter", before + 10, opened)?;
    let refused = sessions.operator.execute(open, &[&Some(before + 10_000)]).await;
    recorder.check_refused("opening one that is far too high", "P7005", refused)?;
    let current = count(&sessions.owner, IS_CURRENT, &[]).await?;
    recorder.check_equal("all rails afterwards", "of the newest epoch", 1, current)
}

/// A rail with on_epoch_change HOLD grants nothing until an operator releases it.
async fn holds(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    set_rail(&sessions.operator, "careful", r#"{"on_epoch_change": "HOLD"}"#).await?;
    for rail in ["bank", "careful"] {
        enqueue(&sessions.ingest, &Payment::new(format!("held-{rail}"), "held", rail)).await?;
    }
    change_server(&sessions.owner).await?;
    let claimed = claim(&sessions.executor, 100, "worker").await?;
    let rails: Vec<_> = claimed.iter().map(|lease| lease.rail.as_str()).collect();
    recorder.check(
        "claiming after an epoch has held a rail",
        "rows of the other rail",
        format!("{rails:?}"),
        rails == ["bank"],
    )?;
    enqueue(&sessions.ingest, &Payment::new("held-new", "new", "careful")).await?;
    let claimed = claim(&sessions.executor, 100, "worker").await?.len();
    recorder.check_equal("claiming what was enqueued to it since", "claimed", 0, claimed)?;
    let status = text(
        &sessions.operator,
        "select string_agg(distinct status, ', ') from symphony.outbox_operational_status where rail_type = 'careful'",
        &[],
    )
    .await?;
    recorder.check_equal("its payments", "status", "HELD".to_owned(), status)?;

    let recover = async |rail: Option<&str>| {
        let call =
            "select rail_type, held_since_epoch from symphony.recover_epoch('ana', 'compared with the bank', $1)";
        sessions.operator.query(call, &[&rail]).await
    };
    recorder.check_refused("releasing a rail that is not held", "P7003", recover(Some("bank")).await)?;
    recorder.check_refused("releasing a rail that is not registered", "P7006", recover(Some("nowhere")).await)?;
    let released = recover(None).await?.len();
    let logged = "select count(*) from symphony.payment_outbox_operations_log
                  where operation = 'RECOVER_EPOCH' and rail_type = 'careful' and actor = 'ana' and policy_after ->> 'held_since_epoch' is null";
    let logged = count(&sessions.operator, logged, &[]).await?;
    recorder.check(
        "releasing all held rails",
        "1 rail, in the audit log",
        format!("{released} rail, {logged} row"),
        (released, logged) == (1, 1),
    )?;
    let mut claimed: Vec<_> = claim(&sessions.executor, 100, "worker")
        .await?
        .into_iter()
        .map(|lease| (lease.key, lease.outcome_unknown))
        .collect();
    claimed.sort_unstable();
    recorder.check(
        "claiming from it then",
        "the payment of the earlier epoch with unknown outcome, the later one without",
        format!("{claimed:?}"),
        claimed == [("key-held-careful".to_owned(), true), ("key-held-new".to_owned(), false)],
    )
}
