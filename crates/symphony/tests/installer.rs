//! Installing without a superuser: what a login needs, and what it is told when it lacks it.
//!
//! Roles belong to the whole server, so each case has its own server.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod program;

use program::{Ran, symphony};
use symphony_db::connect::Target;
use symphony_testkit::postgres::{Binaries, Cluster, Options};
use tokio_postgres::Client;

const ROLES: &str = "create role symphony_control nologin; create role symphony_ingest nologin;
    create role symphony_executor nologin; create role symphony_operator nologin; create role symphony_readonly nologin;
    create role symphony_auditor nologin; create role symphony_auth nologin;";

/// A server with a database `shop`, where `installer` may do what the DBA let it.
struct Fixture {
    cluster: Cluster,
    dba: Client,
}

impl Fixture {
    async fn new(dba_does: &str) -> Self {
        let cluster = Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap();
        connect(&cluster.url("postgres")).await.batch_execute("create database shop").await.unwrap();
        let dba = connect(&cluster.url("shop")).await;
        dba.batch_execute(dba_does).await.unwrap();
        Self { cluster, dba }
    }

    fn url(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/shop", self.cluster.port())
    }

    fn install(&self) -> Ran {
        symphony(&self.url("installer"), &["install"])
    }

    /// Whether the installer may act as the owner of everything.
    async fn is_owner(&self) -> bool {
        let right = if self.cluster.binaries().major() >= 16 { "SET" } else { "MEMBER" };
        let asked = "select pg_has_role('installer', 'symphony_control', $1)";
        self.dba.query_one(asked, &[&right]).await.unwrap().get(0)
    }

    /// Everything that an install could have left behind.
    async fn traces(&self) -> String {
        let asked = "select format('%s; %s; %s',
            (select string_agg(rolname, ' ' order by rolname) from pg_roles where rolname not like 'pg\\_%'),
            (select count(*) from pg_auth_members), to_regnamespace('symphony'))";
        self.dba.query_one(asked, &[]).await.unwrap().get(0)
    }

    /// Fails the test unless the install is refused with these words, and leaves nothing behind.
    async fn refuses(&self, words: &[&str]) {
        let before = self.traces().await;
        let refused = self.install().exits(3);
        for word in words {
            assert!(refused.stderr.contains(word), "{word}: {}", refused.all());
        }
        assert!(refused.stderr.contains("nothing was installed"), "{}", refused.all());
        assert!(refused.stderr.contains("SQLSTATE 42501"), "{}", refused.all());
        assert_eq!(self.traces().await, before);
    }

    /// Fails the test unless what is there is whole, and owned by the one who should own it.
    async fn is_whole(&self) {
        symphony(&self.url("installer"), &["verify"]).exits(0);
        let owners = "select string_agg(distinct pg_get_userbyid(o), ' ') from (
            select relowner as o from pg_class where relnamespace = 'symphony'::regnamespace
            union all select proowner from pg_proc where pronamespace = 'symphony'::regnamespace
            union all select nspowner from pg_namespace where nspname = 'symphony') as owners";
        assert_eq!(self.dba.query_one(owners, &[]).await.unwrap().get::<_, &str>(0), "symphony_control");
    }
}

async fn connect(url: &str) -> Client {
    Target::parse(url).unwrap().connect().await.unwrap()
}

#[tokio::test]
async fn who_may_create_roles_installs_and_is_not_the_owner_afterwards() {
    let fixture =
        Fixture::new("create role installer login createrole; grant create on database shop to installer").await;
    let output = fixture.install().exits(0);
    assert!(output.stdout.starts_with("installed"), "{}", output.all());
    fixture.is_whole().await;
    assert!(!fixture.is_owner().await);
    let output = fixture.install().exits(0);
    assert!(output.stdout.starts_with("already current"), "{}", output.all());

    // An upgrade goes the same way: something is to be done, and it can be.
    fixture.dba.batch_execute("drop view symphony.payment_rail_policies").await.unwrap();
    let output = fixture.install().exits(0);
    assert!(output.stdout.starts_with("installed"), "{}", output.all());
    fixture.is_whole().await;
    assert!(!fixture.is_owner().await);

    // It lets others in.
    let installer = connect(&fixture.url("installer")).await;
    let lets_in = "create role app login; grant symphony_ingest to app;
                   create role duty login; grant symphony_operator to duty";
    installer.batch_execute(lets_in).await.unwrap();
    symphony(&fixture.url("duty"), &["rail", "add", "sepa", "--actor", "a", "--reason", "b"]).exits(0);
    let enqueue =
        ["enqueue", "--instruction", "i", "--participant", "p", "--key", "k", "--rail", "sepa", "--payload", "{}"];
    symphony(&fixture.url("app"), &enqueue).exits(0);
    let refused = symphony(&fixture.url("duty"), &enqueue).exits(3);
    assert!(refused.stderr.contains("grant symphony_ingest"), "{}", refused.all());
}

/// A migration tool often sets a role when it connects. An install that resumed the login's own role instead would
/// leave the role with the membership, and the rest of the migration without the role.
#[tokio::test]
async fn a_script_resumes_the_role_of_its_session_and_returns_what_it_borrowed() {
    let fixture = Fixture::new(
        "create role installer createrole; grant create on database shop to installer;
         create role deploy login; grant installer to deploy",
    )
    .await;
    for options in [&["install", "--print"][..], &["install", "--print", "--no-transaction"]] {
        let script = symphony("", options).exits(0).stdout;
        let tool = connect(&fixture.url("deploy")).await;
        tool.batch_execute("set role installer").await.unwrap();
        tool.batch_execute(&script).await.unwrap();
        let role: String = tool.query_one("select current_user::text", &[]).await.unwrap().get(0);
        assert_eq!(role, "installer", "{options:?}");
        assert!(!fixture.is_owner().await, "{options:?}");
        // From 16 on the creator of a role may grant it, and verify names those who may act as the creator.
        let verified = symphony(&fixture.cluster.url("shop"), &["verify"]);
        let differs = |line: &&str| line.starts_with("error:") || line.starts_with("warning:");
        let of_the_creator = |line: &str| line.contains(" of deploy ") || line.contains(" of installer ");
        let found: Vec<_> = verified.stdout.lines().filter(differs).filter(|line| !of_the_creator(line)).collect();
        assert!(found.is_empty() && matches!(verified.code, 0 | 1), "{options:?}: {}", verified.all());
    }
}

#[tokio::test]
async fn who_is_granted_the_owner_by_a_dba_installs_without_creating_roles() {
    let fixture = Fixture::new(&format!(
        "{ROLES} create role installer login; grant create on database shop to installer;
         grant symphony_control to installer"
    ))
    .await;
    fixture.install().exits(0);
    fixture.is_whole().await;
    assert!(fixture.is_owner().await, "what the DBA gave stays given");
    fixture.install().exits(0);
}

#[tokio::test]
async fn where_the_roles_are_there_and_not_granted_the_grant_to_run_is_named() {
    let fixture =
        Fixture::new(&format!("{ROLES} create role installer login; grant create on database shop to installer"))
            .await;
    fixture.refuses(&["installer may not act as symphony_control", "grant symphony_control to installer;"]).await;
    // It is the truth.
    fixture.dba.batch_execute("grant symphony_control to installer").await.unwrap();
    fixture.install().exits(0);
}

#[tokio::test]
async fn from_16_on_to_create_roles_is_no_right_to_those_of_others() {
    let fixture = Fixture::new(&format!(
        "{ROLES} create role installer login createrole; grant create on database shop to installer"
    ))
    .await;
    if fixture.cluster.binaries().major() >= 16 {
        fixture.refuses(&["grant symphony_control to installer;"]).await;
    } else {
        fixture.install().exits(0);
        assert!(!fixture.is_owner().await);
    }
}

#[tokio::test]
async fn who_may_not_create_roles_is_told_which_to_ask_for() {
    let fixture = Fixture::new("create role installer login; grant create on database shop to installer").await;
    fixture.refuses(&["installer may not create the roles", "CREATEROLE", "symphony_auditor"]).await;
}

#[tokio::test]
async fn who_may_not_create_in_the_database_is_told_the_grant_to_ask_for() {
    let fixture = Fixture::new("create role installer login createrole").await;
    fixture
        .refuses(&["may not create a schema in database shop", "grant create on database shop to installer;"])
        .await;
}

/// A superuser must not run as a role that others can act as: what they planted could become the superuser.
#[tokio::test]
async fn a_superuser_does_not_lend_itself_to_those_who_may_act_as_the_owner() {
    let fixture = Fixture::new(&format!(
        "{ROLES} create role deploy login; create role team; grant symphony_control to team; grant team to deploy"
    ))
    .await;
    let superuser = fixture.cluster.url("shop");
    let before = fixture.traces().await;
    let refused = symphony(&superuser, &["install"]).exits(3);
    for words in ["deploy, team may act as symphony_control", "revoke symphony_control from", "SQLSTATE 55000"] {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.all());
    }
    assert_eq!(fixture.traces().await, before);
    let script = symphony("", &["install", "--print"]).exits(0).stdout;
    let refused = fixture.dba.batch_execute(&script).await.unwrap_err();
    assert!(refused.as_db_error().unwrap().message().contains("may act as symphony_control"), "{refused:?}");
    fixture.dba.batch_execute("rollback").await.unwrap();

    // It is right that those install themselves.
    let direct = "revoke symphony_control from team; grant symphony_control to deploy; grant create on database shop to deploy";
    fixture.dba.batch_execute(direct).await.unwrap();
    symphony(&fixture.url("deploy"), &["install"]).exits(0);
    symphony(&superuser, &["install"]).exits(3);
    fixture.dba.batch_execute("revoke symphony_control from deploy").await.unwrap();
    symphony(&superuser, &["install"]).exits(0);
}

/// From 16 on who creates a role may let itself in at any time.
#[tokio::test]
async fn a_superuser_does_not_install_for_an_owner_that_another_made() {
    let fixture = Fixture::new("create role mallory login createrole").await;
    connect(&fixture.url("mallory")).await.batch_execute(ROLES).await.unwrap();
    let ran = symphony(&fixture.cluster.url("shop"), &["install"]);
    if fixture.cluster.binaries().major() >= 16 {
        assert!(ran.stderr.contains("mallory may act as symphony_control"), "{}", ran.all());
        assert_eq!(ran.code, 3, "{}", ran.all());
    } else {
        ran.exits(0);
    }
}

#[tokio::test]
async fn an_owner_that_may_log_in_is_refused() {
    let fixture = Fixture::new("create role symphony_control login createdb").await;
    let before = fixture.traces().await;
    let refused = symphony(&fixture.cluster.url("shop"), &["install"]).exits(3);
    for words in ["must not have: LOGIN, CREATEDB", "alter role symphony_control nologin nocreatedb;"] {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.all());
    }
    assert_eq!(fixture.traces().await, before);
    fixture.dba.batch_execute("alter role symphony_control nologin nocreatedb").await.unwrap();
    symphony(&fixture.cluster.url("shop"), &["install"]).exits(0);
}

#[tokio::test]
async fn an_event_trigger_of_an_outsider_is_not_set_off_by_a_superuser() {
    let fixture = Fixture::new(
        "create role mallory login; create schema mallory authorization mallory; set role mallory;
         create sequence mallory.ran;
         create function mallory.go() returns event_trigger language plpgsql as
           $$ begin perform nextval('mallory.ran'); end $$;
         reset role;
         create event trigger audit on ddl_command_start execute function mallory.go();
         alter sequence mallory.ran restart",
    )
    .await;
    fixture.dba.batch_execute("alter event trigger audit disable; alter sequence mallory.ran restart; alter event trigger audit enable").await.unwrap();
    let refused = symphony(&fixture.cluster.url("shop"), &["install"]).exits(3);
    let named = "event trigger audit calls mallory.go(), which belongs to mallory";
    assert!(refused.stderr.contains(named), "{}", refused.all());
    let ran: bool = fixture.dba.query_one("select is_called from mallory.ran", &[]).await.unwrap().get(0);
    assert!(!ran);
    fixture.dba.batch_execute("alter event trigger audit disable").await.unwrap();
    symphony(&fixture.cluster.url("shop"), &["install"]).exits(0);
}
