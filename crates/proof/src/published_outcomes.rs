//! A rail with `publish_outcomes` tells the producer how each payment ended: one event for each ending, in its transaction.

use symphony_testkit::test_database::Database;

use super::clock::{expire, make_due};
use super::evidence::{Evidence, Failure, Recorder};
use super::seeded_rng::{rerun_hint, seed};
use super::sessions::{
    Lease, Outcome, Payment, Sessions, claim, complete, complete_batch, count, enqueue, redrive, repair, resolve,
    set_rail, text,
};
use super::workload;

/// The events of one instruction, in order.
const EVENTS: &str =
    "select string_agg(event_type || coalesce(' ' || (payload ->> 'resolution'), ''), ', ' order by id)
                      from m10_recovery.outbox where aggregate_type = 'payment' and aggregate_id = $1";

/// Proof 44: `a_rail_that_publishes_outcomes_publishes_each_ending_once_in_its_transaction`.
pub(super) async fn are_exact(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "telling", r#"{"publish_outcomes": true}"#).await?;
    set_rail(&sessions.operator, "last", r#"{"publish_outcomes": true, "max_attempts": 1, "ordered": true}"#)
        .await?;
    set_rail(&sessions.operator, "quiet", "{}").await?;
    each_ending(&sessions, &mut recorder).await?;
    rolled_back(database, &sessions, &mut recorder).await?;
    resolutions(&sessions, &mut recorder).await?;
    without_the_event_lane(database, &sessions, &mut recorder).await?;
    a_random_workload(database, &sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

/// Enqueues one payment and claims it; nothing else is due.
async fn claimed(sessions: &Sessions, name: &str, rail: &str) -> Result<Lease, Failure> {
    enqueue(&sessions.ingest, &Payment::new(name, name, rail)).await?;
    let mut leases = claim(&sessions.executor, 10, "worker").await?;
    leases.retain(|lease| lease.key == format!("key-{name}"));
    leases.pop().ok_or_else(|| Failure {
        tried: format!("claiming {name}"),
        expected: "a lease".into(),
        happened: "none".into(),
    })
}

async fn events(sessions: &Sessions, name: &str) -> Result<String, Failure> {
    Ok(text(&sessions.owner, EVENTS, &[&format!("instruction-{name}")]).await?)
}

async fn each_ending(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for (name, rail, outcome, expected) in [
        ("paid", "telling", Outcome::DISPATCHED, "payment.dispatched"),
        ("refused", "telling", Outcome::REJECTED, "payment.failed"),
        ("unknown", "telling", Outcome::UNKNOWN, "payment.outcome_unknown"),
        ("retried", "telling", Outcome::RETRYABLE, "none"),
        ("exhausted", "last", Outcome::RETRYABLE, "payment.failed"),
        ("ordered", "last", Outcome::DISPATCHED, "payment.dispatched"),
        ("quiet", "quiet", Outcome::DISPATCHED, "none"),
        ("quiet-refused", "quiet", Outcome::REJECTED, "none"),
    ] {
        let lease = claimed(sessions, name, rail).await?;
        complete(&sessions.executor, &lease, outcome).await?;
        let tried = format!("completing a payment of rail {rail} as {} {:?}", outcome.state, outcome.error_code);
        recorder.check_equal(tried, "events", expected.to_owned(), events(sessions, name).await?)?;
    }
    make_due(&sessions.owner).await?;
    let again = claim(&sessions.executor, 10, "worker").await?;
    let recorded = complete_batch(&sessions.executor, &again, Outcome::DISPATCHED).await?;
    recorder.check(
        "completing the second attempt of the payment that was retried",
        "payment.dispatched",
        format!("{} recorded, {}", recorded.len(), events(sessions, "retried").await?),
        events(sessions, "retried").await? == "payment.dispatched",
    )?;
    for (name, by_claim) in [("expired", false), ("taken-over", true)] {
        let lease = claimed(sessions, name, "last").await?;
        expire(&sessions.owner, &lease.outbox_id).await?;
        let ended = if by_claim {
            claim(&sessions.executor, 10, "successor").await?.len()
        } else {
            repair(&sessions.executor, 10).await?.len()
        };
        let late = complete(&sessions.executor, &lease, Outcome::DISPATCHED).await.is_err();
        recorder.check(
            format!("ending the lease of a dead worker at max_attempts (by a claim: {by_claim}), then its late completion"),
            "payment.outcome_unknown, once",
            format!("{}; {ended} returned, late completion refused: {late}", events(sessions, name).await?),
            late && events(sessions, name).await? == "payment.outcome_unknown",
        )?;
    }
    let fields =
        "select string_agg(distinct k, ' ' order by k) from m10_recovery.outbox, jsonb_object_keys(payload) k
                  where aggregate_type = 'payment'";
    recorder.check_equal(
        "reading the fields of all payloads",
        "fields",
        "attempt_no completed_at error_code idempotency_key instruction_id outbox_id participant_id rail_code rail_reference \
         rail_type resolution sequence_id state"
            .to_owned(),
        text(&sessions.owner, fields, &[]).await?,
    )
}

/// The event commits with the ending or not at all.
async fn rolled_back(database: &Database, sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for (name, outcome) in [("undone", Outcome::DISPATCHED), ("undone-refused", Outcome::REJECTED)] {
        let lease = claimed(sessions, name, "telling").await?;
        let other = database.connect_as("symphony_executor").await?;
        other.batch_execute("begin").await?;
        complete(&other, &lease, outcome).await?;
        other.batch_execute("rollback").await?;
        let undone = events(sessions, name).await?;
        complete(&sessions.executor, &lease, outcome).await?;
        let twice = complete(&sessions.executor, &lease, outcome).await.is_err();
        let happened = events(sessions, name).await?;
        recorder.check(
            format!(
                "completing as {} in a transaction that rolls back, then again, then once more",
                outcome.state
            ),
            "no event, then one, then a refusal",
            format!("{undone}, then {happened}, refused: {twice}"),
            undone == "none" && twice && !happened.contains(',') && happened.starts_with("payment."),
        )?;
    }
    Ok(())
}

/// A resolution is published if it changes what the producer was told.
async fn resolutions(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let unknown = "payment.outcome_unknown";
    for (name, outcome, resolved, expected) in [
        ("was-paid", Outcome::UNKNOWN, &["PAID"][..], format!("{unknown}, payment.dispatched PAID")),
        ("not-paid", Outcome::UNKNOWN, &["NOT_PAID"], format!("{unknown}, payment.failed NOT_PAID")),
        (
            "corrected",
            Outcome::UNKNOWN,
            &["NOT_PAID", "PAID"],
            format!("{unknown}, payment.failed NOT_PAID, payment.dispatched PAID"),
        ),
        ("known", Outcome::REJECTED, &["NOT_PAID"], "payment.failed".to_owned()),
        ("known-paid", Outcome::REJECTED, &["PAID"], "payment.failed, payment.dispatched PAID".to_owned()),
        ("skipped", Outcome::REJECTED, &["SKIPPED"], "payment.failed".to_owned()),
    ] {
        let lease = claimed(sessions, name, "telling").await?;
        complete(&sessions.executor, &lease, outcome).await?;
        for resolution in resolved {
            resolve(&sessions.operator, &lease.outbox_id, resolution).await?;
        }
        let tried = format!("resolving a payment that ended with {:?} as {resolved:?}", outcome.error_code);
        recorder.check_equal(tried, "events", expected, events(sessions, name).await?)?;
    }
    let lease = claimed(sessions, "redriven", "telling").await?;
    complete(&sessions.executor, &lease, Outcome::REJECTED).await?;
    redrive(&sessions.operator, &lease.outbox_id).await?;
    let before = events(sessions, "redriven").await?;
    let again = claim(&sessions.executor, 10, "worker").await?;
    complete_batch(&sessions.executor, &again, Outcome::DISPATCHED).await?;
    recorder.check_equal(
        "redriving a failure, and dispatching it",
        "events",
        "payment.failed; payment.failed, payment.dispatched".to_owned(),
        format!("{before}; {}", events(sessions, "redriven").await?),
    )
}

/// Without the event lane the policy is refused, and so is a completion: an ending is not recorded untold.
async fn without_the_event_lane(
    database: &Database,
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let lease = claimed(sessions, "orphan", "telling").await?;
    let superuser = database.connect().await?;
    superuser.batch_execute("begin; drop schema m10_recovery cascade; savepoint dropped").await?;
    for planted in [false, true] {
        if planted {
            // A schema of that name that is not ours.
            superuser
                .batch_execute(
                    "create schema m10_recovery;
                     create function m10_recovery.publish_outbox(text, text, text, jsonb) returns bigint
                       language sql as 'select 1 / 0'; grant usage on schema m10_recovery to public; savepoint dropped",
                )
                .await?;
        }
        let refused = superuser
            .batch_execute(
                "select symphony.set_payment_rail('quiet', '{\"publish_outcomes\": true}', 'operator', 'a proof')",
            )
            .await;
        recorder.check_refused(
            format!("setting publish_outcomes without the event lane (a planted schema: {planted})"),
            "P7005",
            refused,
        )?;
        superuser.batch_execute("rollback to dropped").await?;
        let refused = complete(&superuser, &lease, Outcome::DISPATCHED).await;
        recorder.check_refused(
            format!("completing on a rail that publishes, without the event lane (a planted schema: {planted})"),
            "55000",
            refused,
        )?;
        superuser.batch_execute("rollback to dropped").await?;
    }
    superuser.batch_execute("rollback").await?;
    let leased = "select count(*) from symphony.payment_outbox_pending where outbox_id = $1::text::uuid and lease_token is not null";
    let leased = count(&sessions.owner, leased, &[&lease.outbox_id]).await?;
    complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
    recorder.check(
        "completing it with the event lane",
        "it was still leased, and payment.dispatched",
        format!("leased: {leased}, {}", events(sessions, "orphan").await?),
        leased == 1 && events(sessions, "orphan").await? == "payment.dispatched",
    )
}

/// After any workload the events are exactly the endings and resolutions of the rails that publish.
async fn a_random_workload(
    database: &Database,
    sessions: &Sessions,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let seed = seed();
    workload::run(database, seed).await?;
    let compared = sessions
        .owner
        .query_one(
            "with expected as (
               select a.outbox_id::text,
                      case
                        when a.state = 'DISPATCHED' then 'payment.dispatched'
                        when a.error_code = 'CANCELLED' then 'payment.cancelled'
                        when a.error_code in ('OUTCOME_UNKNOWN', 'LEASE_EXPIRED') then 'payment.outcome_unknown'
                        else 'payment.failed'
                      end as event_type,
                      null as resolution
               from symphony.payment_outbox_attempts a
               join symphony.payment_rails r using (rail_type)
               where r.publish_outcomes and a.state in ('DISPATCHED', 'FAILED')
               union all
               select o.outbox_id::text,
                      case o.resolution when 'PAID' then 'payment.dispatched' else 'payment.failed' end, o.resolution
               from symphony.payment_outbox_operations o
               join symphony.payment_rails r using (rail_type)
               join symphony.payment_outbox_attempts a on a.outbox_id = o.outbox_id and a.state = 'FAILED'
               where r.publish_outcomes
                 and (o.resolution = 'PAID'
                      or o.resolution = 'NOT_PAID' and a.error_code in ('OUTCOME_UNKNOWN', 'LEASE_EXPIRED'))
             ),
             published as (
               select e.payload ->> 'outbox_id', e.event_type, e.payload ->> 'resolution'
               from m10_recovery.outbox e
               where e.aggregate_type = 'payment' and e.aggregate_id = e.payload ->> 'instruction_id'
             )
             select (select count(*) from m10_recovery.outbox),
                    (select count(*) from (table expected except all table published) missing),
                    (select count(*) from (table published except all table expected) extra),
                    (select count(distinct event_type) from published where event_type <> 'payment.cancelled')",
            &[],
        )
        .await?;
    let [published, missing, extra, kinds]: [i64; 4] = std::array::from_fn(|column| compared.get(column));
    recorder.check(
        format!(
            "comparing all events with the ledger and the audit log after a random workload ({})",
            rerun_hint(seed)
        ),
        "events of the three kinds of endings and of cancellations, none missing, none too many",
        format!("{published} events of {kinds} kinds beside cancellations, {missing} missing, {extra} too many"),
        kinds == 3 && missing == 0 && extra == 0,
    )
}
