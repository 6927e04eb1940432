//! A relayer of one test, as a process, and the settings that it is given.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use symphony_proof::kit::process::{Launch, Program};
use symphony_proof::kit::wait::BOUND;

use crate::http;

/// What a relayer is told. The defaults of these tests are the shortest that keep a slow machine out of trouble.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) url: String,
    /// Empty: the same as `url`.
    pub(crate) listen_url: String,
    /// Settings of `[payment]`, as they are written in the file.
    pub(crate) payment: BTreeMap<&'static str, String>,
    /// Further lines, such as another section.
    pub(crate) more: String,
    /// Rails by name, and the lines of their sections.
    pub(crate) rails: BTreeMap<String, String>,
    pub(crate) log_level: &'static str,
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl Orders {
    /// For leases that are to run out while a test waits.
    pub(crate) fn new(url: &str, rails: BTreeMap<String, String>) -> Self {
        let payment = [
            ("lease", "'4s'"),
            ("lease_margin", "'1s'"),
            ("call_timeout", "'2s'"),
            ("repair_every", "'1s'"),
            ("poll", "'250ms'"),
        ];
        Self {
            url: url.to_owned(),
            listen_url: String::new(),
            payment: payment.map(|(name, value)| (name, value.to_owned())).into(),
            more: String::new(),
            rails,
            log_level: "debug",
            variables: Vec::new(),
        }
    }

    /// With the settings that it ships with.
    pub(crate) fn defaults(mut self) -> Self {
        self.payment.clear();
        self
    }

    /// With this in `[payment]`.
    pub(crate) fn payment(mut self, name: &'static str, value: &str) -> Self {
        self.payment.insert(name, value.to_owned());
        self
    }

    /// With this line in the section of every rail.
    pub(crate) fn of_rails(mut self, line: &str) -> Self {
        for section in self.rails.values_mut() {
            let _ = writeln!(section, "{line}");
        }
        self
    }

    /// Which dies when it comes to this step.
    pub(crate) fn dying_at(mut self, step: &str) -> Self {
        self.variables.push((symphony_relay::fail_point::VARIABLE, step.to_owned()));
        self
    }

    /// The file of settings.
    pub(crate) fn file(&self) -> String {
        let mut text = format!(
            "[database]\nurl = '{}'\nlisten_url = '{}'\n\
             [relayer]\nendpoints = '127.0.0.1:0'\nlog_level = '{}'\n[payment]\n",
            self.url, self.listen_url, self.log_level
        );
        for (name, value) in &self.payment {
            let _ = writeln!(text, "{name} = {value}");
        }
        let _ = writeln!(text, "{}", self.more);
        for (name, section) in &self.rails {
            let _ = writeln!(text, "[rails.{name}]\n{section}");
        }
        text
    }

    /// The program with these settings, not yet started.
    pub(crate) fn launch(&self, folder: &Path) -> Launch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let file = folder.join(format!("symphony-{}.toml", COUNT.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&file, self.file()).unwrap();
        let mut launch = Launch::new(env!("CARGO_BIN_EXE_symphony"))
            .args(["run", "--config", file.to_str().unwrap()])
            .env_remove("DATABASE_URL")
            .env_remove("SYMPHONY_LISTEN_URL");
        for (name, value) in &self.variables {
            launch = launch.env(name, value);
        }
        launch
    }
}

/// A relayer that runs. It dies with the test.
pub(crate) struct Relayer {
    pub(crate) program: Program,
    pub(crate) worker: String,
    endpoints: SocketAddr,
}

impl Relayer {
    /// Starts one and waits until it has begun.
    pub(crate) async fn start(orders: &Orders, folder: &Path) -> Self {
        let program = orders.launch(folder).start().unwrap();
        let line = program.wait_for_line(|line| line.starts_with("{\"endpoints\""), BOUND).await.unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        let endpoints = line["endpoints"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
        Self { program, worker: line["worker"].as_str().unwrap().to_owned(), endpoints }
    }

    /// Where it answers HTTP.
    pub(crate) fn endpoints(&self) -> SocketAddr {
        self.endpoints
    }

    pub(crate) async fn metrics(&self) -> String {
        http::get(self.endpoints, "/metrics").await
    }

    /// The sum of a metric over its labels; zero where it is not there.
    pub(crate) async fn count(&self, metric: &str) -> u64 {
        let text = self.metrics().await;
        let lines = text.lines().filter(|line| {
            line.strip_prefix(metric).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
        });
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// Status and body of an endpoint.
    pub(crate) async fn ask(&self, path: &str) -> (u16, String) {
        http::ask(self.endpoints, "GET", path, "").await.unwrap()
    }

    /// Waits until it writes a line with this in it.
    pub(crate) async fn says(&self, words: &str) -> String {
        self.program.wait_for_line(|line| line.contains(words), BOUND).await.unwrap()
    }

    /// How many lines it has written with this in them.
    pub(crate) async fn heard(&self, words: &str) -> usize {
        let mut count = 0;
        let counting = |line: &str| {
            count += usize::from(line.contains(words));
            false
        };
        let _ = self.program.wait_for_line(counting, Duration::ZERO).await;
        count
    }

    /// Everything that it has written, once it has ended.
    pub(crate) async fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let collecting = |line: &str| {
            lines.push(line.to_owned());
            false
        };
        assert!(self.program.wait_for_line(collecting, BOUND).await.is_err());
        lines
    }

    /// Asks it to end, and waits until it has: with 0.
    pub(crate) async fn stop(&self) {
        self.program.term();
        assert_eq!(self.program.exit_code(BOUND).await.unwrap(), 0, "{}", self.program.tail());
    }
}
