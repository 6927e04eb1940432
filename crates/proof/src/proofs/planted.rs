//! What a caller plants in front of ours: tables, functions, operators, settings. The functions must not see any of it.

use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::crew::{
    Lease, Order, Outcome, claim, complete, count, enqueue, enqueue_batch, redrive, release, renew, repair,
    resolve, set_rail, text,
};
use super::event::crew as events;
use super::evidence::{Evidence, Failure, Trial, require};
use super::metadata::crew as entries;
use crate::kit::scratch::Database;

/// Functions that ours call without naming their schema, with a poisonous answer.
const FUNCTIONS: [(&str, &str, &str); 25] = [
    ("now()", "timestamptz", "'1999-01-01'"),
    ("clock_timestamp()", "timestamptz", "'1999-01-01'"),
    ("uuidv7()", "uuid", "'00000000-0000-0000-0000-000000000000'"),
    ("gen_random_uuid()", "uuid", "'00000000-0000-0000-0000-000000000000'"),
    ("char_length(text)", "int", "0"),
    ("jsonb_typeof(jsonb)", "text", "'planted'"),
    ("hashtextextended(text, bigint)", "bigint", "1"),
    ("pg_try_advisory_xact_lock_shared(bigint)", "boolean", "true"),
    ("current_setting(text, boolean)", "text", "'planted'"),
    ("check_argument(text, text, int)", "void", "null"),
    ("check_range(text, bigint, bigint, bigint)", "void", "null"),
    ("bump_participant_outbox_seq(text)", "bigint", "4711"),
    ("outbox_resolution(uuid)", "text", "'NOT_PAID'"),
    ("outbox_content_digest(text, text, text, text, jsonb)", "bytea", "'planted'"),
    ("sha256(bytea)", "bytea", "'planted'"),
    ("take_outbox_sequences(text[], int[])", "bigint[]", "'{4711}'"),
    ("free_rail_seats(text, boolean)", "int", "4711"),
    ("next_metadata_version(text, text)", "timestamptz", "'1999-01-01'"),
    ("clean_error_text(text)", "text", "'planted'"),
    ("decode_escapes(text)", "text", "'planted'"),
    ("mask_credentials(text)", "text", "'planted'"),
    ("mask_personal_data(text)", "text", "'planted'"),
    ("one_line(text)", "text", "'planted'"),
    ("make_interval(int, int, int, int, int, int, double precision)", "interval", "'0'"),
    ("wake_sleepers(text)", "void", "null"),
];

/// Operators that ours use, all of them lying.
const OPERATORS: [(&str, &str, &str); 10] = [
    ("=", "text", "false"),
    ("=", "uuid", "false"),
    ("~", "text", "false"),
    ("<=", "timestamptz", "false"),
    (">", "timestamptz", "false"),
    ("<", "bigint", "false"),
    (">=", "int", "false"),
    ("<=", "int", "false"),
    ("=", "jsonb", "true"),
    ("=", "bytea", "true"),
];

/// Settings that anybody may change and that change what SQL means.
const SETTINGS: &str = "set transform_null_equals = on; set array_nulls = off; set timezone = 'Asia/Kathmandu';
    set datestyle = 'German'; set intervalstyle = 'sql_standard'; set extra_float_digits = -15; set enable_indexscan = off;
    set symphony.traceparent = 'planted'; set standard_conforming_strings = off; set backslash_quote = on";

/// Proof 21.
pub(super) async fn objects_are_ignored(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    let superuser = database.connect().await?;
    let roles = ["symphony_ingest", "symphony_executor", "symphony_operator"];
    let caller = database.connect_as_login(&roles).await?;
    let user = text(&caller, "select current_user::text", &[]).await?;
    superuser.batch_execute(&format!("create schema planted authorization {user}")).await?;
    let tables = plant(&superuser, &caller).await?;

    // The traps work: who follows the caller's path falls into them.
    caller.execute("select now(), gen_random_uuid()", &[]).await?;
    let sprung = count(&caller, "select pg_catalog.count(*) from planted.sprung", &[]).await?;
    trial.holds(
        format!(
            "planting {tables} temp tables named like ours, {} functions and {} operators, first in the caller's search_path",
            FUNCTIONS.len(),
            OPERATORS.len()
        ),
        "the caller's own now() and gen_random_uuid() spring the trap",
        format!("{sprung} sprung"),
        sprung == 2,
    )?;
    caller.execute("truncate planted.sprung", &[]).await?;

    a_whole_life(&caller, &superuser, &mut trial).await?;
    an_event(&caller, &superuser, &mut trial).await?;
    metadata(&caller, &superuser, &mut trial).await?;
    let sprung = count(&superuser, "select count(*) from planted.sprung", &[]).await?;
    trial.same("counting what the functions called of it", "traps sprung", 0, sprung)?;
    let mut rows = 0;
    for row in superuser.query("select relname::text from pg_class where relnamespace = any (array['symphony', 'm10_recovery']::regnamespace[]) and relkind in ('r', 'v')", &[]).await? {
        let table: String = row.get(0);
        rows += count(&caller, &format!("select pg_catalog.count(*) from pg_temp.{table}"), &[]).await?;
    }
    trial.same("counting what the functions wrote into the temp tables", "rows", 0, rows)?;
    Ok(trial.evidence())
}

/// Plants everything, open to whoever steps on it. Returns how many tables.
async fn plant(superuser: &Client, caller: &Client) -> Result<usize, Failure> {
    caller
        .batch_execute(
            "create table planted.sprung (what text); grant usage on schema planted to public; grant all on planted.sprung to public",
        )
        .await?;
    let relations = "select c.relname::text,
                            string_agg(format('%I %s', a.attname,
                              case when t.typnamespace = 'symphony'::regnamespace then 'text' else format_type(a.atttypid, a.atttypmod) end),
                              ', ' order by a.attnum)
                     from pg_class c
                     join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                     join pg_type t on t.oid = a.atttypid
                     where c.relnamespace = any (array['symphony', 'm10_recovery']::regnamespace[]) and c.relkind in ('r', 'v')
                     group by c.relname";
    let relations = superuser.query(relations, &[]).await?;
    for row in &relations {
        let (name, columns): (String, String) = (row.get(0), row.get(1));
        caller
            .batch_execute(&format!("create temp table {name} ({columns}); grant all on {name} to public"))
            .await?;
    }
    for (signature, returns, answer) in FUNCTIONS {
        for schema in ["planted", "pg_temp"] {
            let create = format!(
                "create function {schema}.{signature} returns {returns} language plpgsql as $trap$
                 begin insert into planted.sprung values ('{signature}'); return {}; end $trap$;",
                if returns == "void" { "" } else { answer }
            );
            caller.batch_execute(&create).await?;
        }
    }
    for (operator, kind, answer) in OPERATORS {
        let name = format!(
            "planted.lie_{}",
            OPERATORS.iter().position(|o| *o == (operator, kind, answer)).unwrap_or_default()
        );
        let create = format!(
            "create function {name}({kind}, {kind}) returns boolean language plpgsql as $trap$
             begin insert into planted.sprung values ('{operator}'); return {answer}; end $trap$;
             create operator planted.{operator} (leftarg = {kind}, rightarg = {kind}, function = {name})"
        );
        caller.batch_execute(&create).await?;
    }
    // Types of our names, and a cast that a careless call would take.
    caller
        .batch_execute(
            "create type planted.outbox_attempt_state as enum ('DISPATCHED', 'FAILED', 'PLANTED');
             create function planted.cast_state(planted.outbox_attempt_state) returns text language plpgsql as $trap$
             begin insert into planted.sprung values ('cast'); return 'FAILED'; end $trap$;
             create cast (planted.outbox_attempt_state as text) with function planted.cast_state(planted.outbox_attempt_state) as implicit;
             set search_path = planted, pg_temp, symphony, public, pg_catalog",
        )
        .await?;
    caller.batch_execute(SETTINGS).await?;
    Ok(relations.len())
}

/// Every move there is, in that session; what the tables say afterwards is what it should be.
async fn a_whole_life(caller: &Client, superuser: &Client, trial: &mut Trial) -> Result<(), Failure> {
    set_rail(caller, "bank", r#"{"max_attempts": 3}"#).await?;
    let first = enqueue(caller, &Order::new("Saved 1", "Susan", "bank")).await?;
    let batch =
        enqueue_batch(caller, &[Order::new("2", "alice", "bank"), Order::new("3", "alice", "bank")]).await?;
    let again = enqueue(caller, &Order::new("2", "alice", "bank")).await?;
    let mut other = Order::new("2", "alice", "bank");
    other.payload = r#"{"amount": "1"}"#.into();
    trial.refused(
        "reusing a key, with an operator = for jsonb that calls everything equal",
        "P7004",
        enqueue(caller, &other).await,
    )?;
    trial.holds(
        "enqueuing in that session",
        "numbers 1, 1 and 2, and a replay",
        format!(
            "numbers {}, {} and {}, replayed: {}",
            first.sequence_id, batch[0].sequence_id, batch[1].sequence_id, again.replayed
        ),
        (first.sequence_id, batch[0].sequence_id, batch[1].sequence_id) == (1, 1, 2) && again.replayed,
    )?;
    let leases = claim(caller, 10, "worker").await?;
    let tokens: std::collections::BTreeSet<_> = leases.iter().map(|lease| &lease.token).collect();
    trial.holds(
        "claiming in that session",
        "3 rows under 3 random tokens",
        format!("{} rows under {} tokens", leases.len(), tokens.len()),
        leases.len() == 3 && tokens.len() == 3 && leases.iter().all(|lease| !lease.token.starts_with("00000000")),
    )?;
    let stolen = Lease { token: "00000000-0000-0000-0000-000000000000".into(), ..leases[0].clone() };
    trial.refused(
        "completing with the planted token",
        "P7002",
        complete(caller, &stolen, Outcome::DISPATCHED).await,
    )?;
    require(
        || "renewing".into(),
        "[true, true, true]".to_owned(),
        format!("{:?}", renew(caller, &leases).await?),
    )?;
    require(
        || "giving one back".into(),
        "[true]".to_owned(),
        format!("{:?}", release(caller, &leases[2..]).await?),
    )?;
    complete(caller, &leases[0], Outcome::DISPATCHED).await?;
    complete(caller, &leases[1], Outcome::UNKNOWN).await?;
    let refused = redrive(caller, &leases[1].outbox_id).await;
    trial.refused(
        "redriving an unknown outcome, with an empty temp table unknown_outcome_codes",
        "P7003",
        refused,
    )?;
    resolve(caller, &leases[1].outbox_id, "NOT_PAID").await?;
    redrive(caller, &leases[1].outbox_id).await?;
    let lease = claim(caller, 1, "worker").await?.remove(0);
    require(|| "expiring".into(), true, expire(superuser, &lease.outbox_id).await?)?;
    require(|| "repairing".into(), 1, repair(caller, 10).await?.len())?;
    make_due(superuser).await?;
    caller.execute("select symphony.pause_payment_rail('bank', 'operator', 'a proof')", &[]).await?;
    require(|| "claiming from a paused rail".into(), 0, claim(caller, 10, "worker").await?.len())?;
    caller.execute("select symphony.resume_payment_rail('bank', 'operator', 'a proof')", &[]).await?;
    for lease in claim(caller, 10, "worker").await? {
        complete(caller, &lease, Outcome::DISPATCHED).await?;
    }
    let ledger = "select string_agg(format('%s %s %s', participant_id, sequence_id, state), ', ' order by participant_id, sequence_id, attempt_no)
                  from symphony.payment_outbox_attempts
                  where created_at > now() - interval '1 hour' and attempt_id::text > '01'";
    let ledger = text(superuser, ledger, &[]).await?;
    trial.same(
        "every move of the contract in that session, and then reading the real ledger",
        "rows",
        "Susan 1 DISPATCHED, alice 1 FAILED, alice 2 ZOMBIE_REQUEUE, alice 2 DISPATCHED, alice 3 DISPATCHED"
            .to_owned(),
        ledger,
    )
}

/// Every move of the event lane, in that session.
async fn an_event(caller: &Client, superuser: &Client, trial: &mut Trial) -> Result<(), Failure> {
    let published = events::publish(caller, "order", "1").await?;
    let held = events::claim(caller, "A", 10).await?;
    require(|| "claiming an event".into(), format!("{:?}", [published]), format!("{held:?}"))?;
    trial.refused(
        "completing another's event, with an operator = for text that calls nothing equal",
        "P7002",
        events::complete(caller, published, "B", true, None).await,
    )?;
    events::complete(caller, published, "A", false, Some("mail to ann@example.org bounced")).await?;
    require(|| "claiming within the second".into(), 0, events::claim(caller, "B", 10).await?.len())?;
    events::make_due(superuser).await?;
    require(|| "claiming again".into(), 1, events::claim(caller, "B", 10).await?.len())?;
    events::complete(caller, published, "B", true, None).await?;
    let left =
        "select concat_ws(' ', o.retry_count, o.claimed_by, e.error, o.processed_at > now() - interval '1 hour')
                from m10_recovery.outbox o join m10_recovery.outbox_errors e on e.event_id = o.id";
    let left = text(superuser, left, &[]).await?;
    trial.same(
        "every move of the event lane in that session, and then reading the real tables",
        "event and error",
        "1 B mail to [e-mail] bounced t".to_owned(),
        left,
    )
}

/// Every move of the metadata lane, in that session.
async fn metadata(caller: &Client, superuser: &Client, trial: &mut Trial) -> Result<(), Failure> {
    let id = entries::create(caller, "Susan", 2).await?;
    let held = entries::claim(caller, "A", 0).await?.remove(0);
    require(|| "claiming an entry".into(), id.clone(), held.id)?;
    let planted = "00000000-0000-0000-0000-000000000000";
    trial.refused(
        "publishing an entry with the planted token",
        "P7002",
        entries::mark(caller, "published", &id, Some(planted)).await,
    )?;
    entries::mark(caller, "failed", &id, Some(&held.token)).await?;
    entries::make_due(superuser).await?;
    require(|| "claiming again".into(), 1, entries::claim(caller, "B", 10).await?.len())?;
    entries::age_claim(superuser, &id, "1 hour").await?;
    require(|| "repairing".into(), 1, entries::repair(caller).await?.len())?;
    let left = "select concat_ws(' ', entity_id, status, retry_count, claimed_by, last_error, created_at > now() - interval '1 hour')
                from symphony.metadata_outbox";
    trial.same(
        "every move of the metadata lane in that session, and then reading the real table",
        "entry",
        "Susan DLQ 2 B LEASE_EXPIRED t".to_owned(),
        text(superuser, left, &[]).await?,
    )
}
