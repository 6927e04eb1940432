//! Startup checks of a relayer with metadata: each refusal has its exit code and says what to do.

use symphony_db::schema::{Lane, script};
use symphony_testkit::test_database::Server;
use symphony_testkit::wait::DEFAULT_TIMEOUT;

use crate::harness::settings;
use crate::program::symphony;
use crate::relayer::{CHECK_FAILED, Settings, USAGE_ERROR};

/// The checks do not connect to a store, so this one need not exist.
const STORE: &str = "kind = 'redis'\nurl = 'redis://127.0.0.1:1'\nallow_plain = true\n";

#[tokio::test]
async fn a_relayer_with_metadata_says_why_it_does_not_start() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
    let complete = settings(&url, STORE);
    let checked = complete.launch(folder).args(["--check"]).start().unwrap();
    assert_eq!(checked.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", checked.tail());
    let with = |from: &str, to: &str| {
        assert!(complete.extra.contains(from), "{from} is not in the settings");
        Settings { extra: complete.extra.replace(from, to), ..complete.clone() }
    };

    // The settings.
    let nowhere = with("store = 'second'", "store = 'secnd'");
    nowhere.refuses_to_start(folder, USAGE_ERROR, &["hint: ", "there is no section [stores.secnd]"]).await;
    let misspelt = with("allow_plain", "allow_plane");
    misspelt
        .refuses_to_start(folder, USAGE_ERROR, &["hint: ", "store second: ", "allow_plane", "docs/sinks/"])
        .await;
    let unknown = with("kind = 'redis'", "kind = 'mongo'");
    unknown
        .refuses_to_start(folder, USAGE_ERROR, &["hint: ", "store second: kind: must be one of \"postgres\""])
        .await;
    let long = with("poll_interval = '250ms'", "poll_interval = '1h'");
    long.refuses_to_start(folder, USAGE_ERROR, &["hint: ", "metadata.poll_interval"]).await;
    let nothing = Settings { extra: String::new(), ..complete.clone() };
    nothing.refuses_to_start(folder, USAGE_ERROR, &["hint: ", "nothing to serve", "[[metadata.routes]]"]).await;

    // The login.
    let url = database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let wrong_role = Settings { url, ..complete.clone() };
    wrong_role.refuses_to_start(folder, CHECK_FAILED, &["hint: ", "lacks a role: symphony_executor"]).await;

    // The schema: the lane is missing, and then it has drift.
    let other = server.empty_database().await.unwrap();
    let superuser = other.connect().await.unwrap();
    superuser.batch_execute(&script(&[Lane::Payment])).await.unwrap();
    let url = other.url_as_login(&["symphony_executor"]).await.unwrap();
    let missing = Settings { url, ..complete.clone() };
    let words = ["hint: ", "the metadata lane is not installed", "symphony install --lane metadata"];
    missing.refuses_to_start(folder, CHECK_FAILED, &words).await;
    // The command of the hint installs what is missing.
    symphony(&other.url(), &["install", "--lane", "metadata"]).exits(0);
    let checked = missing.launch(folder).args(["--check"]).start().unwrap();
    assert_eq!(checked.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", checked.tail());
    let drift = "alter table symphony.metadata_outbox add column priority int";
    superuser.batch_execute(drift).await.unwrap();
    missing
        .refuses_to_start(folder, CHECK_FAILED, &["hint: ", "priority", "symphony verify", "symphony install"])
        .await;
}
