//! The erasure of a payload: the one change that the ledger and the quarantine allow, and what it keeps recognisable.

use tokio_postgres::Client;

use super::clock::make_due;
use super::evidence::{Evidence, Failure, Recorder, describe, require, sqlstate};
use super::ledger::{EVERY_ROLE, refused_to_every_role};
use super::server_state::{all_wait_for_locks, pid};
use super::sessions::{
    Enqueued, Outcome, Payment, Sessions, claim, complete, count, enqueue, enqueue_batch, redrive, resolve,
    set_rail, text,
};
use symphony_testkit::test_database::Database;

const LEDGER: &str = "symphony.payment_outbox_attempts";
const QUARANTINE: &str = "symphony.payment_outbox_quarantine";
/// Everything in the ledger and the quarantine but the payloads.
const ALL_BUT_PAYLOADS: &str = "
    select md5(string_agg(t.row, '|' order by t.row))
    from (select (to_jsonb(a) - 'payload')::text as row from symphony.payment_outbox_attempts a
          union all select (to_jsonb(q) - 'payload')::text from symphony.payment_outbox_quarantine q) t";
const WITH_PAYLOAD: &str = "
    select count(*)
    from (select payload from symphony.payment_outbox_attempts union all select payload from symphony.payment_outbox_quarantine) t
    where t.payload::text like '%' || $1 || '%'";
const TOMBSTONES: &str = "
    select count(*)
    from (select outbox_id, payload from symphony.payment_outbox_attempts
          union all select outbox_id, payload from symphony.payment_outbox_quarantine) t
    join symphony.payment_payload_erasures e using (outbox_id)
    where (select array_agg(k order by k) from jsonb_object_keys(t.payload) k) = '{digest,erased,erased_at}'
      and (t.payload ->> 'erased_at')::timestamptz = e.erased_at and t.payload ->> 'digest' ~ '^[0-9a-f]{64}$'";

/// Proof 34: `an_erasure_replaces_the_payload_by_a_tombstone_and_changes_nothing_else`.
pub(super) async fn is_the_only_change(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "bank", "{}").await?;
    set_rail(&sessions.operator, "other", "{}").await?;
    let payment = Payment::new("rent", "alice", "bank");

    let (first, last) = redriven_over_partitions(&sessions, &mut recorder, &payment).await?;
    let partition = "select tableoid::regclass::text from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid limit 1";
    let partition = text(&sessions.owner, partition, &[&first]).await?;
    let tables = [LEDGER, partition.as_str(), QUARANTINE];
    no_payload_changes(database, &mut recorder, &tables, "before the erasure").await?;

    let before = text(&sessions.owner, ALL_BUT_PAYLOADS, &[]).await?;
    let rows = erase(&sessions.operator, &last).await?;
    recorder.check_equal(
        "erasing the payload of a payment of 20 attempts, their redrive, and a quarantined row",
        "rows erased",
        22,
        rows,
    )?;
    let left = count(&sessions.owner, WITH_PAYLOAD, &[&"rent"]).await?;
    recorder.check_equal("searching the ledger and the quarantine for the payload", "rows with it", 0, left)?;
    let tombstones = count(&sessions.owner, TOMBSTONES, &[]).await?;
    recorder.check_equal("reading what took its place", "tombstones", 22, tombstones)?;
    let after = text(&sessions.owner, ALL_BUT_PAYLOADS, &[]).await?;
    recorder.check_equal("comparing all other columns of all rows", "their hash", before, after)?;

    no_payload_changes(database, &mut recorder, &tables, "after the erasure").await?;
    no_column_changes(database, &sessions.owner, &mut recorder, &tables).await?;
    the_record_is_kept(database, &mut recorder).await?;
    the_audit_log_has_it(&sessions, &mut recorder, &[&first, &last]).await?;
    the_key_is_remembered(&sessions, &mut recorder, &payment, &last).await?;
    the_digest_is_evidence(database, &sessions, &mut recorder, &payment, &[&first, &last]).await?;
    recorder.check_refused("redriving it", "P7003", redrive(&sessions.operator, &last).await)?;
    recorder.check_refused("erasing it again", "P7003", erase(&sessions.operator, &first).await)?;
    what_comes_back(&sessions, &mut recorder, &last).await?;

    refusals(&sessions, &mut recorder).await?;
    races(database, &sessions, &mut recorder).await?;
    by_hand(database, &sessions, &mut recorder).await?;
    Ok(recorder.finish())
}

/// Erases a payload and returns how many rows had it.
async fn erase(operator: &Client, outbox_id: &str) -> Result<i64, tokio_postgres::Error> {
    let call = "select rows::bigint from symphony.erase_payment_payload($1::text::uuid, 'operator', 'request 17')";
    count(operator, call, &[&outbox_id]).await
}

/// Dispatches, fails or retries the one row that is due.
async fn attempt(sessions: &Sessions, outcome: Outcome<'_>) -> Result<String, Failure> {
    let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
    complete(&sessions.executor, &lease, outcome).await?;
    make_due(&sessions.owner).await?;
    Ok(lease.outbox_id)
}

/// A payment that failed after 20 attempts in one partition, whose redrive in another was resolved as NOT_PAID, and of
/// which a bad restore left a quarantined row. Returns both outboxes.
async fn redriven_over_partitions(
    sessions: &Sessions,
    recorder: &mut Recorder,
    payment: &Payment,
) -> Result<(String, String), Failure> {
    // As enqueue does it, but with an id of next week's partition.
    let next_week = "
        with key as (
          insert into symphony.payment_outbox_keys (idempotency_key, instruction_id, outbox_id, content_digest)
          values ($1, $2, symphony.uuidv7_lower_bound(now() + interval '8 days'),
                  symphony.outbox_content_digest($1, $2, $3, $4, $5::text::jsonb))
          returning outbox_id
        )
        insert into symphony.payment_outbox_pending
          (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload)
        select outbox_id, $2, $3, symphony.bump_participant_outbox_seq($3), $1, $4, $5::text::jsonb from key
        returning outbox_id::text";
    let Payment { instruction, participant, key, rail, payload } = payment;
    let first = text(&sessions.owner, next_week, &[key, instruction, participant, rail, payload]).await?;
    for _ in 0..20 {
        require(|| "attempting it".into(), first.clone(), attempt(sessions, Outcome::RETRY_NOW).await?)?;
    }
    let last = redrive(&sessions.operator, &first).await?.outbox_id;
    attempt(sessions, Outcome::REJECTED).await?;
    recorder.check_refused(
        "erasing it while its redrive is a dead letter",
        "P7003",
        erase(&sessions.operator, &first).await,
    )?;
    resolve(&sessions.operator, &last, "NOT_PAID").await?;
    let restore = "insert into symphony.payment_outbox_pending
                     (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, created_at)
                   select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, created_at
                   from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid";
    sessions.owner.execute(restore, &[&last]).await?;
    recorder.check_refused(
        "erasing it while a restored row is pending",
        "P7003",
        erase(&sessions.operator, &first).await,
    )?;
    require(|| "claiming a row that has ended".into(), 0, claim(&sessions.executor, 10, "worker").await?.len())?;
    let partitions = "select count(distinct tableoid) from symphony.payment_outbox_attempts";
    let partitions = count(&sessions.owner, partitions, &[]).await?;
    recorder.check_equal("making 20 attempts, a redrive and a restore", "partitions with rows", 2, partitions)?;
    Ok((first, last))
}

/// Every role tries every way to write a payload into each table.
async fn no_payload_changes(
    database: &Database,
    recorder: &mut Recorder,
    tables: &[&str],
    when: &str,
) -> Result<(), Failure> {
    let payloads = [
        "payload",
        r#"'{"amount": "99999.00"}'"#,
        r#"payload - 'amount'"#,
        r#"payload || '{"erased": true}'"#,
        r#"'{"erased": true, "erased_at": "2026-05-01T00:00:00.000000Z", "digest": "00"}'"#,
    ];
    let statements: Vec<String> = tables
        .iter()
        .flat_map(|table| payloads.map(|payload| format!("update {table} set payload = {payload}")))
        .collect();
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    let tried = refused_to_every_role(database, &statements).await?;
    recorder.check(
        format!("{} ways to change a payload {when}, each as 8 roles, triggers in 2 modes", statements.len()),
        "P0001 for the owner and a superuser, 42501 for the others",
        format!("{tried} of {tried} were refused"),
        tried == statements.len() * EVERY_ROLE.len() * 2,
    )
}

/// Every role tries every other column, also where no row matches.
async fn no_column_changes(
    database: &Database,
    owner: &Client,
    recorder: &mut Recorder,
    tables: &[&str],
) -> Result<(), Failure> {
    let mut statements = Vec::new();
    for table in tables {
        let columns = "select attname::text from pg_attribute
                       where attrelid = $1::text::regclass and attnum > 0 and not attisdropped and attname <> 'payload'";
        for row in owner.query(columns, &[table]).await? {
            let column: String = row.get(0);
            statements.push(format!("update {table} set {column} = {column} where false"));
            statements.push(format!("update {table} set payload = payload, {column} = {column}"));
        }
    }
    let columns = statements.len() / 2;
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    let tried = refused_to_every_role(database, &statements).await?;
    recorder.check(
        format!("changing each of the {columns} other columns of these tables, as 8 roles, triggers in 2 modes"),
        "P0001 for the owner and a superuser, 42501 for the others",
        format!("{tried} of {tried} were refused"),
        tried == statements.len() * EVERY_ROLE.len() * 2 && columns >= 50,
    )
}

/// No role can change the record of erasures, or salt a key that was not erased.
async fn the_record_is_kept(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let statements = [
        "update symphony.payment_payload_erasures set salt = sha256('known')",
        "update symphony.payment_payload_erasures set outbox_id = outbox_id where false",
        "delete from symphony.payment_payload_erasures",
        "truncate symphony.payment_payload_erasures",
        "update symphony.payment_outbox_keys set digest_salt = null",
        "update symphony.payment_outbox_keys set content_digest = symphony.salt_digest(content_digest, digest_salt)",
        "update symphony.payment_outbox_keys set digest_salt = sha256('known'), content_digest = symphony.salt_digest(content_digest, sha256('known'))",
    ];
    let tried = refused_to_every_role(database, &statements).await?;
    recorder.check(
        format!(
            "{} ways to change the record of erasures and salted keys, as 8 roles, triggers in 2 modes",
            statements.len()
        ),
        "P0001 for the owner and a superuser, 42501 for the others",
        format!("{tried} of {tried} were refused"),
        tried == statements.len() * EVERY_ROLE.len() * 2,
    )
}

async fn the_audit_log_has_it(
    sessions: &Sessions,
    recorder: &mut Recorder,
    outboxes: &[&str],
) -> Result<(), Failure> {
    let log = "select count(*) from symphony.payment_outbox_operations_log
               where operation = 'ERASE' and outbox_id = any ($1::text[]::uuid[]) and actor = 'operator' and reason = 'request 17'";
    let log = count(&sessions.operator, log, &[&outboxes]).await?;
    let shown = "select count(*) from symphony.payment_outboxes where outbox_id = any ($1::text[]::uuid[]) and payload_erased_at is not null";
    let shown = count(&sessions.operator, shown, &[&outboxes]).await?;
    recorder.check(
        "reading the audit log and the outboxes",
        "2 erasures with actor and reason, 2 outboxes marked as erased",
        format!("{log} erasures with actor and reason, {shown} outboxes marked as erased"),
        (log, shown) == (2, 2),
    )
}

/// The same content is still a replay; any other content is refused.
async fn the_key_is_remembered(
    sessions: &Sessions,
    recorder: &mut Recorder,
    payment: &Payment,
    last: &str,
) -> Result<(), Failure> {
    let single = enqueue(&sessions.ingest, payment).await?;
    let batch = enqueue_batch(&sessions.ingest, std::slice::from_ref(payment)).await?.remove(0);
    let is_replay = |enqueued: &Enqueued| enqueued.replayed && enqueued.outbox_id == last;
    recorder.check(
        "enqueueing the same payment again, alone and in a batch",
        "a replay of its newest outbox",
        format!("{single:?}, {batch:?}"),
        is_replay(&single) && is_replay(&batch),
    )?;
    let tombstone = "select payload::text from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid";
    let tombstone = text(&sessions.owner, tombstone, &[&last]).await?;
    let others = [
        Payment { payload: r#"{"amount": "10.01", "name": "rent"}"#.into(), ..payment.clone() },
        Payment { payload: tombstone, ..payment.clone() },
        Payment { participant: "bob".into(), ..payment.clone() },
        Payment { rail: "other".into(), ..payment.clone() },
    ];
    for other in &others {
        let tried = format!("enqueueing under its key {other:?}");
        recorder.check_refused(tried.clone(), "P7004", enqueue(&sessions.ingest, other).await)?;
        let batch = enqueue_batch(&sessions.ingest, std::slice::from_ref(other)).await;
        recorder.check_refused(format!("{tried}, in a batch"), "P7004", batch)?;
    }
    Ok(())
}

/// An auditor with the original proves that it was this one; no digest without the salt can be guessed from.
async fn the_digest_is_evidence(
    database: &Database,
    sessions: &Sessions,
    recorder: &mut Recorder,
    payment: &Payment,
    outboxes: &[&str],
) -> Result<(), Failure> {
    let auditor = database.connect_as("symphony_auditor").await?;
    let matches = "select count(*) from unnest($1::text[]::uuid[]) o where symphony.erased_payload_matches(o, $2::text::jsonb)";
    let right = count(&auditor, matches, &[&outboxes, &payment.payload]).await?;
    let wrong = count(&auditor, matches, &[&outboxes, &r#"{"amount": "10.01", "name": "rent"}"#]).await?;
    recorder.check(
        "asking as an auditor whether it was the original payload, and another one",
        "2 match, 0 match",
        format!("{right} match, {wrong} match"),
        (right, wrong) == (2, 0),
    )?;
    for role in
        EVERY_ROLE.iter().filter(|role| !matches!(**role, "symphony_auditor" | "symphony_control" | "none"))
    {
        let refused = count(&database.connect_as(role).await?, matches, &[&outboxes, &payment.payload]).await;
        let state = refused.err().map_or("allowed".to_owned(), |error| sqlstate(&error).to_owned());
        require(|| format!("asking as {role}"), "42501".to_owned(), state)?;
    }
    let unsalted = "
        select count(*)
        from (select content_digest as digest from symphony.payment_outbox_keys
              union all select decode(payload ->> 'digest', 'hex') from symphony.payment_outbox_attempts) d
        where d.digest = symphony.outbox_content_digest($1, $2, $3, $4, $5::text::jsonb)";
    let Payment { instruction, participant, key, rail, payload } = payment;
    let unsalted = count(&sessions.owner, unsalted, &[key, instruction, participant, rail, payload]).await?;
    recorder.check_equal("guessing the payload by its plain digest", "digests that match", 0, unsalted)?;
    let readable = "select count(*) from unnest($1::text[]) r where has_table_privilege(r, 'symphony.payment_payload_erasures', 'select')";
    let readable = count(&sessions.owner, readable, &[&&EVERY_ROLE[..6]]).await?;
    recorder.check_equal("reading the salt", "roles that may", 0, readable)
}

/// A restored row that is quarantined after the erasure has the payload again; a second erasure replaces it.
async fn what_comes_back(sessions: &Sessions, recorder: &mut Recorder, last: &str) -> Result<(), Failure> {
    let restore = r#"insert into symphony.payment_outbox_pending
                       (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, created_at)
                     select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
                            '{"amount": "10.00", "name": "rent"}', created_at
                     from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid"#;
    sessions.owner.execute(restore, &[&last]).await?;
    require(|| "claiming a row that has ended".into(), 0, claim(&sessions.executor, 10, "worker").await?.len())?;
    let rows = erase(&sessions.operator, last).await?;
    let left = count(&sessions.owner, WITH_PAYLOAD, &[&"rent"]).await?;
    recorder.check(
        "restoring a pending row with the payload, which a claim quarantines, and erasing again",
        "1 row erased, 0 rows with the payload",
        format!("{rows} row erased, {left} rows with the payload"),
        (rows, left) == (1, 0),
    )
}

async fn refusals(sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let payment = Payment::new("refused", "carol", "bank");
    let outbox = enqueue(&sessions.ingest, &payment).await?.outbox_id;
    recorder.check_refused("erasing a pending payment", "P7003", erase(&sessions.operator, &outbox).await)?;
    let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
    recorder.check_refused("erasing a leased payment", "P7003", erase(&sessions.operator, &outbox).await)?;
    complete(&sessions.executor, &lease, Outcome::RETRY_NOW).await?;
    recorder.check_refused(
        "erasing it between two attempts",
        "P7003",
        erase(&sessions.operator, &outbox).await,
    )?;
    make_due(&sessions.owner).await?;
    attempt(sessions, Outcome::UNKNOWN).await?;
    let dead_letter = erase(&sessions.operator, &outbox).await;
    recorder.check_refused("erasing an unresolved dead letter", "P7003", dead_letter)?;
    let unknown = "01900000-0000-7000-8000-000000000000";
    recorder.check_refused(
        "erasing an outbox that does not exist",
        "P7005",
        erase(&sessions.operator, unknown).await,
    )?;
    for arguments in [
        "null, 'operator', 'a reason'".to_owned(),
        format!("'{outbox}', ' ', 'a reason'"),
        format!("'{outbox}', 'operator', null"),
    ] {
        let call = format!("select symphony.erase_payment_payload({arguments})");
        recorder.check_refused(call.clone(), "P7005", sessions.operator.batch_execute(&call).await)?;
    }
    let snapshot = format!(
        "begin isolation level repeatable read; select symphony.erase_payment_payload('{outbox}', 'operator', 'a reason')"
    );
    recorder.check_refused(
        "erasing under REPEATABLE READ",
        "25000",
        sessions.operator.batch_execute(&snapshot).await,
    )?;
    sessions.operator.batch_execute("rollback").await?;
    let with_payload = count(&sessions.owner, WITH_PAYLOAD, &[&"refused"]).await?;
    recorder.check_equal("counting the rows that still have that payload", "rows", 2, with_payload)?;
    resolve(&sessions.operator, &outbox, "PAID").await?;
    recorder.check_equal(
        "erasing it once it is resolved as PAID",
        "rows erased",
        2,
        erase(&sessions.operator, &outbox).await?,
    )
}

/// An erasure and a redrive of one payment wait for each other, and the second is refused.
async fn races(database: &Database, sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    for erases_first in [true, false] {
        let name = if erases_first { "erased first" } else { "redriven first" };
        let outbox = enqueue(&sessions.ingest, &Payment::new(name, "dora", "bank")).await?.outbox_id;
        attempt(sessions, Outcome::REJECTED).await?;
        resolve(&sessions.operator, &outbox, "NOT_PAID").await?;
        let second = database.connect_as("symphony_operator").await?;
        let waiting = pid(&second).await?;
        sessions.operator.batch_execute("begin").await?;
        if erases_first {
            erase(&sessions.operator, &outbox).await?;
        } else {
            redrive(&sessions.operator, &outbox).await?;
        }
        let of = outbox.clone();
        let second = tokio::spawn(async move {
            if erases_first { redrive(&second, &of).await.map(drop) } else { erase(&second, &of).await.map(drop) }
        });
        all_wait_for_locks(&sessions.owner, &[waiting]).await?;
        sessions.operator.batch_execute("commit").await?;
        let what = if erases_first {
            "redriving a payment while another session erases it"
        } else {
            "erasing a payment while another session redrives it"
        };
        recorder.check_refused(what, "P7003", second.await?)?;
        if !erases_first {
            attempt(sessions, Outcome::DISPATCHED).await?;
        }
    }
    let outbox = enqueue(&sessions.ingest, &Payment::new("erased twice", "dora", "bank")).await?.outbox_id;
    attempt(sessions, Outcome::DISPATCHED).await?;
    let mut calls = Vec::new();
    for _ in 0..4 {
        let operator = database.connect_as("symphony_operator").await?;
        let outbox = outbox.clone();
        calls.push(tokio::spawn(async move { erase(&operator, &outbox).await }));
    }
    let (mut erased, mut refused) = (0, 0);
    for call in calls {
        match call.await? {
            Ok(rows) => erased += rows,
            Err(error) if sqlstate(&error) == "P7003" => refused += 1,
            Err(error) => {
                return Err(Failure {
                    tried: "erasing one payment in 4 sessions".into(),
                    expected: "1 erases, 3 are refused with P7003".into(),
                    happened: describe(&error),
                });
            }
        }
    }
    recorder.check(
        "erasing one payment in 4 sessions at once",
        "1 row erased, 3 refused",
        format!("{erased} row erased, {refused} refused"),
        (erased, refused) == (1, 3),
    )
}

/// A superuser who writes an erasure past the function can do just that erasure, and only if it is in the audit log.
async fn by_hand(database: &Database, sessions: &Sessions, recorder: &mut Recorder) -> Result<(), Failure> {
    let ended = enqueue(&sessions.ingest, &Payment::new("by hand", "emma", "bank")).await?.outbox_id;
    attempt(sessions, Outcome::RETRY_NOW).await?;
    attempt(sessions, Outcome::DISPATCHED).await?;
    let pending = enqueue(&sessions.ingest, &Payment::new("pending", "emma", "bank")).await?.outbox_id;
    attempt(sessions, Outcome::RETRY_NOW).await?;
    let superuser = database.connect().await?;
    let record = |outbox: &str| {
        format!(
            "insert into symphony.payment_payload_erasures (outbox_id, operation_id, salt)
             values ('{outbox}', md5('{outbox}')::uuid, sha256('salt'))"
        )
    };
    let log = |outbox: &str| {
        format!(
            "insert into symphony.payment_outbox_operations (operation_id, operation, outbox_id, rail_type, actor, reason)
             values (md5('{outbox}')::uuid, 'ERASE', '{outbox}', 'bank', 'a superuser', 'by hand')"
        )
    };
    // The tombstone of this salt, with more set and under another condition.
    let tombstone = |outbox: &str, digest: &str, more: &str| {
        format!(
            "update symphony.payment_outbox_attempts a
             set payload = symphony.payload_tombstone(e.erased_at, symphony.salt_digest({digest}, e.salt)){more}
             from symphony.payment_payload_erasures e where e.outbox_id = a.outbox_id and a.outbox_id = '{outbox}'"
        )
    };
    let right = "symphony.outbox_content_digest(a.idempotency_key, a.instruction_id, a.participant_id, a.rail_type, a.payload)";
    let both = |outbox: &str| format!("{}; {}", log(outbox), record(outbox));
    let attacks = [
        ("a tombstone without the audit log", format!("{}; {}", record(&ended), tombstone(&ended, right, ""))),
        (
            "a tombstone without the record of erasures",
            format!(
                "{}; update symphony.payment_outbox_attempts set payload = symphony.payload_tombstone(now(), sha256('')) where outbox_id = '{ended}'",
                log(&ended)
            ),
        ),
        (
            "the digest of another payload",
            format!("{}; {}", both(&ended), tombstone(&ended, "sha256('another')", "")),
        ),
        (
            "another payload",
            format!(
                "{}; update symphony.payment_outbox_attempts set payload = '{{}}' where outbox_id = '{ended}'",
                both(&ended)
            ),
        ),
        (
            "another column with it",
            format!("{}; {}", both(&ended), tombstone(&ended, right, ", rail_reference = 'changed'")),
        ),
        (
            "another column with it, past the statement trigger",
            format!(
                "{}; alter table symphony.payment_outbox_attempts disable trigger ledger_is_append_only; {}",
                both(&ended),
                tombstone(&ended, right, ", rail_reference = 'changed'")
            ),
        ),
        ("the tombstone of a tombstone", format!("{}; {1}; {1}", both(&ended), tombstone(&ended, right, ""))),
        (
            "a tombstone of a payment that is pending",
            format!("{}; {}", both(&pending), tombstone(&pending, right, "")),
        ),
        (
            "the payload of a pending row",
            format!(
                "{}; update symphony.payment_outbox_pending set payload = symphony.payload_tombstone(now(), sha256('')) where outbox_id = '{pending}'",
                both(&pending)
            ),
        ),
        (
            "a salt that is not recorded",
            format!(
                "{}; update symphony.payment_outbox_keys set digest_salt = sha256('x'), content_digest = symphony.salt_digest(content_digest, sha256('x')) where outbox_id = '{ended}'",
                both(&ended)
            ),
        ),
        (
            "other content for the key",
            format!(
                "{}; update symphony.payment_outbox_keys set digest_salt = sha256('salt'), content_digest = symphony.salt_digest(sha256('another'), sha256('salt')) where outbox_id = '{ended}'",
                both(&ended)
            ),
        ),
    ];
    for mode in ["origin", "replica"] {
        for (what, attack) in &attacks {
            superuser.batch_execute(&format!("begin; set local session_replication_role = {mode}")).await?;
            let refused = superuser.batch_execute(attack).await;
            superuser.batch_execute("rollback").await?;
            recorder.check_refused(
                format!("writing as a superuser, triggers in mode {mode}: {what}"),
                "P0001",
                refused,
            )?;
        }
    }
    let allowed = format!("begin; {}; {}", both(&ended), tombstone(&ended, right, ""));
    superuser.batch_execute(&allowed).await?;
    let left = count(&superuser, WITH_PAYLOAD, &[&"by hand"]).await?;
    superuser.batch_execute("rollback").await?;
    recorder.check_equal("writing the whole erasure by hand, audit log included", "rows with the payload", 0, left)
}
