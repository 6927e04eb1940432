//! Leases: an expired lease is repaired, and a late call of its worker is refused.

use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::evidence::{Evidence, Failure, Recorder, require, sqlstate};
use super::sessions::{
    Lease, Outcome, Payment, Sessions, claim, complete, complete_batch, count, enqueue, release, renew, repair,
    set_rail, text,
};
use symphony_testkit::test_database::Database;

/// A row after its repair: unleased, and due one second later.
const REPAIRED: &str = "
    select concat_ws(' ', a.attempt_no, a.state, a.error_code, 'worker', a.worker_id,
             case when num_nulls(p.claimed_by, p.claimed_at, p.lease_token, p.lease_expires_at) = 4 then 'unleased' else 'leased' end,
             'due after', extract(epoch from p.next_attempt_at - $2::text::timestamptz)::numeric(20, 6), 's, attempt_count', p.attempt_count)
    from symphony.payment_outbox_pending p
    join symphony.payment_outbox_attempts a on a.outbox_id = p.outbox_id
    where p.outbox_id = $1::text::uuid
    order by a.attempt_no desc
    limit 1";

/// Proof 10: `an_expired_lease_that_is_repaired_is_due_again_with_one_ledger_row`.
pub(super) async fn repair_makes_due(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "bank", "{}").await?;
    let outbox_id = enqueue(&sessions.ingest, &Payment::new("a", "alice", "bank")).await?.outbox_id;
    let live = enqueue(&sessions.ingest, &Payment::new("live", "bob", "bank")).await?.outbox_id;

    for (attempt, ending) in (1..).zip(["zombie", "retry", "zombie", "zombie", "takeover", "zombie"]) {
        let worker = format!("worker-{attempt}");
        let leases = claim(&sessions.executor, 10, &worker).await?;
        // The other row is leased once and stays leased: a live lease is not repaired.
        require(|| format!("claiming before attempt {attempt}"), if attempt == 1 { 2 } else { 1 }, leases.len())?;
        let lease = leases.into_iter().find(|lease| lease.outbox_id == outbox_id).ok_or_else(|| Failure {
            tried: format!("claiming before attempt {attempt}"),
            expected: "the repaired row".into(),
            happened: "another".into(),
        })?;
        if ending == "retry" {
            complete(&sessions.executor, &lease, Outcome::RETRY_NOW).await?;
            continue;
        }
        let claimed_at = text(
            &sessions.owner,
            "select claimed_at::text from symphony.payment_outbox_pending where outbox_id = $1::text::uuid",
            &[&outbox_id],
        )
        .await?;
        require(|| "expiring a lease".into(), true, expire(&sessions.owner, &outbox_id).await?)?;
        if ending == "takeover" {
            taken_over(&sessions, &mut recorder, &outbox_id, attempt).await?;
            continue;
        }
        let (at, repaired) = repair_at(&sessions.executor).await?;
        require(|| "repairing".into(), outbox_id.clone(), repaired.join(", "))?;
        let left = text(&sessions.owner, REPAIRED, &[&outbox_id, &at]).await?;
        let expected = format!(
            "{attempt} ZOMBIE_REQUEUE LEASE_EXPIRED worker {worker} unleased due after 1.000000 s, attempt_count {attempt}"
        );
        recorder.check_equal(
            format!("repairing the expired lease of attempt {attempt}"),
            "ledger and row",
            expected,
            left,
        )?;
        let kept = "select claimed_at::text from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid order by attempt_no desc limit 1";
        let kept = text(&sessions.owner, kept, &[&outbox_id]).await?;
        require(|| "reading the time of the lost claim".into(), claimed_at, kept)?;
        require(|| "repairing again".into(), 0, repair(&sessions.executor, 10).await?.len())?;
        require(|| "claiming within the second".into(), 0, claim(&sessions.executor, 10, "early").await?.len())?;
        make_due(&sessions.owner).await?;
    }
    let held = "select count(*) from symphony.payment_outbox_pending where outbox_id = $1::text::uuid and lease_expires_at > now() and attempt_count = 0";
    recorder.check_equal(
        "repairing beside a live lease",
        "live leases unchanged",
        1,
        count(&sessions.owner, held, &[&live]).await?,
    )?;

    // attempt_count is a cache: the attempt number comes from the ledger, and attempt_count never falls.
    sessions
        .owner
        .execute(
            "update symphony.payment_outbox_pending set attempt_count = 15 where outbox_id = $1::text::uuid",
            &[&outbox_id],
        )
        .await?;
    claim(&sessions.executor, 10, "worker-7").await?;
    expire(&sessions.owner, &outbox_id).await?;
    let (at, _) = repair_at(&sessions.executor).await?;
    let left = text(&sessions.owner, REPAIRED, &[&outbox_id, &at]).await?;
    let expected =
        "7 ZOMBIE_REQUEUE LEASE_EXPIRED worker worker-7 unleased due after 1.000000 s, attempt_count 15";
    recorder.check_equal(
        "repairing a row whose attempt_count was set to 15",
        "ledger and row",
        expected,
        left.as_str(),
    )?;
    Ok(recorder.finish())
}

/// Repairs, and returns the transaction time from which the repaired rows are scheduled.
async fn repair_at(executor: &Client) -> Result<(String, Vec<String>), Failure> {
    executor.batch_execute("begin").await?;
    let at = text(executor, "select now()::text", &[]).await?;
    let repaired = repair(executor, 10).await?;
    executor.batch_execute("commit").await?;
    Ok((at, repaired))
}

/// A claim of an expired lease records it in the ledger first, and returns the row with outcome_unknown.
async fn taken_over(
    sessions: &Sessions,
    recorder: &mut Recorder,
    outbox_id: &str,
    attempt: i32,
) -> Result<(), Failure> {
    let leases = claim(&sessions.executor, 10, "second").await?;
    let unknown = leases.first().is_some_and(|lease| lease.outcome_unknown && lease.outbox_id == outbox_id);
    let zombies = "select count(*) from symphony.payment_outbox_attempts
                   where outbox_id = $1::text::uuid and attempt_no = $2 and state = 'ZOMBIE_REQUEUE' and worker_id = 'worker-' || $2";
    let zombies = count(&sessions.owner, zombies, &[&outbox_id, &attempt]).await?;
    recorder.check(
        format!("claiming the expired lease of attempt {attempt} without a repair"),
        "1 ZOMBIE_REQUEUE with the lost worker, and the row claimed with outcome_unknown",
        format!("{zombies} ZOMBIE_REQUEUE; {} row, outcome unknown: {unknown}", leases.len()),
        zombies == 1 && leases.len() == 1 && unknown,
    )?;
    release(&sessions.executor, &leases).await?;
    Ok(())
}

/// Proof 11: `a_late_worker_cannot_complete_what_another_has_claimed`.
pub(super) async fn late_worker_is_refused(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    let second = database.connect_as("symphony_executor").await?;
    set_rail(&sessions.operator, "bank", "{}").await?;

    for (name, repaired, worker) in [
        ("taken over", false, "B"),
        ("repaired first", true, "B"),
        ("claimed again by the same worker", false, "A"),
    ] {
        enqueue(&sessions.ingest, &Payment::new(name, "alice", "bank")).await?;
        let late = claim(&sessions.executor, 1, "A").await?.remove(0);
        require(|| "expiring a lease".into(), true, expire(&sessions.owner, &late.outbox_id).await?)?;
        all_refused(&sessions, &mut recorder, &late, "P7002", "expired, and not claimed by another worker")
            .await?;
        if repaired {
            repair(&second, 10).await?;
            make_due(&sessions.owner).await?;
        }
        let holder = claim(&second, 1, worker).await?.remove(0);
        require(
            || "comparing tokens".into(),
            true,
            holder.token != late.token && holder.outbox_id == late.outbox_id,
        )?;
        all_refused(&sessions, &mut recorder, &late, "P7002", &format!("{name}, leased to {worker}")).await?;
        let wrong_worker = Lease { worker: "C".into(), ..holder.clone() };
        all_refused(&sessions, &mut recorder, &wrong_worker, "P7002", "the right token with another worker id")
            .await?;

        let recorded = complete(&second, &holder, Outcome::DISPATCHED).await?;
        recorder.check(
            format!("the completion of the worker with the current lease, {name}"),
            "DISPATCHED as attempt 2",
            format!("{} as attempt {}", recorded.state, recorded.attempt_no),
            recorded.state == "DISPATCHED" && recorded.attempt_no == 2 && recorded.ended,
        )?;
        all_refused(&sessions, &mut recorder, &late, "P7001", "after the outbox has ended").await?;
    }
    let unknown = Lease { outbox_id: "00000000-0000-7000-8000-000000000000".into(), ..claimed(&sessions).await? };
    recorder.check_refused(
        "completing an outbox that does not exist",
        "P7002",
        complete(&sessions.executor, &unknown, Outcome::DISPATCHED).await,
    )?;
    Ok(recorder.finish())
}

async fn claimed(sessions: &Sessions) -> Result<Lease, Failure> {
    enqueue(&sessions.ingest, &Payment::new("last", "alice", "bank")).await?;
    Ok(claim(&sessions.executor, 1, "A").await?.remove(0))
}

/// Every call that needs a lease, without the current lease: refused, and no row changes.
async fn all_refused(
    sessions: &Sessions,
    recorder: &mut Recorder,
    lease: &Lease,
    with: &str,
    when: &str,
) -> Result<(), Failure> {
    let before = all_rows(&sessions.owner).await?;
    let mut refusals = 0;
    for outcome in [Outcome::DISPATCHED, Outcome::REJECTED, Outcome::RETRYABLE] {
        let error = complete(&sessions.executor, lease, outcome).await.err();
        let happened = error.as_ref().map_or("allowed", |error| sqlstate(error));
        require(|| format!("{} {when}", outcome.state), with, happened)?;
        let batch = complete_batch(&sessions.executor, std::slice::from_ref(lease), outcome).await?;
        require(
            || format!("{} in a batch {when}", outcome.state),
            format!("{:?}", [Err::<String, _>(with)]),
            format!("{batch:?}"),
        )?;
        refusals += 2;
    }
    require(
        || format!("release {when}"),
        "[false]".to_owned(),
        format!("{:?}", release(&sessions.executor, std::slice::from_ref(lease)).await?),
    )?;
    require(
        || format!("renew {when}"),
        "[false]".to_owned(),
        format!("{:?}", renew(&sessions.executor, std::slice::from_ref(lease)).await?),
    )?;
    let changed = before != all_rows(&sessions.owner).await?;
    recorder.check(
        format!("complete with 3 outcomes, alone and in a batch, release and renew: {when}"),
        format!("6 completions refused with {with}, nothing released, nothing renewed, nothing changed"),
        format!("{refusals} completions refused with {with}; changed: {changed}"),
        refusals == 6 && !changed,
    )
}

/// Every row of pending and of the ledger.
async fn all_rows(owner: &Client) -> Result<String, Failure> {
    let rows = "select coalesce((select string_agg(p::text, '|' order by outbox_id) from symphony.payment_outbox_pending p), '')
                || '#' || coalesce((select string_agg(a::text, '|' order by attempt_id) from symphony.payment_outbox_attempts a), '')";
    Ok(text(owner, rows, &[]).await?)
}
