//! A Prometheus server for one test, which evaluates the shipped alert rules in shortened time.
//!
//! A minute of `for` becomes one second, and a minute of a window three seconds. Windows are longer because a relayer
//! reconnects to its database only every few seconds. Nothing else of the rules changes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use symphony_testkit::prometheus::Prometheus as Server;

use crate::http;

/// The window of the dashboard's rates.
const RATE_WINDOW: &str = "20s";

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn rules() -> String {
    read("ops/prometheus/symphony.rules.yml")
}

pub(crate) fn dashboard() -> Value {
    serde_json::from_str(&read("ops/grafana/symphony.json")).unwrap()
}

/// The queries of the dashboard's panels, for every job and lane.
pub(crate) fn expressions() -> Vec<String> {
    let dashboard = dashboard();
    let targets = dashboard["panels"].as_array().unwrap().iter().filter_map(|panel| panel["targets"].as_array());
    let query = |target: &Value| {
        let query = target["expr"].as_str().unwrap().replace("$job", ".*").replace("$lane", ".*");
        query.replace("$__rate_interval", RATE_WINDOW).replace("$__range", "60s")
    };
    targets.flatten().map(query).collect()
}

/// The rules with shortened times.
fn shortened(rules: &str) -> String {
    let seconds = |time: &str| match time.split_at(time.len() - 1) {
        (number, "m") => number.parse::<u32>().unwrap(),
        (number, "h") => 60 * number.parse::<u32>().unwrap(),
        _ => panic!("cannot shorten {time}"),
    };
    let line = |line: &str| {
        if let Some((before, wait)) = line.split_once("for: ").filter(|(before, _)| before.trim().is_empty()) {
            return format!("{before}for: {}s\n", seconds(wait));
        }
        let mut rest = format!("{line}\n");
        let mut result = String::new();
        while let Some((before, after)) = rest.split_once('[').filter(|_| !line.trim().starts_with('#')) {
            let (window, remaining) = after.split_once(']').unwrap();
            result.push_str(&format!("{before}[{}s]", 3 * seconds(window)));
            rest = remaining.to_owned();
        }
        result + &rest
    };
    rules.lines().map(line).collect()
}

/// A Prometheus that scrapes every two seconds, so that a slow machine has time to answer.
pub(crate) struct Prometheus {
    server: Server,
}

impl Prometheus {
    /// Starts one that scrapes these relayers by job and evaluates the shipped rules.
    pub(crate) async fn scraping(jobs: &[(&str, &[SocketAddr])]) -> Self {
        let mut text = String::from(
            "global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s}\n\
             rule_files: [rules.yml]\nscrape_configs:\n",
        );
        for (job, relayers) in jobs {
            let targets: Vec<_> = relayers.iter().map(|relayer| format!("\"{relayer}\"")).collect();
            text.push_str(&format!(
                "- {{job_name: {job}, static_configs: [{{targets: [{}]}}]}}\n",
                targets.join(", ")
            ));
        }
        Self { server: Server::start(&text, &shortened(&rules())).await.unwrap() }
    }

    /// The data of a response, which must be a success.
    async fn get(&self, path: &str) -> Value {
        let (status, body) = http::request(self.server.address(), "GET", path, "").await.unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        let response: Value = serde_json::from_str(&body).unwrap();
        response["data"].clone()
    }

    /// The samples that a query returns now.
    pub(crate) async fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let data = self.get(&format!("/api/v1/query?query={encoded}")).await;
        data["result"].as_array().unwrap().clone()
    }

    /// The names of all alert rules.
    pub(crate) async fn alerts(&self) -> BTreeSet<String> {
        let data = self.get("/api/v1/rules?type=alert").await;
        let groups = data["groups"].as_array().unwrap().iter();
        let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
        rules.map(|rule| rule["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The names of all metrics that it has scraped.
    pub(crate) async fn metrics(&self) -> BTreeSet<String> {
        let names = self.get("/api/v1/label/__name__/values").await;
        names.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn nothing_but_time_is_shortened() {
    let rules = "# [5m]\n  - alert: A\n    expr: x[10m] + y[1h] > 120\n    for: 5m\n";
    assert_eq!(shortened(rules), "# [5m]\n  - alert: A\n    expr: x[30s] + y[180s] > 120\n    for: 5s\n");
}
