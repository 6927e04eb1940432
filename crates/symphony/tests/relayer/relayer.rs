//! A relayer process and the settings file that a test gives it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use symphony_testkit::process::{Launch, Program};
use symphony_testkit::wait::DEFAULT_TIMEOUT;

use crate::http;

/// Exit codes of a relayer that does not start.
pub(crate) const CHECK_FAILED: i32 = 1;
pub(crate) const USAGE_ERROR: i32 = 2;
pub(crate) const NO_DATABASE: i32 = 4;

/// The settings of one relayer. Tests use the shortest leases and intervals that a slow machine can keep.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) url: String,
    /// Empty: the password is in `url`.
    pub(crate) password_file: String,
    /// Empty: the same as `url`.
    pub(crate) listen_url: String,
    /// Empty: a name that no other process has.
    pub(crate) worker: String,
    /// The address of the HTTP endpoints.
    pub(crate) endpoints: String,
    /// Settings of `[payment]`, as they are written in the file.
    pub(crate) payment: BTreeMap<&'static str, String>,
    /// Further lines of the file, such as another section.
    pub(crate) extra: String,
    /// The lines of each rail's section, by rail.
    pub(crate) rails: BTreeMap<String, String>,
    pub(crate) log_level: &'static str,
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl Settings {
    /// Settings with leases short enough to expire during a test.
    pub(crate) fn new(url: &str, rails: BTreeMap<String, String>) -> Self {
        let payment = [
            ("lease", "'4s'"),
            ("lease_margin", "'1s'"),
            ("call_timeout", "'2s'"),
            ("repair_every", "'1s'"),
            ("poll_interval", "'250ms'"),
        ];
        Self {
            url: url.to_owned(),
            password_file: String::new(),
            listen_url: String::new(),
            worker: String::new(),
            endpoints: "127.0.0.1:0".to_owned(),
            payment: payment.map(|(name, value)| (name, value.to_owned())).into(),
            extra: String::new(),
            rails,
            log_level: "debug",
            variables: Vec::new(),
        }
    }

    /// Uses the shipped defaults for `[payment]`.
    pub(crate) fn payment_defaults(mut self) -> Self {
        self.payment.clear();
        self
    }

    /// Sets one value in `[payment]`.
    pub(crate) fn payment(mut self, name: &'static str, value: &str) -> Self {
        self.payment.insert(name, value.to_owned());
        self
    }

    /// Adds these lines to the section of every rail.
    pub(crate) fn rail_lines(mut self, lines: &str) -> Self {
        for section in self.rails.values_mut() {
            let _ = writeln!(section, "{lines}");
        }
        self
    }

    /// Removes the inquiry URL of every rail.
    pub(crate) fn without_inquiry(mut self) -> Self {
        for section in self.rails.values_mut() {
            let lines = section.lines().filter(|line| !line.starts_with("inquiry_url"));
            *section = lines.map(|line| format!("{line}\n")).collect();
        }
        self
    }

    /// Aborts the relayer at this fail point.
    pub(crate) fn abort_at(mut self, fail_point: &str) -> Self {
        self.variables.push((symphony_relay::fail_point::VARIABLE, fail_point.to_owned()));
        self
    }

    /// The text of the settings file.
    fn toml(&self) -> String {
        let mut text = format!(
            "[database]\nurl = '{}'\npassword_file = '{}'\nlisten_url = '{}'\n\
             [relayer]\nworker = '{}'\nendpoints = '{}'\nlog_level = '{}'\n[payment]\n",
            self.url, self.password_file, self.listen_url, self.worker, self.endpoints, self.log_level
        );
        for (name, value) in &self.payment {
            let _ = writeln!(text, "{name} = {value}");
        }
        let _ = writeln!(text, "{}", self.extra);
        for (name, section) in &self.rails {
            let _ = writeln!(text, "[rails.{name}]\n{section}");
        }
        text
    }

    /// Starts a relayer with these settings, with and without `--check`. It must exit with this code, say what is wrong,
    /// and print each of these texts.
    pub(crate) async fn refuses_to_start(&self, folder: &Path, code: i32, texts: &[&str]) {
        for arguments in [&[][..], &["--check"]] {
            let program = self.launch(folder).args(arguments).start().unwrap();
            let exit_code = program.exit_code(DEFAULT_TIMEOUT).await.unwrap();
            let output = program.tail();
            assert_eq!(exit_code, code, "{output}");
            assert!(output.contains("error: "), "{output}");
            assert!(!output.contains("\"endpoints\""), "it had started: {output}");
            for text in texts {
                assert!(output.contains(text), "{text:?} is not in: {output}");
            }
        }
    }

    /// A `symphony run` with these settings, not yet started.
    pub(crate) fn launch(&self, folder: &Path) -> Launch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let file = folder.join(format!("symphony-{}.toml", COUNT.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&file, self.toml()).unwrap();
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

/// A running relayer. It is killed when the test ends.
pub(crate) struct Relayer {
    pub(crate) program: Program,
    pub(crate) worker: String,
    endpoints: SocketAddr,
    callbacks: Option<SocketAddr>,
}

impl Relayer {
    /// Starts one and waits until it serves its HTTP endpoints.
    pub(crate) async fn start(settings: &Settings, folder: &Path) -> Self {
        let program = settings.launch(folder).start().unwrap();
        let is_started = |line: &str| line.starts_with("{\"endpoints\"") || line.starts_with("{\"callbacks\"");
        let line = program.wait_for_line(is_started, DEFAULT_TIMEOUT).await.unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        let address = |name: &str| Some(line[name].as_str()?.strip_prefix("http://")?.parse().unwrap());
        Self {
            program,
            worker: line["worker"].as_str().unwrap().to_owned(),
            endpoints: address("endpoints").unwrap(),
            callbacks: address("callbacks"),
        }
    }

    /// The address of its listener for callbacks.
    pub(crate) fn callbacks(&self) -> SocketAddr {
        self.callbacks.unwrap()
    }

    /// The address of its HTTP endpoints.
    pub(crate) fn endpoints(&self) -> SocketAddr {
        self.endpoints
    }

    pub(crate) async fn metrics(&self) -> String {
        http::get(self.endpoints, "/metrics").await
    }

    /// The sum of a metric over its labels; zero if it is missing.
    pub(crate) async fn metric_sum(&self, metric: &str) -> u64 {
        let text = self.metrics().await;
        let lines = text.lines().filter(|line| {
            line.strip_prefix(metric).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
        });
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// Status and body of an endpoint.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        http::request(self.endpoints, "GET", path, "").await.unwrap()
    }

    /// Waits for a log line that contains this text, and returns it.
    pub(crate) async fn wait_for_log(&self, text: &str) -> String {
        self.program.wait_for_line(|line| line.contains(text), DEFAULT_TIMEOUT).await.unwrap()
    }

    /// How many log lines contain this text.
    pub(crate) async fn log_count(&self, text: &str) -> usize {
        let mut count = 0;
        let counting = |line: &str| {
            count += usize::from(line.contains(text));
            false
        };
        let _ = self.program.wait_for_line(counting, Duration::ZERO).await;
        count
    }

    /// All log lines of a relayer that has exited.
    pub(crate) async fn log_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let collecting = |line: &str| {
            lines.push(line.to_owned());
            false
        };
        assert!(self.program.wait_for_line(collecting, DEFAULT_TIMEOUT).await.is_err());
        lines
    }

    /// Sends SIGTERM and waits until it exits with 0.
    pub(crate) async fn stop(&self) {
        self.program.term();
        assert_eq!(self.program.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", self.program.tail());
    }
}
