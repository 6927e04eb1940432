//! Tables, functions, operators and settings that a caller plants ahead of ours in the search_path. SECURITY DEFINER
//! functions must ignore them.

use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::event::calls as events;
use super::evidence::{Evidence, Failure, Recorder, require};
use super::metadata::calls as entries;
use super::sessions::{
    Lease, Outcome, Payment, claim, complete, count, enqueue, enqueue_batch, redrive, release, renew, repair,
    resolve, set_rail, text,
};
use symphony_testkit::test_database::Database;

/// Functions that ours call without a schema, with a wrong result.
const FUNCTIONS: [(&str, &str, &str); 28] = [
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
    ("bump_participant_outbox_seq(text, bigint)", "bigint", "4711"),
    ("number_floor()", "bigint", "4711"),
    ("number_epoch()", "bigint", "4711"),
    ("ensure_epoch(text)", "void", "null"),
    ("outbox_resolution(uuid)", "text", "'NOT_PAID'"),
    ("outbox_content_digest(text, text, text, text, jsonb)", "bytea", "'planted'"),
    ("sha256(bytea)", "bytea", "'planted'"),
    ("allocate_outbox_sequences(text[], int[])", "bigint[]", "'{4711}'"),
    ("rail_claim_capacity(text, boolean)", "int", "4711"),
    ("next_metadata_version(text, text)", "timestamptz", "'1999-01-01'"),
    ("clean_error_text(text)", "text", "'planted'"),
    ("decode_escapes(text)", "text", "'planted'"),
    ("mask_credentials(text)", "text", "'planted'"),
    ("mask_personal_data(text)", "text", "'planted'"),
    ("normalize_error_text(text)", "text", "'planted'"),
    ("make_interval(int, int, int, int, int, int, double precision)", "interval", "'0'"),
    ("notify_idle_relayers(text)", "void", "null"),
];

/// Operators that ours use, with a wrong result.
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

/// Settings that any role may change and that change the meaning of SQL.
const SETTINGS: &str = "set transform_null_equals = on; set array_nulls = off; set timezone = 'Asia/Kathmandu';
    set datestyle = 'German'; set intervalstyle = 'sql_standard'; set extra_float_digits = -15; set enable_indexscan = off;
    set symphony.traceparent = 'planted'; set standard_conforming_strings = off; set backslash_quote = on";

/// Proof 21: `objects_planted_by_a_caller_do_not_change_what_a_function_does`.
pub(super) async fn is_ignored(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let superuser = database.connect().await?;
    let roles = ["symphony_ingest", "symphony_executor", "symphony_operator"];
    let caller = database.connect_as_login(&roles).await?;
    let user = text(&caller, "select current_user::text", &[]).await?;
    superuser.batch_execute(&format!("create schema planted authorization {user}")).await?;
    let tables = plant(&superuser, &caller).await?;

    // The traps work: a statement with the caller's search_path calls them.
    caller.execute("select now(), gen_random_uuid()", &[]).await?;
    let trapped = count(&caller, "select pg_catalog.count(*) from planted.trap_calls", &[]).await?;
    recorder.check(
        format!(
            "planting {tables} temp tables named like ours, {} functions and {} operators, first in the caller's search_path",
            FUNCTIONS.len(),
            OPERATORS.len()
        ),
        "the caller's now() and gen_random_uuid() call the traps",
        format!("{trapped} trap calls"),
        trapped == 2,
    )?;
    caller.execute("truncate planted.trap_calls", &[]).await?;

    payments(&caller, &superuser, &mut recorder).await?;
    event(&caller, &superuser, &mut recorder).await?;
    metadata(&caller, &superuser, &mut recorder).await?;
    let trapped = count(&superuser, "select count(*) from planted.trap_calls", &[]).await?;
    recorder.check_equal("counting the trap calls of the functions", "trap calls", 0, trapped)?;
    let mut rows = 0;
    for row in superuser.query("select relname::text from pg_class where relnamespace = any (array['symphony', 'm10_recovery']::regnamespace[]) and relkind in ('r', 'v')", &[]).await? {
        let table: String = row.get(0);
        rows += count(&caller, &format!("select pg_catalog.count(*) from pg_temp.{table}"), &[]).await?;
    }
    recorder.check_equal("counting the rows that the functions wrote into the temp tables", "rows", 0, rows)?;
    Ok(recorder.finish())
}

/// Creates the planted objects, usable by every role. Returns the number of tables.
async fn plant(superuser: &Client, caller: &Client) -> Result<usize, Failure> {
    caller
        .batch_execute(
            "create table planted.trap_calls (what text); grant usage on schema planted to public; grant all on planted.trap_calls to public",
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
                 begin insert into planted.trap_calls values ('{signature}'); return {}; end $trap$;",
                if returns == "void" { "" } else { answer }
            );
            caller.batch_execute(&create).await?;
        }
    }
    for (operator, kind, answer) in OPERATORS {
        let name = format!(
            "planted.wrong_{}",
            OPERATORS.iter().position(|o| *o == (operator, kind, answer)).unwrap_or_default()
        );
        let create = format!(
            "create function {name}({kind}, {kind}) returns boolean language plpgsql as $trap$
             begin insert into planted.trap_calls values ('{operator}'); return {answer}; end $trap$;
             create operator planted.{operator} (leftarg = {kind}, rightarg = {kind}, function = {name})"
        );
        caller.batch_execute(&create).await?;
    }
    // Types with our names, and an implicit cast.
    caller
        .batch_execute(
            "create type planted.outbox_attempt_state as enum ('DISPATCHED', 'FAILED', 'PLANTED');
             create function planted.cast_state(planted.outbox_attempt_state) returns text language plpgsql as $trap$
             begin insert into planted.trap_calls values ('cast'); return 'FAILED'; end $trap$;
             create cast (planted.outbox_attempt_state as text) with function planted.cast_state(planted.outbox_attempt_state) as implicit;
             set search_path = planted, pg_temp, symphony, public, pg_catalog",
        )
        .await?;
    caller.batch_execute(SETTINGS).await?;
    Ok(relations.len())
}

/// Every function of the payment lane in that session; then the tables must hold what they should.
async fn payments(caller: &Client, superuser: &Client, recorder: &mut Recorder) -> Result<(), Failure> {
    set_rail(caller, "bank", r#"{"max_attempts": 3}"#).await?;
    let first = enqueue(caller, &Payment::new("Saved 1", "Susan", "bank")).await?;
    let batch =
        enqueue_batch(caller, &[Payment::new("2", "alice", "bank"), Payment::new("3", "alice", "bank")]).await?;
    let again = enqueue(caller, &Payment::new("2", "alice", "bank")).await?;
    let mut other = Payment::new("2", "alice", "bank");
    other.payload = r#"{"amount": "1"}"#.into();
    recorder.check_refused(
        "reusing a key, with an operator = for jsonb that is always true",
        "P7004",
        enqueue(caller, &other).await,
    )?;
    recorder.check(
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
    recorder.check(
        "claiming in that session",
        "3 rows under 3 random tokens",
        format!("{} rows under {} tokens", leases.len(), tokens.len()),
        leases.len() == 3 && tokens.len() == 3 && leases.iter().all(|lease| !lease.token.starts_with("00000000")),
    )?;
    let forged = Lease { token: "00000000-0000-0000-0000-000000000000".into(), ..leases[0].clone() };
    recorder.check_refused(
        "completing with the planted token",
        "P7002",
        complete(caller, &forged, Outcome::DISPATCHED).await,
    )?;
    require(
        || "renewing".into(),
        "[true, true, true]".to_owned(),
        format!("{:?}", renew(caller, &leases).await?),
    )?;
    require(
        || "releasing one".into(),
        "[true]".to_owned(),
        format!("{:?}", release(caller, &leases[2..]).await?),
    )?;
    complete(caller, &leases[0], Outcome::DISPATCHED).await?;
    complete(caller, &leases[1], Outcome::UNKNOWN).await?;
    let refused = redrive(caller, &leases[1].outbox_id).await;
    recorder.check_refused(
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
    let erase = "select symphony.erase_payment_payload($1::text::uuid, 'operator', 'a proof')";
    caller.execute(erase, &[&first.outbox_id]).await?;
    let erased = "select count(*) from symphony.payment_outbox_attempts a
                  where a.payload ? 'digest' and symphony.erased_payload_matches(a.outbox_id, $1::text::jsonb)";
    let original = Payment::new("Saved 1", "Susan", "bank").payload;
    let erased = count(superuser, erased, &[&original]).await?;
    recorder.check_equal("erasing the first payment in that session", "tombstones of its payload", 1, erased)?;
    let ledger = "select string_agg(format('%s %s %s', participant_id, sequence_id, state), ', ' order by participant_id, sequence_id, attempt_no)
                  from symphony.payment_outbox_attempts
                  where created_at > now() - interval '1 hour' and attempt_id::text > '01'";
    let ledger = text(superuser, ledger, &[]).await?;
    recorder.check_equal(
        "every function of the payment lane in that session, and then reading the real ledger",
        "rows",
        "Susan 1 DISPATCHED, alice 1 FAILED, alice 2 ZOMBIE_REQUEUE, alice 2 DISPATCHED, alice 3 DISPATCHED"
            .to_owned(),
        ledger,
    )
}

/// Every function of the event lane, in that session.
async fn event(caller: &Client, superuser: &Client, recorder: &mut Recorder) -> Result<(), Failure> {
    let published = events::publish(caller, "order", "1").await?;
    let held = events::claim(caller, "A", 10).await?;
    require(|| "claiming an event".into(), format!("{:?}", [published]), format!("{held:?}"))?;
    recorder.check_refused(
        "completing the event of another processor, with an operator = for text that is always false",
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
    recorder.check_equal(
        "every function of the event lane in that session, and then reading the real tables",
        "event and error",
        "1 B mail to [e-mail] bounced t".to_owned(),
        left,
    )
}

/// Every function of the metadata lane, in that session.
async fn metadata(caller: &Client, superuser: &Client, recorder: &mut Recorder) -> Result<(), Failure> {
    let id = entries::create(caller, "Susan", 2).await?;
    let held = entries::claim(caller, "A", 0).await?.remove(0);
    require(|| "claiming an entry".into(), id.clone(), held.id)?;
    let planted = "00000000-0000-0000-0000-000000000000";
    recorder.check_refused(
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
    recorder.check_equal(
        "every function of the metadata lane in that session, and then reading the real table",
        "entry",
        "Susan DLQ 2 B LEASE_EXPIRED t".to_owned(),
        text(superuser, left, &[]).await?,
    )
}
