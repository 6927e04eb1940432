//! `symphony install`: once, again, by many at once, as a script, and where it must refuse.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod program;

use program::{Ran, symphony};
use symphony_testkit::test_database::Server;

#[tokio::test]
async fn a_second_install_finds_everything_current_and_changes_nothing() {
    let server = Server::from_env().await.unwrap();
    let database = server.empty_database().await.unwrap();
    let output = symphony(&database.url(), &["verify"]).exits(1);
    assert!(output.stderr.contains("run: symphony install"), "{}", output.all());

    let first = symphony(&database.url(), &["install"]).exits(0);
    assert!(
        first.stdout.starts_with("installed: schema version 1, lanes: payment, event, metadata\n"),
        "{}",
        first.all()
    );
    let second = symphony(&database.url(), &["install", "--json"]).exits(0).json();
    assert_eq!(second["result"], "already_current");
    assert_eq!(second["lanes"], serde_json::json!(["payment", "event", "metadata"]));
    let clean = symphony(&database.url(), &["verify", "--json"]).exits(0).json();
    assert_eq!((&clean["clean"], &clean["differences"]), (&true.into(), &serde_json::json!([])));
}

#[tokio::test]
async fn ten_installs_at_once_into_an_empty_database_all_succeed() {
    let server = Server::from_env().await.unwrap();
    let database = server.empty_database().await.unwrap();
    let url = database.url();
    let runs: Vec<Ran> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..10).map(|_| scope.spawn(|| symphony(&url, &["install", "--json"]))).collect();
        running.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for run in runs {
        run.exits(0);
    }
    symphony(&url, &["verify"]).exits(0);
}

#[tokio::test]
async fn the_printed_script_makes_what_an_install_makes() {
    let server = Server::from_env().await.unwrap();
    let database = server.empty_database().await.unwrap();
    // Needs no database: an address that cannot be used does no harm.
    let script = symphony("", &["install", "--print"]).exits(0).stdout;
    let client = database.connect().await.unwrap();
    client.batch_execute(&script).await.unwrap();
    client.batch_execute(&script).await.unwrap();
    symphony(&database.url(), &["verify"]).exits(0);
    assert_eq!(symphony(&database.url(), &["install", "--json"]).exits(0).json()["result"], "already_current");
}

#[tokio::test]
async fn the_printed_statement_installs_in_the_transaction_of_a_migration_tool_and_leaves_it_as_it_was() {
    let server = Server::from_env().await.unwrap();
    let database = server.empty_database().await.unwrap();
    let statement = symphony("", &["install", "--print", "--no-transaction"]).exits(0).stdout;
    let mut tool = database.connect().await.unwrap();
    // The first DO block of a session loads plpgsql, and with it the settings of plpgsql.
    tool.batch_execute("do $$ begin end $$; create schema app; create table app.versions (id int)").await.unwrap();
    for (commits, rows) in [(false, 0), (true, 1), (true, 2)] {
        let transaction = tool.transaction().await.unwrap();
        // As a tool sets them, and unlike what the install needs.
        transaction
            .batch_execute("set local search_path = app, public; set local lock_timeout = '3s'")
            .await
            .unwrap();
        let settings = "select jsonb_object_agg(name, setting)::text || current_user from pg_settings";
        let before: String = transaction.query_one(settings, &[]).await.unwrap().get(0);
        // Many tools prepare a statement, which then has to be a single one.
        let prepared = transaction.prepare(&statement).await.unwrap();
        transaction.execute(&prepared, &[]).await.unwrap();
        let after: String = transaction.query_one(settings, &[]).await.unwrap().get(0);
        assert_eq!(after, before);
        transaction.batch_execute("insert into versions values (1)").await.unwrap();
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
        let made = "select (select count(*) from app.versions), to_regnamespace('symphony') is not null";
        let made = tool.query_one(made, &[]).await.unwrap();
        assert_eq!((made.get::<_, i64>(0), made.get::<_, bool>(1)), (rows, commits));
    }
    symphony(&database.url(), &["verify"]).exits(0);
    assert_eq!(symphony(&database.url(), &["install", "--json"]).exits(0).json()["result"], "already_current");
}

#[tokio::test]
async fn the_printed_statement_is_a_transaction_by_itself() {
    let server = Server::from_env().await.unwrap();
    let database = server.empty_database().await.unwrap();
    let client = database.connect().await.unwrap();
    // What refuses it comes late: the lanes before are undone.
    client.batch_execute("create schema m10_recovery; create table m10_recovery.outbox (id int)").await.unwrap();
    let statement = symphony("", &["install", "--print", "--no-transaction"]).exits(0).stdout;
    let refused = client.batch_execute(&statement).await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert!(refused.message().contains("schema m10_recovery already exists"), "{refused:?}");
    assert!(refused.where_().unwrap().len() < 20_000, "the error quotes more than its own section");
    let left = client.query_one("select to_regnamespace('symphony') is null", &[]).await.unwrap();
    assert!(left.get::<_, bool>(0), "something is left");
    client.batch_execute("drop schema m10_recovery cascade").await.unwrap();
    client.batch_execute(&statement).await.unwrap();
    symphony(&database.url(), &["verify"]).exits(0);
}

#[tokio::test]
async fn the_printed_statement_of_the_roles_runs_again_and_again() {
    let server = Server::from_env().await.unwrap();
    let database = server.empty_database().await.unwrap();
    let statement = symphony("", &["install", "--print", "--no-transaction", "--roles-only"]).exits(0).stdout;
    let client = database.connect().await.unwrap();
    client.batch_execute(&statement).await.unwrap();
    client.batch_execute(&statement).await.unwrap();
    let left = client.query_one("select to_regnamespace('symphony') is null", &[]).await.unwrap();
    assert!(left.get::<_, bool>(0));
}

#[tokio::test]
async fn each_lane_is_installed_and_works_without_the_others() {
    let server = Server::from_env().await.unwrap();
    for (lane, other, works, missing) in [
        (
            "payment",
            "event",
            "select symphony.register_payment_rail('sepa', '{}', 'a', 'b')",
            "m10_recovery.outbox",
        ),
        (
            "event",
            "payment",
            "select m10_recovery.publish_outbox('order', '1', 'Placed', '{}'),
                    (select count(*) from m10_recovery.claim_outbox_events('p'))",
            "symphony.payment_rails",
        ),
        (
            "metadata",
            "payment",
            "select symphony.create_metadata_entry('document', '1', '{}'),
                    (select count(*) from symphony.claim_metadata_batch('w'))",
            "symphony.payment_rails",
        ),
    ] {
        let database = server.empty_database().await.unwrap();
        let url = database.url();
        let output = symphony(&url, &["install", "--lane", lane]).exits(0);
        assert!(output.stdout.contains(&format!("lanes: {lane}\n")), "{}", output.all());
        let clean = symphony(&url, &["verify", "--json"]).exits(0).json();
        assert_eq!(clean["lanes"], serde_json::json!([lane]));
        let client = database.connect().await.unwrap();
        client.batch_execute(works).await.unwrap();
        let there = "select to_regclass($1) is not null";
        assert!(!client.query_one(there, &[&missing]).await.unwrap().get::<_, bool>(0), "{missing}");
        let found = symphony(&url, &["verify", "--lane", other]).exits(1);
        assert!(found.stdout.contains("missing: "), "{}", found.all());

        // The other one comes later, and takes nothing away from the first.
        symphony(&url, &["install", "--lane", other]).exits(0);
        let clean = symphony(&url, &["verify", "--json"]).exits(0).json();
        let mut both = vec![lane, other];
        both.sort_by_key(|lane| ["payment", "event", "metadata"].iter().position(|known| known == lane));
        assert_eq!(clean["lanes"], serde_json::json!(both));
        for lane in [lane, other] {
            symphony(&url, &["verify", "--lane", lane]).exits(0);
            let again = symphony(&url, &["install", "--lane", lane, "--json"]).exits(0).json();
            assert_eq!(again["result"], "already_current");
        }
    }
}

#[tokio::test]
async fn a_printed_script_without_a_lane_that_the_database_has_is_refused() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let script = symphony("", &["install", "--print", "--lane", "event"]).exits(0).stdout;
    let client = database.connect().await.unwrap();
    let refused = client.batch_execute(&script).await.unwrap_err();
    let output = refused.as_db_error().unwrap().message();
    assert!(output.contains("this database has the lane metadata as well"), "{output}");
    symphony(&database.url(), &["verify"]).exits(0);
}

#[tokio::test]
async fn a_schema_of_another_owner_is_not_changed() {
    let server = Server::from_env().await.unwrap();
    let database = server.empty_database().await.unwrap();
    let client = database.connect().await.unwrap();
    client.batch_execute("create schema m10_recovery; create table m10_recovery.outbox (id int)").await.unwrap();
    let refused = symphony(&database.url(), &["install"]).exits(3);
    assert!(refused.stderr.contains("schema m10_recovery already exists and belongs to"), "{}", refused.all());
    // The other lane does not mind.
    symphony(&database.url(), &["install", "--lane", "payment"]).exits(0);
    symphony(&database.url(), &["verify", "--lane", "payment"]).exits(0);
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_and_left_alone() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let owner = database.connect_as("symphony_control").await.unwrap();
    owner.batch_execute("update symphony.schema_migrations set schema_version = 99").await.unwrap();

    let refused = symphony(&database.url(), &["install"]).exits(3);
    assert!(refused.stderr.contains("schema version 99"), "{}", refused.all());
    assert!(refused.stderr.contains("hint: Install with the newer build"), "{}", refused.all());
    assert!(refused.stderr.contains("SQLSTATE 55000"), "{}", refused.all());
}

#[tokio::test]
async fn a_migration_that_was_applied_in_other_words_is_refused() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let owner = database.connect_as("symphony_control").await.unwrap();
    let other = "update symphony.schema_migrations set sha256 = repeat('0', 64) where lane = 'payment'";
    owner.batch_execute(other).await.unwrap();
    let refused = symphony(&database.url(), &["install"]).exits(3);
    assert!(refused.stderr.contains("is not the one that was applied"), "{}", refused.all());
}

#[tokio::test]
async fn an_install_says_who_holds_its_lock() {
    let server = Server::from_env().await.unwrap();
    let database = server.empty_database().await.unwrap();
    let outsider = database.connect_as_login(&[]).await.unwrap();
    // The number is in the source, and any login can take it.
    outsider.batch_execute("select pg_advisory_lock(x'73796d70686f6e'::bigint)").await.unwrap();
    let row = outsider.query_one("select pg_backend_pid(), current_user::text", &[]).await.unwrap();
    let (pid, login): (i32, String) = (row.get(0), row.get(1));
    let named = format!("session {pid} of login {login}, application symphony");

    let refused = symphony(&database.url(), &["install", "--lock-timeout", "1"]).exits(3);
    for words in [named.as_str(), "connected since", "SQLSTATE 55P03", &format!("pg_terminate_backend({pid})")] {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.all());
    }
    let script = symphony("", &["install", "--print", "--lock-timeout", "1"]).exits(0).stdout;
    let dba = database.connect().await.unwrap();
    let refused = dba.batch_execute(&script).await.unwrap_err();
    let output = refused.as_db_error().unwrap();
    assert!(output.message().contains(&named) && output.hint().is_some(), "{output:?}");
    dba.batch_execute("rollback").await.unwrap();

    drop(outsider);
    dba.execute("select pg_terminate_backend($1)", &[&pid]).await.unwrap();
    symphony(&database.url(), &["install"]).exits(0);
}

#[tokio::test]
async fn an_install_gives_way_to_a_long_transaction_of_a_producer_and_names_it() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let dba = database.connect().await.unwrap();
    dba.batch_execute(
        "select symphony.register_payment_rail('sepa', '{}', 'a', 'b'); drop view symphony.schema_status",
    )
    .await
    .unwrap();
    let enqueue =
        |key: &str| format!("select symphony.enqueue_payment_outbox('{key}', 'p-{key}', '{key}', 'sepa', '{{}}')");
    let long = database.connect_as_login(&["symphony_ingest"]).await.unwrap();
    long.batch_execute("begin").await.unwrap();
    long.batch_execute(&enqueue("long")).await.unwrap();
    let pid: i32 = long.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);

    // Other sessions continue: none waits behind the install for longer than one of its attempts.
    let other = database.connect_as_login(&["symphony_ingest"]).await.unwrap();
    other.batch_execute("set lock_timeout = '2s'").await.unwrap();
    let url = database.url();
    let installing = tokio::task::spawn_blocking(move || symphony(&url, &["install", "--lock-timeout", "3"]));
    let mut enqueued = 0;
    while !installing.is_finished() {
        other.batch_execute(&enqueue(&format!("other-{enqueued}"))).await.unwrap();
        enqueued += 1;
    }
    let refused = installing.await.unwrap().exits(3);
    for words in [
        &format!("session {pid} of login"),
        "was in use",
        "SQLSTATE 55P03",
        &format!("pg_terminate_backend({pid})"),
    ] {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.all());
    }
    assert!(enqueued > 10, "{enqueued}");
    long.batch_execute("commit").await.unwrap();
    symphony(&database.url(), &["install"]).exits(0);
    symphony(&database.url(), &["verify"]).exits(0);
}
