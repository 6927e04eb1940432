//! The contract as the catalogue has it, and that every way to drift from it is found and named.

use symphony_outbox::schema::{Lane, verify};

use super::super::crew::text;
use super::super::evidence::{Failure, Trial, require};
use crate::kit::scratch::Database;

/// Name, arguments and result, to the letter.
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

pub(super) async fn is_in_the_catalogue(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let owner = database.connect_as("symphony_control").await?;
    let found = "select string_agg(format('%s(%s) returns %s', proname, pg_get_function_arguments(oid), pg_get_function_result(oid)),
                                   '; ' order by proname)
                 from pg_proc where pronamespace = 'm10_recovery'::regnamespace";
    let expected: Vec<_> =
        FUNCTIONS.iter().map(|(name, takes, gives)| format!("{name}({takes}) returns {gives}")).collect();
    let found = text(&owner, found, &[]).await?;
    trial.same(
        "reading every function of schema m10_recovery from the catalogue",
        "exactly these, one signature each",
        expected.join("; "),
        found,
    )?;
    let found = "select string_agg(format('%s %s', attname, format_type(atttypid, atttypmod)), ', ' order by attnum)
                 from pg_attribute where attrelid = 'm10_recovery.outbox'::regclass and attnum > 0 and not attisdropped";
    let found = text(&owner, found, &[]).await?;
    trial.same("reading the columns of m10_recovery.outbox", "exactly these", COLUMNS.to_owned(), found)?;
    let key = "select pg_get_constraintdef(oid) from pg_constraint
               where conrelid = 'm10_recovery.outbox'::regclass and contype = 'p'";
    trial.same("reading its primary key", "it", "PRIMARY KEY (id)".to_owned(), text(&owner, key, &[]).await?)?;
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

/// A way to drift, the way back, and what must be said about it.
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

/// A function is replaced as a whole: in other words, with another default, other names, another result.
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

pub(super) async fn drift_is_named(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let superuser = database.connect().await?;
    named(database, "").await?;
    for (plant, undo, words) in DRIFTS {
        superuser.batch_execute(plant).await?;
        let said = named(database, words).await?;
        trial.holds(plant, format!("verify says: {words}"), said, true)?;
        superuser.batch_execute(undo).await?;
        named(database, "").await?;
    }
    for (name, takes, gives, words) in OTHERS {
        let (_, arguments, result) =
            FUNCTIONS.iter().find(|function| function.0 == name).copied().unwrap_or_default();
        let takes = if takes == "the same" { arguments } else { takes };
        let gives = if gives == "the same" { result } else { gives };
        let aside = format!("alter function m10_recovery.{name} rename to aside");
        let plant = format!(
            "create function m10_recovery.{name}({takes}) returns {gives} language plpgsql as 'begin end'"
        );
        superuser.batch_execute(&format!("{aside}; {plant}")).await?;
        let said = named(database, words).await?;
        trial.holds(plant, format!("verify says: {words} …"), said, true)?;
        superuser
            .batch_execute(&format!(
                "drop function m10_recovery.{name}; alter function m10_recovery.aside rename to {name}"
            ))
            .await?;
        named(database, "").await?;
    }
    Ok(())
}

/// Verifies the lane: without words there must be no difference, with words one that contains them.
async fn named(database: &Database, words: &str) -> Result<String, Failure> {
    let mut client = database.connect().await?;
    let differences = verify(&mut client, &[Lane::Event]).await.map_err(|error| Failure {
        tried: "verifying the event lane".into(),
        expected: "an answer".into(),
        happened: error.to_string(),
    })?;
    let said: Vec<_> = differences.iter().map(ToString::to_string).collect();
    if words.is_empty() {
        require(|| "verifying the lane as it was installed".into(), String::new(), said.join("; "))?;
        return Ok(String::new());
    }
    said.iter().find(|said| said.contains(words)).cloned().ok_or_else(|| Failure {
        tried: "verifying a lane that has drifted".into(),
        expected: words.into(),
        happened: if said.is_empty() { "nothing was said".into() } else { said.join("; ") },
    })
}
