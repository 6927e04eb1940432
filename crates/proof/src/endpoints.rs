//! A payment with an unknown outcome belongs to the endpoint that it was sent to: a worker that reaches another one is told.

use super::clock::expire;
use super::evidence::{Evidence, Failure, Recorder};
use super::sessions::{
    Lease, Outcome, Payment, Sessions, complete, complete_batch, count, enqueue, redrive, release, repair,
    resolve, set_rail, text,
};
use symphony_testkit::epoch::change_server;
use symphony_testkit::test_database::Database;
use tokio_postgres::{Client, Error};

/// How an attempt at the old endpoint ends with an unknown outcome.
const WAYS: [&str; 4] = ["reported", "repaired", "taken over", "failed and redriven"];
const OLD: Option<&str> = Some("old#k");
const NEW: Option<&str> = Some("new#z");
const UNKNOWN: Outcome<'static> =
    Outcome { state: "RETRYABLE", error_code: Some("OUTCOME_UNKNOWN"), delay: Some(0) };

/// Proof 38: `an_unknown_outcome_of_another_endpoint_is_reported_to_the_worker`.
pub(super) async fn keep_their_payments(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    for (rail, policy) in
        [("bank", "{}"), ("ordered", r#"{"ordered": true}"#), ("limited", r#"{"max_in_flight": 9}"#)]
    {
        set_rail(&sessions.operator, rail, policy).await?;
    }
    ledger_names_the_endpoint(&sessions, &mut recorder).await?;
    for way in WAYS {
        let lease = unknown_at(&sessions, way, "moved", OLD, NEW).await?;
        recorder.check_equal(
            format!("asking for advice at another endpoint after an unknown outcome that was {way}"),
            "endpoint, other endpoint",
            "new#z, old#k".to_owned(),
            advice(&sessions.executor, &lease).await?,
        )?;
        complete(&sessions.executor, &lease, Outcome::UNKNOWN).await?;

        let lease = unknown_at(&sessions, way, "stayed", OLD, OLD).await?;
        recorder.check_equal(
            format!("asking at the same endpoint after an unknown outcome that was {way}"),
            "endpoint, other endpoint",
            "old#k, none".to_owned(),
            advice(&sessions.executor, &lease).await?,
        )?;
        complete(&sessions.executor, &lease, Outcome::UNKNOWN).await?;
    }
    known_in_an_earlier_epoch(&sessions, &mut recorder).await?;
    unnamed(&sessions, &mut recorder).await?;
    declarations(&sessions, &mut recorder).await?;
    refusals(&sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

/// Leases all due rows for a worker that names this endpoint for every rail.
async fn claim_at(executor: &Client, worker: &str, endpoint: Option<&str>) -> Result<Vec<Lease>, Error> {
    let call = "select outbox_id::text, lease_token::text, participant_id, sequence_id, rail_type, idempotency_key, outcome_unknown
                from symphony.claim_outbox_batch(100, $1, 600, p_endpoints => case when $2::text is not null then
                  jsonb_build_object('bank', $2::text, 'ordered', $2::text, 'limited', $2::text) end)";
    let rows = executor.query(call, &[&worker, &endpoint]).await?;
    let lease = |row: &tokio_postgres::Row| Lease {
        outbox_id: row.get(0),
        token: row.get(1),
        worker: worker.to_owned(),
        participant: row.get(2),
        sequence_id: row.get(3),
        rail: row.get(4),
        key: row.get(5),
        outcome_unknown: row.get(6),
    };
    Ok(rows.iter().map(lease).collect())
}

async fn advice(executor: &Client, lease: &Lease) -> Result<String, Error> {
    let call = "select concat_ws(', ', endpoint, coalesce(other_endpoint, 'none'))
                from symphony.advise_on_unknown_outcome($1::text::uuid, $2::text::uuid, $3, 1)";
    text(executor, call, &[&lease.outbox_id, &lease.token, &lease.worker]).await
}

/// A payment whose attempt at one endpoint has an unknown outcome, under the next lease of a worker at another.
async fn unknown_at(
    sessions: &Sessions,
    way: &str,
    name: &str,
    old: Option<&str>,
    new: Option<&str>,
) -> Result<Lease, Failure> {
    let payment = Payment::new(format!("{way} {name}"), "alice", "bank");
    let outbox_id = enqueue(&sessions.ingest, &payment).await?.outbox_id;
    let lease = claim_at(&sessions.executor, "old worker", old).await?.remove(0);
    match way {
        "reported" => drop(complete(&sessions.executor, &lease, UNKNOWN).await?),
        "repaired" => {
            expire(&sessions.owner, &outbox_id).await?;
            repair(&sessions.executor, 10).await?;
            let due = "update symphony.payment_outbox_pending set next_attempt_at = now()";
            sessions.owner.execute(due, &[]).await?;
        }
        "taken over" => {
            expire(&sessions.owner, &outbox_id).await?;
        }
        _ => {
            complete(&sessions.executor, &lease, Outcome::UNKNOWN).await?;
            resolve(&sessions.operator, &outbox_id, "NOT_PAID").await?;
            redrive(&sessions.operator, &outbox_id).await?;
            // The redrive was sent too, and its outcome is unknown.
            let again = claim_at(&sessions.executor, "new worker", new).await?.remove(0);
            complete(&sessions.executor, &again, UNKNOWN).await?;
        }
    }
    Ok(claim_at(&sessions.executor, "new worker", new).await?.remove(0))
}

/// An attempt of an earlier epoch counts although its outcome is known: the one after it may have been lost.
async fn known_in_an_earlier_epoch(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for (at, new, expected) in [("another", NEW, "new#z, old#k"), ("the same", OLD, "old#k, none")] {
        let payment = Payment::new(format!("known at {at} endpoint"), "alice", "bank");
        enqueue(&sessions.ingest, &payment).await?;
        let first = claim_at(&sessions.executor, "old worker", OLD).await?.remove(0);
        complete(&sessions.executor, &first, Outcome::RETRY_NOW).await?;
        change_server(&sessions.owner).await?;
        let again = claim_at(&sessions.executor, "new worker", new).await?.remove(0);
        recorder.check(
            format!("claiming a payment of an earlier epoch, with an attempt that is known not to have paid, at {at} endpoint"),
            format!("the outcome is unknown; endpoint, other endpoint: {expected}"),
            format!("unknown: {}; {}", again.outcome_unknown, advice(&sessions.executor, &again).await?),
            again.outcome_unknown && advice(&sessions.executor, &again).await? == expected,
        )?;
        complete(&sessions.executor, &again, Outcome::UNKNOWN).await?;
    }
    Ok(())
}

/// Every way to end a lease leaves its endpoint in the ledger; a release leaves none in the row.
async fn ledger_names_the_endpoint(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for (rail, outcome) in [
        ("bank", Outcome::DISPATCHED),
        ("bank", Outcome::REJECTED),
        ("bank", Outcome::RETRY_NOW),
        ("ordered", Outcome::DISPATCHED),
        ("limited", Outcome::DISPATCHED),
    ] {
        let outbox_id =
            enqueue(&sessions.ingest, &Payment::new(format!("{rail} {}", outcome.state), "alice", rail))
                .await?
                .outbox_id;
        let released = claim_at(&sessions.executor, "worker", OLD).await?;
        release(&sessions.executor, &released).await?;
        let left = "select count(*) from symphony.payment_outbox_pending where claimed_endpoint is not null";
        let left = count(&sessions.owner, left, &[]).await?;
        recorder.check_equal(format!("releasing a lease on rail {rail}"), "rows with an endpoint", 0, left)?;

        let leases = claim_at(&sessions.executor, "worker", NEW).await?;
        complete_batch(&sessions.executor, &leases, outcome).await?;
        let named = "select endpoint from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid";
        recorder.check_equal(
            format!("recording {} on rail {rail}", outcome.state),
            "endpoint in the ledger",
            "new#z".to_owned(),
            text(&sessions.owner, named, &[&outbox_id]).await?,
        )?;
        if outcome.state == "RETRYABLE" {
            let left = "select count(*) from symphony.payment_outbox_pending where claimed_endpoint is not null";
            let left = count(&sessions.owner, left, &[]).await?;
            recorder.check_equal("scheduling the retry", "rows with an endpoint", 0, left)?;
            let again = claim_at(&sessions.executor, "worker", None).await?;
            complete_batch(&sessions.executor, &again, Outcome::DISPATCHED).await?;
        }
    }
    Ok(())
}

/// A worker that names no endpoint is at the endpoint `unnamed`.
async fn unnamed(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for (old, new, expected) in
        [(None, None, "unnamed, none"), (None, NEW, "new#z, unnamed"), (OLD, None, "unnamed, old#k")]
    {
        let name = format!("unnamed {} {}", old.unwrap_or("-"), new.unwrap_or("-"));
        let lease = unknown_at(sessions, "reported", &name, old, new).await?;
        recorder.check_equal(
            format!("asking with endpoint {new:?} after an attempt with endpoint {old:?}"),
            "endpoint, other endpoint",
            expected.to_owned(),
            advice(&sessions.executor, &lease).await?,
        )?;
        complete(&sessions.executor, &lease, Outcome::UNKNOWN).await?;
    }
    Ok(())
}

async fn declare(sessions: &Sessions, call: &str, rail: &str, pair: (&str, &str)) -> Result<u64, Error> {
    let call = format!("select symphony.{call}_same_endpoint($1, $2, $3, 'operator', 'the bank moved')");
    sessions.operator.execute(&call, &[&rail, &pair.0, &pair.1]).await
}

/// A declaration holds in both directions, through others, for one rail, until it is revoked.
async fn declarations(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let lease = unknown_at(sessions, "reported", "declared", OLD, NEW).await?;
    for (call, rail, pair, expected) in [
        ("declare", "ordered", ("old#k", "new#z"), "new#z, old#k"),
        ("declare", "bank", ("other#m", "new#z"), "new#z, old#k"),
        ("declare", "bank", ("other#m", "old#k"), "new#z, none"),
        ("revoke", "bank", ("new#z", "other#m"), "new#z, old#k"),
        ("declare", "bank", ("new#z", "old#k"), "new#z, none"),
    ] {
        declare(sessions, call, rail, pair).await?;
        recorder.check_equal(
            format!("asking after `{call}` of {pair:?} on rail {rail}"),
            "endpoint, other endpoint",
            expected.to_owned(),
            advice(&sessions.executor, &lease).await?,
        )?;
    }
    let written = "select count(*) from symphony.payment_outbox_operations_log
                   where operation in ('DECLARE_SAME_ENDPOINT', 'REVOKE_SAME_ENDPOINT') and actor = 'operator'";
    let written = count(&sessions.operator, written, &[]).await?;
    recorder.check_equal("counting the operations", "rows in the audit log", 5, written)?;
    complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
    Ok(())
}

async fn refusals(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for (what, sqlstate, call, rail, pair) in [
        ("what was declared already", "P7003", "declare", "bank", ("old#k", "new#z")),
        ("what follows from declarations", "P7003", "declare", "bank", ("other#m", "new#z")),
        ("an endpoint and itself", "P7003", "declare", "bank", ("old#k", "old#k")),
        ("a blank endpoint", "P7005", "declare", "bank", (" ", "new#z")),
        ("endpoints of a rail that does not exist", "P7006", "declare", "bnak", ("a", "b")),
        ("what was never declared", "P7003", "revoke", "bank", ("other#m", "new#z")),
    ] {
        let refused = declare(sessions, call, rail, pair).await;
        recorder.check_refused(format!("`{call}` of {what}"), sqlstate, refused)?;
    }
    let refused = sessions
        .executor
        .execute("select symphony.declare_same_endpoint('bank', 'a', 'b', 'worker', 'a proof')", &[])
        .await;
    recorder.check_refused("declaring as a worker", "42501", refused)?;
    let long = format!(r#"{{"bank": "{}"}}"#, "x".repeat(201));
    for endpoints in ["[]", "1", r#"{"bank": null}"#, r#"{"bank": 1}"#, r#"{"bank": " "}"#, long.as_str()] {
        let claim = "select symphony.claim_outbox_batch(1, 'worker', 60, p_endpoints => $1::text::jsonb)";
        let refused = sessions.executor.execute(claim, &[&endpoints]).await;
        let shown: String = endpoints.chars().take(20).collect();
        recorder.check_refused(format!("claiming with the endpoints {shown}"), "P7005", refused)?;
    }
    Ok(())
}
