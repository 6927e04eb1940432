//! Orphaned outcomes: what a worker knows about a payment that the database has lost is recorded once, and stays.

use tokio_postgres::{Client, Error};

use super::evidence::{Evidence, Failure, Recorder};
use super::ledger::{EVERY_ROLE, refused_to_every_role};
use super::sessions::{
    Lease, Outcome, Payment, Sessions, claim, complete, count, enqueue, redrive, resolve, set_rail, text,
};
use symphony_testkit::test_database::Database;

const UNKNOWN: &str = "UNKNOWN_OUTBOX";
const REPLAYED: &str = "REPLAYED_FIRST_ATTEMPT";

/// Proof 39: `an_outcome_of_an_outbox_that_the_database_does_not_know_is_recorded_once_and_kept`.
pub(super) async fn are_kept(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    for rail in ["bank", "other"] {
        set_rail(&sessions.operator, rail, "{}").await?;
    }
    let superuser = database.connect().await?;
    let lost = lost_outcomes(&sessions, &superuser, &mut recorder).await?;
    known_outboxes(&sessions, &mut recorder).await?;
    replayed_first_attempts(&sessions, &mut recorder).await?;
    refusals(&sessions, &lost, &mut recorder).await?;

    let statements = [
        "update symphony.payment_orphans set rail_reference = 'changed'",
        "delete from symphony.payment_orphans",
        "truncate symphony.payment_orphans",
        "update symphony.orphaned_outcomes set rail_reference = 'changed'",
        "delete from symphony.orphaned_outcomes",
    ];
    let tried = refused_to_every_role(database, &statements).await?;
    recorder.check(
        format!("{} ways to change orphaned outcomes, also through their view", statements.len()),
        "P0001 for the owner and a superuser, 42501 for the others",
        format!("{tried} of {tried} were refused"),
        tried == statements.len() * EVERY_ROLE.len() * 2,
    )?;
    for role in
        ["symphony_ingest", "symphony_executor", "symphony_operator", "symphony_readonly", "symphony_auditor"]
    {
        let insert = "insert into symphony.payment_orphans select * from symphony.payment_orphans";
        let refused = database.connect_as(role).await?.batch_execute(insert).await;
        recorder.check_refused(format!("inserting an orphan as {role}"), "42501", refused)?;
    }
    Ok(recorder.finish())
}

/// What a worker reports about a lease.
async fn report(executor: &Client, kind: &str, lease: &Lease) -> Result<bool, Error> {
    let call = "select symphony.record_payment_orphan(
                  $1, $2, $3::text::uuid, $4::text::uuid, 'DISPATCHED', p_rail_reference => 'bank-1',
                  p_error_message => 'paid to DE89370400440532013000', p_participant_id => $5, p_idempotency_key => nullif($6, ''),
                  p_rail_type => $7, p_endpoint => 'bank#k', p_epoch => 1)";
    let row = executor
        .query_one(
            call,
            &[&kind, &lease.worker, &lease.outbox_id, &lease.token, &lease.participant, &lease.key, &lease.rail],
        )
        .await?;
    row.try_get(0)
}

/// Loses the enqueue of a payment that is leased, as a failover to a standby that had not received it.
async fn lose(superuser: &Client, lease: &Lease) -> Result<(), Error> {
    let lose = format!(
        "alter table symphony.payment_outbox_pending disable trigger pending_goes_when_it_has_ended;
         alter table symphony.payment_outbox_keys disable trigger keys_are_kept;
         delete from symphony.payment_outbox_pending where outbox_id = '{0}';
         delete from symphony.payment_outbox_keys where outbox_id = '{0}';
         alter table symphony.payment_outbox_pending enable always trigger pending_goes_when_it_has_ended;
         alter table symphony.payment_outbox_keys enable always trigger keys_are_kept",
        lease.outbox_id
    );
    superuser.batch_execute(&lose).await
}

async fn lost_outcomes(
    sessions: &Sessions,
    superuser: &Client,
    recorder: &mut Recorder,
) -> Result<Lease, Failure> {
    enqueue(&sessions.ingest, &Payment::new("lost", "alice", "bank")).await?;
    let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
    lose(superuser, &lease).await?;
    let refused = complete(&sessions.executor, &lease, Outcome::DISPATCHED).await;
    recorder.check_refused("completing a payment whose enqueue was lost", "P7002", refused)?;
    for (tried, expected) in [("reporting its outcome", true), ("reporting it again", false)] {
        let recorded = report(&sessions.executor, UNKNOWN, &lease).await?;
        recorder.check_equal(tried, "recorded", expected, recorded)?;
    }
    let kept = "select concat_ws(', ', kind, outbox_id, idempotency_key, state, rail_reference, endpoint, epoch, worker_id)
                from symphony.orphaned_outcomes";
    recorder.check_equal(
        "reading it as an operator",
        "the orphan",
        format!("UNKNOWN_OUTBOX, {}, key-lost, DISPATCHED, bank-1, bank#k, 1, worker", lease.outbox_id),
        text(&sessions.operator, kept, &[]).await?,
    )?;
    let personal = "select count(*) from symphony.orphaned_outcomes where error_message like '%DE89%'";
    let personal = count(&sessions.operator, personal, &[]).await?;
    recorder.check_equal("searching its message for the account number", "rows", 0, personal)?;
    for (tried, rail, period, expected) in [
        ("no reconciliation", "", "", 1),
        ("one of another rail", "other", "now() - interval '1 day', now() + interval '1 day'", 1),
        ("one of the day before", "bank", "now() - interval '2 days', now() - interval '1 day'", 1),
        ("one that begins afterwards", "bank", "clock_timestamp(), now() + interval '1 day'", 1),
        ("one of its time", "bank", "now() - interval '1 day', clock_timestamp()", 0),
    ] {
        if !rail.is_empty() {
            let reconcile = format!(
                "select from symphony.reconcile_bank_export('{rail}', {period}, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', 'ana', 'a proof')"
            );
            sessions.operator.query(&reconcile, &[]).await?;
        }
        let open = count(&sessions.executor, "select symphony.count_open_orphans()", &[]).await?;
        recorder.check_equal(format!("counting the open orphans after {tried}"), "orphans", expected, open)?;
        let shown = "select count(*) from symphony.orphaned_outcomes where is_open";
        let shown = count(&sessions.operator, shown, &[]).await?;
        recorder.check_equal(format!("listing them after {tried}"), "orphans", expected, shown)?;
    }
    Ok(lease)
}

/// A lease that was only lost is no orphan, in whatever state its payment is.
async fn known_outboxes(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for name in ["pending", "dispatched", "failed", "retried"] {
        enqueue(&sessions.ingest, &Payment::new(name, "alice", "bank")).await?;
    }
    let leases = claim(&sessions.executor, 10, "worker").await?;
    for lease in &leases {
        let outcome = match lease.key.as_str() {
            "key-dispatched" => Outcome::DISPATCHED,
            "key-failed" => Outcome::REJECTED,
            "key-retried" => Outcome::RETRY_NOW,
            _ => continue,
        };
        complete(&sessions.executor, lease, outcome).await?;
    }
    for lease in &leases {
        for key in [lease.key.as_str(), ""] {
            let reported = Lease { key: key.to_owned(), ..lease.clone() };
            let recorded = report(&sessions.executor, UNKNOWN, &reported).await?;
            let tried = format!("reporting {} as unknown, with the key {key:?}", lease.key);
            recorder.check_equal(tried, "recorded", false, recorded)?;
        }
    }
    // Its rows are in an archive.
    let archived = "insert into symphony.payment_ledger_archives
                      (archive_id, archive_name, partition_name, partition_oid, to_id, row_count, content_digest, manifest_digest,
                       location, actor, reason)
                    values (gen_random_uuid(), 'a', 'p', 0, '00000000-0000-7000-8000-000000000000', 0, sha256('a'), sha256('a'), '/a',
                            'ana', 'a proof')";
    sessions.owner.batch_execute(archived).await?;
    let mut old = leases[0].clone();
    old.outbox_id = "00000000-0000-1000-8000-000000000000".to_owned();
    let recorded = report(&sessions.executor, UNKNOWN, &old).await?;
    recorder.check_equal("reporting an outbox of an archived time", "recorded", false, recorded)?;
    Ok(())
}

/// A replay of a first attempt is evidence only of a payment that was no redrive and has no earlier attempt.
async fn replayed_first_attempts(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for (name, expected) in [("first", true), ("second", false), ("redriven", false)] {
        let enqueued = enqueue(&sessions.ingest, &Payment::new(name, "bob", "bank")).await?;
        let claimed = async || {
            let leases = claim(&sessions.executor, 10, "worker").await?;
            let found = leases.into_iter().find(|lease| lease.key == format!("key-{name}"));
            found.ok_or_else(|| Failure {
                tried: format!("claiming {name}"),
                expected: "it is claimed".into(),
                happened: "it is not".into(),
            })
        };
        let mut lease = claimed().await?;
        if name == "second" {
            complete(&sessions.executor, &lease, Outcome::RETRY_NOW).await?;
            lease = claimed().await?;
        } else if name == "redriven" {
            complete(&sessions.executor, &lease, Outcome::UNKNOWN).await?;
            resolve(&sessions.operator, &enqueued.outbox_id, "NOT_PAID").await?;
            redrive(&sessions.operator, &enqueued.outbox_id).await?;
            lease = claimed().await?;
        }
        let early = report(&sessions.executor, REPLAYED, &lease).await?;
        recorder.check_equal(format!("reporting a replay of {name} before its end"), "recorded", false, early)?;
        complete(&sessions.executor, &lease, Outcome::DISPATCHED).await?;
        let recorded = report(&sessions.executor, REPLAYED, &lease).await?;
        recorder.check_equal(format!("reporting a replay of {name}"), "recorded", expected, recorded)?;
    }
    Ok(())
}

async fn refusals(sessions: &Sessions, lost: &Lease, recorder: &mut Recorder) -> Result<(), Failure> {
    for (what, sqlstate, arguments) in [
        ("an unknown kind", "P7005", "'OTHER', 'worker', gen_random_uuid(), gen_random_uuid(), 'DISPATCHED'"),
        ("no outbox", "P7005", "'UNKNOWN_OUTBOX', 'worker', null, gen_random_uuid(), 'DISPATCHED'"),
        (
            "an expired lease",
            "P7003",
            "'UNKNOWN_OUTBOX', 'worker', gen_random_uuid(), gen_random_uuid(), 'ZOMBIE_REQUEUE'",
        ),
        ("no worker", "P7005", "'UNKNOWN_OUTBOX', ' ', gen_random_uuid(), gen_random_uuid(), 'DISPATCHED'"),
    ] {
        let call = format!("select symphony.record_payment_orphan({arguments})");
        let refused = sessions.executor.execute(&call, &[]).await;
        recorder.check_refused(format!("reporting an outcome with {what}"), sqlstate, refused)?;
    }
    let refused = report(&sessions.operator, UNKNOWN, lost).await;
    recorder.check_refused("reporting an outcome as an operator", "42501", refused)?;
    let token = "select lease_token from symphony.payment_orphans";
    let refused = sessions.operator.execute(token, &[]).await;
    recorder.check_refused("reading the lease token of an orphan as an operator", "42501", refused)?;
    Ok(())
}
