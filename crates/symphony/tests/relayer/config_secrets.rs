//! Settings that are wrong and hold a secret: the program says where and which key, and never what stands there.

use std::path::Path;

use symphony_proof::kit::process::Launch;
use symphony_proof::kit::wait::BOUND;

const SECRET: &str = "whsec_UGxhbnRlZE1hcms";
const USAGE: i32 = 2;

/// All that the program says about this file of settings.
async fn refusal(folder: &Path, settings: &str) -> String {
    let file = folder.join("symphony.toml");
    std::fs::write(&file, settings).unwrap();
    let launch = Launch::new(env!("CARGO_BIN_EXE_symphony"))
        .args(["run", "--config", file.to_str().unwrap(), "--check"])
        .env_remove("DATABASE_URL");
    let launch = if settings.contains("[database]") {
        launch
    } else {
        launch.env("DATABASE_URL", "postgres://nobody@127.0.0.1:1/nothing")
    };
    let program = launch.start().unwrap();
    let code = program.exit_code(BOUND).await.unwrap();
    assert_eq!(code, USAGE, "{settings}\n{}", program.tail());
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
    for (settings, says) in [
        // Not TOML.
        (rail(&format!("secret_env = {SECRET}")), "line 4"),
        (rail(&format!("secret_env = '{SECRET}")), "line 4"),
        (rail(&format!("secret_env '{SECRET}'")), "line 4"),
        (rail(&format!("secret_env = '{SECRET}'\nsecret_env = '{SECRET}'")), "secret_env"),
        (format!("[database]\nurl = postgres://u:{SECRET}@h/db"), "line 2"),
        (SECRET.to_owned(), "line 1"),
        // Of the wrong type, or out of range.
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
        // A secret where its name or its file belongs.
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
        let said = refusal(folder.path(), &settings).await;
        assert!(!said.contains(&SECRET["whsec_".len()..]), "it is printed: {said}\nof: {settings}");
        assert!(said.contains("error: ") && said.contains(says), "{says:?} is not in: {said}\nof: {settings}");
    }
}
