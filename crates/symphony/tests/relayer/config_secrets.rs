//! Invalid settings that hold a secret: the error names the line or the key, and never prints the value.

use std::path::Path;

use symphony_testkit::process::Launch;
use symphony_testkit::wait::DEFAULT_TIMEOUT;

const SECRET: &str = "whsec_UGxhbnRlZE1hcms";
const USAGE_ERROR: i32 = 2;

/// The output of a check of these settings, which must be refused.
async fn refusal(folder: &Path, settings: &str) -> String {
    let file = folder.join("symphony.toml");
    std::fs::write(&file, settings).unwrap();
    let launch = Launch::new(env!("CARGO_BIN_EXE_symphony"))
        .args(["run", "--config", file.to_str().unwrap(), "--check"])
        .env_remove("DATABASE_URL");
    let launch = if settings.contains("[database]") {
        launch
    } else {
        launch.env("DATABASE_URL", "postgres://unknown@127.0.0.1:1/missing")
    };
    let program = launch.start().unwrap();
    let code = program.exit_code(DEFAULT_TIMEOUT).await.unwrap();
    assert_eq!(code, USAGE_ERROR, "{settings}\n{}", program.tail());
    program.tail()
}

#[tokio::test]
async fn a_secret_in_settings_that_are_wrong_is_never_printed() {
    let folder = tempfile::tempdir().unwrap();
    let rail = |lines: &str| format!("[rails.sepa]\nkind = 'http'\nurl = 'https://bank.example/'\n{lines}\n");
    let sink = |lines: &str| {
        format!(
            "[event]\nsource = '/shop'\n[[event.routes]]\naggregate_type = '*'\nevent_type = '*'\nsink = 'bus'\n\
             destination = 'x'\n[sinks.bus]\n{lines}\n"
        )
    };
    let store =
        |lines: &str| format!("[[metadata.routes]]\nentity_type = '*'\nstore = 'copy'\n[stores.copy]\n{lines}\n");
    for (settings, expected) in [
        // Not TOML.
        (rail(&format!("secret_env = {SECRET}")), "line 4"),
        (rail(&format!("secret_env = '{SECRET}")), "line 4"),
        (rail(&format!("secret_env '{SECRET}'")), "line 4"),
        (rail(&format!("secret_env = '{SECRET}'\nsecret_env = '{SECRET}'")), "secret_env"),
        (format!("[database]\nurl = postgres://u:{SECRET}@h/db"), "line 2"),
        (SECRET.to_owned(), "line 1"),
        // A value of the wrong type, or out of range.
        (format!("[payment]\nlease = '{SECRET}'"), "payment.lease"),
        (format!("[payment]\nslots = '{SECRET}'"), "payment.slots"),
        (format!("[payment]\nunserved_rails = '{SECRET}'"), "payment.unserved_rails"),
        (format!("[event]\norder = '{SECRET}'"), "event.order"),
        (format!("[relayer]\nlog_format = '{SECRET}'"), "relayer.log_format"),
        (format!("[relayer]\nlog_level = '{SECRET}'"), "relayer.log_level"),
        (format!("[database]\nurl = ['{SECRET}']"), "database.url"),
        (format!("[console]\nread_url = 7\nact_url = '{SECRET}'"), "console.read_url"),
        (format!("[[console.tokens]]\nname = 'a'\nscopes = ['{SECRET}']\nhash = 'x'"), "console.tokens"),
        (format!("[[console.tokens]]\nname = 'a'\nscopes = ['read']\nhash = ['{SECRET}']"), "console.tokens"),
        (format!("console = '{SECRET}'"), "console"),
        // A secret where the name of a variable or a file belongs.
        (rail(&format!("secret_env = '{SECRET}'")), "secret_env"),
        (rail(&format!("secret_env = ['{SECRET}']")), "secret_env"),
        (rail(&format!("secret_env = '{SECRET} and spaces='")), "secret_env"),
        (rail(&format!("secret_file = '{SECRET}'")), "secret_file"),
        (rail(&format!("bearer_env = '{SECRET}'")), "bearer_env"),
        (rail(&format!("bearer_file = '{SECRET}'")), "bearer_file"),
        (rail(&format!("headers = {{ x-key = {{ env = '{SECRET}' }} }}")), "headers.x-key"),
        (rail(&format!("headers = {{ x-key = {{ file = '{SECRET}' }} }}")), "headers.x-key"),
        (rail(&format!("headers = {{ x-key = ['{SECRET}'] }}")), "headers"),
        (rail(&format!("root_ca_file = '{SECRET}'")), "root_ca_file"),
        (rail(&format!("timeout = '{SECRET}'")), "timeout"),
        (rail(&format!("answer_body = '{SECRET}'")), "answer_body"),
        (rail(&format!("outcomes = {{ '200' = '{SECRET}' }}")), "outcomes"),
        (rail(&format!("allow_private = ['{SECRET} /']")), "allow_private"),
        (rail(&format!("slots = '{SECRET}'")), "slots"),
        (format!("[rails.sepa]\nkind = '{SECRET}'"), "kind"),
        (format!("[rails.sepa]\nkind = 'http'\nurl = 'https://u:{SECRET}@bank.example/'"), "url"),
        (format!("[rails.sepa]\nkind = 'http'\nurl = 'bank.example/?key={SECRET}'"), "url"),
        (format!("[rails.sepa]\nkind = 'http'\nurl = 'https://[{SECRET}'"), "url"),
        (sink(&format!("kind = '{SECRET}'")), "kind"),
        (sink(&format!("kind = 'nats'\nurl = 'nats://u:{SECRET}@h:1:2'")), "url"),
        (sink(&format!("kind = 'nats'\nurl = '{SECRET}'")), "url"),
        (sink(&format!("kind = 'rabbitmq'\nexchange = 'x'\nurl = '{SECRET}'")), "url"),
        (sink(&format!("kind = 'rabbitmq'\nexchange = 'x'\nurl = 'amqp://u:{SECRET}@h'")), "url"),
        (sink(&format!("kind = 'redis'\nurl = 'redis://u:{SECRET}@h'")), "url"),
        (sink(&format!("kind = 'redis'\nurl = '{SECRET}'")), "url"),
        (sink(&format!("kind = 'http'\nurl = 'https://u:{SECRET}@h/'")), "url"),
        (sink(&format!("kind = 'http'\nurl = 'https://h/'\nbearer_env = '{SECRET}'")), "bearer_env"),
        (store(&format!("kind = '{SECRET}'")), "kind"),
        (store(&format!("kind = 'postgres'\nurl = '{SECRET}'")), "url"),
        (store(&format!("kind = 'postgres'\nurl_env = '{SECRET}'")), "url"),
        (store(&format!("kind = 'redis'\nurl = 'redis://u:{SECRET}@h'")), "url"),
        // The address of the database.
        (format!("{}[database]\nurl = 'postgres://u:{SECRET}@h:port/db'", rail("")), "port"),
        (format!("{}[database]\nurl = 'u:{SECRET}@h'", rail("")), "address"),
        (format!("{}[database]\nurl = 'host=h password={SECRET} sslmode=maybe'", rail("")), "sslmode"),
        (format!("[traces]\nendpoint = 'https://u:{SECRET}@h/'\n{}", rail("")), "endpoint"),
        (
            format!("[traces]\nendpoint = 'https://h/'\nheaders = {{ x = {{ env = '{SECRET}' }} }}\n{}", rail("")),
            "headers",
        ),
    ] {
        let output = refusal(folder.path(), &settings).await;
        assert!(!output.contains(&SECRET["whsec_".len()..]), "the secret is printed: {output}\nof: {settings}");
        assert!(
            output.contains("error: ") && output.contains(expected),
            "{expected:?} is not in: {output}\nof: {settings}"
        );
    }
}
