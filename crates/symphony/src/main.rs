//! The program `symphony`: the relayer, the schema's installer and verifier, and the operator's command line.
//!
//! It reads arguments and settings, calls the libraries and prints. It holds no SQL and no rule of any lane.
//! Results go to stdout, everything else to stderr.
//!
//! # Layout
//! - [`arguments`]: redacts passwords in arguments that an error quotes
//! - [`command`]: the commands, one per file
//! - [`config`]: the settings file of `symphony run`
//! - [`database`]: `--database-url`, and connections to it
//! - [`failure`]: errors, their hints and exit codes
//! - [`option_names`]: options instead of SQL parameters in the database's refusals
//! - [`output`]: results on stdout, as text or JSON
//! - [`progress`]: progress of long work on a terminal
//! - [`relayer`]: what `symphony run` is made of: startup checks, lanes, metrics, endpoints
//! - [`shutdown_signals`]: SIGINT, SIGTERM and SIGHUP
//! - [`table`]: text tables
//! - [`values`]: times and ids in arguments

mod arguments;
mod command;
mod config;
mod database;
mod failure;
mod option_names;
mod output;
mod progress;
mod relayer;
mod shutdown_signals;
mod table;
mod values;

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use symphony_db::connect::redact;

use command::Cli;
use symphony_console::sanitize::plain_lines;

/// How long background tasks may take to end after the command.
const RUNTIME_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = match Cli::parse_compact(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return fail(&failure::Failure::because("cannot start", error));
        }
    };
    let ended = runtime.block_on(cli.run());
    // Dropping the runtime would wait for a DNS lookup that hangs.
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    match ended {
        Ok(status) => status.into(),
        Err(failure) => fail(&failure),
    }
}

/// Prints an error, as JSON if the result would have been JSON.
fn fail(failure: &failure::Failure) -> ExitCode {
    if wants_json() {
        eprint(&failure.render_json(|text| redact(&plain_lines(text))));
    } else {
        eprint_redacted(&failure.render());
    }
    failure.exit_code()
}

/// Whether `--json` is among the arguments, which may be those that could not be parsed.
fn wants_json() -> bool {
    std::env::args_os().skip(1).take_while(|argument| argument != "--").any(|argument| argument == "--json")
}

/// Prints what is wrong with the arguments, or the help that `--help` asks for.
///
/// An error quotes arguments, and one of them may hold a password. So the redacted arguments are parsed again, and
/// their error is printed.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let shown = Cli::parse_compact(std::env::args_os().map(arguments::redacted)).err();
        // Redacted arguments may parse; then only the kind of the error can be shown.
        let shown = shown.filter(clap::Error::use_stderr).map(|shown| shown.render().to_string());
        let shown = shown.unwrap_or_else(|| format!("error: {}\n", error.kind()));
        if wants_json() {
            let shown = redact(&plain_lines(&shown));
            // What is wrong, then tips and the usage.
            let (message, rest) = shown.split_once("\n\n").unwrap_or((&shown, ""));
            let message = message.strip_prefix("error: ").unwrap_or(message).trim();
            let hint = Some(rest.trim()).filter(|hint| !hint.is_empty());
            eprint(&failure::json_failure(failure::USAGE, message, hint, None));
        } else {
            eprint_redacted(&shown);
        }
        ExitCode::from(failure::USAGE)
    } else {
        let _ = error.print();
        ExitCode::SUCCESS
    }
}

/// Prints to stderr without passwords and control characters.
fn eprint_redacted(text: &str) {
    eprint(&redact(&plain_lines(text)));
}

/// Prints to stderr. Where it is closed, the exit code has to do.
fn eprint(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
