//! `symphony rail check`: runs the conformance suite of the adapter protocol against a URL.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use symphony_client::Payload;
use symphony_sinks::http::adapter_check::{AdapterCheck, CheckResult, CheckState, Report, TestPayments};
use toml::{Table, Value};
use uuid::Uuid;

use crate::{
    command::with_examples,
    config::Config,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
    shutdown_signals::ShutdownSignals,
};

/// The largest value of `--confirm-within`: dozens of checks may wait for it.
const MAX_CONFIRM_WITHIN: Duration = Duration::from_secs(600);
/// What is paid by default: the adapters in examples/ take it.
const PAYLOAD: &str =
    r#"{"amount": "0.01", "currency": "EUR", "destination": {"iban": "DE89370400440532013000"}}"#;
/// A longer payload cannot be enqueued.
const MAX_PAYLOAD_FILE: u64 = 262_144;

/// Check whether your own adapter keeps the adapter protocol: sends test payments to its URL
///
/// An adapter is a server that receives payments from a relayer and pays them over a bank. The suite sends some hundred requests:
/// payments, inquiries, forged signatures, repeated keys, malformed bodies. Keys and instructions begin with symphony-check-. An
/// adapter EXECUTES these payments, so never name one that reaches a real bank.
///
/// Prints what was tried, expected and received, and what to do. Needs no database.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony rail check http://127.0.0.1:8080/payments --secret-file secret --yes\n  \
     symphony rail check https://test.example/pay --config symphony.toml --rail sepa --yes --json",
))]
pub(super) struct Arguments {
    /// Where the adapter takes payments
    url: String,
    /// Send test payments to this URL; without this option nothing is sent
    #[arg(long)]
    yes: bool,
    /// Where it answers inquiries, with {idempotency_key}; the default is URL/{idempotency_key}
    #[arg(long, value_name = "URL")]
    inquiry_url: Option<String>,
    /// File with the signing secret, whsec_…
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Environment variable with the signing secret
    #[arg(long, value_name = "NAME", conflicts_with = "secret_file")]
    secret_env: Option<String>,
    /// JSON file with a payload that the adapter accepts
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// JSON file with a payload that the adapter refuses, for the checks of refusals
    #[arg(long, value_name = "FILE")]
    refused_payload_file: Option<PathBuf>,
    /// Settings file of a relayer, whose section of --rail has further settings: credentials, codes, limits
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The rail's name in the requests, and its section with --config
    #[arg(long, value_name = "NAME", default_value = "symphony-check")]
    rail: String,
    /// How many requests with one key are sent at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..=256))]
    parallel: u16,
    /// The most time for an answer, as 500ms or 10s; the default is that of the rail's settings, else 30s
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// The most time from HTTP 202 until an inquiry says what became of the payment
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    confirm_within: Duration,
    #[command(flatten)]
    format: OutputFormat,
}

impl Arguments {
    pub(super) async fn run(self) -> Result<ExitStatus, Failure> {
        let settings = self.settings()?;
        let payments = TestPayments {
            rail_type: self.rail.clone(),
            run: Uuid::new_v4().simple().to_string()[..8].to_owned(),
            payload: match &self.payload_file {
                Some(path) => payload(path)?,
                None => parsed(PAYLOAD, "the default payload")?,
            },
            refused: self.refused_payload_file.as_deref().map(payload).transpose()?,
            parallel: self.parallel.into(),
            confirm_within: self.confirm_within,
        };
        let run = payments.run.clone();
        let check = AdapterCheck::build(settings, payments)
            .map_err(|wrong| Failure::because("the check cannot start", wrong).into_usage())?;
        if !self.yes {
            return Err(Failure::usage(format!(
                "nothing was sent: the check sends test payments to {}, and the adapter there executes them",
                self.url
            ))
            .hint("never check an adapter that reaches a real bank; if this one does not, add --yes"));
        }
        let report = ShutdownSignals::listen()?.run(check.run()).await.map_err(|interrupted| {
            interrupted.with_message(format!("interrupted; the keys of this run begin with symphony-check-{run}"))
        })?;
        let failed = report.count(CheckState::Failed);
        let json = json!({
            "url": self.url,
            "run": run,
            "passed": report.count(CheckState::Passed),
            "warned": report.count(CheckState::Warned),
            "failed": failed,
            "skipped": report.count(CheckState::Skipped),
            "stopped": report.stopped,
            "checks": report.checks,
        });
        self.format.print(&json, || text(&self.url, &run, &report))?;
        Ok(if failed == 0 { ExitStatus::Success } else { ExitStatus::CheckFailed })
    }

    /// The settings of the rail: those of the section, and over them what the arguments say.
    fn settings(&self) -> Result<Table, Failure> {
        let mut settings = match &self.config {
            Some(path) => section(path, &self.rail)?,
            None => Table::new(),
        };
        let inquiry_url = self
            .inquiry_url
            .clone()
            .unwrap_or_else(|| format!("{}/{{idempotency_key}}", self.url.trim_end_matches('/')));
        settings.insert("url".to_owned(), self.url.clone().into());
        settings.insert("inquiry_url".to_owned(), inquiry_url.into());
        // The user named this URL a moment ago: it may be a server of the own machine. Credentials of a section are sent in the clear
        // only if the section says so.
        if self.config.is_none() {
            settings.insert("allow_http".to_owned(), true.into());
        }
        settings.insert("allow_private".to_owned(), Value::Array(vec!["0.0.0.0/0".into(), "::/0".into()]));
        // The adapter may close connections as it likes: each request has its own.
        settings.remove("idle_timeout");
        if let Some(file) = &self.secret_file {
            settings.remove("secret_env");
            settings.insert("secret_file".to_owned(), file.to_string_lossy().into_owned().into());
        }
        if let Some(name) = &self.secret_env {
            settings.remove("secret_file");
            settings.insert("secret_env".to_owned(), name.clone().into());
        }
        if let Some(timeout) = &self.timeout {
            settings.insert("timeout".to_owned(), timeout.clone().into());
            let connect = symphony_sinks::parse_duration(timeout).unwrap_or_default() / 2;
            settings.insert("connect_timeout".to_owned(), format!("{}ms", connect.as_millis().min(5000)).into());
        }
        Ok(settings)
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = symphony_sinks::parse_duration(text).filter(|parsed| *parsed <= MAX_CONFIRM_WITHIN);
    parsed.ok_or_else(|| "must be a duration of at most 10m, such as 500ms or 30s".to_owned())
}

/// The section of a rail in a relayer's settings.
fn section(path: &Path, rail: &str) -> Result<Table, Failure> {
    let sections = Config::load(Some(path))?.rails()?;
    let section = sections.into_iter().find(|section| section.name == rail);
    section.map(|section| section.settings).ok_or_else(|| {
        Failure::usage(format!("{} has no section [rails.{rail}]", path.display()))
            .hint("name a rail of this file with --rail")
    })
}

fn payload(path: &Path) -> Result<Payload, Failure> {
    let unreadable = |error| Failure::usage(format!("cannot read {}: {error}", path.display()));
    if std::fs::metadata(path).map_err(unreadable)?.len() > MAX_PAYLOAD_FILE {
        return Err(Failure::usage(format!("{} holds more than {MAX_PAYLOAD_FILE} bytes", path.display())));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    parsed(&text, &path.display().to_string())
}

fn parsed(text: &str, name: &str) -> Result<Payload, Failure> {
    let wrong = |error: serde_json::Error| {
        Failure::usage(format!("{name} must hold a JSON object: line {}, column {}", error.line(), error.column()))
    };
    serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).map_err(wrong)?;
    serde_json::from_str(text).map_err(wrong)
}

fn text(url: &str, run: &str, report: &Report) -> String {
    let mut text = format!("checks of {url}; the keys of this run begin with symphony-check-{run}\n");
    let mut group = "";
    for check in &report.checks {
        if check.group != group {
            group = check.group;
            // Writing to a String cannot fail.
            let _ = write!(text, "\n{group}\n");
        }
        line(&mut text, check);
    }
    let count = |state| report.count(state);
    let _ = write!(text, "\n{} passed, {} failed", count(CheckState::Passed), count(CheckState::Failed));
    for (state, word) in [(CheckState::Warned, "warned"), (CheckState::Skipped, "skipped")] {
        if count(state) > 0 {
            let _ = write!(text, ", {} {word}", count(state));
        }
    }
    if report.stopped {
        text.push_str("; the other checks need an adapter that executes a payment");
    }
    text.push('\n');
    text
}

fn line(text: &mut String, check: &CheckResult) {
    let CheckResult { name, tried, expected, got, .. } = check;
    let _ = match check.state {
        CheckState::Passed => writeln!(text, "  ok    {name}: {got}"),
        CheckState::Skipped => writeln!(text, "  skip  {name}: {got}"),
        CheckState::Warned | CheckState::Failed => {
            let word = if check.state == CheckState::Failed { "FAIL" } else { "warn" };
            let advice = check.advice.unwrap_or_default();
            writeln!(
                text,
                "  {word}  {name}\n          tried     {tried}\n          expected  {expected}\n          got       {got}\n          \
                 to do     {advice}"
            )
        }
    };
}
