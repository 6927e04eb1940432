//! A lease ends for good: what its worker left behind is repaired, and what it says afterwards is not heard.

use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::crew::{
    Crew, Lease, Order, Outcome, claim, complete, complete_batch, count, enqueue, release, renew, repair,
    set_rail, text,
};
use super::evidence::{Evidence, Failure, Trial, code, require};
use crate::kit::scratch::Database;

/// What a repair must leave of a row: due a second after the repair, unleased.
const REPAIRED: &str = "
    select concat_ws(' ', a.attempt_no, a.state, a.error_code, 'worker', a.worker_id,
             case when num_nulls(p.claimed_by, p.claimed_at, p.lease_token, p.lease_expires_at) = 4 then 'unleased' else 'leased' end,
             'due after', extract(epoch from p.next_attempt_at - $2::text::timestamptz)::numeric(20, 6), 's, attempt_count', p.attempt_count)
    from symphony.payment_outbox_pending p
    join symphony.payment_outbox_attempts a on a.outbox_id = p.outbox_id
    where p.outbox_id = $1::text::uuid
    order by a.attempt_no desc
    limit 1";

/// Proof 10.
pub(super) async fn repair_makes_due(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    let crew = Crew::hire(database).await?;
    set_rail(&crew.operator, "bank", "{}").await?;
    let outbox_id = enqueue(&crew.ingest, &Order::new("a", "alice", "bank")).await?.outbox_id;
    let live = enqueue(&crew.ingest, &Order::new("live", "bob", "bank")).await?.outbox_id;

    for (attempt, ending) in (1..).zip(["zombie", "retry", "zombie", "zombie", "takeover", "zombie"]) {
        let worker = format!("worker-{attempt}");
        let leases = claim(&crew.executor, 10, &worker).await?;
        // The other one is leased once and stays so: a lease that lives is not repaired.
        require(|| format!("claiming before attempt {attempt}"), if attempt == 1 { 2 } else { 1 }, leases.len())?;
        let lease = leases.into_iter().find(|lease| lease.outbox_id == outbox_id).ok_or_else(|| Failure {
            tried: format!("claiming before attempt {attempt}"),
            expected: "the repaired row".into(),
            happened: "another".into(),
        })?;
        if ending == "retry" {
            complete(&crew.executor, &lease, Outcome::AGAIN).await?;
            continue;
        }
        let claimed_at = text(
            &crew.owner,
            "select claimed_at::text from symphony.payment_outbox_pending where outbox_id = $1::text::uuid",
            &[&outbox_id],
        )
        .await?;
        require(|| "letting a lease run out".into(), true, expire(&crew.owner, &outbox_id).await?)?;
        if ending == "takeover" {
            taken_over(&crew, &mut trial, &outbox_id, attempt).await?;
            continue;
        }
        let (at, repaired) = repair_at(&crew.executor).await?;
        require(|| "repairing".into(), outbox_id.clone(), repaired.join(", "))?;
        let left = text(&crew.owner, REPAIRED, &[&outbox_id, &at]).await?;
        let expected = format!(
            "{attempt} ZOMBIE_REQUEUE LEASE_EXPIRED worker {worker} unleased due after 1.000000 s, attempt_count {attempt}"
        );
        trial.same(
            format!("repairing the expired lease of attempt {attempt}"),
            "ledger and row",
            expected,
            left,
        )?;
        let kept = "select claimed_at::text from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid order by attempt_no desc limit 1";
        let kept = text(&crew.owner, kept, &[&outbox_id]).await?;
        require(|| "reading the time of the lost claim".into(), claimed_at, kept)?;
        require(|| "repairing again".into(), 0, repair(&crew.executor, 10).await?.len())?;
        require(|| "claiming within the second".into(), 0, claim(&crew.executor, 10, "early").await?.len())?;
        make_due(&crew.owner).await?;
    }
    let held = "select count(*) from symphony.payment_outbox_pending where outbox_id = $1::text::uuid and lease_expires_at > now() and attempt_count = 0";
    trial.same(
        "repairing beside a lease that lives",
        "live leases left alone",
        1,
        count(&crew.owner, held, &[&live]).await?,
    )?;

    // The cache is no authority: the number comes from the ledger, and the cache never falls.
    crew.owner
        .execute(
            "update symphony.payment_outbox_pending set attempt_count = 15 where outbox_id = $1::text::uuid",
            &[&outbox_id],
        )
        .await?;
    claim(&crew.executor, 10, "worker-7").await?;
    expire(&crew.owner, &outbox_id).await?;
    let (at, _) = repair_at(&crew.executor).await?;
    let left = text(&crew.owner, REPAIRED, &[&outbox_id, &at]).await?;
    let expected =
        "7 ZOMBIE_REQUEUE LEASE_EXPIRED worker worker-7 unleased due after 1.000000 s, attempt_count 15";
    trial.same("repairing a row whose attempt_count was set to 15", "ledger and row", expected, left.as_str())?;
    Ok(trial.evidence())
}

/// Repairs, and says by which time of its transaction what it repaired is scheduled.
async fn repair_at(executor: &Client) -> Result<(String, Vec<String>), Failure> {
    executor.batch_execute("begin").await?;
    let at = text(executor, "select now()::text", &[]).await?;
    let repaired = repair(executor, 10).await?;
    executor.batch_execute("commit").await?;
    Ok((at, repaired))
}

/// A claim that meets an expired lease ends it in the ledger first, and hands the row out with its outcome unknown.
async fn taken_over(crew: &Crew, trial: &mut Trial, outbox_id: &str, attempt: i32) -> Result<(), Failure> {
    let leases = claim(&crew.executor, 10, "second").await?;
    let unknown = leases.first().is_some_and(|lease| lease.outcome_unknown && lease.outbox_id == outbox_id);
    let zombies = "select count(*) from symphony.payment_outbox_attempts
                   where outbox_id = $1::text::uuid and attempt_no = $2 and state = 'ZOMBIE_REQUEUE' and worker_id = 'worker-' || $2";
    let zombies = count(&crew.owner, zombies, &[&outbox_id, &attempt]).await?;
    trial.holds(
        format!("claiming the expired lease of attempt {attempt} without a repair"),
        "1 ZOMBIE_REQUEUE with the lost worker, and the row handed out with its outcome unknown",
        format!("{zombies} ZOMBIE_REQUEUE; {} row, outcome unknown: {unknown}", leases.len()),
        zombies == 1 && leases.len() == 1 && unknown,
    )?;
    release(&crew.executor, &leases).await?;
    Ok(())
}

/// Proof 11.
pub(super) async fn late_worker_is_refused(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    let crew = Crew::hire(database).await?;
    let second = database.connect_as("symphony_executor").await?;
    set_rail(&crew.operator, "bank", "{}").await?;

    for (name, repaired, worker) in
        [("taken over", false, "B"), ("repaired first", true, "B"), ("taken by itself", false, "A")]
    {
        enqueue(&crew.ingest, &Order::new(name, "alice", "bank")).await?;
        let late = claim(&crew.executor, 1, "A").await?.remove(0);
        require(|| "letting a lease run out".into(), true, expire(&crew.owner, &late.outbox_id).await?)?;
        all_refused(&crew, &mut trial, &late, "P7002", "expired, and nobody has it yet").await?;
        if repaired {
            repair(&second, 10).await?;
            make_due(&crew.owner).await?;
        }
        let holder = claim(&second, 1, worker).await?.remove(0);
        require(
            || "comparing tokens".into(),
            true,
            holder.token != late.token && holder.outbox_id == late.outbox_id,
        )?;
        all_refused(&crew, &mut trial, &late, "P7002", &format!("{name}, leased to {worker}")).await?;
        let thief = Lease { worker: "C".into(), ..holder.clone() };
        all_refused(&crew, &mut trial, &thief, "P7002", "the right token in the wrong worker's hands").await?;

        let recorded = complete(&second, &holder, Outcome::DISPATCHED).await?;
        trial.holds(
            format!("the completion of the holder, {name}"),
            "DISPATCHED as attempt 2",
            format!("{} as attempt {}", recorded.state, recorded.attempt_no),
            recorded.state == "DISPATCHED" && recorded.attempt_no == 2 && recorded.ended,
        )?;
        all_refused(&crew, &mut trial, &late, "P7001", "after the holder has ended it").await?;
    }
    let unknown = Lease { outbox_id: "00000000-0000-7000-8000-000000000000".into(), ..claimed(&crew).await? };
    trial.refused(
        "completing an outbox that never was",
        "P7002",
        complete(&crew.executor, &unknown, Outcome::DISPATCHED).await,
    )?;
    Ok(trial.evidence())
}

async fn claimed(crew: &Crew) -> Result<Lease, Failure> {
    enqueue(&crew.ingest, &Order::new("last", "alice", "bank")).await?;
    Ok(claim(&crew.executor, 1, "A").await?.remove(0))
}

/// Every move that a lease allows, without holding it: refused, and nothing has changed.
async fn all_refused(
    crew: &Crew,
    trial: &mut Trial,
    lease: &Lease,
    with: &str,
    when: &str,
) -> Result<(), Failure> {
    let before = everything(&crew.owner).await?;
    let mut refusals = 0;
    for outcome in [Outcome::DISPATCHED, Outcome::REJECTED, Outcome::RETRYABLE] {
        let error = complete(&crew.executor, lease, outcome).await.err();
        let happened = error.as_ref().map_or("allowed", |error| code(error));
        require(|| format!("{} {when}", outcome.state), with, happened)?;
        let batch = complete_batch(&crew.executor, std::slice::from_ref(lease), outcome).await?;
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
        format!("{:?}", release(&crew.executor, std::slice::from_ref(lease)).await?),
    )?;
    require(
        || format!("renew {when}"),
        "[false]".to_owned(),
        format!("{:?}", renew(&crew.executor, std::slice::from_ref(lease)).await?),
    )?;
    let changed = before != everything(&crew.owner).await?;
    trial.holds(
        format!("complete with 3 outcomes, alone and in a batch, release and renew: {when}"),
        format!("6 completions refused with {with}, nothing given back, nothing renewed, nothing changed"),
        format!("{refusals} completions refused with {with}; changed: {changed}"),
        refusals == 6 && !changed,
    )
}

/// Every row of pending and of the ledger.
async fn everything(owner: &Client) -> Result<String, Failure> {
    let rows = "select coalesce((select string_agg(p::text, '|' order by outbox_id) from symphony.payment_outbox_pending p), '')
                || '#' || coalesce((select string_agg(a::text, '|' order by attempt_id) from symphony.payment_outbox_attempts a), '')";
    Ok(text(owner, rows, &[]).await?)
}
