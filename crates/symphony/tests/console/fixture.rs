//! A test database, outboxes in every state, and a relayer that serves the console.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use symphony_client::payment::{Instruction, tokio_postgres as producer};
use symphony_db::payment::worker::{Claimed, claim, complete};
use symphony_db::payment::{Completion, OUTCOME_UNKNOWN, Outcome, RailAnswer, Reason};
use symphony_db::schema::{Lane, script};
use symphony_db::{BatchSize, OutboxId, WorkerId};
use symphony_testkit::process::{Launch, Program};
use symphony_testkit::test_database::{Database, Server};
use symphony_testkit::wait::DEFAULT_TIMEOUT;
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::http::{self, Answer};

/// The rail of the outboxes. The relayer does not serve it, so that they keep their state.
pub(crate) const RAIL: &str = "sepa";
/// A value in every payload that only auditors may see.
pub(crate) const SECRET: &str = "DE02120300000000202051";

/// The test database, its logins and the settings.
pub(crate) struct Fixture {
    pub(crate) database: Database,
    pub(crate) owner: Client,
    folder: TempDir,
    read_url: String,
    act_url: String,
}

impl Fixture {
    /// A database with two rails.
    pub(crate) async fn new() -> Self {
        Self::in_database(Server::from_env().await.unwrap().database().await.unwrap()).await
    }

    /// The same in a database without the event lane.
    pub(crate) async fn without_events() -> Self {
        let database = Server::from_env().await.unwrap().empty_database().await.unwrap();
        let install = script(&[Lane::Payment, Lane::Metadata]);
        database.connect().await.unwrap().batch_execute(&install).await.unwrap();
        Self::in_database(database).await
    }

    async fn in_database(database: Database) -> Self {
        let owner = database.connect().await.unwrap();
        owner
            .batch_execute(
                "select symphony.register_payment_rail('sepa', '{}', 'fixture', 'a test');
                 select symphony.register_payment_rail('served', '{}', 'fixture', 'a test')",
            )
            .await
            .unwrap();
        let read_url = database.url_as_login(&["symphony_readonly", "symphony_auditor"]).await.unwrap();
        let act_url = database.url_as_login(&["symphony_operator"]).await.unwrap();
        Self { database, owner, folder: tempfile::tempdir().unwrap(), read_url, act_url }
    }

    /// The settings of a relayer with a console.
    pub(crate) async fn settings(&self, endpoints: &str, console: &str) -> String {
        let url = self.database.url_as_login(&["symphony_executor"]).await.unwrap();
        format!(
            "[database]\nurl = '{url}'\n[relayer]\nendpoints = '{endpoints}'\nworker = 'test-relayer'\n\
             [payment]\nunserved_rails = 'allow'\n[rails.served]\nkind = 'http'\nurl = 'https://bank.example/v1/payments'\n[console]\n{console}\n"
        )
    }

    /// The console's logins, as settings.
    pub(crate) fn logins(&self) -> String {
        format!("read_url = '{}'\nact_url = '{}'\n", self.read_url, self.act_url)
    }

    /// The program with these settings, not yet started.
    pub(crate) fn launch(&self, settings: &str) -> Launch {
        let file = self.folder.path().join("symphony.toml");
        std::fs::write(&file, settings).unwrap();
        Launch::new(env!("CARGO_BIN_EXE_symphony"))
            .args(["run", "--config", file.to_str().unwrap()])
            .env_remove("DATABASE_URL")
            .env_remove("SYMPHONY_LISTEN_URL")
            .env_remove("SYMPHONY_CONSOLE_READ_URL")
            .env_remove("SYMPHONY_CONSOLE_ACT_URL")
    }

    /// Starts a console with these tokens, by name and scopes; without tokens it is open.
    pub(crate) async fn console(&self, tokens: &[(&str, &[&str])]) -> Console {
        let mut settings = self.logins();
        let mut tokens_by_name = Vec::new();
        for (name, scopes) in tokens {
            let (token, hash) = generate_token(name);
            let _ =
                writeln!(settings, "[[console.tokens]]\nname = '{name}'\nhash = '{hash}'\nscopes = {scopes:?}");
            tokens_by_name.push(((*name).to_owned(), token));
        }
        let settings = self.settings("127.0.0.1:0", &settings).await;
        let program = self.launch(&settings).start().unwrap();
        let line =
            program.wait_for_line(|line| line.starts_with("{\"endpoints\""), DEFAULT_TIMEOUT).await.unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        let address = line["endpoints"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
        Console { program, address, tokens: tokens_by_name }
    }

    /// Enqueues one instruction.
    pub(crate) async fn enqueue(&self, number: u32) -> OutboxId {
        let instruction = Instruction::new(
            format!("pay-{number}"),
            format!("shop-{}", number % 2),
            format!("pay-{number}/key"),
            RAIL,
            json!({ "amount": "10.50", "currency": "EUR", "destination": { "iban": SECRET } }),
        );
        producer::enqueue(&self.owner, &instruction).await.unwrap().outbox_id
    }

    /// Claims all that is due.
    pub(crate) async fn claim(&self) -> Vec<Claimed> {
        claim(&self.owner, &worker(), BatchSize::MAX, Duration::from_secs(3600)).await.unwrap()
    }

    /// Enqueues one instruction and completes it with this outcome.
    pub(crate) async fn ended(&self, number: u32, outcome: Outcome) -> OutboxId {
        let id = self.enqueue(number).await;
        let claimed = self.claim().await;
        let claimed = claimed.iter().find(|claimed| claimed.outbox_id == id).unwrap();
        let completion = Completion { lease: claimed.lease(), outcome, latency: Some(Duration::from_millis(42)) };
        complete(&self.owner, &worker(), &completion).await.unwrap();
        id
    }

    /// A known failure.
    pub(crate) async fn failed(&self, number: u32) -> OutboxId {
        self.ended(number, failure("NO_ACCOUNT")).await
    }

    /// A failure with an unknown outcome.
    pub(crate) async fn unknown(&self, number: u32) -> OutboxId {
        self.ended(number, failure(OUTCOME_UNKNOWN)).await
    }

    /// A dispatched payment.
    pub(crate) async fn dispatched(&self, number: u32) -> OutboxId {
        let rail = RailAnswer { reference: Some("ref-1".to_owned()), code: None };
        self.ended(number, Outcome::Dispatched { rail }).await
    }

    /// A metadata entry of this customer in the DLQ.
    pub(crate) async fn dead_metadata(&self, entity_id: &str) -> String {
        let dead = "with made as materialized (select symphony.create_metadata_entry('customer', $1, jsonb_build_object('iban', $2::text)) as id)
                    select id::text from made";
        let id: String = self.owner.query_one(dead, &[&entity_id, &SECRET]).await.unwrap().get(0);
        for step in [
            "status = 'PROCESSING', claim_token = gen_random_uuid(), claimed_by = 'test-worker', processing_started_at = now()",
            "status = 'FAILED', claim_token = null, retry_count = 1, last_error = 'NO_SUCH_KEY: a test', next_retry_at = now()",
            "status = 'DLQ', next_retry_at = null",
        ] {
            let step = format!(
                "update symphony.metadata_outbox set updated_at = now(), {step} where id = $1::text::uuid"
            );
            assert_eq!(self.owner.execute(&step, &[&id]).await.unwrap(), 1);
        }
        id
    }

    /// The number of operations of this kind in the audit log.
    pub(crate) async fn operations(&self, kind: &str) -> i64 {
        let count =
            "select count(*) from symphony.payment_outbox_operations where operation = $1 and actor <> 'fixture'";
        self.owner.query_one(count, &[&kind]).await.unwrap().get(0)
    }
}

fn failure(code: &str) -> Outcome {
    let reason = Reason { code: code.to_owned(), message: Some("it failed".to_owned()) };
    Outcome::Failed { reason, rail: RailAnswer::default() }
}

fn worker() -> WorkerId {
    "test-worker".into()
}

/// A token and its hash, from `symphony token`.
pub(crate) fn generate_token(name: &str) -> (String, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_symphony"))
        .args(["token", name, "--json"])
        .output()
        .unwrap();
    let tokens_by_name: Value = serde_json::from_slice(&output.stdout).unwrap();
    (tokens_by_name["token"].as_str().unwrap().to_owned(), tokens_by_name["hash"].as_str().unwrap().to_owned())
}

/// A relayer that serves the console. It is killed when the test ends.
pub(crate) struct Console {
    pub(crate) program: Program,
    pub(crate) address: SocketAddr,
    tokens: Vec<(String, String)>,
}

impl Console {
    /// The token of this name.
    pub(crate) fn token(&self, name: &str) -> &str {
        &self.tokens.iter().find(|(of, _)| of == name).unwrap().1
    }

    /// Sends a request with this token; without a token if the name is empty.
    pub(crate) async fn ask(&self, who: &str, method: &str, path: &str, body: &str) -> Answer {
        let bearer = if who.is_empty() { String::new() } else { format!("Bearer {}", self.token(who)) };
        let mut headers = Vec::new();
        if !bearer.is_empty() {
            headers.push(("authorization", bearer.as_str()));
        }
        if method == "POST" {
            headers.push(("content-type", "application/json"));
        }
        http::ask(self.address, method, path, &headers, body).await
    }

    /// A successful response of the API.
    pub(crate) async fn get(&self, who: &str, path: &str) -> Value {
        self.ask(who, "GET", &format!("/api/v1{path}"), "").await.is(200).json()
    }

    /// The response of the API to a POST.
    pub(crate) async fn post(&self, who: &str, path: &str, body: &Value) -> Answer {
        self.ask(who, "POST", &format!("/api/v1{path}"), &body.to_string()).await
    }
}
