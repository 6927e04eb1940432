//! `symphony prove`: runs the proofs on scratch databases of a server, and leaves nothing behind.

use std::time::Instant;

use serde::Serialize;
use symphony_proof::{
    kit::scratch::{Guest, Server},
    proofs::{self, Proof},
};

use super::with_examples;
use crate::{
    database::Database,
    failure::{Answer, Failure},
    interruption::Interruption,
    output::{self, Form, plain_lines},
    progress,
};

/// Try to break every promise of the database, on scratch databases of a server
///
/// Each proof gets a database of its own, made from what this build installs and removed afterwards, also on Ctrl-C.
/// The database that the URL names is connected to and otherwise left alone. Symphony's roles are created for the time
/// being where the server has none. Needs a superuser: use a server for tests, or a private one.
#[derive(clap::Args)]
#[command(after_help = with_examples("  symphony prove\n  symphony prove --list\n  symphony prove --only 17 --verbose\n  symphony prove --only 11 --only 12 --json"))]
pub(crate) struct Arguments {
    /// Run this proof alone; may be repeated
    #[arg(long, value_name = "N")]
    only: Vec<u16>,
    /// List the proofs and what they promise; needs no database
    #[arg(long)]
    list: bool,
    /// Show every step of every proof, not only the one that says most
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    form: Form,
}

#[derive(Serialize)]
struct Report {
    passed: usize,
    failed: usize,
    proofs: Vec<Shown>,
}

/// What one proof has to show.
#[derive(Serialize)]
struct Shown {
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
    /// In one line. What a server says about where it stood comes in lines of its own.
    fn in_words(&self) -> String {
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
    pub(crate) async fn run(self, database: &Database) -> Result<Answer, Failure> {
        let chosen = chosen(&self.only)?;
        if self.list {
            return list(&chosen, self.form);
        }
        let mut interruption = Interruption::listen()?;
        progress::say("waiting until nobody else proves on this server");
        let guest = interruption.or(Guest::arrive(database.url()?)).await??;
        let shown = prove(guest.server(), &chosen, &self, &mut interruption).await;
        // Whatever happened, nothing stays.
        guest.leave().await?;
        let shown = shown?;

        let failed = shown.iter().filter(|shown| !shown.ok).count();
        let report = Report { passed: shown.len() - failed, failed, proofs: shown };
        if self.form.json {
            self.form.print(&report, String::new)?;
        } else {
            output::line(&format!("{} proofs held, {} FAILED", report.passed, report.failed))?;
        }
        Ok(if failed == 0 { Answer::Yes } else { Answer::No })
    }
}

fn chosen(only: &[u16]) -> Result<Vec<&'static Proof>, Failure> {
    let all = proofs::all();
    if let Some(number) = only.iter().find(|number| all.iter().all(|proof| u16::from(proof.number) != **number)) {
        return Err(Failure::usage(format!("there is no proof {number}; see: symphony prove --list")));
    }
    Ok(all.iter().filter(|proof| only.is_empty() || only.contains(&u16::from(proof.number))).collect())
}

fn list(chosen: &[&'static Proof], form: Form) -> Result<Answer, Failure> {
    let listed: Vec<_> = chosen
        .iter()
        .map(|proof| Listed { number: proof.number, name: proof.name, promise: proof.promise })
        .collect();
    form.print(&listed, || {
        let entries =
            listed.iter().map(|proof| format!("{:>2}  {}\n    {}\n", proof.number, proof.name, proof.promise));
        entries.collect()
    })?;
    Ok(Answer::Yes)
}

/// Runs the proofs, one after the other, and prints each for people as soon as it is known.
async fn prove(
    server: &Server,
    chosen: &[&'static Proof],
    arguments: &Arguments,
    interruption: &mut Interruption,
) -> Result<Vec<Shown>, Failure> {
    let mut all = Vec::new();
    for (place, proof) in chosen.iter().enumerate() {
        progress::part(place + 1, chosen.len(), proof.name);
        // Interrupted only while the proof runs: a database that is half made would stay.
        let database = server.database().await?;
        let began = Instant::now();
        let run = interruption.or(proof.run(&database)).await;
        let seconds = began.elapsed().as_secs_f64();
        database.close().await?;
        progress::done();
        let (ok, steps) = match run? {
            Ok(evidence) => (true, evidence.steps.into_iter().map(Step::from).collect()),
            Err(failure) => (false, vec![Step::from(failure)]),
        };
        let shown = Shown { number: proof.number, name: proof.name, promise: proof.promise, ok, seconds, steps };
        if !arguments.form.json {
            output::line(plain_lines(&text(&shown, arguments.verbose)).trim_end())?;
        }
        all.push(shown);
    }
    Ok(all)
}

/// A line for a proof: the step that says most, or the one that went wrong; and every step if they are asked for.
fn text(shown: &Shown, verbose: bool) -> String {
    let Shown { number, name, ok, seconds, steps, .. } = shown;
    let count = if steps.len() == 1 { "1 step".to_owned() } else { format!("{} steps", steps.len()) };
    let telling = steps.iter().max_by_key(|step| step.tried.len() + step.happened.len()).map(Step::in_words);
    let verdict = if *ok { "ok" } else { "FAILED" };
    let mut text =
        format!("{number:>2}  {verdict}  {name}: {} ({count}, {seconds:.1}s)\n", telling.unwrap_or_default());
    if verbose {
        steps.iter().for_each(|step| text.push_str(&format!("      {}\n", step.in_words())));
    }
    text
}

impl From<proofs::Step> for Step {
    fn from(step: proofs::Step) -> Self {
        Self { tried: step.tried, expected: step.expected, happened: step.happened }
    }
}

impl From<proofs::Failure> for Step {
    fn from(failure: proofs::Failure) -> Self {
        Self { tried: failure.tried, expected: failure.expected, happened: failure.happened }
    }
}
