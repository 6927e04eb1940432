//! Code that an attacker planted in a database must not run with the rights of a user who runs a command there.
//!
//! The attacker is a login with CREATE on the database, or with one more right that a careless DBA granted. Its trap
//! switches to the login that connected (SET ROLE is no sandbox) and leaves traces that no rollback removes.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, but does not recognise helpers outside of test functions"
)]

mod program;

use std::hash::{BuildHasher, RandomState};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use program::{Ran, symphony};
use symphony_db::connect::Target;
use symphony_testkit::postgres::{Binaries, Cluster, Options};
use symphony_testkit::test_database::{Database, Server};
use tokio_postgres::Client;

/// A database in which an attacker has planted a trap.
struct Fixture {
    database: Database,
    attacker: Client,
    attacker_name: String,
    dba: Client,
    /// The file that the trap writes if it runs as a superuser, even in a read-only transaction.
    file: PathBuf,
}

impl Fixture {
    async fn new(database: Database) -> Self {
        let attacker = database.connect_as_login(&[]).await.unwrap();
        let attacker_name: String = attacker.query_one("select current_user::text", &[]).await.unwrap().get(0);
        let dba = database.connect().await.unwrap();
        let name = database.name();
        dba.batch_execute(&format!("grant create on database {name} to {attacker_name}")).await.unwrap();
        let file = std::env::temp_dir().join(format!("symphony-trap-{:016x}", RandomState::new().hash_one(name)));
        attacker
            .batch_execute(&format!(
                "create schema trap; grant usage on schema trap to public;
                 create sequence trap.ran; grant all on sequence trap.ran to public;
                 create function trap.go() returns text language plpgsql as $$
                 begin
                   begin set local role none; exception when others then null; end;
                   begin perform nextval('trap.ran'); exception when others then null; end;
                   begin execute 'copy (select 1) to program ''touch {}'''; exception when others then null; end;
                   return 'x';
                 end $$;
                 create function trap.on_change() returns trigger language plpgsql as
                   $$ begin perform trap.go(); return new; end $$;",
                file.display()
            ))
            .await
            .unwrap();
        Self { database, attacker, attacker_name, dba, file }
    }

    /// A database without Symphony.
    async fn empty() -> Self {
        Self::new(Server::from_env().await.unwrap().empty_database().await.unwrap()).await
    }

    /// A database with Symphony.
    async fn installed() -> Self {
        Self::new(Server::from_env().await.unwrap().database().await.unwrap()).await
    }

    /// A database without Symphony, in which the attacker has created the schema `symphony` and opened it to PUBLIC.
    async fn squatted(planted: &str) -> Self {
        let fixture = Self::empty().await;
        let opened = "create schema symphony; grant all on schema symphony to public;";
        fixture.attacker.batch_execute(&format!("{opened} {planted}")).await.unwrap();
        let opened = "grant all on all tables in schema symphony to public";
        fixture.attacker.batch_execute(opened).await.unwrap();
        fixture
    }

    /// Whether the trap ran.
    async fn trap_ran(&self) -> bool {
        let ran = "select is_called from trap.ran";
        self.dba.query_one(ran, &[]).await.unwrap().get::<_, bool>(0) || self.file.exists()
    }

    #[track_caller]
    fn is_refused(ran: &Ran, texts: &[&str]) {
        assert_eq!(ran.code, 3, "{}", ran.all());
        for text in texts {
            assert!(ran.stderr.contains(text), "{text}: {}", ran.all());
        }
    }

    /// Every command that a superuser may run here refuses, says why, and does not run the trap.
    async fn every_command_refuses(&self, texts: &[&str]) {
        let url = self.database.url();
        let attacker = self.attacker_name.as_str();
        let texts = [texts, &[attacker, "hint: ", "SQLSTATE 55000"]].concat();
        let outbox = "018f0000-0000-7000-8000-000000000000";
        for arguments in [
            &["install"][..],
            &["install", "--lane", "payment"],
            &["verify"],
            &["status"],
            &["inspect", outbox],
            &["dlq", "list"],
            &["rail", "list"],
            &["rail", "set", "sepa", "--actor", "a", "--reason", "b"],
            &["repair"],
            &["audit", "outbox", outbox],
            &[
                "enqueue",
                "--instruction",
                "i",
                "--participant",
                "p",
                "--key",
                "k",
                "--rail",
                "r",
                "--payload",
                "{}",
            ],
            &["bench", "enqueue"],
        ] {
            let ran = symphony(&url, arguments);
            assert!(!self.trap_ran().await, "{arguments:?} ran the trap: {}", ran.all());
            Self::is_refused(&ran, &texts);
        }
        let ran = self.check();
        assert!(!self.trap_ran().await, "run --check ran the trap: {}", ran.all());
        Self::is_refused(&ran, &texts);

        let output = self.psql(&symphony("", &["install", "--print"]).exits(0).stdout);
        assert!(!self.trap_ran().await, "the printed script ran the trap: {output}");
        assert!(
            texts
                .iter()
                .filter(|text| !matches!(**text, "hint: " | "SQLSTATE 55000"))
                .all(|text| output.contains(text)),
            "{output}"
        );
        assert!(output.contains("HINT: "), "{output}");
    }

    /// `symphony run --check` with one rail.
    fn check(&self) -> Ran {
        self.check_as(&self.database.url())
    }

    fn check_as(&self, url: &str) -> Ran {
        let settings = self.file.with_extension("toml");
        std::fs::write(&settings, "[rails.sepa]\nkind = 'http'\nurl = 'http://127.0.0.1:1/'\nallow_http = true\nallow_private = ['127.0.0.1']\n").unwrap();
        let ran = symphony(url, &["run", "--check", "--config", settings.to_str().unwrap()]);
        std::fs::remove_file(settings).unwrap();
        ran
    }

    /// Runs a script in psql, which continues after errors. Returns its error output.
    fn psql(&self, script: &str) -> String {
        let mut child = Command::new(Binaries::find().unwrap().program("psql"))
            .args(["--no-psqlrc", "--quiet", &self.database.url()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// The table that an install reads and writes, with columns that look right.
const TABLE: &str =
    "create table symphony.schema_migrations (lane text, migration text, sha256 text, schema_version int);";

macro_rules! planted {
    ($($name:ident: $planted:expr => $texts:expr;)+) => {
        $(
            #[tokio::test]
            async fn $name() {
                let fixture = Fixture::squatted($planted).await;
                fixture.every_command_refuses($texts).await;
            }
        )+
    };
}

planted! {
    a_planted_view_is_not_read:
        "create view symphony.schema_migrations as
           select trap.go() as lane, trap.go() as migration, trap.go() as sha256, length(trap.go()) as schema_version;
         create view symphony.payment_outbox_pending as select trap.go() as rail_type;
         create view symphony.applied_migrations as select * from symphony.schema_migrations;
         create view symphony.supervisor_outbox_status as select trap.go() as due;
         create view symphony.payment_rail_policies as select trap.go() as rail_type;
         create view symphony.payment_outbox_dlq as select trap.go() as outbox_id;
         create view symphony.payment_outbox_events as select trap.go() as outbox_id"
        => &["schema symphony belongs to", "view symphony.schema_migrations belongs to"];
    a_planted_trigger_does_not_fire:
        &format!("{TABLE} create trigger t before insert on symphony.schema_migrations for each row execute function trap.on_change()")
        => &["table symphony.schema_migrations belongs to"];
    a_planted_rule_does_not_fire:
        &format!("{TABLE} create rule r as on insert to symphony.schema_migrations do also select trap.go()")
        => &["table symphony.schema_migrations belongs to"];
    a_planted_domain_does_not_check:
        "create domain symphony.d as text check (trap.go() is not null);
         create table symphony.schema_migrations (lane symphony.d, migration symphony.d, sha256 symphony.d, schema_version int)"
        => &["type symphony.d belongs to"];
    a_planted_default_is_not_computed:
        &format!("{TABLE} alter table symphony.schema_migrations add column applied_by text default trap.go()")
        => &["table symphony.schema_migrations belongs to"];
    a_planted_policy_is_not_asked:
        &format!("{TABLE} create policy p on symphony.schema_migrations using (trap.go() is not null);
                  alter table symphony.schema_migrations enable row level security, force row level security")
        => &["table symphony.schema_migrations belongs to"];
    a_planted_function_is_not_called:
        "create function symphony.enqueue_payment_outbox(text, text, text, text, jsonb)
           returns table (outbox_id uuid, sequence_id bigint, created_at timestamptz, replayed boolean)
           language sql as $$ select gen_random_uuid(), length(trap.go())::bigint, now(), false $$;
         create function symphony.set_payment_rail(text, jsonb, text, text) returns void language sql as 'select trap.go(); select null::void'"
        => &["function symphony.enqueue_payment_outbox"];
    a_planted_operator_is_not_used:
        "create function symphony.eq(text, text) returns boolean language sql as $$ select trap.go() is null $$;
         create operator symphony.= (leftarg = text, rightarg = text, function = symphony.eq)"
        => &["operator symphony.=(text,text) belongs to"];
}

#[tokio::test]
async fn a_schema_of_an_attacker_that_was_given_to_the_owner_still_holds_foreign_objects() {
    let fixture = Fixture::squatted(&format!(
        "{TABLE} create trigger t before insert on symphony.schema_migrations for each row execute function trap.on_change()"
    ))
    .await;
    symphony(&Server::from_env().await.unwrap().database().await.unwrap().url(), &["verify"]).exits(0);
    fixture.dba.batch_execute("alter schema symphony owner to symphony_control").await.unwrap();
    fixture
        .every_command_refuses(&["table symphony.schema_migrations belongs to", "PUBLIC may create objects"])
        .await;
    // With the table given to the owner too, only the trigger's function is foreign.
    fixture
        .dba
        .batch_execute(
            "revoke create on schema symphony from public;
             alter table symphony.schema_migrations owner to symphony_control",
        )
        .await
        .unwrap();
    fixture
        .every_command_refuses(&["trigger t on table symphony.schema_migrations uses function trap.on_change()"])
        .await;
}

#[tokio::test]
async fn what_a_careless_grant_lets_an_attacker_plant_does_not_run() {
    let fixture = Fixture::empty().await;
    let (url, attacker) = (fixture.database.url(), &fixture.attacker_name);
    symphony(&url, &["install", "--lane", "payment"]).exits(0);
    let careless = format!(
        "grant all on all tables in schema symphony to {attacker}; grant usage on schema symphony to {attacker}"
    );
    fixture.dba.batch_execute(&careless).await.unwrap();
    let trigger = "create trigger t before insert on symphony.schema_migrations for each row execute function trap.on_change()";
    fixture.attacker.batch_execute(trigger).await.unwrap();
    // The next lane records its migration there.
    fixture
        .every_command_refuses(&["trigger t on table symphony.schema_migrations uses function trap.on_change()"])
        .await;
    fixture.dba.batch_execute("drop trigger t on symphony.schema_migrations").await.unwrap();

    fixture.dba.batch_execute(&format!("grant create on schema symphony to {attacker}")).await.unwrap();
    fixture.every_command_refuses(&["may create objects in schema symphony"]).await;
    fixture
        .attacker
        .batch_execute("create function symphony.claim_low_watermark(int) returns int language sql as 'select 1'")
        .await
        .unwrap();
    fixture.dba.batch_execute(&format!("revoke create on schema symphony from {attacker}")).await.unwrap();
    fixture.every_command_refuses(&["function symphony.claim_low_watermark(integer) belongs to"]).await;
}

#[tokio::test]
async fn the_owner_calls_no_function_of_an_attacker() {
    let planted = [
        ("alter table symphony.schema_migrations alter column applied_by set default trap.go()", "default value for column"),
        ("alter table symphony.schema_migrations add constraint c check (trap.go() is not null) not valid", "constraint c on table"),
        ("create rule r as on insert to symphony.schema_migrations do also select trap.go()", "rule r on table"),
        ("create or replace view symphony.schema_status as
            select lane, max(schema_version) as schema_version, count(*) as migrations, max(applied_at) as applied_at
            from symphony.schema_migrations where trap.go() is not null group by lane", "rule _RETURN on view symphony.schema_status"),
    ];
    for (plant, named) in planted {
        let fixture = Fixture::installed().await;
        // The setup itself may run the trap, so its traces are removed.
        fixture.dba.batch_execute(plant).await.unwrap();
        fixture.dba.batch_execute("alter sequence trap.ran restart").await.unwrap();
        let _ = std::fs::remove_file(&fixture.file);
        fixture.every_command_refuses(&[named, "uses function trap.go()"]).await;
    }
}

#[tokio::test]
async fn a_schema_of_another_application_is_not_read_for_events() {
    let fixture = Fixture::empty().await;
    fixture
        .attacker
        .batch_execute(
            "create schema m10_recovery; grant all on schema m10_recovery to public;
             create view m10_recovery.outbox as select length(trap.go())::bigint as id, trap.go() as aggregate_type,
               now() as created_at, now() as processed_at, now() as process_after, now() as claimed_at, trap.go() as claimed_by;
             create view m10_recovery.outbox_errors as select trap.go() as error, now() as created_at, true as succeeded, 1 as error_id;
             create view m10_recovery.outbox_status as select trap.go() as due;
             grant all on all tables in schema m10_recovery to public",
        )
        .await
        .unwrap();
    let url = fixture.database.url();
    let refused = symphony(&url, &["install"]).exits(3);
    assert!(refused.stderr.contains("schema m10_recovery already exists and belongs to"), "{}", refused.all());
    symphony(&url, &["install", "--lane", "payment"]).exits(0);
    symphony(&url, &["verify"]).exits(0);
    symphony(&url, &["status"]).exits(0);
    let reader = symphony_db::event::reader::backlog(&fixture.dba).await;
    assert!(matches!(reader, Err(symphony_db::error::DatabaseError::NotInstalled(_))), "{reader:?}");
    assert!(!fixture.trap_ran().await);
}

/// By default the search_path begins with the schema named like the login, which the attacker can create.
#[tokio::test]
async fn a_schema_called_like_the_login_shadows_nothing() {
    let fixture = Fixture::installed().await;
    let relayer = fixture.database.url_as_login(&["symphony_executor", "symphony_readonly"]).await.unwrap();
    let name = Target::parse(&relayer).unwrap().connect().await.unwrap();
    let name: String = name.query_one("select current_user::text", &[]).await.unwrap().get(0);
    for login in [name.as_str(), "postgres"] {
        fixture
            .attacker
            .batch_execute(&format!(
                "create schema {login}; grant usage on schema {login} to public;
                 create function {login}.unnest(text[]) returns setof text language sql as
                   $$ select x from pg_catalog.unnest($1::text[]::varchar[]) as x where trap.go() is not null $$"
            ))
            .await
            .unwrap();
    }
    fixture.dba.batch_execute("select symphony.register_payment_rail('sepa', '{}', 'a', 'b')").await.unwrap();
    let checked = fixture.check_as(&relayer).exits(0);
    assert!(!fixture.trap_ran().await, "{}", checked.all());
    symphony(&fixture.database.url(), &["status"]).exits(0);
    assert!(!fixture.trap_ran().await);
}

/// A superuser runs `symphony prove` on a server with other applications. The test needs a private server, because
/// proofs drop the roles at the end if the server had none.
#[tokio::test]
async fn prove_runs_no_code_of_an_attacker_in_the_same_database() {
    let cluster = Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap();
    let dba = Target::parse(&cluster.url("postgres")).unwrap().connect().await.unwrap();
    dba.batch_execute("create role mallory login; grant create on database postgres to mallory").await.unwrap();
    let mallory = format!("postgres://mallory@127.0.0.1:{}/postgres", cluster.port());
    let mallory = Target::parse(&mallory).unwrap().connect().await.unwrap();
    mallory
        .batch_execute(
            "create schema postgres; create sequence postgres.ran; grant usage on schema postgres to public;
             grant all on sequence postgres.ran to public;
             create function postgres.eq(oid, regclass) returns boolean language plpgsql cost 0.0001 as
               $$ begin perform nextval('postgres.ran'); return $1 operator(pg_catalog.=) $2::oid; end $$;
             create operator postgres.= (leftarg = oid, rightarg = regclass, function = postgres.eq);
             create schema symphony; grant all on schema symphony to public;
             create view symphony.schema_migrations as select nextval('postgres.ran') as lane",
        )
        .await
        .unwrap();
    symphony(&cluster.url("postgres"), &["prove", "--only", "1"]).exits(0);
    let ran = dba.query_one("select is_called from postgres.ran", &[]).await.unwrap();
    assert!(!ran.get::<_, bool>(0));
}
