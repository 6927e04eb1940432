//! `symphony prove`: runs the proofs on scratch databases of your server, and drops them afterwards.

use std::time::Instant;

use serde::Serialize;
use symphony_proof::{self, Proof};
use symphony_testkit::test_database::{Server, SharedServer};

use super::with_examples;
use crate::{
    database::Database,
    failure::{ExitStatus, Failure},
    output::{self, OutputFormat},
    progress,
    shutdown_signals::ShutdownSignals,
};
use symphony_console::sanitize::plain_lines;

/// Try to break each guarantee of the schema, on scratch databases of your server
///
/// Each proof runs in its own database with this build's schema, which is dropped afterwards, also on Ctrl-C. The
/// database in the URL is used for the connection alone. Symphony's roles are created for the run if the server has
/// none. Needs a superuser: use a test server.
#[derive(clap::Args)]
#[command(after_help = with_examples("  symphony prove\n  symphony prove --list\n  symphony prove --only 17 --verbose\n  symphony prove --only 11 --only 12 --json"))]
pub(crate) struct Arguments {
    /// Run only this proof; may be repeated
    #[arg(long, value_name = "N")]
    only: Vec<u16>,
    /// List the proofs and their guarantees; needs no database
    #[arg(long)]
    list: bool,
    /// Show every step of every proof, not only the longest
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    format: OutputFormat,
}

#[derive(Serialize)]
struct Report {
    passed: usize,
    failed: usize,
    proofs: Vec<ProofResult>,
}

/// The result of one proof.
#[derive(Serialize)]
struct ProofResult {
    number: u8,
    name: &'static str,
    promise: &'static str,
    ok: bool,
    seconds: f64,
    steps: Vec<Step>,
}

#[derive(Serialize)]
struct Step {
    tried: String,
    expected: String,
    happened: String,
}

impl Step {
    /// Describes the step in one line. A server's error context may have several lines.
    fn describe(&self) -> String {
        let Self { tried, expected, happened } = self;
        format!("tried {tried}; expected {expected}; happened: {happened}").lines().collect::<Vec<_>>().join(" / ")
    }
}

#[derive(Serialize)]
struct Listed {
    number: u8,
    name: &'static str,
    promise: &'static str,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let chosen = chosen(&self.only)?;
        if self.list {
            return list(&chosen, self.format);
        }
        let mut signals = ShutdownSignals::listen()?;
        progress::show("waiting for another symphony prove on this server");
        let guest = signals.run(SharedServer::lock(database.url()?)).await??;
        let result = prove(guest.server(), &chosen, &self, &mut signals).await;
        // Scratch databases and roles go, also after an error.
        guest.clean_up().await?;
        let result = result?;

        let failed = result.iter().filter(|result| !result.ok).count();
        let report = Report { passed: result.len() - failed, failed, proofs: result };
        if self.format.json {
            self.format.print(&report, String::new)?;
        } else {
            output::print_line(&format!("{} proofs held, {} FAILED", report.passed, report.failed))?;
        }
        Ok(if failed == 0 { ExitStatus::Success } else { ExitStatus::CheckFailed })
    }
}

fn chosen(only: &[u16]) -> Result<Vec<&'static Proof>, Failure> {
    let all = symphony_proof::all();
    if let Some(number) = only.iter().find(|number| all.iter().all(|proof| u16::from(proof.number) != **number)) {
        return Err(
            Failure::usage(format!("there is no proof {number}")).hint("list them with: symphony prove --list")
        );
    }
    Ok(all.iter().filter(|proof| only.is_empty() || only.contains(&u16::from(proof.number))).collect())
}

fn list(chosen: &[&'static Proof], format: OutputFormat) -> Result<ExitStatus, Failure> {
    let listed: Vec<_> = chosen
        .iter()
        .map(|proof| Listed { number: proof.number, name: proof.name, promise: proof.promise })
        .collect();
    format.print(&listed, || {
        let entries =
            listed.iter().map(|proof| format!("{:>2}  {}\n    {}\n", proof.number, proof.name, proof.promise));
        entries.collect()
    })?;
    Ok(ExitStatus::Success)
}

/// Runs the proofs one by one, and prints each result as text as soon as it is known.
async fn prove(
    server: &Server,
    chosen: &[&'static Proof],
    arguments: &Arguments,
    signals: &mut ShutdownSignals,
) -> Result<Vec<ProofResult>, Failure> {
    let mut all = Vec::new();
    for (place, proof) in chosen.iter().enumerate() {
        progress::show_step(place + 1, chosen.len(), proof.name);
        // Interruptible only while the proof runs: a half-created database would stay behind.
        let database = server.database().await?;
        let began = Instant::now();
        let run = signals.run(proof.run(&database)).await;
        let seconds = began.elapsed().as_secs_f64();
        database.close().await?;
        progress::clear();
        let (ok, steps) = match run? {
            Ok(evidence) => (true, evidence.steps.into_iter().map(Step::from).collect()),
            Err(failure) => (false, vec![Step::from(failure)]),
        };
        let result =
            ProofResult { number: proof.number, name: proof.name, promise: proof.promise, ok, seconds, steps };
        if !arguments.format.json {
            output::print_line(plain_lines(&text(&result, arguments.verbose)).trim_end())?;
        }
        all.push(result);
    }
    Ok(all)
}

/// One line per proof, with its longest step or the failed one; with `verbose`, every step.
fn text(result: &ProofResult, verbose: bool) -> String {
    let ProofResult { number, name, ok, seconds, steps, .. } = result;
    let count = if steps.len() == 1 { "1 step".to_owned() } else { format!("{} steps", steps.len()) };
    let longest = steps.iter().max_by_key(|step| step.tried.len() + step.happened.len()).map(Step::describe);
    let verdict = if *ok { "ok" } else { "FAILED" };
    let mut text =
        format!("{number:>2}  {verdict}  {name}: {} ({count}, {seconds:.1}s)\n", longest.unwrap_or_default());
    if verbose {
        steps.iter().for_each(|step| text.push_str(&format!("      {}\n", step.describe())));
    }
    text
}

impl From<symphony_proof::Step> for Step {
    fn from(step: symphony_proof::Step) -> Self {
        Self { tried: step.tried, expected: step.expected, happened: step.happened }
    }
}

impl From<symphony_proof::Failure> for Step {
    fn from(failure: symphony_proof::Failure) -> Self {
        Self { tried: failure.tried, expected: failure.expected, happened: failure.happened }
    }
}
