//! Symphony's program: installs and verifies the schema, proves its promises, and shows what happens in it.
//!
//! It reads arguments, calls [`symphony_outbox`] and prints. It holds no SQL and no rule of any lane.
//! Results go to stdout, everything else to stderr.
//!
//! # Layout
//! - [`command`]: the commands, one per file
//! - [`database`]: the connection that the arguments name
//! - [`failure`]: what ends a command, and the exit code that it means
//! - [`interruption`]: Ctrl-C and its kin
//! - [`output`]: how results are printed
//! - [`table`]: columns under each other

mod command;
mod database;
mod failure;
mod interruption;
mod output;
mod table;

use std::process::ExitCode;

use clap::Parser as _;
use symphony_outbox::connect::redact;

use command::Cli;
use output::plain_lines;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(cli.run()) {
        Ok(answer) => answer.into(),
        Err(failure) => {
            eprint!("{}", redact(&plain_lines(&failure.in_full())));
            failure.exit_code()
        }
    }
}

/// Says what is wrong with the arguments, or prints the help that was asked for. A URL among them may hold a password.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        eprint!("{}", redact(&error.render().to_string()));
        ExitCode::from(failure::USAGE)
    } else {
        let _ = error.print();
        ExitCode::SUCCESS
    }
}
