//! Startup checks of a relayer: each refusal has its exit code and says what to do.

use symphony_testkit::test_database::Server;
use symphony_testkit::wait::DEFAULT_TIMEOUT;

use crate::harness::{Harness, RAIL};
use crate::relayer::{CHECK_FAILED, NO_DATABASE, Settings, USAGE_ERROR};

#[tokio::test]
async fn a_relayer_says_why_it_does_not_start() {
    let harness = Harness::start().await;
    let settings = harness.settings();
    let checked = settings.launch(harness.folder.path()).args(["--check"]).start().unwrap();
    assert_eq!(checked.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", checked.tail());

    let with = |change: &dyn Fn(&mut Settings)| {
        let mut settings = settings.clone();
        change(&mut settings);
        settings
    };
    // The settings.
    let slots = settings.clone().payment("slots", "0");
    slots
        .refuses_to_start(
            harness.folder.path(),
            USAGE_ERROR,
            &["payment.slots is 0, and must be 1 to 1024", "hint: "],
        )
        .await;
    let misspelt = settings.clone().payment("slot", "1");
    misspelt
        .refuses_to_start(
            harness.folder.path(),
            USAGE_ERROR,
            &["there is no setting payment.slot", "--print-example"],
        )
        .await;
    let long = settings.clone().payment("call_timeout", "'30s'");
    long.refuses_to_start(harness.folder.path(), USAGE_ERROR, &["call_timeout is 30s"]).await;
    let fraction = settings.clone().payment("lease", "'4500ms'");
    fraction.refuses_to_start(harness.folder.path(), USAGE_ERROR, &["lease", "not in whole seconds"]).await;
    let nothing = with(&|settings| settings.rails.clear());
    nothing.refuses_to_start(harness.folder.path(), USAGE_ERROR, &["nothing to serve", "add [rails.NAME]"]).await;
    let misspelt = settings.clone().rail_lines("tiemout = '1s'");
    misspelt.refuses_to_start(harness.folder.path(), USAGE_ERROR, &["tiemout", "docs/sinks/"]).await;
    let unreadable = settings.clone().rail_lines("secret_file = '/no/such/secret'");
    unreadable.refuses_to_start(harness.folder.path(), USAGE_ERROR, &["secret_file", "can be read"]).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = with(&|settings| settings.endpoints = listener.local_addr().unwrap().to_string());
    taken
        .refuses_to_start(
            harness.folder.path(),
            USAGE_ERROR,
            &["relayer.endpoints: cannot listen at 127.0.0.1:", "another process listens there"],
        )
        .await;
    let nowhere = with(&|settings| settings.url = "postgres://unknown@127.0.0.1:1/missing".to_owned());
    nowhere.refuses_to_start(harness.folder.path(), NO_DATABASE, &["cannot connect to 127.0.0.1:1"]).await;
    let no_url = with(&|settings| settings.url = String::new());
    no_url.refuses_to_start(harness.folder.path(), USAGE_ERROR, &["hint: "]).await;

    // The rails.
    let unregistered = with(&|settings| {
        let section = settings.rails[RAIL].clone();
        settings.rails.insert("sepia".to_owned(), section);
    });
    unregistered
        .refuses_to_start(harness.folder.path(), CHECK_FAILED, &["not registered: sepia", "symphony rail add"])
        .await;
    harness.set_rail("forgotten", &serde_json::json!({})).await;
    // `run` without --check only warns: see unserved_rails.rs.
    let checked = settings.launch(harness.folder.path()).args(["--check"]).start().unwrap();
    assert_eq!(checked.exit_code(DEFAULT_TIMEOUT).await.unwrap(), CHECK_FAILED, "{}", checked.tail());
    for words in ["no section in the settings", "forgotten", "unserved_rails", "symphony rail retire"] {
        assert!(checked.tail().contains(words), "{words:?} is not in: {}", checked.tail());
    }
    let allowed = settings.clone().payment("unserved_rails", "'allow'");
    for (arguments, output) in
        [(&["--check"][..], "everything is in order"), (&["--check", "--json"], "\"in_order\": true")]
    {
        let checked = allowed.launch(harness.folder.path()).args(arguments).start().unwrap();
        checked.wait_for_line(|line| line.contains(output), DEFAULT_TIMEOUT).await.unwrap();
        assert_eq!(checked.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", checked.tail());
    }

    let retire = "select symphony.retire_payment_rail('forgotten', 'test', 'mistyped')";
    harness.superuser().await.batch_execute(retire).await.unwrap();
    let checked = settings.launch(harness.folder.path()).args(["--check"]).start().unwrap();
    assert_eq!(checked.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", checked.tail());

    // The login.
    let url = harness.database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let wrong_role = with(&|settings| settings.url = url.clone());
    wrong_role
        .refuses_to_start(
            harness.folder.path(),
            CHECK_FAILED,
            &["lacks a role: symphony_executor", "let a DBA run: grant"],
        )
        .await;
    let url = harness.database.url_as_login(&[]).await.unwrap();
    let no_role = with(&|settings| settings.url = url.clone());
    no_role
        .refuses_to_start(
            harness.folder.path(),
            CHECK_FAILED,
            &["lacks a role: symphony_executor", "let a DBA run: grant"],
        )
        .await;

    // The schema.
    let drift = "alter table symphony.payment_outbox_pending add column surprise int";
    harness.superuser().await.batch_execute(drift).await.unwrap();
    settings
        .refuses_to_start(
            harness.folder.path(),
            CHECK_FAILED,
            &["surprise", "symphony verify", "symphony install"],
        )
        .await;
    let empty = Server::from_env().await.unwrap().empty_database().await.unwrap();
    let url = empty.url();
    let missing = with(&|settings| settings.url = url.clone());
    missing.refuses_to_start(harness.folder.path(), CHECK_FAILED, &["not installed", "symphony install"]).await;
    empty.close().await.unwrap();
}
