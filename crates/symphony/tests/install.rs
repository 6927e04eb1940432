//! `symphony install`: once, again, by many at once, as a script, and where it must refuse.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod program;

use program::{Ran, symphony};
use symphony_proof::kit::scratch::Server;

#[tokio::test]
async fn a_second_install_finds_everything_current_and_changes_nothing() {
    let server = Server::from_env().await.unwrap();
    let database = server.empty_database().await.unwrap();
    let said = symphony(&database.url(), &["verify"]).exits(1);
    assert!(said.stderr.contains("run: symphony install"), "{}", said.all());

    let first = symphony(&database.url(), &["install"]).exits(0);
    assert!(first.stdout.starts_with("installed: schema version 1, lanes: payment"), "{}", first.all());
    let second = symphony(&database.url(), &["install", "--json"]).exits(0).json();
    assert_eq!(second["result"], "already_current");
    assert_eq!(second["lanes"], serde_json::json!(["payment"]));
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
