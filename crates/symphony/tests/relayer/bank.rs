//! The simulated bank of one test, as a process.

use std::net::SocketAddr;

use serde_json::Value;
use symphony_testkit::process::{Launch, Program};
use symphony_testkit::protocol::trace;
use symphony_testkit::reconciliation::{Execution, executions};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::http;

/// A running bank. It is killed when the test ends.
pub(crate) struct Bank {
    program: Program,
    address: SocketAddr,
}

/// One request that the bank has handled.
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
        Self::start_with(arguments, &[]).await
    }

    /// The same, with these environment variables.
    pub(crate) async fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut launch = Launch::new(env!("CARGO_BIN_EXE_symphony")).args(["bank"]).args(arguments);
        for (name, value) in variables {
            launch = launch.env(name, value);
        }
        let program = launch.env_remove("DATABASE_URL").start().unwrap();
        let line = program.wait_for_line(|line| line.contains("listening"), DEFAULT_TIMEOUT).await.unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        let address = line["listening"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
        Self { program, address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the faults that the bank injects.
    pub(crate) async fn set_faults(&self, faults: &Value) {
        let answer = http::request(self.address, "PUT", "/v1/faults", &faults.to_string()).await.unwrap();
        assert_eq!(answer.0, 200, "{}", answer.1);
    }

    /// Decides what becomes of an accepted payment.
    pub(crate) async fn settle(&self, key: &str, status: &str) {
        let settlement = serde_json::json!({ (key): status }).to_string();
        let answer = http::request(self.address, "PUT", "/v1/settlements", &settlement).await.unwrap();
        assert_eq!(answer, (200, serde_json::json!({ (key): true }).to_string()));
    }

    /// All requests that it has handled, in that order.
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

    /// The executed payments, in order.
    pub(crate) async fn ledger(&self) -> Vec<Execution> {
        executions(&http::get(self.address, "/v1/ledger").await).unwrap()
    }

    /// The same, for a replay of the run.
    pub(crate) async fn trace(&self) -> Vec<trace::Request> {
        trace::requests(&http::get(self.address, "/v1/requests").await).unwrap()
    }

    /// How many payment requests it has handled.
    pub(crate) async fn payments(&self) -> usize {
        self.requests().await.iter().filter(|request| request.kind == "payment").count()
    }

    /// Waits until it has handled this many payment requests.
    pub(crate) async fn wait_for_payments(&self, payments: usize) {
        let condition = async || self.payments().await >= payments;
        until(format!("the bank has handled {payments} payments"), DEFAULT_TIMEOUT, condition).await.unwrap();
    }

    /// Waits until it has received this many requests, handled or not.
    pub(crate) async fn wait_for_received(&self, requests: usize) {
        let condition = async || {
            let stats: Value = serde_json::from_str(&http::get(self.address, "/v1/stats").await).unwrap();
            stats["received"].as_u64().unwrap() >= u64::try_from(requests).unwrap()
        };
        until(format!("the bank has received {requests} requests"), DEFAULT_TIMEOUT, condition).await.unwrap();
    }

    /// Kills it with SIGKILL, like a crash.
    pub(crate) async fn kill9(&self) {
        self.program.kill9().await.unwrap();
    }

    /// The requests for one key in order, each as its kind and its outcome.
    pub(crate) async fn requests_for(&self, key: &str) -> Vec<(String, String)> {
        let of_key = self.requests().await.into_iter().filter(|request| request.key == key);
        of_key.map(|request| (request.kind, request.outcome)).collect()
    }
}
