//! The bank of one test, as a process.

use std::net::SocketAddr;

use serde_json::Value;
use symphony_proof::kit::audit::{Execution, executions};
use symphony_proof::kit::process::{Launch, Program};
use symphony_proof::kit::wait::{BOUND, until};

use crate::http;

/// A bank that runs. It dies with the test.
pub(crate) struct Bank {
    program: Program,
    address: SocketAddr,
}

/// One line of its list of requests.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) key: String,
    /// `payment` or `inquiry`.
    pub(crate) kind: String,
    pub(crate) outcome: String,
}

impl Bank {
    /// Starts one with these arguments and waits until it is ready.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let launch = Launch::new(env!("CARGO_BIN_EXE_symphony")).args(["bank"]).args(arguments);
        let program = launch.env_remove("DATABASE_URL").start().unwrap();
        let line = program.wait_for_line(|line| line.contains("listening"), BOUND).await.unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        let address = line["listening"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
        Self { program, address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Orders faults.
    pub(crate) async fn order(&self, faults: &Value) {
        let answer = http::ask(self.address, "PUT", "/v1/faults", &faults.to_string()).await.unwrap();
        assert_eq!(answer.0, 200, "{}", answer.1);
    }

    /// Everything that it was asked, in the order in which it was dealt with.
    pub(crate) async fn requests(&self) -> Vec<Request> {
        let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
        let request = |line: Value| Request {
            key: text(&line, "key"),
            kind: text(&line, "kind"),
            outcome: text(&line, "outcome"),
        };
        let lines = http::get(self.address, "/v1/requests").await;
        lines.lines().map(|line| request(serde_json::from_str(line).unwrap())).collect()
    }

    /// What was executed, in order.
    pub(crate) async fn ledger(&self) -> Vec<Execution> {
        executions(&http::get(self.address, "/v1/ledger").await).unwrap()
    }

    /// How many payments it was asked for that it has dealt with.
    pub(crate) async fn payments(&self) -> usize {
        self.requests().await.iter().filter(|request| request.kind == "payment").count()
    }

    /// Waits until it has dealt with so many payments.
    pub(crate) async fn has_dealt_with(&self, payments: usize) {
        let so = async || self.payments().await >= payments;
        until(format!("the bank has dealt with {payments} payments"), BOUND, so).await.unwrap();
    }

    /// Kills it as a crash would.
    pub(crate) async fn kill9(&self) {
        self.program.kill9().await.unwrap();
    }

    /// What it was asked about one key, in order: each as its kind and what came of it.
    pub(crate) async fn story(&self, key: &str) -> Vec<(String, String)> {
        let of_key = self.requests().await.into_iter().filter(|request| request.key == key);
        of_key.map(|request| (request.kind, request.outcome)).collect()
    }
}
