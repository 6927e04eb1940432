//! README.md works as written: its SQL runs, and its commands exist.

use std::{fs, process::Command};

use symphony_testkit::test_database::Server;

use crate::{code_blocks, names::symphony, root};

fn readme() -> String {
    fs::read_to_string(root().join("README.md")).unwrap()
}

fn blocks(languages: &[&str]) -> Vec<String> {
    let found: Vec<_> = code_blocks(&readme())
        .into_iter()
        .filter(|(language, ..)| languages.contains(&language.as_str()))
        .map(|(.., text)| text)
        .collect();
    assert!(!found.is_empty(), "README.md has no block of {languages:?}");
    found
}

#[tokio::test]
async fn the_sql_of_the_readme_runs_and_enqueues_a_payment() {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let client = database.connect().await.unwrap();
    client
        .batch_execute(
            "create table orders (id text primary key, total numeric);
             select symphony.register_payment_rail('sepa', '{\"ordered\": true}', 'you', 'first rail')",
        )
        .await
        .unwrap();
    for block in blocks(&["sql"]) {
        client.batch_execute(&block).await.unwrap_or_else(|error| panic!("{block}\n{error:?}"));
    }
    let enqueued = "select instruction_id::text, idempotency_key::text from symphony.payment_outbox_pending";
    let enqueued = client.query_one(enqueued, &[]).await.unwrap();
    // `symphony inspect` of the quick start asks for the same instruction.
    let instruction: String = enqueued.get(0);
    assert!(readme().contains(&format!("symphony inspect {instruction} ")), "{instruction}");
    let orders = client.query_one("select count(*) from orders", &[]).await.unwrap();
    assert_eq!(orders.get::<_, i64>(0), 1);
}

#[test]
fn the_scripts_of_the_readme_can_be_run() {
    let text = blocks(&["sh"]).concat();
    let first_words = text.lines().filter_map(|line| line.split(' ').next());
    let scripts: Vec<_> = first_words.filter(|word| word.starts_with("scripts/")).collect();
    assert_eq!(scripts, ["scripts/demo", "scripts/test"]);
    for script in &scripts {
        let parsed = Command::new("bash").arg("-n").arg(root().join(script)).output().unwrap();
        assert!(parsed.status.success(), "{script}: {parsed:?}");
    }
    let help = Command::new(root().join("scripts/test")).arg("--help").output().unwrap();
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).starts_with("Usage: "), "{help:?}");
    // `scripts/demo --help` would replace the program of the running tests: it builds before it prints.
    let help = Command::new(symphony()).args(["demo", "--help"]).output().unwrap();
    assert!(help.status.success(), "{help:?}");
}

#[test]
fn the_readme_installs_a_crate_that_exists() {
    let text = blocks(&["sh"]).concat();
    let path = text.split("--path ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    assert!(root().join(path).join("Cargo.toml").exists(), "{path}");
}
