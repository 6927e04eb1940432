//! A rail with `max_per_second` grants no more leases than its rate and one burst, to any number of workers.

use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::evidence::{Evidence, Failure, Recorder, require};
use super::sessions::{
    Lease, Payment, Sessions, claim, claim_with_followers, connect_many, count, enqueue, enqueue_batch, release,
    set_rail, text,
};
use symphony_testkit::bulk_rows::clear_pending;
use symphony_testkit::test_database::Database;

/// Moves the time of a bucket on, as the owner: a proof does not wait for a clock.
const MOVE: &str = "update symphony.payment_rail_tokens
                    set refilled_at = refilled_at - $2::float8 * interval '1 second' where rail_type = $1";
const NEXT_DUE: &str = "select symphony.next_outbox_due()::text";

/// Proof 47: `a_rail_with_a_rate_limit_grants_no_more_leases_than_its_rate_and_one_burst`.
pub(super) async fn is_kept(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    for policy in ["0", "-1", "1.5", "1000001", "\"10\""] {
        let refused = set_rail(&sessions.operator, "refused", &format!(r#"{{"max_per_second": {policy}}}"#)).await;
        recorder.check_refused(format!("setting max_per_second to {policy}"), "P7005", refused)?;
    }
    many_claimers(database, &sessions, &mut recorder).await?;
    every_claim(&sessions, &mut recorder).await?;
    an_open_claim(database, &sessions, &mut recorder).await?;
    the_clock(&sessions, &mut recorder).await?;
    when_to_claim_next(&sessions, &mut recorder).await?;
    changes(&sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

async fn fill(sessions: &Sessions, rail: &str, rows: usize) -> Result<(), Failure> {
    let payments: Vec<Payment> = (0..rows)
        .map(|number| Payment::new(format!("{rail}-{number}"), &format!("{rail}-{}", number % 50), rail))
        .collect();
    for payments in payments.chunks(500) {
        enqueue_batch(&sessions.ingest, payments).await?;
    }
    Ok(())
}

/// The database's clock, in seconds.
async fn seconds(owner: &Client) -> Result<f64, Failure> {
    Ok(owner.query_one("select extract(epoch from clock_timestamp())::float8", &[]).await?.try_get(0)?)
}

async fn move_time(owner: &Client, rail: &str, by: f64) -> Result<(), Failure> {
    owner.execute(MOVE, &[&rail, &by]).await?;
    Ok(())
}

/// Claims until nothing is left, as one of many.
async fn claim_all(client: Client, barrier: Arc<Barrier>, worker: String) -> Result<usize, Failure> {
    barrier.wait().await;
    let mut granted = 0;
    loop {
        match claim(&client, 7, &worker).await?.len() {
            0 => return Ok(granted),
            leases => granted += leases,
        }
    }
}

async fn many_claimers(database: &Database, sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    const CLAIMERS: usize = 8;
    const ROUNDS: i32 = 10;
    const RATE: f64 = 100.0;
    const STEP: f64 = 0.4;
    fill_rated(sessions, "rated", RATE, 3000).await?;
    let began = seconds(&sessions.owner).await?;
    let mut granted = 0;
    for round in 0..ROUNDS {
        let barrier = Arc::new(Barrier::new(CLAIMERS));
        let mut tasks = JoinSet::new();
        for (number, client) in
            connect_many(database, "symphony_executor", CLAIMERS).await?.into_iter().enumerate()
        {
            tasks.spawn(claim_all(client, Arc::clone(&barrier), format!("worker-{round}-{number}")));
        }
        while let Some(done) = tasks.join_next().await {
            granted += done??;
        }
        move_time(&sessions.owner, "rated", STEP).await?;
    }
    // Tokens that another claim left behind its lock, if any.
    let barrier = Arc::new(Barrier::new(1));
    granted += claim_all(database.connect_as("symphony_executor").await?, barrier, "last".into()).await?;
    let took = seconds(&sessions.owner).await? - began;
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let granted = granted as f64;
    let moved = f64::from(ROUNDS) * STEP;
    let (least, most) = (RATE * moved + RATE - 1.0, RATE * (moved + took) + RATE);
    recorder.check(
        format!("{CLAIMERS} workers claim until nothing is left, {ROUNDS} times, with {STEP} s added each time; rate {RATE}"),
        format!("from {least} to {most:.1} leases: the burst, {moved} s that were added and {took:.2} s that passed"),
        format!("{granted} leases"),
        least <= granted && granted <= most,
    )?;
    let live = "select count(*)::float8 from symphony.payment_outbox_pending where lease_token is not null";
    let live: f64 = sessions.owner.query_one(live, &[]).await?.try_get(0)?;
    recorder.check_equal("counting the leases in the table", "leases", granted, live)?;
    clear_pending(&sessions.owner).await?;
    Ok(())
}

async fn fill_rated(sessions: &Sessions, rail: &str, rate: f64, rows: usize) -> Result<(), Failure> {
    set_rail(&sessions.operator, rail, &format!(r#"{{"max_per_second": {rate}}}"#)).await?;
    fill(sessions, rail, rows).await
}

/// A bucket has the tokens of one second at most, so that what a claim takes from a full one does not depend on the time.
async fn every_claim(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    set_rail(&sessions.operator, "runs", r#"{"max_per_second": 3, "ordered": true}"#).await?;
    for number in 0..20 {
        enqueue(&sessions.ingest, &Payment::new(format!("runs-{number}"), "alice", "runs")).await?;
    }
    let run = claim_with_followers(&sessions.executor, 100, "worker", "runs", 30).await?;
    recorder.check_equal("claiming a run of 20 payments at a rate of 3", "leases", 3, run.len())?;
    clear_pending(&sessions.owner).await?;

    set_rail(&sessions.operator, "both", r#"{"max_per_second": 100, "max_in_flight": 2}"#).await?;
    fill(sessions, "both", 10).await?;
    let both = claim(&sessions.executor, 100, "worker").await?;
    recorder.check_equal("claiming at a rate of 100 with max_in_flight 2", "leases", 2, both.len())?;
    clear_pending(&sessions.owner).await?;

    fill_rated(sessions, "slow", 1.0, 10).await?;
    sessions.executor.batch_execute("begin").await?;
    let undone = claim(&sessions.executor, 5, "worker").await?.len();
    sessions.executor.batch_execute("rollback").await?;
    let leases = claim(&sessions.executor, 5, "worker").await?;
    recorder.check_equal(
        "a claim that rolls back, and then another, at a rate of 1",
        "leases",
        "1, then 1".to_owned(),
        format!("{undone}, then {}", leases.len()),
    )?;
    empty(&sessions.owner, "slow").await?;
    release(&sessions.executor, &leases).await?;
    let again = claim(&sessions.executor, 5, "worker").await?.len();
    move_time(&sessions.owner, "slow", 1.0).await?;
    let later = claim(&sessions.executor, 5, "worker").await?.len();
    recorder.check_equal(
        "claiming what was released, at once and a second later",
        "leases",
        "0, then 1".to_owned(),
        format!("{again}, then {later}"),
    )
}

/// Takes all tokens of a rail. The next claim counts the time from then on, as after a clock that was set back.
async fn empty(owner: &Client, rail: &str) -> Result<(), Failure> {
    let empty = "update symphony.payment_rail_tokens set micro_tokens = 0, refilled_at = clock_timestamp() + interval '1 hour' where rail_type = $1";
    owner.execute(empty, &[&rail]).await?;
    Ok(())
}

/// A worker that leaves its claim open delays this rail only, and a producer none.
async fn an_open_claim(database: &Database, sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    set_rail(&sessions.operator, "other", "{}").await?;
    let producer = database.connect_as("symphony_ingest").await?;
    producer.batch_execute("begin").await?;
    enqueue(&producer, &Payment::new("open", "slow-1", "slow")).await?;
    move_time(&sessions.owner, "slow", 1.0).await?;
    let beside_a_producer = claim(&sessions.executor, 5, "worker").await?.len();
    producer.batch_execute("rollback").await?;

    let open = database.connect_as("symphony_executor").await?;
    open.batch_execute("begin").await?;
    move_time(&sessions.owner, "slow", 1.0).await?;
    let mine = claim(&open, 5, "open").await?.len();
    fill(sessions, "other", 3).await?;
    let beside_a_claim: Vec<Lease> = claim(&sessions.executor, 5, "worker").await?;
    let rails: Vec<_> = beside_a_claim.iter().map(|lease| lease.rail.as_str()).collect();
    recorder.check(
        "claiming beside an open enqueue, then beside an open claim of the rail",
        "1 lease, then 1 in the open claim and 3 of the other rail",
        format!("{beside_a_producer}, then {mine} and {rails:?}"),
        beside_a_producer == 1 && mine == 1 && rails == ["other"; 3],
    )?;
    open.batch_execute("rollback").await?;
    Ok(())
}

/// A clock that is set back delays the rail by a second at most; one that is set forward gives one burst.
async fn the_clock(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    empty(&sessions.owner, "slow").await?;
    let at_once = claim(&sessions.executor, 5, "worker").await?.len();
    let wait: i64 = text(&sessions.executor, NEXT_DUE, &[]).await?.parse().unwrap_or(i64::MAX);
    move_time(&sessions.owner, "slow", 1.0).await?;
    let later = claim(&sessions.executor, 5, "worker").await?.len();
    recorder.check(
        "claiming after the clock was set back by an hour, and a second later",
        "0 leases, the next in a second at most, then 1",
        format!("{at_once} leases, the next in {wait} ms, then {later}"),
        at_once == 0 && wait <= 1000 && later == 1,
    )?;
    empty(&sessions.owner, "slow").await?;
    move_time(&sessions.owner, "slow", 7200.0).await?;
    let burst = claim(&sessions.executor, 5, "worker").await?.len();
    recorder.check_equal("claiming after the clock was set forward by an hour", "leases", 1, burst)
}

/// A relayer learns when the next token is there, and only if it is a token that it waits for.
async fn when_to_claim_next(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let used = "select coalesce(nullif(current_setting('symphony.claim_used_rate_limit', true), ''), 'false')";
    sessions.executor.batch_execute("begin").await?;
    empty(&sessions.owner, "slow").await?;
    let nothing = claim(&sessions.executor, 5, "worker").await?.len();
    let says = text(&sessions.executor, used, &[]).await?;
    sessions.executor.batch_execute("commit").await?;
    let wait: i64 = text(&sessions.executor, NEXT_DUE, &[]).await?.parse().unwrap_or(-1);
    let other = text(&sessions.executor, "select symphony.next_outbox_due('{\"other\": 5}')::text", &[]).await?;
    recorder.check(
        "a claim that finds no token, and the look-up after it, for all rails and for another one",
        "nothing and the setting; from 20 to 1000 ms; none for the other rail",
        format!("{nothing} leases, {says}; {wait} ms; {other}"),
        nothing == 0 && says == "true" && (20..=1000).contains(&wait) && other == "none",
    )?;
    // Nothing is due, or there is a token: what the claim waits for is something else.
    let later = "update symphony.payment_outbox_pending set next_attempt_at = now() + interval '1 day' where lease_token is null";
    let left =
        "select count(*) from symphony.payment_outbox_pending where rail_type = 'slow' and lease_token is null";
    require(|| "due rows are left".into(), true, count(&sessions.owner, left, &[]).await? > 0)?;
    let full = "update symphony.payment_rail_tokens set micro_tokens = 1000000";
    sessions.owner.batch_execute(full).await?;
    let with_a_token = text(&sessions.executor, NEXT_DUE, &[]).await?;
    empty(&sessions.owner, "slow").await?;
    sessions.owner.batch_execute(later).await?;
    let scheduled: i64 = text(&sessions.executor, NEXT_DUE, &[]).await?.parse().unwrap_or(-1);
    recorder.check(
        "looking up with a token left, and without due rows",
        "none, then the scheduled row in a day",
        format!("{with_a_token}, then {scheduled} ms"),
        with_a_token == "none" && scheduled > 80_000_000,
    )?;
    clear_pending(&sessions.owner).await?;
    Ok(())
}

async fn changes(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    fill_rated(sessions, "changed", 1.0, 50).await?;
    let slow = claim(&sessions.executor, 100, "worker").await?.len();
    empty(&sessions.owner, "changed").await?;
    set_rail(&sessions.operator, "changed", r#"{"max_per_second": 2}"#).await?;
    let raised = claim(&sessions.executor, 100, "worker").await?.len();
    set_rail(&sessions.operator, "changed", r#"{"max_per_second": null}"#).await?;
    let without = claim(&sessions.executor, 20, "worker").await?.len();
    set_rail(&sessions.operator, "changed", r#"{"max_per_second": 3}"#).await?;
    let again = claim(&sessions.executor, 100, "worker").await?.len();
    recorder.check(
        "claiming at a rate of 1, after it was raised to 2, without a limit, and at a rate of 3",
        "1, 0 because a raise adds no token, 20, 3",
        format!("{slow}, {raised}, {without}, {again}"),
        slow == 1 && raised == 0 && without == 20 && again == 3,
    )
}
