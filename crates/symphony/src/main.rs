//! Symphony's program: installs and verifies the schema, proves its promises, and shows what happens in it.
//!
//! It reads arguments, calls [`symphony_outbox`] and prints. It holds no SQL and no rule of any lane.
//! Results go to stdout, everything else to stderr.
//!
//! # Layout
//! - [`arguments`]: the arguments as they may be shown
//! - [`audit`]: records as files, for auditors
//! - [`bank`]: the simulated bank, which shares nothing with the rest
//! - [`command`]: the commands, one per file
//! - [`console`]: the API and the dashboard that `symphony run` serves
//! - [`config`]: the settings of the relayer
//! - [`database`]: the connection that the arguments name
//! - [`failure`]: what ends a command, and the exit code that it means
//! - [`interruption`]: Ctrl-C and its kin
//! - [`output`]: how results are printed
//! - [`progress`]: how far long work has come
//! - [`relayer`]: what `symphony run` puts together
//! - [`server`]: the HTTP server of the probes and the console, and its limits
//! - [`table`]: columns under each other

mod arguments;
mod audit;
mod bank;
mod command;
mod config;
mod console;
mod database;
mod failure;
mod interruption;
mod output;
mod progress;
mod relayer;
mod server;
mod table;

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use clap::Parser as _;
use symphony_outbox::connect::redact;

use command::Cli;
use output::plain_lines;

/// How long what runs beside a command may take to end with it.
const LAST_WORDS: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("error: cannot start: {error}\n"));
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(cli.run());
    // Dropped, it would wait for as long as a name server does not answer somebody who has gone.
    runtime.shutdown_timeout(LAST_WORDS);
    match ended {
        Ok(answer) => answer.into(),
        Err(failure) => {
            complain(&failure.in_full());
            failure.exit_code()
        }
    }
}

/// Says what is wrong with the arguments, or prints the help that was asked for.
///
/// An error quotes arguments, and one of them may hold a password. So the error that is shown is that of the same
/// arguments without it.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let shown = Cli::try_parse_from(std::env::args_os().map(arguments::blotted)).err();
        // Without what was wrong with them, the arguments may be right: then its kind is all that can be said.
        let shown = shown.filter(clap::Error::use_stderr).map(|shown| shown.render().to_string());
        complain(&shown.unwrap_or_else(|| format!("error: {}\n", error.kind())));
        ExitCode::from(failure::USAGE)
    } else {
        let _ = error.print();
        ExitCode::SUCCESS
    }
}

/// Says on stderr what is wrong. Where that cannot be written, the exit code has to do.
fn complain(text: &str) {
    let _ = io::stderr().write_all(redact(&plain_lines(text)).as_bytes());
}
