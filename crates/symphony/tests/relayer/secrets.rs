//! Secrets that change while a relayer runs: those of a rail, and the password of the database.

use serde_json::Value;
use symphony_testkit::wait::DEFAULT_TIMEOUT;

use crate::harness::{Harness, RAIL};
use crate::recording_server::RecordingServer;
use crate::relayer::{Settings, USAGE_ERROR};

/// Settings of a relayer whose rail sends to this server, with these further lines.
fn settings(harness: &Harness, bank: &RecordingServer, lines: &str) -> Settings {
    let mut settings = harness.settings().rail_lines(lines);
    for section in settings.rails.values_mut() {
        *section = section.replace(&harness.bank.address().to_string(), &bank.address().to_string());
    }
    settings
}

/// User, password, host, port and database of a URL.
fn parts(url: &str) -> [String; 5] {
    let rest = url.strip_prefix("postgres://").unwrap();
    let (login, place) = rest.split_once('@').unwrap();
    let (user, password) = login.split_once(':').unwrap();
    let (server, database) = place.split_once('/').unwrap();
    let (host, port) = server.rsplit_once(':').unwrap();
    let database = database.split('?').next().unwrap();
    [user, password, host, port, database].map(str::to_owned)
}

#[tokio::test]
async fn sighup_reads_secrets_again_and_stops_nothing() {
    let harness = Harness::start().await;
    let bank = RecordingServer::start().await;
    let token = harness.folder.path().join("token");
    std::fs::write(&token, "one").unwrap();
    let relayer =
        harness.start_relayer(&settings(&harness, &bank, &format!("bearer_file = '{}'", token.display()))).await;
    harness.enqueue("before", 1).await;
    assert_eq!(bank.wait_for_requests(1).await[0].header("authorization"), "Bearer one");

    std::fs::write(&token, "two").unwrap();
    relayer.program.hang_up();
    relayer.wait_for_log("SECRETS_READ").await;
    harness.enqueue("after", 1).await;
    assert_eq!(bank.wait_for_requests(2).await[1].header("authorization"), "Bearer two");

    std::fs::write(&token, "\n").unwrap();
    relayer.program.hang_up();
    let line: Value = serde_json::from_str(&relayer.wait_for_log("SECRET_NOT_RELOADED").await).unwrap();
    assert_eq!((&line["level"], &line["owner"]), (&"WARN".into(), &format!("rail {RAIL}").into()), "{line}");
    assert_eq!(
        (&line["setting"], &line["problem"]),
        (&"bearer_file".into(), &"the secret is empty".into()),
        "{line}"
    );
    harness.enqueue("kept", 1).await;
    assert_eq!(bank.wait_for_requests(3).await[2].header("authorization"), "Bearer two");

    // Without a signal, within seconds.
    std::fs::write(&token, "three").unwrap();
    relayer.wait_for_log("SECRET_RELOADED").await;
    assert!(relayer.program.is_running());
    relayer.stop().await;
    assert!(!relayer.log_lines().await.iter().any(|line| line.contains("Bearer")));
}

#[tokio::test]
async fn the_database_password_comes_from_a_file_and_can_be_rotated() {
    let harness = Harness::start().await;
    let file = harness.folder.path().join("password");
    let [user, password, ..] = parts(&harness.settings().url);
    let mut settings = harness.settings();
    settings.url = settings.url.replace(&format!(":{password}@"), "@");
    settings.password_file = file.display().to_string();
    settings.refuses_to_start(harness.folder.path(), USAGE_ERROR, &["password_file", "cannot be used"]).await;

    let set_password = async |password: &str| {
        std::fs::write(&file, format!("{password}\n")).unwrap();
        harness
            .superuser()
            .await
            .batch_execute(&format!("alter role {user} password '{password}'"))
            .await
            .unwrap();
    };
    set_password("first-password").await;
    let relayer = harness.start_relayer(&settings).await;
    harness.enqueue("before", 3).await;
    harness.bank.wait_for_payments(3).await;
    set_password("second-password").await;
    harness.database.terminate_sessions().await.unwrap();
    harness.enqueue("after", 3).await;
    harness.bank.wait_for_payments(6).await;
    relayer.stop().await;
    assert!(!relayer.log_lines().await.iter().any(|line| line.contains("-password")));
}

#[tokio::test]
async fn the_variables_of_libpq_name_the_database() {
    let harness = Harness::start().await;
    let [user, password, host, port, database] = parts(&harness.settings().url);
    let passfile = harness.folder.path().join("passfile");
    std::fs::write(&passfile, format!("*:*:*:{user}:{password}\n")).unwrap();
    std::fs::set_permissions(&passfile, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut settings = harness.settings();
    settings.url = String::new();
    settings.variables = vec![
        ("PGHOST", host),
        ("PGPORT", port),
        ("PGUSER", user),
        ("PGDATABASE", database),
        ("PGPASSFILE", passfile.display().to_string()),
    ];
    let relayer = harness.start_relayer(&settings).await;
    harness.enqueue("by-variables", 2).await;
    harness.bank.wait_for_payments(2).await;
    relayer.stop().await;

    std::fs::set_permissions(&passfile, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    settings.refuses_to_start(harness.folder.path(), USAGE_ERROR, &["passfile", "chmod 0600"]).await;
}

#[tokio::test]
async fn a_check_warns_of_a_token_endpoint_that_cannot_be_reached() {
    let harness = Harness::start().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut settings = harness.settings();
    settings.variables = vec![("OAUTH_SECRET", "s3cret".to_owned())];
    for section in settings.rails.values_mut() {
        *section += &format!(
            "oauth = {{ token_url = 'http://{closed}/token', client_id = 'a', client_secret_env = 'OAUTH_SECRET' }}\n"
        );
    }
    let checked = settings.launch(harness.folder.path()).args(["--check"]).start().unwrap();
    assert_eq!(checked.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", checked.tail());
    for words in ["CREDENTIALS_UNAVAILABLE", "the token endpoint did not answer", "everything is in order"] {
        assert!(checked.tail().contains(words), "{words:?} is not in: {}", checked.tail());
    }
    assert!(!checked.tail().contains("s3cret"));
}
