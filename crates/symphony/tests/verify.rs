//! `symphony verify` names every kind of drift, and `symphony install` repairs what an install decides.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod program;

use program::symphony;
use symphony_testkit::postgres::{Binaries, Cluster, Options};
use symphony_testkit::test_database::Server;

/// What an install does about a drift.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Install {
    /// It puts it right.
    Repairs,
    /// It says that an operator must.
    LeavesToPeople,
}

/// Plants a drift in a test database: verify must name it, and install repair what it can.
async fn drift(planted: &str, named: &str, install: Install) {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    symphony(&database.url(), &["verify"]).exits(0);
    let superuser = database.connect().await.unwrap();
    superuser.batch_execute(planted).await.unwrap();
    drop(superuser);

    let found = symphony(&database.url(), &["verify"]).exits(1);
    assert!(found.stdout.lines().any(|line| line.contains(named)), "{planted}\n{}", found.all());
    let json = symphony(&database.url(), &["verify", "--json"]).exits(1).json();
    assert_eq!(json["clean"], false);
    assert_eq!(json["differences"].as_array().unwrap().len(), found.stdout.lines().count());

    match install {
        Install::Repairs => {
            symphony(&database.url(), &["install"]).exits(0);
            symphony(&database.url(), &["verify"]).exits(0);
        }
        Install::LeavesToPeople => {
            let output = symphony(&database.url(), &["install"]);
            assert_ne!(output.code, 0, "{planted}\n{}", output.all());
            symphony(&database.url(), &["verify"]).exits(1);
        }
    }
    database.close().await.unwrap();
}

macro_rules! drifts {
    ($($name:ident: $planted:expr => $named:expr, $install:ident;)+) => {
        $(
            #[tokio::test]
            async fn $name() {
                drift($planted, $named, Install::$install).await;
            }
        )+
    };
}

drifts! {
    an_added_column_is_named:
        "alter table symphony.payment_outbox_pending add column colour text"
        => "unexpected: column symphony.payment_outbox_pending.colour", LeavesToPeople;
    a_dropped_constraint_is_named:
        "alter table symphony.payment_outbox_pending drop constraint payment_outbox_pending_lease_is_whole_or_absent"
        => "missing: constraint payment_outbox_pending_lease_is_whole_or_absent", LeavesToPeople;
    a_dropped_index_is_named:
        "drop index symphony.payment_outbox_attempts_one_terminal_per_outbox"
        => "missing: index payment_outbox_attempts_one_terminal_per_outbox", LeavesToPeople;
    a_changed_default_is_named:
        "alter table symphony.payment_rails alter column max_attempts set default 3"
        => "changed: column symphony.payment_rails.max_attempts: definition is integer not null default 3", LeavesToPeople;
    a_disabled_trigger_is_named:
        "do $$ declare t name; begin
           select tgname into strict t from pg_trigger
           where tgrelid = 'symphony.payment_outbox_operations'::regclass and not tgisinternal limit 1;
           execute format('alter table symphony.payment_outbox_operations disable trigger %I', t);
         end $$"
        => "disabled, should be", Repairs;
    a_dropped_trigger_is_named:
        "do $$ declare t name; begin
           select tgname into strict t from pg_trigger
           where tgrelid = 'symphony.payment_outbox_attempts'::regclass and not tgisinternal limit 1;
           execute format('drop trigger %I on symphony.payment_outbox_attempts', t);
         end $$"
        => "missing: trigger", Repairs;
    an_index_of_the_same_name_that_is_not_unique_is_named:
        "drop index symphony.payment_outbox_attempts_one_terminal_per_outbox;
         create index payment_outbox_attempts_one_terminal_per_outbox on symphony.payment_outbox_attempts (outbox_id)
           where state in ('DISPATCHED', 'FAILED')"
        => "changed: index payment_outbox_attempts_one_terminal_per_outbox on symphony.payment_outbox_attempts: definition is CREATE INDEX",
        LeavesToPeople;
    a_changed_function_body_is_named:
        "create or replace function symphony.caller_traceparent() returns text language sql stable
           set search_path = pg_catalog, symphony, pg_temp as $$ select null::text $$"
        => "changed: function symphony.caller_traceparent(): body", Repairs;
    an_overload_is_named:
        "create function symphony.claim_low_watermark(int) returns int language sql as 'select 1'"
        => "unexpected: function symphony.claim_low_watermark(integer)", LeavesToPeople;
    another_owner_of_a_function_is_named:
        "alter function symphony.claim_outbox_batch owner to postgres"
        => "owner is postgres, should be symphony_control", LeavesToPeople;
    another_search_path_of_a_function_is_named:
        "alter function symphony.claim_outbox_batch set search_path = public, symphony"
        => "settings is", Repairs;
    a_function_that_is_no_definer_any_more_is_named:
        "alter function symphony.claim_outbox_batch security invoker"
        => "security invoker", Repairs;
    a_grant_to_public_is_named:
        "grant execute on function symphony.claim_outbox_batch to public"
        => "unexpected: right of PUBLIC to EXECUTE on function symphony.claim_outbox_batch", Repairs;
    a_grant_on_a_table_is_named:
        "grant insert on symphony.payment_outbox_pending to symphony_ingest"
        => "unexpected: right of symphony_ingest to INSERT on table symphony.payment_outbox_pending", Repairs;
    a_grant_on_a_column_is_named:
        "grant update (payload) on symphony.payment_outbox_pending to symphony_executor"
        => "unexpected: right of symphony_executor to UPDATE on table symphony.payment_outbox_pending (payload)", Repairs;
    a_revoked_grant_is_named:
        "revoke execute on function symphony.claim_outbox_batch from symphony_executor"
        => "missing: right of symphony_executor to EXECUTE on function symphony.claim_outbox_batch", Repairs;
    an_extra_table_is_named:
        "create table symphony.notes (note text)"
        => "unexpected: table symphony.notes", LeavesToPeople;
    row_security_is_named:
        "alter table symphony.payment_outbox_pending enable row level security"
        => "row security is on, should be off", LeavesToPeople;
    a_view_in_other_words_is_named:
        "create or replace view symphony.payment_rail_policies as
         select r.rail_type, r.max_attempts, r.backoff_base_seconds, r.backoff_cap_seconds, r.ordered, r.max_in_flight,
                false as paused, r.on_unknown, r.key_memory_seconds, r.updated_by, r.updated_at, r.retired_at,
                r.on_epoch_change, r.held_since_epoch, r.publish_outcomes, r.on_failure, r.max_per_second, r.confirm_every_seconds
         from symphony.payment_rails r"
        => "changed: view symphony.payment_rail_policies: definition", Repairs;
    default_rights_are_named:
        "alter default privileges for role symphony_control in schema symphony grant select on tables to public"
        => "default rights of symphony_control", LeavesToPeople;
    default_rights_in_every_schema_are_named:
        "alter default privileges for role symphony_control grant execute on functions to symphony_ingest"
        => "default rights of symphony_control", LeavesToPeople;
    a_right_that_the_owner_lost_is_named:
        "revoke insert on symphony.payment_outbox_attempts from symphony_control"
        => "changed: partitioned table symphony.payment_outbox_attempts: rights of the owner is", LeavesToPeople;
    a_policy_is_named:
        "create policy open on symphony.payment_outbox_pending for insert with check (true)"
        => "unexpected: policy open on symphony.payment_outbox_pending", LeavesToPeople;
    a_type_without_any_value_is_named:
        "create type symphony.nothing as enum ()"
        => "unexpected: enum symphony.nothing", LeavesToPeople;
    a_second_schedule_of_events_is_named:
        "alter table m10_recovery.outbox add column next_retry_at timestamptz"
        => "unexpected: column m10_recovery.outbox.next_retry_at", LeavesToPeople;
    a_second_signature_of_an_event_function_is_named:
        "create function m10_recovery.claim_outbox_events(int, text) returns int language sql as 'select 1'"
        => "unexpected: function m10_recovery.claim_outbox_events(integer, text)", LeavesToPeople;
    another_delay_after_a_failure_is_named:
        "do $$ declare f text := pg_get_functiondef('symphony.try_complete_event'::regproc); begin
           execute replace(f, 'least(o.retry_count, 10)', 'least(o.retry_count, 5)');
         end $$"
        => "changed: function symphony.try_complete_event(", Repairs;
    a_right_to_write_events_past_the_function_is_named:
        "grant insert on m10_recovery.outbox to symphony_ingest"
        => "unexpected: right of symphony_ingest to INSERT on table m10_recovery.outbox", Repairs;
    a_disabled_trigger_on_events_is_named:
        "alter table m10_recovery.outbox disable trigger events_end_for_good"
        => "changed: trigger events_end_for_good on m10_recovery.outbox", Repairs;
    a_sixth_arrow_of_metadata_is_named:
        "create or replace function symphony.metadata_move_is_legal(p_from symphony.metadata_status, p_to symphony.metadata_status)
         returns boolean language sql immutable parallel safe set search_path = pg_catalog, symphony, pg_temp as 'select true'"
        => "changed: function symphony.metadata_move_is_legal(", Repairs;
    a_body_that_is_kept_as_a_parsed_expression_is_named:
        "create or replace function symphony.wakeup_lock_key(p_channel text)
         returns bigint language sql immutable parallel safe set search_path = pg_catalog, symphony, pg_temp return 1"
        => "changed: function symphony.wakeup_lock_key(", Repairs;
    a_sixth_status_of_metadata_is_named:
        "alter type symphony.metadata_status add value 'PAUSED'"
        => "changed: enum symphony.metadata_status", LeavesToPeople;
    a_disabled_trigger_on_metadata_is_named:
        "alter table symphony.metadata_outbox disable trigger metadata_status_moves_are_legal"
        => "changed: trigger metadata_status_moves_are_legal on symphony.metadata_outbox", Repairs;
    a_right_to_read_the_tokens_of_claims_is_named:
        "grant select on symphony.metadata_outbox to symphony_readonly"
        => "unexpected: right of symphony_readonly to SELECT on table symphony.metadata_outbox", Repairs;
    another_text_of_an_applied_migration_is_named:
        "update symphony.schema_migrations set sha256 = repeat('0', 64) where lane = 'payment'"
        => "changed: applied migration payment/0001_tables: sha256 is 0000", LeavesToPeople;
    a_newer_schema_version_is_named:
        "update symphony.schema_migrations set schema_version = 2 where lane = 'core'"
        => "changed: applied migration core/0001_migrations: schema version is 2, should be 1", LeavesToPeople;
    a_migration_that_this_build_does_not_know_is_named:
        "insert into symphony.schema_migrations (lane, migration, sha256, schema_version) values ('payment', '0002_more', repeat('0', 64), 1)"
        => "unexpected: applied migration payment/0002_more", LeavesToPeople;
    a_lane_that_this_build_does_not_know_is_named:
        "insert into symphony.schema_migrations (lane, migration, sha256, schema_version) values ('vault', '0001_tables', repeat('0', 64), 1)"
        => "unexpected: applied migration vault/0001_tables", LeavesToPeople;
    a_migration_that_was_not_recorded_is_named:
        "delete from symphony.schema_migrations where lane = 'event'"
        => "missing: applied migration event/0001_tables", LeavesToPeople;
    a_rule_is_named:
        "create rule nothing as on insert to symphony.payment_outbox_attempts do instead nothing"
        => "unexpected: rule nothing on symphony.payment_outbox_attempts", LeavesToPeople;
}

#[tokio::test]
async fn a_login_without_any_right_can_verify() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let no_role = database.url_as_login(&[]).await.unwrap();
    symphony(&no_role, &["verify"]).exits(0);
    let superuser = database.connect().await.unwrap();
    superuser.batch_execute("grant truncate on symphony.payment_outbox_attempts to symphony_auth").await.unwrap();
    let found = symphony(&no_role, &["verify"]).exits(1);
    assert!(found.stdout.contains("right of symphony_auth to TRUNCATE"), "{}", found.all());
}

#[tokio::test]
async fn what_a_login_may_not_read_is_said_not_to_be_checked() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let superuser = database.connect().await.unwrap();
    superuser.batch_execute("update symphony.schema_migrations set sha256 = repeat('0', 64)").await.unwrap();

    let no_role = database.url_as_login(&[]).await.unwrap();
    let output = symphony(&no_role, &["verify"]).exits(0);
    assert!(output.stderr.contains("not checked: which migrations were applied"), "{}", output.all());
    let output = symphony(&no_role, &["verify", "--json"]).exits(0);
    assert_eq!(output.json()["not_checked"].as_array().unwrap().len(), 1, "{}", output.all());

    for role in ["symphony_executor", "symphony_operator", "symphony_readonly", "symphony_auditor"] {
        let login = database.url_as_login(&[role]).await.unwrap();
        let found = symphony(&login, &["verify", "--json"]).exits(1).json();
        assert_eq!(found["not_checked"], serde_json::json!([]), "{role}");
        assert_eq!(found["differences"].as_array().unwrap().len(), 4, "{role}: {found}");
    }
}

/// The number of the install lock is in the source, and any login can take it.
const TAKE_INSTALL_LOCK: &str = "select pg_advisory_lock(x'73796d70686f6e'::bigint)";

#[tokio::test]
async fn an_outsider_who_holds_the_install_lock_does_not_block_a_verification() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let outsider = database.connect_as_login(&[]).await.unwrap();
    outsider.batch_execute(TAKE_INSTALL_LOCK).await.unwrap();
    symphony(&database.url(), &["verify"]).exits(0);
}

#[tokio::test]
async fn a_verification_that_waits_for_an_install_says_for_which_session() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let installer = database.connect().await.unwrap();
    installer.batch_execute(TAKE_INSTALL_LOCK).await.unwrap();
    let pid: i32 = installer.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let reader = database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let refused = symphony(&reader, &["verify"]).exits(3);
    for words in
        [&format!("session {pid} of login postgres"), "SQLSTATE 55P03", &format!("pg_terminate_backend({pid})")]
    {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.all());
    }
}

/// Roles belong to the whole server, so this test has its own server.
#[tokio::test]
async fn a_role_that_may_log_in_or_act_as_another_is_named() {
    let cluster = Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap();
    let url = cluster.url("postgres");
    symphony(&url, &["install"]).exits(0);
    let server = Server::at(&url).unwrap();
    let other = server.empty_database().await.unwrap();
    let superuser = other.connect().await.unwrap();
    superuser.batch_execute("alter role symphony_executor login createdb").await.unwrap();

    let found = symphony(&url, &["verify"]).exits(1);
    let named = "changed: role symphony_executor: attributes is LOGIN CREATEDB, should be NOLOGIN";
    assert!(found.stdout.contains(named), "{}", found.all());
    superuser.batch_execute("alter role symphony_executor nologin nocreatedb").await.unwrap();
    symphony(&url, &["verify"]).exits(0);

    superuser
        .batch_execute(
            "create role mallory login; grant symphony_control to mallory;
             grant symphony_operator to symphony_ingest;
             alter role symphony_executor set search_path = public",
        )
        .await
        .unwrap();
    let found = symphony(&url, &["verify"]).exits(1);
    for named in [
        "unexpected: membership of mallory in symphony_control",
        "unexpected: membership of symphony_ingest in symphony_operator",
        "unexpected: setting search_path of role symphony_executor",
    ] {
        assert!(found.stdout.contains(named), "{}", found.all());
    }
    drop(superuser);
    other.close().await.unwrap();
}
