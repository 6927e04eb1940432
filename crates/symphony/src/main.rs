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
            eprint_redacted(&format!("error: cannot start: {error}\n"));
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(cli.run());
    // Dropping the runtime would wait for a DNS lookup that hangs.
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    match ended {
        Ok(status) => status.into(),
        Err(failure) => {
            eprint_redacted(&failure.render());
            failure.exit_code()
        }
    }
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
        eprint_redacted(&shown.unwrap_or_else(|| format!("error: {}\n", error.kind())));
        ExitCode::from(failure::USAGE)
    } else {
        let _ = error.print();
        ExitCode::SUCCESS
    }
}

/// Prints to stderr without passwords and control characters. Where stderr is closed, the exit code has to do.
fn eprint_redacted(text: &str) {
    let _ = io::stderr().write_all(redact(&plain_lines(text)).as_bytes());
}
