//! The contract in the catalogue, and that verify names every drift from it.

use symphony_db::schema::{Lane, verify};

use super::super::evidence::{Failure, Recorder, require};
use super::super::sessions::text;
use symphony_testkit::test_database::Database;

/// Name, arguments and result.
const FUNCTIONS: [(&str, &str, &str); 3] = [
    (
        "claim_outbox_events",
        "p_processor_id text, p_batch_size integer DEFAULT 10",
        "TABLE(id bigint, aggregate_type text, aggregate_id text, event_type text, payload jsonb, retry_count integer)",
    ),
    (
        "complete_outbox_event",
        "p_event_id bigint, p_processor_id text, p_success boolean, p_error text DEFAULT NULL::text",
        "void",
    ),
    ("publish_outbox", "p_aggregate_type text, p_aggregate_id text, p_event_type text, p_payload jsonb", "bigint"),
];

const COLUMNS: &str = "id bigint, aggregate_type text, aggregate_id text, event_type text, payload jsonb, \
    created_at timestamp with time zone, processed_at timestamp with time zone, retry_count integer, \
    process_after timestamp with time zone, claimed_at timestamp with time zone, claimed_by text";

pub(super) async fn is_in_the_catalogue(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let owner = database.connect_as("symphony_control").await?;
    let found = "select string_agg(format('%s(%s) returns %s', proname, pg_get_function_arguments(oid), pg_get_function_result(oid)),
                                   '; ' order by proname)
                 from pg_proc where pronamespace = 'm10_recovery'::regnamespace";
    let expected: Vec<_> =
        FUNCTIONS.iter().map(|(name, takes, gives)| format!("{name}({takes}) returns {gives}")).collect();
    let found = text(&owner, found, &[]).await?;
    recorder.check_equal(
        "reading every function of schema m10_recovery from the catalogue",
        "exactly these, one signature each",
        expected.join("; "),
        found,
    )?;
    let found = "select string_agg(format('%s %s', attname, format_type(atttypid, atttypmod)), ', ' order by attnum)
                 from pg_attribute where attrelid = 'm10_recovery.outbox'::regclass and attnum > 0 and not attisdropped";
    let found = text(&owner, found, &[]).await?;
    recorder.check_equal(
        "reading the columns of m10_recovery.outbox",
        "exactly these",
        COLUMNS.to_owned(),
        found,
    )?;
    let key = "select pg_get_constraintdef(oid) from pg_constraint
               where conrelid = 'm10_recovery.outbox'::regclass and contype = 'p'";
    recorder.check_equal(
        "reading its primary key",
        "it",
        "PRIMARY KEY (id)".to_owned(),
        text(&owner, key, &[]).await?,
    )?;
    // By name and by default, as a caller of the contract would write it.
    owner
        .batch_execute(
            "begin;
             select m10_recovery.publish_outbox(p_payload => '1', p_event_type => 'c', p_aggregate_id => 'b', p_aggregate_type => 'a');
             select m10_recovery.complete_outbox_event(p_success => true, p_processor_id => 'p', p_event_id => c.id)
             from m10_recovery.claim_outbox_events(p_processor_id => 'p') c;
             rollback",
        )
        .await?;
    Ok(())
}

/// A change that makes the catalogue drift, its undo, and the difference that verify must report.
const DRIFTS: [(&str, &str, &str); 9] = [
    (
        "create function m10_recovery.claim_outbox_events(p_batch_size integer, p_processor_id text) returns void language sql as ''",
        "drop function m10_recovery.claim_outbox_events(integer, text)",
        "unexpected: function m10_recovery.claim_outbox_events(p_batch_size integer, p_processor_id text)",
    ),
    (
        "alter function m10_recovery.publish_outbox rename to publish_event",
        "alter function m10_recovery.publish_event rename to publish_outbox",
        "missing: function m10_recovery.publish_outbox(",
    ),
    (
        "create function m10_recovery.retry_outbox_event(bigint) returns void language sql as ''",
        "drop function m10_recovery.retry_outbox_event",
        "unexpected: function m10_recovery.retry_outbox_event(bigint)",
    ),
    (
        "alter table m10_recovery.outbox add column next_retry_at timestamptz",
        "alter table m10_recovery.outbox drop column next_retry_at",
        "unexpected: column m10_recovery.outbox.next_retry_at",
    ),
    (
        "alter table m10_recovery.outbox rename column process_after to next_retry_at",
        "alter table m10_recovery.outbox rename column next_retry_at to process_after",
        "missing: column m10_recovery.outbox.process_after",
    ),
    (
        "alter table m10_recovery.outbox alter column claimed_by type varchar(50)",
        "alter table m10_recovery.outbox alter column claimed_by type text",
        "changed: column m10_recovery.outbox.claimed_by: definition is character varying(50), should be text",
    ),
    (
        "alter table m10_recovery.outbox alter column retry_count set default 1",
        "alter table m10_recovery.outbox alter column retry_count set default 0",
        "changed: column m10_recovery.outbox.retry_count: definition is integer not null default 1",
    ),
    (
        "alter table m10_recovery.outbox drop constraint outbox_pkey",
        "alter table m10_recovery.outbox add constraint outbox_pkey primary key (id)",
        "missing: constraint outbox_pkey on m10_recovery.outbox",
    ),
    (
        "grant execute on function m10_recovery.publish_outbox to public",
        "revoke execute on function m10_recovery.publish_outbox from public",
        "unexpected: right of PUBLIC to EXECUTE on function m10_recovery.publish_outbox(",
    ),
];

/// A function replaced as a whole: with another body, default, argument name or result.
const OTHERS: [(&str, &str, &str, &str); 5] = [
    ("claim_outbox_events", "p_processor_id text, p_batch_size integer DEFAULT 100", "the same", "arguments is"),
    ("claim_outbox_events", "p_processor_id text, p_batch_size integer", "the same", "arguments is"),
    ("claim_outbox_events", "p_worker text, p_batch_size integer DEFAULT 10", "the same", "missing: function"),
    ("complete_outbox_event", "the same", "boolean", "result is boolean, should be void"),
    (
        "publish_outbox",
        "p_aggregate_type text, p_aggregate_id text, p_event_type text, p_payload json",
        "the same",
        "missing: function",
    ),
];

pub(super) async fn drift_is_named(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let superuser = database.connect().await?;
    named(database, "").await?;
    for (change, undo, expected) in DRIFTS {
        superuser.batch_execute(change).await?;
        let reported = named(database, expected).await?;
        recorder.check(change, format!("verify reports: {expected}"), reported, true)?;
        superuser.batch_execute(undo).await?;
        named(database, "").await?;
    }
    for (name, takes, gives, expected) in OTHERS {
        let (_, arguments, result) =
            FUNCTIONS.iter().find(|function| function.0 == name).copied().unwrap_or_default();
        let takes = if takes == "the same" { arguments } else { takes };
        let gives = if gives == "the same" { result } else { gives };
        let aside = format!("alter function m10_recovery.{name} rename to aside");
        let change = format!(
            "create function m10_recovery.{name}({takes}) returns {gives} language plpgsql as 'begin end'"
        );
        superuser.batch_execute(&format!("{aside}; {change}")).await?;
        let reported = named(database, expected).await?;
        recorder.check(change, format!("verify reports: {expected} …"), reported, true)?;
        superuser
            .batch_execute(&format!(
                "drop function m10_recovery.{name}; alter function m10_recovery.aside rename to {name}"
            ))
            .await?;
        named(database, "").await?;
    }
    Ok(())
}

/// Verifies the lane. Expects no difference if `expected` is empty, else one that contains it.
async fn named(database: &Database, expected: &str) -> Result<String, Failure> {
    let mut client = database.connect().await?;
    let differences = verify(&mut client, &[Lane::Event]).await.map_err(|error| Failure {
        tried: "verifying the event lane".into(),
        expected: "an answer".into(),
        happened: error.to_string(),
    })?;
    let reported: Vec<_> = differences.iter().map(ToString::to_string).collect();
    if expected.is_empty() {
        require(|| "verifying the lane as it was installed".into(), String::new(), reported.join("; "))?;
        return Ok(String::new());
    }
    reported.iter().find(|difference| difference.contains(expected)).cloned().ok_or_else(|| Failure {
        tried: "verifying a lane that has drifted".into(),
        expected: expected.into(),
        happened: if reported.is_empty() { "no difference".into() } else { reported.join("; ") },
    })
}
