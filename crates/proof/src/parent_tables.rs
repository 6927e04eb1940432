//! Changes through a parent table: a statement on the parent fires no statement trigger of the child.

use tokio_postgres::Client;

use super::event::calls as events;
use super::evidence::{Evidence, Failure, Recorder, require};
use super::ledger::{EVERY_ROLE, refused_to_every_role};
use super::metadata::calls as entries;
use super::sessions::{Outcome, Payment, Sessions, claim, complete, confirm, count, enqueue, set_rail, text};
use symphony_testkit::test_database::Database;

/// A protected table: its name, its key, and a column that must not change, with another value for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protected {
    pub(super) table: &'static str,
    pub(super) key: &'static [(&'static str, &'static str)],
    pub(super) column: (&'static str, &'static str),
    pub(super) other: &'static str,
}

const fn of(
    table: &'static str,
    key: &'static [(&'static str, &'static str)],
    column: (&'static str, &'static str),
    other: &'static str,
) -> Protected {
    Protected { table, key, column, other }
}

pub(super) const LEDGER: &str = "symphony.payment_outbox_attempts";
const LEDGER_KEY: &[(&str, &str)] = &[("outbox_id", "uuid"), ("attempt_no", "int")];
/// The partition of the ledger that has the rows of a database that was just installed.
pub(super) const PARTITION: Protected =
    of("symphony.payment_outbox_attempts_from_start", LEDGER_KEY, ("error_message", "text"), "'changed'");

/// The protected tables. A row of the sequence counters must stay, but its number may change.
pub(super) const PROTECTED: [Protected; 13] = [
    of(LEDGER, LEDGER_KEY, ("error_message", "text"), "'changed'"),
    of("symphony.payment_outbox_operations", &[("operation_id", "uuid")], ("reason", "text"), "'changed'"),
    of("symphony.payment_outbox_quarantine", &[("quarantine_id", "uuid")], ("claimed_by", "text"), "'changed'"),
    of("symphony.payment_orphans", &[("orphan_id", "uuid")], ("rail_reference", "text"), "'changed'"),
    of(
        "symphony.payment_refused_confirmations",
        &[("refusal_id", "uuid")],
        ("rail_reference", "text"),
        "'changed'",
    ),
    of("symphony.payment_rails", &[("rail_type", "text")], ("rail_type", "text"), "'changed'"),
    of("m10_recovery.outbox", &[("id", "bigint")], ("payload", "jsonb"), "'{\"changed\": true}'"),
    of("m10_recovery.outbox_errors", &[("error_id", "bigint")], ("error", "text"), "'changed'"),
    of("symphony.metadata_outbox", &[("id", "uuid")], ("metadata", "jsonb"), "'{\"changed\": true}'"),
    of("symphony.payment_ledger_archives", &[("archive_id", "uuid")], ("reason", "text"), "'changed'"),
    of("symphony.retention_policies", &[("policy_no", "bigint")], ("reason", "text"), "'changed'"),
    of("symphony.retention_removals", &[("removal_no", "bigint")], ("kept", "text"), "'events'"),
    of("symphony.epoch", &[("counter", "bigint")], ("reason", "text"), "'changed'"),
];

/// At least one row in every table: one payment has ended, one is leased, one is pending.
pub(super) async fn populate(sessions: &Sessions) -> Result<(), Failure> {
    set_rail(&sessions.operator, "bank", "{}").await?;
    for name in ["ended", "leased"] {
        enqueue(&sessions.ingest, &Payment::new(name, "alice", "bank")).await?;
    }
    let leases = claim(&sessions.executor, 10, "worker").await?;
    let ended = leases.iter().find(|lease| lease.key == "key-ended").ok_or_else(|| Failure {
        tried: "claiming".into(),
        expected: "both payments".into(),
        happened: format!("{} of them", leases.len()),
    })?;
    complete(&sessions.executor, ended, Outcome::DISPATCHED).await?;
    restore_pending_only(&sessions.owner).await?;
    require(
        || "claiming a row that has ended in the ledger".into(),
        0,
        claim(&sessions.executor, 10, "worker").await?.len(),
    )?;
    let orphan = "select symphony.record_payment_orphan('UNKNOWN_OUTBOX', 'worker', gen_random_uuid(), gen_random_uuid(), 'DISPATCHED')";
    sessions.executor.execute(orphan, &[]).await?;
    confirm(&sessions.executor, ("bank", "key of no payment"), "EXECUTED", "a proof", None).await?;
    enqueue(&sessions.ingest, &Payment::new("waiting", "alice", "bank")).await?;
    let event = events::publish(&sessions.ingest, "order", "1").await?;
    events::claim(&sessions.executor, "processor", 1).await?;
    events::complete(&sessions.executor, event, "processor", false, Some("broker unavailable")).await?;
    entries::create(&sessions.ingest, "1", 3).await?;
    let retention = "select symphony.set_retention('events', 30, 'ana', 'a proof');
                     insert into symphony.retention_removals (kept, removed_rows, removed_before) values ('metadata', 1, now());
                     insert into symphony.payment_ledger_archives
                       (archive_id, archive_name, partition_name, partition_oid, to_id, row_count, content_digest, manifest_digest, location, actor, reason)
                     values (gen_random_uuid(), 'a', 'p', 0, '00000000-0000-7000-8000-000000000000', 0, sha256('a'), sha256('a'), '/a', 'ana', 'a proof')";
    sessions.owner.batch_execute(retention).await?;
    Ok(())
}

/// Simulates a restore of the pending table alone from before the end of a payment.
pub(super) async fn restore_pending_only(owner: &Client) -> Result<u64, tokio_postgres::Error> {
    let again = "insert into symphony.payment_outbox_pending
                   (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, created_at)
                 select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, created_at
                 from symphony.payment_outbox_attempts where state in ('DISPATCHED', 'FAILED')";
    owner.execute(again, &[]).await
}

/// The content of these tables and of pending.
pub(super) async fn all_rows(client: &Client) -> Result<String, Failure> {
    let mut all = String::new();
    for table in PROTECTED
        .iter()
        .map(|protected| protected.table)
        .chain(["symphony.payment_outbox_pending", "symphony.participant_outbox_sequences"])
    {
        let rows =
            format!("select count(*) || ' ' || md5(string_agg(t::text, '|' order by t::text)) from {table} t");
        all.push_str(&format!("{table}: {}\n", text(client, &rows, &[]).await?));
    }
    Ok(all)
}

/// Proof 30: `append_only_tables_cannot_be_changed_through_a_parent_table`.
pub(super) async fn change_nothing(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    populate(&sessions).await?;
    let superuser = database.connect().await?;
    let before = all_rows(&superuser).await?;

    for protected in PROTECTED.into_iter().filter(|protected| protected.table != LEDGER) {
        through_a_parent(&superuser, &mut recorder, protected).await?;
    }
    ledger_has_no_parent(&superuser, &mut recorder).await?;
    for table in [LEDGER, "symphony.payment_outbox_operations"] {
        through_partitions(&superuser, &mut recorder, table).await?;
    }
    through_a_parent(
        &superuser,
        &mut recorder,
        of(
            "symphony.participant_outbox_sequences",
            &[("participant_id", "symphony.short_text")],
            ("participant_id", "symphony.short_text"),
            "",
        ),
    )
    .await?;
    pending_has_no_parent(&superuser, &mut recorder).await?;
    pending_rows_stay(database, &mut recorder).await?;
    recorder.check_equal("all of these", "content of the tables", before, all_rows(&superuser).await?)?;

    let lease = count(
        &superuser,
        "select count(*) from symphony.payment_outbox_pending where lease_token is not null",
        &[],
    )
    .await?;
    require(|| "counting what is leased".into(), 1, lease)?;
    superuser
        .batch_execute(
            "select symphony.complete_outbox_attempt(outbox_id, lease_token, claimed_by, 'DISPATCHED')
             from symphony.payment_outbox_pending where lease_token is not null",
        )
        .await?;
    let left = count(&superuser, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    recorder.check_equal(
        "completing the leased payment through its function afterwards",
        "pending rows",
        1,
        left,
    )?;
    Ok(recorder.finish())
}

/// Makes the table a child, and changes its rows through the parent, triggers in both modes.
async fn through_a_parent(
    superuser: &Client,
    recorder: &mut Recorder,
    protected: Protected,
) -> Result<(), Failure> {
    let Protected { table, key, column, other } = protected;
    let mut columns = definitions(key);
    if !key.contains(&column) {
        columns.push_str(&format!(", {} {}", column.0, column.1));
    }
    superuser
        .batch_execute(&format!(
            "create table public.parent ({columns}); alter table {table} inherit public.parent"
        ))
        .await?;
    let mut statements = vec![
        "delete from public.parent".to_owned(),
        "merge into public.parent p using (select 1) s on true when matched then delete".to_owned(),
        "truncate public.parent".to_owned(),
    ];
    if !other.is_empty() {
        statements.push(format!("update public.parent set {} = {other}", column.0));
    }
    refused_to_the_superuser(superuser, &statements).await?;
    superuser
        .batch_execute(&format!("alter table {table} no inherit public.parent; drop table public.parent"))
        .await?;
    recorder.check(
        format!(
            "{} ways to change {table} through a parent table, as a superuser, triggers in 2 modes",
            statements.len()
        ),
        "P0001 or P7007",
        "each refused with it",
        true,
    )
}

/// Columns as in CREATE TABLE.
pub(super) fn definitions(columns: &[(&str, &str)]) -> String {
    columns.iter().map(|(name, kind)| format!("{name} {kind}")).collect::<Vec<_>>().join(", ")
}

/// A partitioned table and its partitions cannot inherit from another table.
async fn ledger_has_no_parent(superuser: &Client, recorder: &mut Recorder) -> Result<(), Failure> {
    superuser.batch_execute("create table public.parent (outbox_id uuid)").await?;
    for table in [LEDGER, PARTITION.table] {
        let inherit = superuser.batch_execute(&format!("alter table {table} inherit public.parent")).await;
        recorder.check_refused(format!("making {table} the child of another table"), "42809", inherit)?;
    }
    superuser.batch_execute("drop table public.parent").await?;
    Ok(())
}

/// Makes the table a partition, and changes its rows through the partitioned table.
async fn through_partitions(superuser: &Client, recorder: &mut Recorder, table: &str) -> Result<(), Failure> {
    superuser.batch_execute(&partitioned(table)).await?;
    superuser.batch_execute(&format!("alter table public.partitioned attach partition {table} default")).await?;
    let statements = ["delete from public.partitioned".to_owned(), "truncate public.partitioned".to_owned()];
    refused_to_the_superuser(superuser, &statements).await?;
    superuser
        .batch_execute(&format!(
            "alter table public.partitioned detach partition {table}; drop table public.partitioned"
        ))
        .await?;
    recorder.check(
        format!("deleting and truncating {table} as the partition of another table"),
        "P0001",
        "each refused with it",
        true,
    )
}

fn partitioned(table: &str) -> String {
    format!("create table public.partitioned (like {table}) partition by list (rail_type)")
}

async fn refused_to_the_superuser(superuser: &Client, statements: &[String]) -> Result<(), Failure> {
    for mode in ["origin", "replica"] {
        superuser.batch_execute(&format!("set session_replication_role = {mode}")).await?;
        for statement in statements {
            let refused = superuser.batch_execute(statement).await.err();
            let state = refused.as_ref().map_or("allowed", super::evidence::sqlstate);
            if !matches!(state, "P0001" | "P7007") {
                return Err(Failure {
                    tried: format!("{statement}; session_replication_role {mode}"),
                    expected: "P0001 or P7007".into(),
                    happened: state.to_owned(),
                });
            }
        }
    }
    superuser.batch_execute("reset session_replication_role").await?;
    Ok(())
}

/// The trigger against DELETE is a statement trigger, so pending must not become a child table.
async fn pending_has_no_parent(superuser: &Client, recorder: &mut Recorder) -> Result<(), Failure> {
    let pending = "symphony.payment_outbox_pending";
    superuser.batch_execute("create table public.parent (outbox_id uuid)").await?;
    let inherit = superuser.batch_execute(&format!("alter table {pending} inherit public.parent")).await;
    recorder.check_refused("making pending the child of another table", "0A000", inherit)?;
    superuser.batch_execute(&partitioned(pending)).await?;
    let attach = superuser
        .batch_execute(&format!("alter table public.partitioned attach partition {pending} default"))
        .await;
    recorder.check_refused("making pending the partition of another table", "0A000", attach)?;
    superuser.batch_execute("drop table public.parent, public.partitioned").await?;
    Ok(())
}

/// No role may delete a pending row, leased or not.
async fn pending_rows_stay(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let statements = [
        "delete from symphony.payment_outbox_pending",
        "delete from symphony.payment_outbox_pending where lease_token is not null",
        "with d as (delete from symphony.payment_outbox_pending returning *) select count(*) from d",
        "merge into symphony.payment_outbox_pending p using (select 1) s on true when matched then delete",
    ];
    let tried = refused_to_every_role(database, &statements).await?;
    recorder.check(
        format!("{} forms of DELETE on pending, each as 8 roles, triggers in 2 modes", statements.len()),
        "P0001 for the owner and a superuser, 42501 for the others",
        format!("{tried} of {tried} were refused"),
        tried == statements.len() * EVERY_ROLE.len() * 2,
    )
}
