//! A new idempotency key is another payment at the bank: it needs a failure that is known not to be paid.

use tokio_postgres::{Client, Error};

use super::clock::{expire, make_due};
use super::evidence::{Evidence, Failure, Recorder, require, sqlstate};
use super::sessions::{
    Lease, Payment, Sessions, claim, confirm, count, enqueue, redrive, release, repair, resolve, set_rail, text,
};
use symphony_testkit::epoch::change_server;
use symphony_testkit::test_database::Database;

/// Proof 41: `a_failure_is_redriven_under_a_new_key_only_if_the_ledger_knows_that_it_was_not_paid`.
pub(super) async fn needs_a_known_refusal(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "bank", r#"{"max_attempts": 3}"#).await?;
    makes_another_payment(&sessions, &mut recorder).await?;
    is_refused_without_the_banks_own_word(&sessions, &mut recorder).await?;
    is_refused_after_an_unknown_outcome(&sessions, &mut recorder).await?;
    takes_the_place_of_a_failure_that_holds(&sessions, &mut recorder).await?;
    follows_what_the_bank_confirms(&sessions, &mut recorder).await?;
    is_refused_for_an_earlier_epoch(&sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

/// State, error code and rail code of an attempt.
type Attempt = (&'static str, Option<&'static str>, Option<&'static str>);

const REFUSED: Attempt = ("FAILED", Some("RAIL_REFUSED"), Some("NO_ACCOUNT"));
const UNKNOWN: Attempt = ("RETRYABLE", Some("OUTCOME_UNKNOWN"), Some("HTTP 504"));

async fn finish(executor: &Client, lease: &Lease, (state, error, code): Attempt) -> Result<(), Error> {
    let call = "select symphony.complete_outbox_attempt($1::text::uuid, $2::text::uuid, $3, $4::text::symphony.outbox_attempt_state,
                  p_error_code => $5, p_rail_code => $6, p_retry_delay_seconds => case when $4 = 'RETRYABLE' then 0 end)";
    executor.execute(call, &[&lease.outbox_id, &lease.token, &lease.worker, &state, &error, &code]).await.map(drop)
}

/// Makes these attempts of the one payment that is due.
async fn attempt(sessions: &Sessions, attempts: &[Attempt]) -> Result<String, Failure> {
    let mut outbox_id = String::new();
    for attempt in attempts {
        let mut leases = claim(&sessions.executor, 10, "worker").await?;
        require(|| "claiming the one payment that is due".into(), 1, leases.len())?;
        let lease = leases.remove(0);
        finish(&sessions.executor, &lease, *attempt).await?;
        outbox_id = lease.outbox_id;
    }
    Ok(outbox_id)
}

async fn failed(sessions: &Sessions, name: &str, attempts: &[Attempt]) -> Result<String, Failure> {
    enqueue(&sessions.ingest, &Payment::new(name, name, "bank")).await?;
    attempt(sessions, attempts).await
}

/// Redrives under a new key; `ok`, or the SQLSTATE of the refusal.
async fn replace(sessions: &Sessions, outbox_id: &str, key: &str, payload: Option<&str>) -> String {
    let call = "select outbox_id::text from symphony.redrive_payment_outbox($1::text::uuid, 'operator', 'a proof', $2, $3::text::jsonb)";
    match sessions.operator.query_one(call, &[&outbox_id, &key, &payload]).await {
        Ok(_) => "ok".to_owned(),
        Err(error) => sqlstate(&error).to_owned(),
    }
}

async fn makes_another_payment(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let first = failed(sessions, "first", &[REFUSED]).await?;
    let payload = r#"{"amount": "10.00", "name": "corrected"}"#;
    let done = replace(sessions, &first, "key-second", Some(payload)).await;
    let pending = "select concat_ws(' ', idempotency_key, payload ->> 'name', redrive_of = $1::text::uuid)
                   from symphony.payment_outbox_pending";
    let pending = text(&sessions.owner, pending, &[&first]).await?;
    recorder.check(
        "redriving a failure that the bank refused under a new key with a new payload",
        "ok; pending with both, as a redrive of the failure",
        format!("{done}; {pending}"),
        done == "ok" && pending == "key-second corrected t",
    )?;
    let mut second = Payment::new("first", "first", "bank");
    let old = enqueue(&sessions.ingest, &second).await?;
    second.key = "key-second".into();
    second.payload = payload.into();
    let new = enqueue(&sessions.ingest, &second).await?;
    second.payload = "{}".into();
    let other = enqueue(&sessions.ingest, &second).await;
    recorder.check(
        "enqueuing the old key, the new key, and the new key with another payload",
        "a replay of the failure, a replay of the redrive, P7004",
        format!("{}, {}, {:?}", old.replayed, new.replayed, other.as_ref().err().map(sqlstate)),
        old.replayed
            && old.outbox_id == first
            && new.replayed
            && new.outbox_id != first
            && other.as_ref().err().map(sqlstate) == Some("P7004"),
    )?;
    attempt(sessions, &[REFUSED]).await?;
    let twice = replace(sessions, &first, "key-third", None).await;
    let used = replace(sessions, &new.outbox_id, "key-first", None).await;
    let same = replace(sessions, &new.outbox_id, "key-second", None).await;
    let third = replace(sessions, &new.outbox_id, "key-third", None).await;
    recorder.check(
        "when the new one was refused too: a new key for the first failure, the first key, the same key, a third key",
        "P7003, P7004, P7005, ok",
        format!("{twice}, {used}, {same}, {third}"),
        [&*twice, &*used, &*same, &*third] == ["P7003", "P7004", "P7005", "ok"],
    )?;
    let kept =
        "select payload ->> 'name' from symphony.payment_outbox_pending where idempotency_key = 'key-third'";
    let kept = text(&sessions.owner, kept, &[]).await?;
    recorder.check_equal("the payload of the third, which was not given", "name", "corrected".to_owned(), kept)?;
    let log = "select string_agg(policy_after ->> 'idempotency_key', ' ' order by created_at) from symphony.payment_outbox_operations_log";
    let log = text(&sessions.operator, log, &[]).await?;
    recorder.check_equal("reading the audit log", "new keys", "key-second key-third".to_owned(), log)?;
    attempt(sessions, &[("DISPATCHED", None, Some("ACSC"))]).await?;
    Ok(())
}

async fn is_refused_without_the_banks_own_word(
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let cases: [(&str, &[Attempt], &str); 4] = [
        ("invalid payload", &[("FAILED", Some("INVALID_PAYLOAD"), None)], "ok"),
        ("refused after a retry", &[("RETRYABLE", Some("BUSY"), Some("HTTP 429")), REFUSED], "ok"),
        ("no code of the bank", &[("FAILED", Some("RAIL_REFUSED"), None)], "P7003"),
        ("no code at all", &[("FAILED", None, None)], "P7003"),
    ];
    for (name, attempts, expected) in cases {
        let outbox_id = failed(sessions, name, attempts).await?;
        let found = replace(sessions, &outbox_id, &format!("{name}/2"), None).await;
        recorder.check_equal(format!("a new key for: {name}"), "result", expected.to_owned(), found)?;
        if expected != "ok" {
            redrive(&sessions.operator, &outbox_id).await?;
        }
        attempt(sessions, &[("DISPATCHED", None, Some("ACSC"))]).await?;
    }
    Ok(())
}

async fn is_refused_after_an_unknown_outcome(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let unknown = failed(sessions, "unknown", &[UNKNOWN, UNKNOWN, UNKNOWN]).await?;
    let before = replace(sessions, &unknown, "unknown/2", None).await;
    resolve(&sessions.operator, &unknown, "NOT_PAID").await?;
    let resolved = replace(sessions, &unknown, "unknown/2", None).await;
    // The bank refuses the same key now, in an outbox without an unknown outcome.
    let again = redrive(&sessions.operator, &unknown).await?;
    attempt(sessions, &[REFUSED]).await?;
    let linked = replace(sessions, &again.outbox_id, "unknown/2", None).await;
    let mixed = failed(sessions, "mixed", &[UNKNOWN, REFUSED]).await?;
    let mixed = replace(sessions, &mixed, "mixed/2", None).await;
    enqueue(&sessions.ingest, &Payment::new("expired", "expired", "bank")).await?;
    let lease = claim(&sessions.executor, 10, "worker").await?.remove(0);
    expire(&sessions.owner, &lease.outbox_id).await?;
    repair(&sessions.executor, 10).await?;
    make_due(&sessions.owner).await?;
    let expired = attempt(sessions, &[REFUSED]).await?;
    let expired = replace(sessions, &expired, "expired/2", None).await;
    let all = [before, resolved, linked, mixed, expired];
    recorder.check(
        "a new key for an unknown outcome; resolved as NOT_PAID; then refused by the bank; refused after an unknown attempt; after an expired lease",
        "P7003 each: the first key may have been paid",
        all.join(", "),
        all.iter().all(|found| found == "P7003"),
    )
}

/// On an ordered rail with on_failure HOLD each new key goes before the later payments, with the number of the failure.
async fn takes_the_place_of_a_failure_that_holds(
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    set_rail(&sessions.operator, "hold", r#"{"ordered": true, "on_failure": "HOLD"}"#).await?;
    for number in 1..=2 {
        enqueue(&sessions.ingest, &Payment::new(format!("held-{number}"), "held", "hold")).await?;
    }
    let mut results = Vec::new();
    let mut order = Vec::new();
    for (outcome, new_key) in [
        (REFUSED, Some("held-1/2")),
        (REFUSED, Some("held-1/3")),
        (("DISPATCHED", None, Some("ACSC")), None),
        (("DISPATCHED", None, Some("ACSC")), None),
    ] {
        let mut leases = claim(&sessions.executor, 10, "worker").await?;
        require(|| "claiming the head of the stream".into(), 1, leases.len())?;
        let lease = leases.remove(0);
        order.push(format!("{} {}", lease.key, lease.sequence_id));
        finish(&sessions.executor, &lease, outcome).await?;
        if let Some(key) = new_key {
            results.push(replace(sessions, &lease.outbox_id, key, None).await);
        }
    }
    recorder.check_equal(
        "redriving a failure that holds under a new key, twice, and dispatching what follows",
        "results; claimed keys with their numbers",
        "ok, ok; key-held-1 1, held-1/2 1, held-1/3 1, key-held-2 2".to_owned(),
        format!("{}; {}", results.join(", "), order.join(", ")),
    )
}

/// Bank confirms by key: what it says of the old key decides about a new one, and is no news of the new one.
async fn follows_what_the_bank_confirms(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    const ACCEPTED: Attempt = ("RETRYABLE", Some("AWAITING_CONFIRMATION"), Some("HTTP 202"));
    let executor = &sessions.executor;
    let contradicted = failed(sessions, "contradicted", &[REFUSED]).await?;
    let news = confirm(executor, ("bank", "key-contradicted"), "EXECUTED", "late news", None).await?.0;
    let after = replace(sessions, &contradicted, "contradicted/2", None).await;
    recorder.check_equal(
        "a new key for a refusal, after the bank has said that it executed the old one",
        "results",
        "CONTRADICTS_OUTCOME, P7003".to_owned(),
        format!("{news}, {after}"),
    )?;

    let unsent = failed(sessions, "unsent", &[ACCEPTED, ("FAILED", Some("INVALID_PAYLOAD"), None)]).await?;
    let unsent = replace(sessions, &unsent, "unsent/2", None).await;
    let accepted = failed(sessions, "accepted", &[ACCEPTED]).await?;
    let pending = replace(sessions, &accepted, "accepted/2", None).await;
    let refusal = "select symphony.confirm_payment_outbox('bank', 'key-accepted', 'REFUSED', 'a refusal', 'receiver', p_rail_code => 'AC04')";
    executor.execute(refusal, &[]).await?;
    let refused = replace(sessions, &accepted, "accepted/2", None).await;
    let executed = confirm(executor, ("bank", "accepted/2"), "EXECUTED", "too early", None).await?.0;
    let again = confirm(executor, ("bank", "accepted/2"), "REFUSED", "a refusal", None).await?.0;
    let old = confirm(executor, ("bank", "key-accepted"), "REFUSED", "a refusal", None).await?.0;
    recorder.check_equal(
        "a new key for a payment that the bank has accepted: after INVALID_PAYLOAD; pending; refused by the bank with a code; \
         news of the new key before it was sent; the refusal again",
        "results",
        "P7003, P7003, ok; NEVER_SENT, NEVER_SENT; REPLAYED".to_owned(),
        format!("{unsent}, {pending}, {refused}; {executed}, {again}; {old}"),
    )?;
    attempt(sessions, &[("DISPATCHED", None, Some("ACSC"))]).await?;
    Ok(())
}

async fn is_refused_for_an_earlier_epoch(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let ended = failed(sessions, "ended", &[REFUSED]).await?;
    enqueue(&sessions.ingest, &Payment::new("waiting", "waiting", "bank")).await?;
    change_server(&sessions.owner).await?;
    let unnoticed = replace(sessions, &ended, "ended/2", None).await;
    let claimed = claim(&sessions.executor, 10, "worker").await?;
    release(&sessions.executor, &claimed).await?;
    let noticed = replace(sessions, &ended, "ended/2", None).await;
    // Enqueued in the earlier epoch, and refused in this one.
    let waiting = attempt(sessions, &[REFUSED]).await?;
    let across = replace(sessions, &waiting, "waiting/2", None).await;
    let new = failed(sessions, "new", &[REFUSED]).await?;
    let new = replace(sessions, &new, "new/2", None).await;
    let all = [unnoticed, noticed, across, new];
    recorder.check(
        "a new key on another server, before and after a claim has noticed; for one enqueued before and refused since; for a new one",
        "P7003, P7003, P7003, ok: it may have been redriven and paid in a history that was lost",
        all.join(", "),
        all == ["P7003", "P7003", "P7003", "ok"],
    )?;
    let left = "select count(*) from symphony.payment_outbox_pending";
    recorder.check_equal(
        "counting what is pending",
        "redrives of this epoch",
        1,
        count(&sessions.owner, left, &[]).await?,
    )
}
