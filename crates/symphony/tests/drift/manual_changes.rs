//! Manual changes of an installed schema, one at a time: verify must report exactly that change, with its severity.

use symphony_testkit::{
    ledger_partitions,
    postgres::{Binaries, Cluster, Options},
};

use super::{connect, differences, installed, program::symphony};

/// One kind of drift.
struct Change {
    /// The oldest PostgreSQL version that supports it.
    since: u32,
    apply: &'static str,
    revert: &'static str,
    /// The beginning of each line that verify must print, in order.
    reported: &'static [&'static str],
}

const fn change(apply: &'static str, revert: &'static str, reported: &'static [&'static str]) -> Change {
    Change { since: 15, apply, revert, reported }
}

const fn since(major: u32, change: Change) -> Change {
    Change { since: major, ..change }
}

/// Changes of a database with every lane.
const EVERY_LANE: &[Change] = &[
    // Tables: inheritance, keys, storage, replication.
    change(
        "create table public.par (like symphony.payment_outbox_operations);
         alter table symphony.payment_outbox_operations inherit public.par",
        "alter table symphony.payment_outbox_operations no inherit public.par; drop table public.par",
        &["error: unexpected: parent public.par of symphony.payment_outbox_operations"],
    ),
    change(
        "create table public.kid () inherits (symphony.payment_outbox_pending)",
        "drop table public.kid",
        &["error: unexpected: child public.kid of symphony.payment_outbox_pending"],
    ),
    change(
        "create table public.note (outbox_id uuid, constraint of_outbox foreign key (outbox_id) references symphony.payment_outbox_pending)",
        "drop table public.note",
        &["error: unexpected: foreign key of_outbox of public.note to symphony.payment_outbox_pending"],
    ),
    change(
        "alter table symphony.payment_outbox_pending replica identity full",
        "alter table symphony.payment_outbox_pending replica identity default",
        &["warning: changed: table symphony.payment_outbox_pending: replica identity is full, should be default"],
    ),
    change(
        "alter table symphony.payment_outbox_pending set (autovacuum_enabled = off)",
        "alter table symphony.payment_outbox_pending reset (autovacuum_enabled)",
        &["warning: changed: table symphony.payment_outbox_pending: autovacuum is off, should be on"],
    ),
    change(
        "alter table symphony.payment_outbox_pending set (toast.autovacuum_enabled = false)",
        "alter table symphony.payment_outbox_pending reset (toast.autovacuum_enabled)",
        &["warning: changed: table symphony.payment_outbox_pending: autovacuum is off, should be on"],
    ),
    change(
        "alter table symphony.payment_outbox_pending set (user_catalog_table = true)",
        "alter table symphony.payment_outbox_pending reset (user_catalog_table)",
        &["warning: changed: table symphony.payment_outbox_pending: user catalog table is yes, should be no"],
    ),
    change(
        "create access method heap2 type table handler heap_tableam_handler;
         alter table symphony.payment_outbox_operations set access method heap2",
        "alter table symphony.payment_outbox_operations set access method heap; drop access method heap2",
        &["warning: changed: table symphony.payment_outbox_operations: access method is heap2, should be heap"],
    ),
    change(
        "alter table symphony.payment_outbox_operations set unlogged",
        "alter table symphony.payment_outbox_operations set logged",
        &["error: changed: table symphony.payment_outbox_operations: persistence is unlogged, should be permanent"],
    ),
    // An index of the same name that does not do the same.
    change(
        "drop index symphony.payment_outbox_operations_by_outbox;
         create index payment_outbox_operations_by_outbox on symphony.payment_outbox_operations (rail_type)",
        "drop index symphony.payment_outbox_operations_by_outbox;
         create index payment_outbox_operations_by_outbox on symphony.payment_outbox_operations (outbox_id, created_at)
           where outbox_id is not null",
        &["error: changed: index payment_outbox_operations_by_outbox on symphony.payment_outbox_operations: definition is"],
    ),
    // Partitions of the ledger.
    change(
        "alter table symphony.payment_outbox_attempts_from_start disable trigger ledger_is_append_only",
        "alter table symphony.payment_outbox_attempts_from_start enable always trigger ledger_is_append_only",
        &["error: changed: trigger ledger_is_append_only on symphony.payment_outbox_attempts_from_start: definition is"],
    ),
    change(
        "alter table symphony.payment_outbox_attempts_from_start enable trigger ledger_rows_never_change",
        "alter table symphony.payment_outbox_attempts_from_start enable always trigger ledger_rows_never_change",
        &["error: changed: trigger ledger_rows_never_change on symphony.payment_outbox_attempts_from_start: definition is"],
    ),
    change(
        "drop trigger ledger_is_append_only on symphony.payment_outbox_attempts_from_start",
        "create trigger ledger_is_append_only before delete or truncate or update of
             attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_no, state, claimed_at,
             completed_at, rail_reference, rail_code, error_code, error_message, latency_ms, worker_id, created_at, database_user, epoch, endpoint,
             confirmation_id
           on symphony.payment_outbox_attempts_from_start
           for each statement execute function symphony.refuse_change('the ledger is append-only');
         alter table symphony.payment_outbox_attempts_from_start enable always trigger ledger_is_append_only",
        &["error: missing: trigger ledger_is_append_only on symphony.payment_outbox_attempts_from_start"],
    ),
    change(
        "alter table symphony.payment_outbox_attempts_from_start owner to postgres",
        "alter table symphony.payment_outbox_attempts_from_start owner to symphony_control",
        &["error: changed: table symphony.payment_outbox_attempts_from_start: owner is postgres, should be symphony_control"],
    ),
    change(
        "grant select on symphony.payment_outbox_attempts_from_start to symphony_readonly",
        "revoke all on symphony.payment_outbox_attempts_from_start from symphony_readonly",
        &["error: unexpected: right of symphony_readonly to SELECT on table symphony.payment_outbox_attempts_from_start"],
    ),
    change(
        "create index more on symphony.payment_outbox_attempts_from_start (worker_id)",
        "drop index symphony.more",
        &["error: unexpected: index more on symphony.payment_outbox_attempts_from_start"],
    ),
    // Searches by participant have an index on closed partitions, and it is of this form.
    change(
        "create index payment_outbox_attempts_from_start_by_participant on symphony.payment_outbox_attempts_from_start (participant_id, outbox_id)
           where state in ('DISPATCHED', 'FAILED')",
        "drop index symphony.payment_outbox_attempts_from_start_by_participant",
        &[],
    ),
    change(
        "create index payment_outbox_attempts_from_start_by_participant on symphony.payment_outbox_attempts_from_start (participant_id)",
        "drop index symphony.payment_outbox_attempts_from_start_by_participant",
        &["error: unexpected: index payment_outbox_attempts_from_start_by_participant on symphony.payment_outbox_attempts_from_start"],
    ),
    change(
        "create table public.rest partition of symphony.payment_outbox_attempts default",
        "drop table public.rest",
        &["error: unexpected: child public.rest of symphony.payment_outbox_attempts",
          "error: changed: ranges of symphony.payment_outbox_attempts: definition is public.rest takes DEFAULT"],
    ),
    change(
        "alter sequence m10_recovery.outbox_id_seq cycle maxvalue 1000",
        "alter sequence m10_recovery.outbox_id_seq no cycle no maxvalue",
        &["error: changed: sequence m10_recovery.outbox_id_seq: parameters is bigint start 1 increment 1 from 1 to 1000 cache 1 cycle, should be"],
    ),
    change(
        "create statistics public.added on rail_type, participant_id from symphony.payment_outbox_pending",
        "drop statistics public.added",
        &["warning: unexpected: statistics public.added on symphony.payment_outbox_pending"],
    ),
    change(
        "create publication feed for table symphony.payment_outbox_pending",
        "drop publication feed",
        &["warning: unexpected: publication feed"],
    ),
    change("create publication feed for all tables", "drop publication feed", &["warning: unexpected: publication feed"]),
    change(
        "create publication feed for tables in schema m10_recovery",
        "drop publication feed",
        &["warning: unexpected: publication feed"],
    ),
    change(
        "create subscription drip connection 'host=127.0.0.1 port=PORT user=postgres dbname=feed' publication feed
           with (create_slot = false, slot_name = none, enabled = false, copy_data = false)",
        "drop subscription drip",
        &["error: unexpected: subscription drip to symphony.payment_outbox_attempts"],
    ),
    // Objects in other schemas.
    change(
        "create function public.peek() returns bigint language sql security definer as 'select 1';
         alter function public.peek() owner to symphony_control",
        "drop function public.peek()",
        &["error: unexpected: function public.peek() owned by symphony_control"],
    ),
    change(
        "create function public.peek() returns bigint language sql security definer
           as 'select count(*) from symphony.payment_outbox_pending'",
        "drop function public.peek()",
        &["warning: unexpected: security definer function public.peek() on our tables"],
    ),
    change(
        "create function public.peek() returns bigint language sql security definer set search_path = m10_recovery
           as 'select count(*) from outbox'",
        "drop function public.peek()",
        &["warning: unexpected: security definer function public.peek() on our tables"],
    ),
    change(
        "create function public.peek() returns bigint language sql security definer
           begin atomic select count(*) from symphony.payment_outbox_attempts; end",
        "drop function public.peek()",
        &["warning: unexpected: security definer function public.peek() on our tables"],
    ),
    change(
        "create view public.peek as select payload from symphony.payment_outbox_pending",
        "drop view public.peek",
        &["warning: unexpected: view public.peek on our tables"],
    ),
    change(
        "create view public.peek as select * from symphony.payment_outbox_pending; grant delete on public.peek to public",
        "drop view public.peek",
        &["error: unexpected: view public.peek on our tables"],
    ),
    change(
        "create view public.peek as select 1 as one; alter view public.peek owner to symphony_control",
        "drop view public.peek",
        &["error: unexpected: view public.peek owned by symphony_control"],
    ),
    change(
        "create materialized view public.peek as select payload from symphony.payment_outbox_attempts",
        "drop materialized view public.peek",
        &["warning: unexpected: materialized view public.peek on our tables"],
    ),
    change(
        "create table public.peek (); create rule away as on insert to public.peek do also delete from symphony.payment_outbox_pending",
        "drop table public.peek",
        &["error: unexpected: rules of table public.peek on our tables"],
    ),
    change(
        "create function public.look() returns event_trigger language plpgsql as 'begin end';
         create event trigger looks on ddl_command_end execute function public.look()",
        "drop event trigger looks; drop function public.look()",
        &["warning: unexpected: event trigger looks"],
    ),
    change(
        "create function public.look() returns event_trigger language plpgsql as 'begin end';
         create event trigger looks on ddl_command_end execute function public.look();
         create role demoted superuser; alter event trigger looks owner to demoted; alter role demoted nosuperuser",
        "drop event trigger looks; drop function public.look(); drop role demoted",
        &["error: unexpected: event trigger looks"],
    ),
    // Functions.
    change(
        "alter function symphony.clean_error_text leakproof",
        "alter function symphony.clean_error_text not leakproof",
        &["error: changed: function symphony.clean_error_text(p_text text): properties is plpgsql"],
    ),
    change(
        "alter function symphony.clean_error_text support generate_series_int4_support",
        "update pg_proc set prosupport = 0 where proname = 'clean_error_text';
         delete from pg_depend where classid = 'pg_proc'::regclass and objid = 'symphony.clean_error_text'::regproc and refobjid = 'generate_series_int4_support'::regproc",
        &["error: changed: function symphony.clean_error_text(p_text text): properties is plpgsql"],
    ),
    change(
        "alter function symphony.clean_error_text cost 7",
        "alter function symphony.clean_error_text cost 100",
        &["warning: changed: function symphony.clean_error_text(p_text text): planner estimates is cost 7, should be cost 100"],
    ),
    change(
        "alter function symphony.claim_outbox_batch rows 7",
        "alter function symphony.claim_outbox_batch rows 1000",
        &["warning: changed: function symphony.claim_outbox_batch("],
    ),
    // Objects that change the meaning of expressions.
    change(
        "create function public.lie(symphony.short_text, symphony.short_text) returns boolean language sql as 'select true';
         create operator symphony.= (leftarg = symphony.short_text, rightarg = symphony.short_text, function = public.lie)",
        "drop operator symphony.= (symphony.short_text, symphony.short_text); drop function public.lie",
        &["error: unexpected: operator symphony.=(symphony.short_text,symphony.short_text)"],
    ),
    change(
        "create function public.lie(symphony.short_text, symphony.short_text) returns boolean language sql as 'select true';
         create operator pg_catalog.= (leftarg = symphony.short_text, rightarg = symphony.short_text, function = public.lie)",
        "drop operator pg_catalog.= (symphony.short_text, symphony.short_text); drop function public.lie",
        &["error: unexpected: operator =(symphony.short_text,symphony.short_text) in pg_catalog"],
    ),
    change(
        "create function pg_catalog.peek() returns int language sql as 'select 1'",
        "drop function pg_catalog.peek()",
        &["warning: unexpected: function peek() in pg_catalog"],
    ),
    change(
        "create function public.turn(symphony.outbox_attempt_state) returns int language sql as 'select 1';
         create cast (symphony.outbox_attempt_state as int) with function public.turn(symphony.outbox_attempt_state) as assignment",
        "drop cast (symphony.outbox_attempt_state as int); drop function public.turn",
        &["error: unexpected: cast from symphony.outbox_attempt_state to integer"],
    ),
    change(
        "create function public.turn(boolean) returns bigint language sql as 'select 1';
         create cast (boolean as bigint) with function public.turn(boolean) as implicit",
        "drop cast (boolean as bigint); drop function public.turn",
        &["warning: unexpected: cast from boolean to bigint"],
    ),
    change(
        "create operator class symphony.added for type int using btree as
           operator 1 <, operator 2 <=, operator 3 =, operator 4 >=, operator 5 >, function 1 btint4cmp(int, int)",
        "drop operator family symphony.added using btree",
        &["error: unexpected: operator class symphony.added"],
    ),
    change(
        "create operator family symphony.added using btree",
        "drop operator family symphony.added using btree",
        &["error: unexpected: operator family symphony.added"],
    ),
    change(
        "create collation symphony.added (provider = libc, locale = 'C')",
        "drop collation symphony.added",
        &["error: unexpected: collation symphony.added"],
    ),
    change(
        "create conversion symphony.added for 'LATIN1' to 'UTF8' from iso8859_1_to_utf8",
        "drop conversion symphony.added",
        &["error: unexpected: conversion symphony.added"],
    ),
    change(
        "create text search configuration symphony.added (copy = simple)",
        "drop text search configuration symphony.added",
        &["error: unexpected: text search configuration symphony.added"],
    ),
    change(
        "create text search dictionary symphony.added (template = simple)",
        "drop text search dictionary symphony.added",
        &["error: unexpected: text search dictionary symphony.added"],
    ),
    // Memberships.
    change(
        "grant pg_read_all_data to symphony_readonly",
        "revoke pg_read_all_data from symphony_readonly",
        &["error: unexpected: membership of symphony_readonly in pg_read_all_data"],
    ),
    change(
        "grant pg_write_all_data to symphony_ingest",
        "revoke pg_write_all_data from symphony_ingest",
        &["error: unexpected: membership of symphony_ingest in pg_write_all_data"],
    ),
    change(
        "grant pg_execute_server_program to symphony_executor",
        "revoke pg_execute_server_program from symphony_executor",
        &["error: unexpected: membership of symphony_executor in pg_execute_server_program"],
    ),
    change(
        "grant pg_write_server_files to symphony_operator",
        "revoke pg_write_server_files from symphony_operator",
        &["error: unexpected: membership of symphony_operator in pg_write_server_files"],
    ),
    change(
        "grant pg_read_server_files to symphony_control",
        "revoke pg_read_server_files from symphony_control",
        &["error: unexpected: membership of symphony_control in pg_read_server_files"],
    ),
    change(
        "grant pg_checkpoint to symphony_operator",
        "revoke pg_checkpoint from symphony_operator",
        &["warning: unexpected: membership of symphony_operator in pg_checkpoint"],
    ),
    change(
        "create role boss superuser; grant boss to symphony_auditor",
        "drop role boss",
        &["error: unexpected: membership of symphony_auditor in boss"],
    ),
    change(
        "create role team; grant pg_write_all_data to team; grant team to symphony_ingest",
        "drop role team",
        &["error: unexpected: membership of symphony_ingest in pg_write_all_data"],
    ),
    change(
        "grant symphony_operator to symphony_ingest",
        "revoke symphony_operator from symphony_ingest",
        &["error: unexpected: membership of symphony_ingest in symphony_operator"],
    ),
    change(
        "create role team; grant symphony_control to team; grant team to mallory",
        "drop role team",
        &[
            "error: unexpected: membership of mallory in symphony_control",
            "error: unexpected: membership of team in symphony_control",
        ],
    ),
    since(
        16,
        change(
            "grant symphony_control to mallory with admin true, inherit false, set false",
            "revoke symphony_control from mallory",
            &["error: unexpected: membership of mallory in symphony_control"],
        ),
    ),
    since(
        16,
        change(
            "grant symphony_control to mallory with admin false, inherit true, set false",
            "revoke symphony_control from mallory",
            &["error: unexpected: membership of mallory in symphony_control"],
        ),
    ),
    since(
        16,
        change(
            "grant symphony_control to mallory with admin false, inherit false, set true",
            "revoke symphony_control from mallory",
            &["error: unexpected: membership of mallory in symphony_control"],
        ),
    ),
    since(
        16,
        change(
            "create role installer createrole; grant symphony_control to installer with admin true, inherit false, set false",
            "drop role installer",
            &["warning: unexpected: membership of installer in symphony_control"],
        ),
    ),
    change(
        "grant symphony_executor to mallory with admin option",
        "revoke symphony_executor from mallory",
        &["warning: unexpected: right of mallory to grant symphony_executor"],
    ),
    change(
        "alter role symphony_executor login",
        "alter role symphony_executor nologin",
        &["error: changed: role symphony_executor: attributes is LOGIN, should be NOLOGIN"],
    ),
    // Settings.
    change(
        "alter database shop set session_replication_role = replica",
        "alter database shop reset session_replication_role",
        &["error: unexpected: setting session_replication_role of database shop"],
    ),
    change(
        "alter role all set session_replication_role = local",
        "alter role all reset session_replication_role",
        &["error: unexpected: setting session_replication_role of database shop"],
    ),
    change(
        "grant symphony_executor to mallory; alter role mallory in database shop set session_replication_role = replica",
        "alter role mallory in database shop reset session_replication_role; revoke symphony_executor from mallory",
        &["error: unexpected: setting session_replication_role of login mallory"],
    ),
    change(
        "alter database shop set synchronous_commit = off",
        "alter database shop reset synchronous_commit",
        &["error: unexpected: setting synchronous_commit of database shop"],
    ),
    change(
        "alter database shop set synchronous_commit = local",
        "alter database shop reset synchronous_commit",
        &["warning: unexpected: setting synchronous_commit of database shop"],
    ),
    change(
        "alter database shop set symphony.claim_low_watermarks = '{}'",
        "alter database shop reset symphony.claim_low_watermarks",
        &["error: unexpected: setting symphony.claim_low_watermarks of database shop"],
    ),
    change(
        "alter database shop set search_path = public",
        "alter database shop reset search_path",
        &["warning: unexpected: setting search_path of database shop"],
    ),
    change(
        "alter database shop set row_security = off",
        "alter database shop reset row_security",
        &["warning: unexpected: setting row_security of database shop"],
    ),
    change(
        "alter database shop set default_transaction_isolation = serializable",
        "alter database shop reset default_transaction_isolation",
        &["warning: unexpected: setting default_transaction_isolation of database shop"],
    ),
    change(
        "alter database shop set track_counts = off",
        "alter database shop reset track_counts",
        &["warning: unexpected: setting track_counts of database shop"],
    ),
    change(
        "alter role symphony_executor set search_path = public",
        "alter role symphony_executor reset search_path",
        &["warning: unexpected: setting search_path of role symphony_executor"],
    ),
    change(
        "alter default privileges for role symphony_control grant select on tables to public",
        "alter default privileges for role symphony_control revoke select on tables from public",
        &["error: unexpected: default rights of symphony_control on tables"],
    ),
];

/// Changes of a database with payments alone: names that look like those of another lane.
const PAYMENT_LANE: &[Change] = &[
    change(
        "create function public.copies() returns trigger language plpgsql as 'begin return new; end';
         create trigger \"on m10_recovery.x\" after insert on symphony.payment_outbox_pending for each row execute function public.copies()",
        "drop trigger \"on m10_recovery.x\" on symphony.payment_outbox_pending; drop function public.copies()",
        &["error: unexpected: trigger \"on m10_recovery.x\" on symphony.payment_outbox_pending"],
    ),
    change(
        "create rule \"on m10_recovery.x\" as on insert to symphony.payment_outbox_operations do instead nothing",
        "drop rule \"on m10_recovery.x\" on symphony.payment_outbox_operations",
        &["error: unexpected: rule \"on m10_recovery.x\" on symphony.payment_outbox_operations"],
    ),
    change(
        "create function symphony.mark_metadata_dlq(p_id uuid, p_claim_token uuid, p_error text) returns void
           language sql security definer as '';
         alter function symphony.mark_metadata_dlq owner to symphony_control;
         revoke all on function symphony.mark_metadata_dlq from public",
        "drop function symphony.mark_metadata_dlq",
        &["error: unexpected: function symphony.mark_metadata_dlq("],
    ),
    change(
        "create schema m10_recovery authorization symphony_control",
        "drop schema m10_recovery",
        &["error: unexpected: schema m10_recovery"],
    ),
];

async fn verify_reports_each(cluster: &Cluster, name: &str, lanes: &[&str], changes: &[Change]) {
    let superuser = installed(cluster, name, lanes).await;
    let mallory = format!("postgres://mallory@127.0.0.1:{}/{name}", cluster.port());
    // Any login may run verify, so a login without rights does. Some changes name mallory, none names anna.
    let anna = mallory.replace("mallory", "anna");
    let mut wrong = Vec::new();
    for change in changes.iter().filter(|change| change.since <= cluster.binaries().major()) {
        let statement = change.apply.replace("PORT", &cluster.port().to_string());
        superuser.batch_execute(&statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        let verified = symphony(&anna, &["verify"]);
        let reported = differences(&verified);
        let is_error = change.reported.iter().any(|line| line.starts_with("error"));
        let as_expected = reported.len() == change.reported.len()
            && reported.iter().zip(change.reported).all(|(line, expected)| line.starts_with(expected))
            && verified.code == i32::from(is_error);
        if !as_expected {
            wrong.push(format!("{statement}\nshould be: {:?}\n{}", change.reported, verified.all()));
        }
        superuser
            .batch_execute(change.revert)
            .await
            .unwrap_or_else(|error| panic!("{}: {error:?}", change.revert));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    symphony(&anna, &["verify", "--strict"]).exits(0);
}

/// Roles and settings belong to the whole server, so this test starts a private server.
#[tokio::test]
async fn each_kind_of_drift_is_reported_alone_and_with_its_severity() {
    let cluster = Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap();
    let superuser = connect(&cluster.url("postgres")).await;
    superuser.batch_execute("create role mallory login; create role anna login").await.unwrap();
    superuser.batch_execute("create database feed").await.unwrap();
    connect(&cluster.url("feed"))
        .await
        .batch_execute(
            "create schema symphony; create table symphony.payment_outbox_attempts ();
             create publication feed for table symphony.payment_outbox_attempts",
        )
        .await
        .unwrap();
    verify_reports_each(&cluster, "shop", &["payment", "event", "metadata"], EVERY_LANE).await;
    verify_reports_each(&cluster, "payments", &["payment"], PAYMENT_LANE).await;
}

#[tokio::test]
async fn warnings_pass_unless_verify_is_strict() {
    let cluster = Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap();
    let superuser = installed(&cluster, "shop", &["payment", "event"]).await;
    let url = cluster.url("shop");
    super::run_check(&cluster, &superuser, "shop").await.exits(0);
    superuser.batch_execute("create publication feed for all tables").await.unwrap();
    let json = symphony(&url, &["verify", "--json"]).exits(0).json();
    assert_eq!((&json["clean"], &json["errors"], &json["warnings"]), (&false.into(), &0.into(), &1.into()));
    let difference =
        serde_json::json!({"severity": "warning", "difference": "unexpected", "object": "publication feed"});
    assert_eq!(json["differences"], serde_json::json!([difference]));
    symphony(&url, &["verify", "--strict"]).exits(1);
    symphony(&url, &["install"]).exits(0);
    let checked = super::run_check(&cluster, &superuser, "shop").await.exits(0);
    assert!(checked.stderr.contains("unexpected: publication feed"), "{}", checked.all());

    superuser.batch_execute("create table symphony.added ()").await.unwrap();
    let refused = super::run_check(&cluster, &superuser, "shop").await.exits(1);
    assert!(refused.stderr.contains("unexpected: table symphony.added"), "{}", refused.all());
}

/// The facts about one partition of the ledger are expected of each, however many there are.
#[tokio::test]
async fn partitions_of_a_year_are_verified_and_a_missing_one_is_named() {
    let cluster = Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap();
    let superuser = installed(&cluster, "shop", &["payment"]).await;
    let url = cluster.url("shop");
    ledger_partitions::age(&superuser, 56).await.unwrap();
    let json = symphony(&url, &["maintain", "--json"]).exits(0).json();
    let partitions = json["partitions"].as_array().unwrap();
    assert_eq!((partitions.len(), json["partitions_ahead"].as_i64()), (61, Some(4)));
    assert_eq!(json["indexed"].as_array().unwrap().len(), 56, "{json}");
    symphony(&url, &["verify", "--strict"]).exits(0);
    symphony(&url, &["install"]).exits(0);

    let lost = partitions[20]["partition_name"].as_str().unwrap();
    superuser.batch_execute(&format!("drop table symphony.{lost}")).await.unwrap();
    let found = symphony(&url, &["verify"]).exits(1);
    let before = partitions[19]["partition_name"].as_str().unwrap();
    assert_eq!(
        differences(&found),
        [format!(
            "error: changed: ranges of symphony.payment_outbox_attempts: definition is a gap after symphony.{before}, \
             should be from MINVALUE to MAXVALUE without a gap"
        )]
    );

    let detached = partitions[30]["partition_name"].as_str().unwrap();
    let detach = format!("alter table symphony.payment_outbox_attempts detach partition symphony.{detached}");
    superuser.batch_execute(&detach).await.unwrap();
    let found = symphony(&url, &["verify"]).exits(1);
    assert!(found.stdout.contains(&format!("unexpected: table symphony.{detached}\n")), "{}", found.all());
}
