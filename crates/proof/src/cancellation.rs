//! A payment is cancelled only while nothing of it can have left, and then never leaves.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_postgres::{Client, Error};

use super::clock::{expire, make_due};
use super::evidence::{Evidence, Failure, Recorder, require, sqlstate};
use super::sessions::{
    Enqueued, Lease, Outcome, Payment, Sessions, cancel, claim, complete, confirm, connect_many, count, enqueue,
    redrive, release, repair, resolve, set_rail, text,
};
use symphony_testkit::epoch::change_server;
use symphony_testkit::test_database::Database;

const NOT_SENT: Outcome<'_> = Outcome { state: "RETRYABLE", error_code: Some("NOT_SENT"), delay: Some(0) };

/// Proof 40: `a_payment_is_either_claimed_or_cancelled_and_never_both`.
pub(super) async fn is_final_and_of_unsent_payments(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "plain", "{}").await?;
    set_rail(&sessions.operator, "ordered", r#"{"ordered": true}"#).await?;
    set_rail(
        &sessions.operator,
        "holding",
        r#"{"ordered": true, "on_failure": "HOLD", "publish_outcomes": true}"#,
    )
    .await?;
    ends_the_payment_for_good(&sessions, &mut recorder).await?;
    needs_a_payment_that_was_never_sent(&sessions, &mut recorder).await?;
    races_with_claims(database, &sessions, &mut recorder).await?;
    lets_successors_go_on(&sessions, &mut recorder).await?;
    holds_no_stream(&sessions, &mut recorder).await?;
    delays_no_worker(&sessions, &mut recorder).await?;
    needs_the_current_epoch(&sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

/// What became of a call: `ok`, or the SQLSTATE of its refusal.
fn outcome<T>(result: &Result<T, Error>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => sqlstate(error).to_owned(),
    }
}

/// The same of a cancellation by the producer. PostgreSQL reports an error before it releases the locks of the call, and a claim
/// would skip the row: so this waits for another answer of that session.
async fn try_cancel(sessions: &Sessions, payment: &Payment) -> Result<String, Failure> {
    let result = outcome(&cancel(&sessions.ingest, payment).await);
    sessions.ingest.batch_execute("select 1").await?;
    Ok(result)
}

async fn enqueued(sessions: &Sessions, name: &str, rail: &str) -> Result<(Payment, Enqueued), Failure> {
    let payment = Payment::new(name, name, rail);
    let enqueued = enqueue(&sessions.ingest, &payment).await?;
    Ok((payment, enqueued))
}

/// Enqueues a payment and claims it.
async fn leased(sessions: &Sessions, name: &str) -> Result<(Payment, Lease), Failure> {
    let (payment, _) = enqueued(sessions, name, "plain").await?;
    let mut leases = claim(&sessions.executor, 10, "worker").await?;
    require(|| format!("claiming {name} alone"), 1, leases.len())?;
    Ok((payment, leases.remove(0)))
}

async fn ends_the_payment_for_good(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let (payment, enqueued) = enqueued(sessions, "final", "plain").await?;
    cancel(&sessions.ingest, &payment).await?;
    let claimed = claim(&sessions.executor, 10, "worker").await?.len();
    let dead = count(&sessions.operator, "select count(*) from symphony.payment_outbox_dlq", &[]).await?;
    let ledger = "select string_agg(concat_ws(' ', state, error_code, attempt_no), ', ')
                  from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid";
    let ledger = text(&sessions.owner, ledger, &[&enqueued.outbox_id]).await?;
    recorder.check(
        "cancelling a payment that was never claimed, then claiming, and reading the ledger and the dead letters",
        "FAILED CANCELLED 1; nothing is claimed and nothing is dead",
        format!("{ledger}; {claimed} claimed, {dead} dead"),
        ledger == "FAILED CANCELLED 1" && claimed == 0 && dead == 0,
    )?;
    let again = outcome(&cancel(&sessions.operator, &payment).await);
    let redriven = outcome(&redrive(&sessions.operator, &enqueued.outbox_id).await);
    let resolved = outcome(&resolve(&sessions.operator, &enqueued.outbox_id, "SKIPPED").await);
    let replay = enqueue(&sessions.ingest, &payment).await?;
    recorder.check(
        "cancelling it again, redriving it, resolving it, and enqueuing its key again",
        "P7001, P7003, P7003, and a replay of the cancelled outbox",
        format!("{again}, {redriven}, {resolved}, replayed: {}", replay.replayed),
        [&*again, &*redriven, &*resolved] == ["P7001", "P7003", "P7003"]
            && replay.replayed
            && replay.outbox_id == enqueued.outbox_id,
    )?;
    let (_, reserved) = leased(sessions, "reserved").await?;
    let refused = complete(
        &sessions.executor,
        &reserved,
        Outcome { state: "FAILED", error_code: Some("CANCELLED"), delay: None },
    );
    let refused = outcome(&refused.await);
    complete(&sessions.executor, &reserved, Outcome::DISPATCHED).await?;
    recorder.check_equal(
        "completing a lease with the error code CANCELLED",
        "SQLSTATE",
        "P7005".to_owned(),
        refused,
    )
}

async fn needs_a_payment_that_was_never_sent(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let mut seen: Vec<(&str, &str, String)> = Vec::new();
    let executor = &sessions.executor;

    let (payment, lease) = leased(sessions, "leased").await?;
    seen.push(("under a lease", "P7002", try_cancel(sessions, &payment).await?));
    release(executor, std::slice::from_ref(&lease)).await?;
    seen.push(("released", "ok", try_cancel(sessions, &payment).await?));
    seen.push((
        "completed by the late worker",
        "P7001",
        outcome(&complete(executor, &lease, Outcome::DISPATCHED).await),
    ));

    let (payment, lease) = leased(sessions, "not-sent").await?;
    complete(executor, &lease, NOT_SENT).await?;
    seen.push(("after an attempt that sent nothing", "ok", try_cancel(sessions, &payment).await?));

    for (name, result) in [
        ("refused", Outcome::RETRY_NOW),
        ("unknown", Outcome { error_code: Some("OUTCOME_UNKNOWN"), ..Outcome::RETRY_NOW }),
        ("accepted", Outcome { delay: Some(0), ..Outcome::ACCEPTED }),
    ] {
        let (payment, lease) = leased(sessions, name).await?;
        complete(executor, &lease, result).await?;
        seen.push((
            "after an attempt that the bank may have seen",
            "P7002",
            try_cancel(sessions, &payment).await?,
        ));
        // A later attempt that sent nothing takes nothing back.
        let again = claim(executor, 10, "worker").await?.remove(0);
        complete(executor, &again, NOT_SENT).await?;
        seen.push(("after one more, which sent nothing", "P7002", try_cancel(sessions, &payment).await?));
        let last = claim(executor, 10, "worker").await?.remove(0);
        complete(executor, &last, Outcome::REJECTED).await?;
        seen.push(("failed", "P7001", try_cancel(sessions, &payment).await?));
    }

    let (payment, lease) = leased(sessions, "expired").await?;
    expire(&sessions.owner, &lease.outbox_id).await?;
    seen.push(("under an expired lease", "P7002", try_cancel(sessions, &payment).await?));
    repair(executor, 10).await?;
    seen.push(("after its repair", "P7002", try_cancel(sessions, &payment).await?));
    make_due(&sessions.owner).await?;
    let again = claim(executor, 10, "worker").await?.remove(0);
    complete(executor, &again, Outcome::DISPATCHED).await?;
    seen.push(("dispatched", "P7001", try_cancel(sessions, &payment).await?));
    let (payment, _) = enqueued(sessions, "executed", "plain").await?;
    let news = confirm(executor, ("plain", &payment.key), "EXECUTED", "a message", None).await?.0;
    require(|| "confirming a payment that was never sent".into(), "NEVER_SENT".to_owned(), news)?;
    seen.push(("that the bank says it has executed", "P7002", try_cancel(sessions, &payment).await?));
    let lease = claim(executor, 10, "worker").await?.remove(0);
    complete(executor, &lease, Outcome::DISPATCHED).await?;
    seen.push(("of an unknown key", "P7005", try_cancel(sessions, &Payment::new("nobody", "a", "plain")).await?));

    let wrong: Vec<_> = seen.iter().filter(|(_, expected, found)| expected != found).collect();
    recorder.check(
        format!("cancelling payments in {} states", seen.len()),
        "ok only while it is unleased and every attempt sent nothing; else P7001, P7002 or P7005",
        format!("{} as expected; others: {wrong:?}", seen.len() - wrong.len()),
        wrong.is_empty(),
    )
}

async fn races_with_claims(
    database: &Database,
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    const PAYMENTS: usize = 200;
    let mut payments = Vec::with_capacity(PAYMENTS);
    for number in 0..PAYMENTS {
        payments.push(enqueued(sessions, &format!("race-{number}"), "plain").await?.0);
    }
    let payments = Arc::new(payments);
    let mut cancellers = JoinSet::new();
    for (part, client) in connect_many(database, "symphony_ingest", 3).await?.into_iter().enumerate() {
        let payments = Arc::clone(&payments);
        cancellers.spawn(async move {
            let mut cancelled = Vec::new();
            // From the end, and each payment by two of them.
            for payment in payments.iter().rev().skip(part * 60).take(120) {
                match cancel(&client, payment).await {
                    Ok(_) => cancelled.push(payment.key.clone()),
                    Err(error) if matches!(sqlstate(&error), "P7001" | "P7002") => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(cancelled)
        });
    }
    let mut claimers = JoinSet::new();
    for client in connect_many(database, "symphony_executor", 3).await? {
        claimers.spawn(async move { claims_until_nothing_is_due(&client).await });
    }
    let (mut cancelled, mut claimed) = (Vec::new(), Vec::new());
    while let Some(done) = cancellers.join_next().await {
        cancelled.extend(done??);
    }
    while let Some(done) = claimers.join_next().await {
        claimed.extend(done??);
    }
    claimed.extend(claims_until_nothing_is_due(&sessions.executor).await?);
    let both = cancelled.iter().filter(|key| claimed.contains(key)).count();
    recorder.check(
        format!("3 producers that cancel {PAYMENTS} payments and 3 workers that claim and complete them, at once"),
        "each payment is claimed once or cancelled once, and both happen",
        format!("{} claimed, {} cancelled, {both} both", claimed.len(), cancelled.len()),
        both == 0 && claimed.len() + cancelled.len() == PAYMENTS && !cancelled.is_empty(),
    )
}

async fn claims_until_nothing_is_due(executor: &Client) -> Result<Vec<String>, Error> {
    let mut keys = Vec::new();
    loop {
        let leases = claim(executor, 3, "racer").await?;
        if leases.is_empty() {
            return Ok(keys);
        }
        for lease in leases {
            complete(executor, &lease, Outcome::DISPATCHED).await?;
            keys.push(lease.key);
        }
    }
}

/// Enqueues payments of one participant on the ordered rail, and parks all but the first behind it.
async fn parked_stream(
    sessions: &Sessions,
    participant: &str,
    count: usize,
) -> Result<(Lease, Vec<Payment>), Failure> {
    let mut payments = Vec::with_capacity(count);
    for number in 0..count {
        let payment = Payment::new(format!("{participant}-{number}"), participant, "ordered");
        enqueue(&sessions.ingest, &payment).await?;
        payments.push(payment);
    }
    let head = claim(&sessions.executor, 1, "worker").await?.remove(0);
    let since = "update symphony.payment_outbox_pending set claimed_at = now() - interval '2 seconds'
                 where lease_token is not null";
    sessions.owner.execute(since, &[]).await?;
    require(|| "claiming behind a head".into(), 0, claim(&sessions.executor, 10, "worker").await?.len())?;
    let parked = "select count(*) from symphony.payment_outbox_pending where parked and participant_id = $1";
    let parked = super::sessions::count(&sessions.owner, parked, &[&participant]).await?;
    require(|| "parking what is behind it".into(), i64::try_from(count - 1).unwrap_or_default(), parked)?;
    Ok((head, payments))
}

async fn next_key(sessions: &Sessions) -> Result<String, Failure> {
    let mut leases = claim(&sessions.executor, 1, "worker").await?;
    let Some(lease) = leases.pop() else { return Ok("nothing".to_owned()) };
    complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
    Ok(lease.key)
}

async fn lets_successors_go_on(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let (head, payments) = parked_stream(sessions, "alice", 4).await?;
    cancel(&sessions.ingest, &payments[1]).await?;
    release(&sessions.executor, std::slice::from_ref(&head)).await?;
    cancel(&sessions.ingest, &payments[0]).await?;
    let rest = [next_key(sessions).await?, next_key(sessions).await?, next_key(sessions).await?];
    recorder.check(
        "cancelling the second and then the first of 4 payments of an ordered participant, and claiming",
        "key-alice-2, key-alice-3, nothing",
        rest.join(", "),
        rest == ["key-alice-2", "key-alice-3", "nothing"],
    )
}

/// A failure holds its stream on such a rail. A cancellation does not, and tells the producer.
async fn holds_no_stream(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let mut payments = Vec::new();
    for number in 1..=2 {
        let payment = Payment::new(format!("erin-{number}"), "erin", "holding");
        enqueue(&sessions.ingest, &payment).await?;
        payments.push(payment);
    }
    cancel(&sessions.ingest, &payments[0]).await?;
    let next = next_key(sessions).await?;
    let holds = count(&sessions.owner, "select count(*) from symphony.payment_stream_holds", &[]).await?;
    let events = "select string_agg(event_type || ' ' || aggregate_id, ', ' order by id)
                  from m10_recovery.outbox where aggregate_type = 'payment'";
    let events = text(&sessions.owner, events, &[]).await?;
    recorder.check(
        "cancelling the first of 2 payments on a rail with on_failure HOLD and publish_outcomes, and claiming",
        "key-erin-2, 0 holds; payment.cancelled instruction-erin-1, payment.dispatched instruction-erin-2",
        format!("{next}, {holds} holds; {events}"),
        next == "key-erin-2"
            && holds == 0
            && events == "payment.cancelled instruction-erin-1, payment.dispatched instruction-erin-2",
    )
}

/// A producer may keep its transaction open: completions, claims and repairs go on, and a rollback strands no row.
async fn delays_no_worker(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for (participant, end, expected) in [
        ("bob", "rollback", ["key-bob-1", "key-bob-2", "nothing"]),
        ("carol", "commit", ["key-carol-2", "nothing", "nothing"]),
    ] {
        let (head, payments) = parked_stream(sessions, participant, 3).await?;
        sessions.ingest.batch_execute("begin").await?;
        cancel(&sessions.ingest, &payments[1]).await?;
        // With a limit that a wait would meet at once.
        sessions.executor.batch_execute("set statement_timeout = '3s'").await?;
        complete(&sessions.executor, &head, Outcome::DISPATCHED).await?;
        let meanwhile =
            [next_key(sessions).await?, format!("{} repaired", repair(&sessions.executor, 10).await?.len())];
        sessions.executor.batch_execute("reset statement_timeout").await?;
        sessions.ingest.batch_execute(end).await?;
        repair(&sessions.executor, 10).await?;
        let rest = [next_key(sessions).await?, next_key(sessions).await?, next_key(sessions).await?];
        recorder.check(
            format!(
                "completing, claiming and repairing while a producer cancels the next payment, then its {end}"
            ),
            format!("no worker waits; then {}", expected.join(", ")),
            format!("meanwhile {}; then {}", meanwhile.join(", "), rest.join(", ")),
            meanwhile == ["nothing", "0 repaired"] && rest == expected,
        )?;
    }
    let (head, payments) = parked_stream(sessions, "dave", 3).await?;
    sessions.ingest.batch_execute("begin").await?;
    cancel(&sessions.ingest, &payments[1]).await?;
    sessions.operator.batch_execute("set statement_timeout = '3s'").await?;
    set_rail(&sessions.operator, "ordered", r#"{"ordered": false}"#).await?;
    sessions.operator.batch_execute("reset statement_timeout").await?;
    sessions.ingest.batch_execute("rollback").await?;
    complete(&sessions.executor, &head, Outcome::DISPATCHED).await?;
    repair(&sessions.executor, 10).await?;
    let mut rest = [next_key(sessions).await?, next_key(sessions).await?, next_key(sessions).await?];
    rest.sort();
    recorder.check(
        "making the rail unordered while a producer cancels a parked payment, then its rollback",
        "the operator does not wait; then key-dave-1, key-dave-2, nothing",
        rest.join(", "),
        rest == ["key-dave-1", "key-dave-2", "nothing"],
    )?;
    let left = "select count(*) from symphony.payment_unpark_requests";
    recorder.check_equal("reading what is left to unpark", "requests", 0, count(&sessions.owner, left, &[]).await?)
}

async fn needs_the_current_epoch(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let (payment, _) = enqueued(sessions, "earlier", "plain").await?;
    change_server(&sessions.owner).await?;
    let unnoticed = try_cancel(sessions, &payment).await?;
    let claimed = claim(&sessions.executor, 10, "worker").await?;
    release(&sessions.executor, &claimed).await?;
    let noticed = try_cancel(sessions, &payment).await?;
    let (new, _) = enqueued(sessions, "new", "plain").await?;
    let of_this = try_cancel(sessions, &new).await?;
    recorder.check(
        "cancelling an unsent payment on another server before and after a claim has noticed, and one enqueued since",
        "P7002, P7002, ok: the first may have been sent in a history that was lost",
        format!("{unnoticed}, {noticed}, {of_this}"),
        [&*unnoticed, &*noticed, &*of_this] == ["P7002", "P7002", "ok"],
    )
}
