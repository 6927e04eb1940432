//! Accepted is not paid: a payment that the rail has accepted is never sent again, and what the rail confirms by itself settles it once.

use super::clock::{expire, make_due};
use super::evidence::{Evidence, Failure, Recorder};
use super::sessions::{
    Enqueued, Lease, Outcome, Payment, Sessions, claim, complete, confirm, connect_many, count, enqueue, redrive,
    repair, resolve, set_rail, text,
};
use symphony_testkit::epoch::change_server;
use symphony_testkit::test_database::Database;
use tokio_postgres::{Client, Error};

const RAIL: &str = "bank";
/// How often each race is run.
const ROUNDS: usize = 12;

/// Proof 48: `a_payment_that_the_rail_has_accepted_is_never_sent_again`.
pub(super) async fn accepted_is_not_sent(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, RAIL, r#"{"confirm_every_seconds": 77, "on_unknown": "RESEND"}"#).await?;

    let lease = claimed(&sessions, "accepted").await?;
    complete(&sessions.executor, &lease, Outcome::ACCEPTED).await?;
    recorder.check_equal(
        "recording that the rail has accepted a payment",
        "status, seconds until the next attempt, accepted at a time, outcome unknown",
        "AWAITING_CONFIRMATION, 77, true, true".to_owned(),
        status(&sessions.owner, &lease.outbox_id).await?,
    )?;

    // Whatever happened to the attempts since, of this outbox.
    for reported in [
        Outcome::RETRY_NOW,
        Outcome { state: "RETRYABLE", error_code: Some("NOT_SENT"), delay: None },
        Outcome { state: "RETRYABLE", error_code: None, delay: None },
        Outcome { state: "RETRYABLE", error_code: Some("OUTCOME_UNKNOWN"), delay: None },
    ] {
        let lease = claimed_again(&sessions).await?;
        only_inquires(
            &sessions,
            &lease,
            &format!("after a worker reported {:?}", reported.error_code),
            &mut recorder,
        )
        .await?;
        complete(&sessions.executor, &lease, reported).await?;
        recorder.check_equal(
            format!("a worker reports {:?} about it", reported.error_code),
            "code in the ledger",
            "AWAITING_CONFIRMATION".to_owned(),
            last_code(&sessions.owner, &lease.outbox_id).await?,
        )?;
    }
    for way in ["repaired", "taken over"] {
        let lease = claimed_again(&sessions).await?;
        expire(&sessions.owner, &lease.outbox_id).await?;
        if way == "repaired" {
            repair(&sessions.executor, 10).await?;
        }
        let next = claimed_again(&sessions).await?;
        only_inquires(&sessions, &next, &format!("after the lease of an inquiry was {way}"), &mut recorder)
            .await?;
        complete(&sessions.executor, &next, Outcome::ACCEPTED).await?;
    }
    change_server(&sessions.owner).await?;
    let lease = claimed_again(&sessions).await?;
    only_inquires(&sessions, &lease, "in a later epoch", &mut recorder).await?;
    complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
    none_awaits(&sessions.owner, "settling it by an inquiry", &mut recorder).await?;

    at_another_endpoint(&sessions, &mut recorder).await?;
    at_the_ceiling(&sessions, &mut recorder).await?;
    an_operator_may_redrive(&sessions, &mut recorder).await?;
    refusals(&sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

/// An acceptance by another bank is a stop, as every unknown outcome.
async fn at_another_endpoint(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    enqueue(&sessions.ingest, &Payment::new("moved", "alice", RAIL)).await?;
    let lease = claim_at(&sessions.executor, "old#k").await?;
    complete(&sessions.executor, &lease, Outcome::ACCEPTED).await?;
    make_due(&sessions.owner).await?;
    let lease = claim_at(&sessions.executor, "new#z").await?;
    recorder.check_equal(
        "asking at another endpoint than the one that has accepted it",
        "outcome unknown, awaits confirmation, other endpoint",
        "true, true, old#k".to_owned(),
        format!(
            "{}, {}",
            lease.outcome_unknown,
            advice(&sessions.executor, &lease, "concat_ws(', ', awaiting_confirmation::text, other_endpoint)")
                .await?
        ),
    )?;
    complete(&sessions.executor, &lease, Outcome::UNKNOWN).await?;
    none_awaits(&sessions.owner, "stopping it", recorder).await
}

/// At max_attempts the outcome is unknown.
async fn at_the_ceiling(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    set_rail(&sessions.operator, RAIL, r#"{"max_attempts": 3}"#).await?;
    let first = claimed(sessions, "never confirmed").await?;
    complete(&sessions.executor, &first, Outcome::ACCEPTED).await?;
    for _ in 0..2 {
        let lease = claimed_again(sessions).await?;
        complete(&sessions.executor, &lease, Outcome::ACCEPTED).await?;
    }
    let ended = "select concat_ws(', ', state, error_code, outcome_unknown) from symphony.payment_outboxes where outbox_id = $1::text::uuid";
    recorder.check_equal(
        "letting the rail confirm nothing within max_attempts",
        "state, code, outcome unknown",
        "FAILED, OUTCOME_UNKNOWN, t".to_owned(),
        text(&sessions.owner, ended, &[&first.outbox_id]).await?,
    )?;
    let redriven = redrive(&sessions.operator, &first.outbox_id).await;
    recorder.check_refused("redriving it without asking the bank", "P7003", redriven)?;
    set_rail(&sessions.operator, RAIL, r#"{"max_attempts": 20}"#).await?;
    none_awaits(&sessions.owner, "ending it at max_attempts", recorder).await
}

/// NOT_PAID is the word of an operator with evidence: the redrive is another outbox, and is sent.
async fn an_operator_may_redrive(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let lease = claimed(sessions, "redriven").await?;
    complete(&sessions.executor, &lease, Outcome::ACCEPTED).await?;
    let lease = claimed_again(sessions).await?;
    complete(&sessions.executor, &lease, Outcome::UNKNOWN).await?;
    resolve(&sessions.operator, &lease.outbox_id, "NOT_PAID").await?;
    redrive(&sessions.operator, &lease.outbox_id).await?;
    let again = claim(&sessions.executor, 1, "worker").await?.remove(0);
    recorder.check_equal(
        "claiming the redrive of one that an operator resolved as NOT_PAID",
        "outcome unknown, awaits confirmation",
        "false, f".to_owned(),
        format!(
            "{}, {}",
            again.outcome_unknown,
            advice(&sessions.executor, &again, "awaiting_confirmation::text")
                .await?
                .chars()
                .take(1)
                .collect::<String>()
        ),
    )?;
    complete(&sessions.executor, &again, Outcome::DISPATCHED).await?;
    Ok(())
}

async fn refusals(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let lease = claimed(sessions, "refusals").await?;
    for state in ["DISPATCHED", "FAILED"] {
        let outcome = Outcome { state, error_code: Some("AWAITING_CONFIRMATION"), delay: None };
        let refused = complete(&sessions.executor, &lease, outcome).await;
        recorder.check_refused(format!("recording {state} with AWAITING_CONFIRMATION"), "P7005", refused)?;
    }
    for seconds in ["0", "2592001", "null", "1.5"] {
        let policy = format!(r#"{{"confirm_every_seconds": {seconds}}}"#);
        let refused = set_rail(&sessions.operator, RAIL, &policy).await;
        recorder.check_refused(format!("setting confirm_every_seconds to {seconds}"), "P7005", refused)?;
    }
    complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
    Ok(())
}

/// Proof 49: `a_confirmation_settles_a_payment_once_whatever_it_races_with`.
pub(super) async fn settle_once(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    for (rail, policy) in
        [(RAIL, "{}"), ("ordered", r#"{"ordered": true}"#), ("limited", r#"{"max_in_flight": 1}"#)]
    {
        set_rail(&sessions.operator, rail, policy).await?;
    }
    for (before, outcome, ended) in [
        ("accepted", "EXECUTED", "DISPATCHED, 2, no lease"),
        ("accepted", "REFUSED", "FAILED, 2, no lease"),
        ("inquired about", "EXECUTED", "DISPATCHED, 2, a lease"),
        ("in dispatch", "EXECUTED", "DISPATCHED, 1, a lease"),
        ("in dispatch", "REFUSED", "FAILED, 1, a lease"),
        ("of a dead worker", "EXECUTED", "DISPATCHED, 1, a lease"),
        ("of unknown outcome", "REFUSED", "FAILED, 2, no lease"),
        ("deferred", "EXECUTED", "DISPATCHED, 2, no lease"),
    ] {
        for rail in [RAIL, "ordered", "limited"] {
            let name = format!("{before} {outcome} {rail}");
            let (payment, lease) = prepared(&sessions, before, &name, rail).await?;
            let result = confirm(&sessions.executor, (rail, &payment.key), outcome, &name, None).await?;
            let end = "select concat_ws(', ', state, attempt_no, case when claimed_at is null then 'no lease' else 'a lease' end)
                       from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid and state in ('DISPATCHED', 'FAILED')
                         and confirmation_id = $2 and num_nulls(rail_reference) = 0";
            recorder.check_equal(
                format!("confirming {outcome} of a payment on rail {rail} that is {before}"),
                "result, state, attempt, lease",
                format!("SETTLED: {ended}"),
                format!("{}: {}", result.0, text(&sessions.owner, end, &[&lease.outbox_id, &name]).await?),
            )?;
            if ended.ends_with("a lease") {
                let late = complete(&sessions.executor, &lease, Outcome::ACCEPTED).await;
                recorder.check_refused("completing the lease that it has ended", "P7001", late)?;
            }
            for message in [&name, "another message"] {
                let again = confirm(&sessions.executor, (rail, &payment.key), outcome, message, None).await?;
                recorder.check_equal("confirming the same again", "result", "REPLAYED".to_owned(), again.0)?;
            }
        }
    }
    none_awaits(&sessions.owner, "confirming all of them", &mut recorder).await?;
    the_successor_goes_on(&sessions, &mut recorder).await?;
    for rival in ["a completion", "a claim", "a repair", "the same confirmation", "the opposite confirmation"] {
        races(database, &sessions, rival, &mut recorder).await?;
    }
    Ok(recorder.finish())
}

/// A payment in this situation, and its newest lease.
async fn prepared(sessions: &Sessions, before: &str, name: &str, rail: &str) -> Result<(Payment, Lease), Failure> {
    let payment = Payment::new(name, name, rail);
    enqueue(&sessions.ingest, &payment).await?;
    let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
    let report = match before {
        "accepted" | "inquired about" => Some(Outcome::ACCEPTED),
        "of unknown outcome" => {
            Some(Outcome { state: "RETRYABLE", error_code: Some("OUTCOME_UNKNOWN"), delay: None })
        }
        "deferred" => Some(Outcome::RETRYABLE),
        _ => None,
    };
    if let Some(report) = report {
        complete(&sessions.executor, &lease, report).await?;
    }
    match before {
        "inquired about" => Ok((payment, claimed_again(sessions).await?)),
        "of a dead worker" => {
            expire(&sessions.owner, &lease.outbox_id).await?;
            Ok((payment, lease))
        }
        _ => Ok((payment, lease)),
    }
}

/// On an ordered rail the next payment waits for the confirmation, and goes on with it.
async fn the_successor_goes_on(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let (first, _) = prepared(sessions, "accepted", "head", "ordered").await?;
    enqueue(&sessions.ingest, &Payment::new("next", "head", "ordered")).await?;
    let waiting = claim(&sessions.executor, 10, "worker").await?.len();
    confirm(&sessions.executor, ("ordered", &first.key), "EXECUTED", "head", None).await?;
    let next = claim(&sessions.executor, 10, "worker").await?;
    recorder.check_equal(
        "claiming on an ordered rail before and after the first payment is confirmed",
        "rows",
        "0, then 1".to_owned(),
        format!("{waiting}, then {}", next.len()),
    )?;
    complete(&sessions.executor, &next[0], Outcome::DISPATCHED).await?;
    Ok(())
}

/// Runs a confirmation and its rival at once, many times. The payment ends once, by the one that is first.
async fn races(
    database: &Database,
    sessions: &Sessions,
    rival: &str,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let clients = connect_many(database, "symphony_executor", 2).await?;
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    for round in 0..ROUNDS {
        let name = format!("{rival} {round}");
        let before = match rival {
            "a completion" => "inquired about",
            "a repair" => "of a dead worker",
            _ => "accepted",
        };
        let (payment, lease) = prepared(sessions, before, &name, RAIL).await?;
        if rival == "a claim" {
            make_due(&sessions.owner).await?;
        }
        let key = (RAIL, payment.key.as_str());
        let confirming = confirm(&clients[0], key, "EXECUTED", &name, None);
        let competing = async {
            Ok::<_, Error>(match rival {
                "a completion" => match complete(&clients[1], &lease, Outcome::DISPATCHED).await {
                    Ok(recorded) => recorded.state,
                    Err(error) => error.code().map_or("no code", |code| code.code()).to_owned(),
                },
                "a claim" => format!("{} leased", claim(&clients[1], 1, "worker").await?.len()),
                "a repair" => format!("{} repaired", repair(&clients[1], 10).await?.len()),
                "the same confirmation" => confirm(&clients[1], key, "EXECUTED", "again", None).await?.0,
                _ => confirm(&clients[1], key, "REFUSED", "again", None).await?.0,
            })
        };
        let (confirmed, competed) = tokio::join!(confirming, competing);
        *seen.entry(format!("{} against {}", confirmed?.0, competed?)).or_default() += 1;
        let ends = "select concat(count(*) filter (where state in ('DISPATCHED', 'FAILED')), ' end, ',
                             (select count(*) from symphony.payment_outbox_pending p where p.outbox_id = $1::text::uuid), ' pending')
                    from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid";
        recorder.check_equal(
            format!("confirming a payment and {rival} at once, round {round}"),
            "the ledger, and the pending row",
            "1 end, 0 pending".to_owned(),
            text(&sessions.owner, ends, &[&lease.outbox_id]).await?,
        )?;
    }
    let both_settle =
        |how: &String| how.matches("SETTLED").count() > 1 || how.contains("SETTLED against DISPATCHED");
    recorder.check(
        format!("counting the results of {ROUNDS} races with {rival}"),
        "never two that both end the payment",
        format!("{seen:?}"),
        !seen.keys().any(both_settle),
    )?;
    Ok(())
}

/// Proof 50: `a_confirmation_that_contradicts_what_is_known_changes_nothing_and_is_kept`.
pub(super) async fn contradictions_are_kept(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    for rail in [RAIL, "other rail"] {
        set_rail(&sessions.operator, rail, "{}").await?;
    }
    for (ended, news, result) in [
        (Outcome::DISPATCHED, "REFUSED", "CONTRADICTS_OUTCOME"),
        (Outcome::DISPATCHED, "EXECUTED", "REPLAYED"),
        (Outcome::REJECTED, "EXECUTED", "CONTRADICTS_OUTCOME"),
        (Outcome::REJECTED, "REFUSED", "REPLAYED"),
        (Outcome::UNKNOWN, "EXECUTED", "AFTER_UNKNOWN_OUTCOME"),
        (Outcome::UNKNOWN, "REFUSED", "AFTER_UNKNOWN_OUTCOME"),
    ] {
        let name = format!("{} {} {news}", ended.state, ended.error_code.unwrap_or("executed"));
        let lease = claimed(&sessions, &name).await?;
        complete(&sessions.executor, &lease, ended).await?;
        refused(&sessions, (RAIL, &lease.key), news, None, result, &mut recorder).await?;
    }
    for (resolution, news, result) in [
        ("PAID", "EXECUTED", "REPLAYED"),
        ("PAID", "REFUSED", "CONTRADICTS_OUTCOME"),
        ("NOT_PAID", "EXECUTED", "CONTRADICTS_OUTCOME"),
        ("NOT_PAID", "REFUSED", "REPLAYED"),
    ] {
        let lease = claimed(&sessions, &format!("resolved as {resolution} {news}")).await?;
        complete(&sessions.executor, &lease, Outcome::UNKNOWN).await?;
        resolve(&sessions.operator, &lease.outbox_id, resolution).await?;
        refused(&sessions, (RAIL, &lease.key), news, None, result, &mut recorder).await?;
    }

    let never = Payment::new("never sent", "alice", RAIL);
    enqueue(&sessions.ingest, &never).await?;
    refused(&sessions, (RAIL, &never.key), "EXECUTED", None, "NEVER_SENT", &mut recorder).await?;
    refused(&sessions, ("other rail", &never.key), "EXECUTED", None, "UNKNOWN_KEY", &mut recorder).await?;
    refused(&sessions, (RAIL, "no such key"), "REFUSED", None, "UNKNOWN_KEY", &mut recorder).await?;
    let same_key = Payment { instruction: "another instruction".into(), ..never.clone() };
    enqueue(&sessions.ingest, &same_key).await?;
    refused(&sessions, (RAIL, &never.key), "EXECUTED", None, "AMBIGUOUS_KEY", &mut recorder).await?;
    let leases = claim(&sessions.executor, 10, "worker").await?;
    for lease in &leases {
        complete(&sessions.executor, lease, Outcome::DISPATCHED).await?;
    }

    enqueue(&sessions.ingest, &Payment::new("elsewhere", "alice", RAIL)).await?;
    let lease = claim_at(&sessions.executor, "old#k").await?;
    refused(&sessions, (RAIL, &lease.key), "REFUSED", Some("new#z"), "OTHER_ENDPOINT", &mut recorder).await?;
    complete(&sessions.executor, &lease, Outcome::ACCEPTED).await?;
    refused(&sessions, (RAIL, &lease.key), "EXECUTED", Some("new#z"), "OTHER_ENDPOINT", &mut recorder).await?;
    refused(&sessions, (RAIL, &lease.key), "EXECUTED", None, "OTHER_ENDPOINT", &mut recorder).await?;
    let settled =
        confirm(&sessions.executor, (RAIL, &lease.key), "EXECUTED", "from the right bank", Some("old#k")).await?;
    recorder.check_equal("confirming it by the bank that has it", "result", "SETTLED".to_owned(), settled.0)?;

    redrives(&sessions, &mut recorder).await?;
    a_later_epoch(&sessions, &mut recorder).await?;
    evidence_is_kept(&sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

/// News about a failure is not news about its redrive, unless the money has moved.
async fn redrives(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for (news, message, state, result) in [
        ("REFUSED", "first", "pending", "REPLAYED"),
        ("REFUSED", "first", "leased", "REPLAYED"),
        ("REFUSED", "second", "pending", "REPLAYED"),
        ("EXECUTED", "second", "pending", "SETTLED"),
        ("EXECUTED", "first", "pending", "CONTRADICTS_OUTCOME"),
    ] {
        let lease = claimed(sessions, &format!("redriven {news} {message} {state}")).await?;
        complete(&sessions.executor, &lease, Outcome::ACCEPTED).await?;
        let key = (RAIL, lease.key.as_str());
        let first = format!("first {news} {state} {message}");
        confirm(&sessions.executor, key, "REFUSED", &first, None).await?;
        let Enqueued { outbox_id, .. } = redrive(&sessions.operator, &lease.outbox_id).await?;
        if state == "leased" {
            claim(&sessions.executor, 1, "worker").await?;
        }
        let message = if message == "first" { first } else { format!("second {news} {state}") };
        let got = confirm(&sessions.executor, key, news, &message, None).await?.0;
        let left = "select coalesce((select a.state::text from symphony.payment_outbox_attempts a where a.outbox_id = $1::text::uuid), 'PENDING')";
        let expected = if result == "SETTLED" { "DISPATCHED" } else { "PENDING" };
        recorder.check_equal(
            format!("the bank says {news} by message {message:?}, while the redrive is {state}"),
            "result, the redrive",
            format!("{result}, {expected}"),
            format!("{got}, {}", text(&sessions.owner, left, &[&outbox_id]).await?),
        )?;
        for lease in claim(&sessions.executor, 10, "worker").await? {
            complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
        }
        sessions.owner.execute("update symphony.payment_outbox_pending set lease_expires_at = now() where lease_token is not null", &[]).await?;
        for lease in claim(&sessions.executor, 10, "worker").await? {
            complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
        }
    }
    Ok(())
}

/// A payment of an earlier epoch without an attempt may have been sent by one that was lost.
async fn a_later_epoch(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let payment = Payment::new("of an earlier epoch", "alice", RAIL);
    enqueue(&sessions.ingest, &payment).await?;
    change_server(&sessions.owner).await?;
    let settled =
        confirm(&sessions.executor, (RAIL, &payment.key), "EXECUTED", "after the failover", None).await?;
    recorder.check_equal(
        "confirming a payment of an earlier epoch that has no attempt, on a new server that no claim has reached",
        "result",
        "SETTLED".to_owned(),
        settled.0,
    )?;
    Ok(())
}

/// The record of what was refused is complete, and no role can change it.
async fn evidence_is_kept(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let kinds = "select string_agg(distinct kind, ', ' order by kind) from symphony.refused_confirmations";
    recorder.check_equal(
        "reading the refused confirmations as an operator",
        "kinds",
        "AFTER_UNKNOWN_OUTCOME, AMBIGUOUS_KEY, CONTRADICTS_OUTCOME, NEVER_SENT, OTHER_ENDPOINT, UNKNOWN_KEY"
            .to_owned(),
        text(&sessions.operator, kinds, &[]).await?,
    )?;
    for (what, statement) in [
        ("UPDATE", "update symphony.payment_refused_confirmations set kind = 'NEVER_SENT'"),
        ("DELETE", "delete from symphony.payment_refused_confirmations"),
        ("TRUNCATE", "truncate symphony.payment_refused_confirmations"),
    ] {
        let refused = sessions.owner.execute(statement, &[]).await;
        recorder.check_refused(format!("{what} of them, as the owner"), "P0001", refused)?;
    }
    for (what, sqlstate, rail, key, outcome, message) in [
        ("an unknown rail", "P7006", "bnak", "k", "EXECUTED", "m"),
        ("another word than EXECUTED or REFUSED", "P7005", RAIL, "k", "PAID", "m"),
        ("a blank key", "P7005", RAIL, " ", "EXECUTED", "m"),
        ("a blank message id", "P7005", RAIL, "k", "EXECUTED", ""),
    ] {
        let refused = confirm(&sessions.executor, (rail, key), outcome, message, None).await;
        recorder.check_refused(format!("confirming with {what}"), sqlstate, refused)?;
    }
    let as_operator = confirm(&sessions.operator, (RAIL, "k"), "EXECUTED", "m", None).await;
    recorder.check_refused("confirming as an operator", "42501", as_operator)
}

/// Confirms twice, and checks the result, that nothing changed, and that a refusal is recorded once.
async fn refused(
    sessions: &Sessions,
    (rail, key): (&str, &str),
    news: &str,
    endpoint: Option<&str>,
    result: &str,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let state = "select md5(string_agg(r::text, '|' order by r::text)) from (
                   select p::text as r from symphony.payment_outbox_pending p
                   union all select a::text from symphony.payment_outbox_attempts a) r";
    let kept = "select count(*) from symphony.refused_confirmations where rail_type = $1 and idempotency_key = $2 and outcome = $3 and kind = $4";
    let before = text(&sessions.owner, state, &[]).await?;
    for message in ["one", "two"] {
        let got = confirm(&sessions.executor, (rail, key), news, message, endpoint).await?.0;
        recorder.check_equal(format!("confirming {news} of {key:?}"), "result", result.to_owned(), got)?;
    }
    let after = text(&sessions.owner, state, &[]).await?;
    recorder.check_equal("comparing pending rows and ledger", "digest", before, after)?;
    let expected = i64::from(result != "REPLAYED");
    let rows = count(&sessions.operator, kept, &[&rail, &key, &news, &result]).await?;
    recorder.check_equal("counting the records of the refusal", "rows", expected, rows)
}

/// A new payment under its first lease.
async fn claimed(sessions: &Sessions, name: &str) -> Result<Lease, Failure> {
    enqueue(&sessions.ingest, &Payment::new(name, "alice", RAIL)).await?;
    Ok(claim(&sessions.executor, 1, "worker").await?.remove(0))
}

/// The next lease of the only payment that is pending.
async fn claimed_again(sessions: &Sessions) -> Result<Lease, Failure> {
    make_due(&sessions.owner).await?;
    Ok(claim(&sessions.executor, 1, "worker").await?.remove(0))
}

async fn claim_at(executor: &Client, endpoint: &str) -> Result<Lease, Failure> {
    let call = "select outbox_id::text, lease_token::text, participant_id, sequence_id, rail_type, idempotency_key, outcome_unknown
                from symphony.claim_outbox_batch(1, 'worker', 600, p_endpoints => jsonb_build_object('bank', $1::text))";
    let row = executor.query_one(call, &[&endpoint]).await?;
    Ok(Lease {
        outbox_id: row.get(0),
        token: row.get(1),
        worker: "worker".to_owned(),
        participant: row.get(2),
        sequence_id: row.get(3),
        rail: row.get(4),
        key: row.get(5),
        outcome_unknown: row.get(6),
    })
}

/// A column of the advice for this lease.
async fn advice(executor: &Client, lease: &Lease, column: &str) -> Result<String, Error> {
    let call =
        format!("select {column} from symphony.advise_on_unknown_outcome($1::text::uuid, $2::text::uuid, $3, 1)");
    text(executor, &call, &[&lease.outbox_id, &lease.token, &lease.worker]).await
}

async fn only_inquires(
    sessions: &Sessions,
    lease: &Lease,
    when: &str,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    recorder.check_equal(
        format!("claiming it {when}"),
        "outcome unknown, and awaits confirmation",
        "true, true".to_owned(),
        format!(
            "{}, {}",
            lease.outcome_unknown,
            advice(&sessions.executor, lease, "awaiting_confirmation::text").await?
        ),
    )
}

async fn status(owner: &Client, outbox_id: &str) -> Result<String, Error> {
    let call = "select concat_ws(', ', status, round(extract(epoch from next_attempt_at - last_completed_at)), (accepted_at is not null)::text,
                       outcome_unknown::text)
                from symphony.outbox_operational_status where outbox_id = $1::text::uuid";
    text(owner, call, &[&outbox_id]).await
}

async fn last_code(owner: &Client, outbox_id: &str) -> Result<String, Error> {
    let call = "select error_code from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid order by attempt_no desc limit 1";
    text(owner, call, &[&outbox_id]).await
}

/// The table of waiting payments has no other rows than the ledger says.
async fn none_awaits(owner: &Client, after: &str, recorder: &mut Recorder) -> Result<(), Failure> {
    let rows = count(owner, "select count(*) from symphony.payment_awaiting_confirmation", &[]).await?;
    recorder.check_equal(format!("counting the payments that await confirmation after {after}"), "rows", 0, rows)
}
