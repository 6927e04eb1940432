//! Plants every kind of drift, one at a time: verify must name exactly that, with its severity.

use symphony_proof::kit::postgres::{Binaries, Cluster, Options};

use super::{connect, differences, installed, program::symphony};

/// One kind of drift.
struct Plant {
    /// The oldest PostgreSQL that has it.
    since: u32,
    plant: &'static str,
    remove: &'static str,
    /// How each line of verify begins, in this order.
    named: &'static [&'static str],
}

const fn plant(plant: &'static str, remove: &'static str, named: &'static [&'static str]) -> Plant {
    Plant { since: 15, plant, remove, named }
}

const fn since(major: u32, plant: Plant) -> Plant {
    Plant { since: major, ..plant }
}

/// In a database with every lane.
const EVERY_LANE: &[Plant] = &[
    // Tables: inheritance, keys, storage, replication.
    plant(
        "create table public.par (like symphony.payment_outbox_attempts);
         alter table symphony.payment_outbox_attempts inherit public.par",
        "alter table symphony.payment_outbox_attempts no inherit public.par; drop table public.par",
        &["error: unexpected: parent public.par of symphony.payment_outbox_attempts"],
    ),
    plant(
        "create table public.kid () inherits (symphony.payment_outbox_pending)",
        "drop table public.kid",
        &["error: unexpected: child public.kid of symphony.payment_outbox_pending"],
    ),
    plant(
        "create table public.note (outbox_id uuid, constraint of_outbox foreign key (outbox_id) references symphony.payment_outbox_pending)",
        "drop table public.note",
        &["error: unexpected: foreign key of_outbox of public.note to symphony.payment_outbox_pending"],
    ),
    plant(
        "alter table symphony.payment_outbox_pending replica identity full",
        "alter table symphony.payment_outbox_pending replica identity default",
        &["warning: changed: table symphony.payment_outbox_pending: replica identity is full, should be default"],
    ),
    plant(
        "alter table symphony.payment_outbox_pending set (autovacuum_enabled = off)",
        "alter table symphony.payment_outbox_pending reset (autovacuum_enabled)",
        &["warning: changed: table symphony.payment_outbox_pending: autovacuum is off, should be on"],
    ),
    plant(
        "alter table symphony.payment_outbox_pending set (toast.autovacuum_enabled = false)",
        "alter table symphony.payment_outbox_pending reset (toast.autovacuum_enabled)",
        &["warning: changed: table symphony.payment_outbox_pending: autovacuum is off, should be on"],
    ),
    plant(
        "alter table symphony.payment_outbox_pending set (user_catalog_table = true)",
        "alter table symphony.payment_outbox_pending reset (user_catalog_table)",
        &["warning: changed: table symphony.payment_outbox_pending: user catalog table is yes, should be no"],
    ),
    plant(
        "create access method heap2 type table handler heap_tableam_handler;
         alter table symphony.payment_outbox_attempts set access method heap2",
        "alter table symphony.payment_outbox_attempts set access method heap; drop access method heap2",
        &["warning: changed: table symphony.payment_outbox_attempts: access method is heap2, should be heap"],
    ),
    plant(
        "alter table symphony.payment_outbox_attempts set unlogged",
        "alter table symphony.payment_outbox_attempts set logged",
        &["error: changed: table symphony.payment_outbox_attempts: persistence is unlogged, should be permanent"],
    ),
    plant(
        "alter sequence m10_recovery.outbox_id_seq cycle maxvalue 1000",
        "alter sequence m10_recovery.outbox_id_seq no cycle no maxvalue",
        &["error: changed: sequence m10_recovery.outbox_id_seq: parameters is bigint start 1 increment 1 from 1 to 1000 cache 1 cycle, should be"],
    ),
    plant(
        "create statistics public.planted on rail_type, participant_id from symphony.payment_outbox_pending",
        "drop statistics public.planted",
        &["warning: unexpected: statistics public.planted on symphony.payment_outbox_pending"],
    ),
    plant(
        "create publication feed for table symphony.payment_outbox_pending",
        "drop publication feed",
        &["warning: unexpected: publication feed"],
    ),
    plant("create publication feed for all tables", "drop publication feed", &["warning: unexpected: publication feed"]),
    plant(
        "create publication feed for tables in schema m10_recovery",
        "drop publication feed",
        &["warning: unexpected: publication feed"],
    ),
    plant(
        "create subscription drip connection 'host=127.0.0.1 port=PORT user=postgres dbname=feed' publication feed
           with (create_slot = false, slot_name = none, enabled = false, copy_data = false)",
        "drop subscription drip",
        &["error: unexpected: subscription drip to symphony.payment_outbox_attempts"],
    ),
    // What lies elsewhere.
    plant(
        "create function public.peek() returns bigint language sql security definer as 'select 1';
         alter function public.peek() owner to symphony_control",
        "drop function public.peek()",
        &["error: unexpected: function public.peek() owned by symphony_control"],
    ),
    plant(
        "create function public.peek() returns bigint language sql security definer
           as 'select count(*) from symphony.payment_outbox_pending'",
        "drop function public.peek()",
        &["warning: unexpected: security definer function public.peek() on our tables"],
    ),
    plant(
        "create function public.peek() returns bigint language sql security definer set search_path = m10_recovery
           as 'select count(*) from outbox'",
        "drop function public.peek()",
        &["warning: unexpected: security definer function public.peek() on our tables"],
    ),
    plant(
        "create function public.peek() returns bigint language sql security definer
           begin atomic select count(*) from symphony.payment_outbox_attempts; end",
        "drop function public.peek()",
        &["warning: unexpected: security definer function public.peek() on our tables"],
    ),
    plant(
        "create view public.peek as select payload from symphony.payment_outbox_pending",
        "drop view public.peek",
        &["warning: unexpected: view public.peek on our tables"],
    ),
    plant(
        "create view public.peek as select * from symphony.payment_outbox_pending; grant delete on public.peek to public",
        "drop view public.peek",
        &["error: unexpected: view public.peek on our tables"],
    ),
    plant(
        "create view public.peek as select 1 as one; alter view public.peek owner to symphony_control",
        "drop view public.peek",
        &["error: unexpected: view public.peek owned by symphony_control"],
    ),
    plant(
        "create materialized view public.peek as select payload from symphony.payment_outbox_attempts",
        "drop materialized view public.peek",
        &["warning: unexpected: materialized view public.peek on our tables"],
    ),
    plant(
        "create table public.peek (); create rule away as on insert to public.peek do also delete from symphony.payment_outbox_pending",
        "drop table public.peek",
        &["error: unexpected: rules of table public.peek on our tables"],
    ),
    plant(
        "create function public.look() returns event_trigger language plpgsql as 'begin end';
         create event trigger looks on ddl_command_end execute function public.look()",
        "drop event trigger looks; drop function public.look()",
        &["warning: unexpected: event trigger looks"],
    ),
    plant(
        "create function public.look() returns event_trigger language plpgsql as 'begin end';
         create event trigger looks on ddl_command_end execute function public.look();
         create role demoted superuser; alter event trigger looks owner to demoted; alter role demoted nosuperuser",
        "drop event trigger looks; drop function public.look(); drop role demoted",
        &["error: unexpected: event trigger looks"],
    ),
    // Functions.
    plant(
        "alter function symphony.clean_error_text leakproof",
        "alter function symphony.clean_error_text not leakproof",
        &["error: changed: function symphony.clean_error_text(p_text text): properties is plpgsql"],
    ),
    plant(
        "alter function symphony.clean_error_text support generate_series_int4_support",
        "update pg_proc set prosupport = 0 where proname = 'clean_error_text';
         delete from pg_depend where classid = 'pg_proc'::regclass and objid = 'symphony.clean_error_text'::regproc and refobjid = 'generate_series_int4_support'::regproc",
        &["error: changed: function symphony.clean_error_text(p_text text): properties is plpgsql"],
    ),
    plant(
        "alter function symphony.clean_error_text cost 7",
        "alter function symphony.clean_error_text cost 100",
        &["warning: changed: function symphony.clean_error_text(p_text text): planner estimates is cost 7, should be cost 100"],
    ),
    plant(
        "alter function symphony.claim_outbox_batch rows 7",
        "alter function symphony.claim_outbox_batch rows 1000",
        &["warning: changed: function symphony.claim_outbox_batch("],
    ),
    // What gives expressions another meaning.
    plant(
        "create function public.lie(symphony.short_text, symphony.short_text) returns boolean language sql as 'select true';
         create operator symphony.= (leftarg = symphony.short_text, rightarg = symphony.short_text, function = public.lie)",
        "drop operator symphony.= (symphony.short_text, symphony.short_text); drop function public.lie",
        &["error: unexpected: operator symphony.=(symphony.short_text,symphony.short_text)"],
    ),
    plant(
        "create function public.lie(symphony.short_text, symphony.short_text) returns boolean language sql as 'select true';
         create operator pg_catalog.= (leftarg = symphony.short_text, rightarg = symphony.short_text, function = public.lie)",
        "drop operator pg_catalog.= (symphony.short_text, symphony.short_text); drop function public.lie",
        &["error: unexpected: operator =(symphony.short_text,symphony.short_text) in pg_catalog"],
    ),
    plant(
        "create function pg_catalog.peek() returns int language sql as 'select 1'",
        "drop function pg_catalog.peek()",
        &["warning: unexpected: function peek() in pg_catalog"],
    ),
    plant(
        "create function public.turn(symphony.outbox_attempt_state) returns int language sql as 'select 1';
         create cast (symphony.outbox_attempt_state as int) with function public.turn(symphony.outbox_attempt_state) as assignment",
        "drop cast (symphony.outbox_attempt_state as int); drop function public.turn",
        &["error: unexpected: cast from symphony.outbox_attempt_state to integer"],
    ),
    plant(
        "create function public.turn(boolean) returns bigint language sql as 'select 1';
         create cast (boolean as bigint) with function public.turn(boolean) as implicit",
        "drop cast (boolean as bigint); drop function public.turn",
        &["warning: unexpected: cast from boolean to bigint"],
    ),
    plant(
        "create operator class symphony.planted for type int using btree as
           operator 1 <, operator 2 <=, operator 3 =, operator 4 >=, operator 5 >, function 1 btint4cmp(int, int)",
        "drop operator family symphony.planted using btree",
        &["error: unexpected: operator class symphony.planted"],
    ),
    plant(
        "create operator family symphony.planted using btree",
        "drop operator family symphony.planted using btree",
        &["error: unexpected: operator family symphony.planted"],
    ),
    plant(
        "create collation symphony.planted (provider = libc, locale = 'C')",
        "drop collation symphony.planted",
        &["error: unexpected: collation symphony.planted"],
    ),
    plant(
        "create conversion symphony.planted for 'LATIN1' to 'UTF8' from iso8859_1_to_utf8",
        "drop conversion symphony.planted",
        &["error: unexpected: conversion symphony.planted"],
    ),
    plant(
        "create text search configuration symphony.planted (copy = simple)",
        "drop text search configuration symphony.planted",
        &["error: unexpected: text search configuration symphony.planted"],
    ),
    plant(
        "create text search dictionary symphony.planted (template = simple)",
        "drop text search dictionary symphony.planted",
        &["error: unexpected: text search dictionary symphony.planted"],
    ),
    // Memberships.
    plant(
        "grant pg_read_all_data to symphony_readonly",
        "revoke pg_read_all_data from symphony_readonly",
        &["error: unexpected: membership of symphony_readonly in pg_read_all_data"],
    ),
    plant(
        "grant pg_write_all_data to symphony_ingest",
        "revoke pg_write_all_data from symphony_ingest",
        &["error: unexpected: membership of symphony_ingest in pg_write_all_data"],
    ),
    plant(
        "grant pg_execute_server_program to symphony_executor",
        "revoke pg_execute_server_program from symphony_executor",
        &["error: unexpected: membership of symphony_executor in pg_execute_server_program"],
    ),
    plant(
        "grant pg_write_server_files to symphony_operator",
        "revoke pg_write_server_files from symphony_operator",
        &["error: unexpected: membership of symphony_operator in pg_write_server_files"],
    ),
    plant(
        "grant pg_read_server_files to symphony_control",
        "revoke pg_read_server_files from symphony_control",
        &["error: unexpected: membership of symphony_control in pg_read_server_files"],
    ),
    plant(
        "grant pg_checkpoint to symphony_operator",
        "revoke pg_checkpoint from symphony_operator",
        &["warning: unexpected: membership of symphony_operator in pg_checkpoint"],
    ),
    plant(
        "create role boss superuser; grant boss to symphony_auditor",
        "drop role boss",
        &["error: unexpected: membership of symphony_auditor in boss"],
    ),
    plant(
        "create role team; grant pg_write_all_data to team; grant team to symphony_ingest",
        "drop role team",
        &["error: unexpected: membership of symphony_ingest in pg_write_all_data"],
    ),
    plant(
        "grant symphony_operator to symphony_ingest",
        "revoke symphony_operator from symphony_ingest",
        &["error: unexpected: membership of symphony_ingest in symphony_operator"],
    ),
    plant(
        "create role team; grant symphony_control to team; grant team to mallory",
        "drop role team",
        &[
            "error: unexpected: membership of mallory in symphony_control",
            "error: unexpected: membership of team in symphony_control",
        ],
    ),
    since(
        16,
        plant(
            "grant symphony_control to mallory with admin true, inherit false, set false",
            "revoke symphony_control from mallory",
            &["error: unexpected: membership of mallory in symphony_control"],
        ),
    ),
    since(
        16,
        plant(
            "grant symphony_control to mallory with admin false, inherit true, set false",
            "revoke symphony_control from mallory",
            &["error: unexpected: membership of mallory in symphony_control"],
        ),
    ),
    since(
        16,
        plant(
            "grant symphony_control to mallory with admin false, inherit false, set true",
            "revoke symphony_control from mallory",
            &["error: unexpected: membership of mallory in symphony_control"],
        ),
    ),
    since(
        16,
        plant(
            "create role installer createrole; grant symphony_control to installer with admin true, inherit false, set false",
            "drop role installer",
            &["warning: unexpected: membership of installer in symphony_control"],
        ),
    ),
    plant(
        "grant symphony_executor to mallory with admin option",
        "revoke symphony_executor from mallory",
        &["warning: unexpected: right of mallory to grant symphony_executor"],
    ),
    plant(
        "alter role symphony_executor login",
        "alter role symphony_executor nologin",
        &["error: changed: role symphony_executor: attributes is LOGIN, should be NOLOGIN"],
    ),
    // Settings.
    plant(
        "alter database shop set session_replication_role = replica",
        "alter database shop reset session_replication_role",
        &["error: unexpected: setting session_replication_role of database shop"],
    ),
    plant(
        "alter role all set session_replication_role = local",
        "alter role all reset session_replication_role",
        &["error: unexpected: setting session_replication_role of database shop"],
    ),
    plant(
        "grant symphony_executor to mallory; alter role mallory in database shop set session_replication_role = replica",
        "alter role mallory in database shop reset session_replication_role; revoke symphony_executor from mallory",
        &["error: unexpected: setting session_replication_role of login mallory"],
    ),
    plant(
        "alter database shop set synchronous_commit = off",
        "alter database shop reset synchronous_commit",
        &["error: unexpected: setting synchronous_commit of database shop"],
    ),
    plant(
        "alter database shop set synchronous_commit = local",
        "alter database shop reset synchronous_commit",
        &["warning: unexpected: setting synchronous_commit of database shop"],
    ),
    plant(
        "alter database shop set symphony.claim_floors = '{}'",
        "alter database shop reset symphony.claim_floors",
        &["error: unexpected: setting symphony.claim_floors of database shop"],
    ),
    plant(
        "alter database shop set search_path = public",
        "alter database shop reset search_path",
        &["warning: unexpected: setting search_path of database shop"],
    ),
    plant(
        "alter database shop set row_security = off",
        "alter database shop reset row_security",
        &["warning: unexpected: setting row_security of database shop"],
    ),
    plant(
        "alter database shop set default_transaction_isolation = serializable",
        "alter database shop reset default_transaction_isolation",
        &["warning: unexpected: setting default_transaction_isolation of database shop"],
    ),
    plant(
        "alter database shop set track_counts = off",
        "alter database shop reset track_counts",
        &["warning: unexpected: setting track_counts of database shop"],
    ),
    plant(
        "alter role symphony_executor set search_path = public",
        "alter role symphony_executor reset search_path",
        &["warning: unexpected: setting search_path of role symphony_executor"],
    ),
    plant(
        "alter default privileges for role symphony_control grant select on tables to public",
        "alter default privileges for role symphony_control revoke select on tables from public",
        &["error: unexpected: default rights of symphony_control on tables"],
    ),
];

/// In a database with payments alone: names that look like those of another lane.
const PAYMENT: &[Plant] = &[
    plant(
        "create function public.copies() returns trigger language plpgsql as 'begin return new; end';
         create trigger \"on m10_recovery.x\" after insert on symphony.payment_outbox_pending for each row execute function public.copies()",
        "drop trigger \"on m10_recovery.x\" on symphony.payment_outbox_pending; drop function public.copies()",
        &["error: unexpected: trigger \"on m10_recovery.x\" on symphony.payment_outbox_pending"],
    ),
    plant(
        "create rule \"on m10_recovery.x\" as on insert to symphony.payment_outbox_operations do instead nothing",
        "drop rule \"on m10_recovery.x\" on symphony.payment_outbox_operations",
        &["error: unexpected: rule \"on m10_recovery.x\" on symphony.payment_outbox_operations"],
    ),
    plant(
        "create function symphony.mark_metadata_dlq(p_id uuid, p_claim_token uuid, p_error text) returns void
           language sql security definer as '';
         alter function symphony.mark_metadata_dlq owner to symphony_control;
         revoke all on function symphony.mark_metadata_dlq from public",
        "drop function symphony.mark_metadata_dlq",
        &["error: unexpected: function symphony.mark_metadata_dlq("],
    ),
    plant(
        "create schema m10_recovery authorization symphony_control",
        "drop schema m10_recovery",
        &["error: unexpected: schema m10_recovery"],
    ),
];

async fn each_is_named(cluster: &Cluster, name: &str, lanes: &[&str], plants: &[Plant]) {
    let superuser = installed(cluster, name, lanes).await;
    let mallory = format!("postgres://mallory@127.0.0.1:{}/{name}", cluster.port());
    // Any login may look, so one without rights does; mallory is a name in some of the plants, anna in none.
    let anna = mallory.replace("mallory", "anna");
    let mut wrong = Vec::new();
    for plant in plants.iter().filter(|plant| plant.since <= cluster.binaries().major()) {
        let planted = plant.plant.replace("PORT", &cluster.port().to_string());
        superuser.batch_execute(&planted).await.unwrap_or_else(|error| panic!("{planted}: {error:?}"));
        let verified = symphony(&anna, &["verify"]);
        let named = differences(&verified);
        let is_error = plant.named.iter().any(|named| named.starts_with("error"));
        let as_expected = named.len() == plant.named.len()
            && named.iter().zip(plant.named).all(|(named, expected)| named.starts_with(expected))
            && verified.code == i32::from(is_error);
        if !as_expected {
            wrong.push(format!("{planted}\nshould be: {:?}\n{}", plant.named, verified.all()));
        }
        superuser.batch_execute(plant.remove).await.unwrap_or_else(|error| panic!("{}: {error:?}", plant.remove));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    symphony(&anna, &["verify", "--strict"]).exits(0);
}

/// Roles and settings belong to the whole server, so this has a server of its own.
#[tokio::test]
async fn each_kind_of_drift_is_named_alone_and_with_its_severity() {
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
    each_is_named(&cluster, "shop", &["payment", "event", "metadata"], EVERY_LANE).await;
    each_is_named(&cluster, "payments", &["payment"], PAYMENT).await;
}

#[tokio::test]
async fn warnings_pass_unless_they_are_not_to() {
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

    superuser.batch_execute("create table symphony.planted ()").await.unwrap();
    let refused = super::run_check(&cluster, &superuser, "shop").await.exits(1);
    assert!(refused.stderr.contains("unexpected: table symphony.planted"), "{}", refused.all());
}
