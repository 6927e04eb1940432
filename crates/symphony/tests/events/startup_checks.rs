//! Startup checks of a relayer with events: each refusal has its exit code and says what to do.

use symphony_db::schema::{Lane, script};
use symphony_testkit::test_database::Server;
use symphony_testkit::wait::DEFAULT_TIMEOUT;

use crate::harness::settings;
use crate::program::symphony;
use crate::relayer::{CHECK_FAILED, Settings, USAGE_ERROR};

/// The checks do not connect to a sink, so this one need not exist.
const SINK: &str = "kind = 'redis'\nurl = 'redis://127.0.0.1:1'\nallow_plain = true\n";

#[tokio::test]
async fn a_relayer_with_events_says_why_it_does_not_start() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
    let complete = settings(&url, SINK);
    let checked = complete.launch(folder).args(["--check"]).start().unwrap();
    assert_eq!(checked.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", checked.tail());
    let with = |from: &str, to: &str| {
        assert!(complete.extra.contains(from), "{from} is not in the settings");
        Settings { extra: complete.extra.replace(from, to), ..complete.clone() }
    };

    // The settings.
    let nowhere = with("sink = 'bus'", "sink = 'buss'");
    nowhere.refuses_to_start(folder, USAGE_ERROR, &["hint: ", "there is no section [sinks.buss]"]).await;
    for source in ["''", "'  '"] {
        let no_source = with("'//shop.example'", source);
        no_source
            .refuses_to_start(folder, USAGE_ERROR, &["hint: ", "event.source is empty", "for example: source = "])
            .await;
    }
    let unknown_field = with("destination = 'orders'", "destination = 'orders.{event_typ}'");
    unknown_field.refuses_to_start(folder, USAGE_ERROR, &["hint: ", "unknown placeholder {event_typ}"]).await;
    let misspelt = with("allow_plain", "allow_plane");
    misspelt.refuses_to_start(folder, USAGE_ERROR, &["hint: ", "allow_plane", "docs/sinks/"]).await;
    let long = with("poll_interval = '250ms'", "poll_interval = '1h'");
    long.refuses_to_start(folder, USAGE_ERROR, &["hint: ", "event.poll_interval"]).await;

    // The schema: the lane is missing, and then it has drift.
    let other = server.empty_database().await.unwrap();
    let superuser = other.connect().await.unwrap();
    superuser.batch_execute(&script(&[Lane::Payment])).await.unwrap();
    let url = other.url_as_login(&["symphony_executor"]).await.unwrap();
    let missing = Settings { url, ..complete.clone() };
    missing
        .refuses_to_start(
            folder,
            CHECK_FAILED,
            &["the event lane is not installed", "symphony install --lane event"],
        )
        .await;
    // The command of the hint installs what is missing.
    symphony(&other.url(), &["install", "--lane", "event"]).exits(0);
    let checked = missing.launch(folder).args(["--check"]).start().unwrap();
    assert_eq!(checked.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", checked.tail());
    let drift = "alter table m10_recovery.outbox add column next_retry_at timestamptz";
    superuser.batch_execute(drift).await.unwrap();
    missing
        .refuses_to_start(
            folder,
            CHECK_FAILED,
            &["hint: ", "next_retry_at", "symphony verify", "symphony install"],
        )
        .await;
}
