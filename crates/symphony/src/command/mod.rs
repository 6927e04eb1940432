//! The commands, one per file. Each defines its arguments and help, calls the libraries and prints the result.

mod api;
mod archive;
mod audit;
mod audit_context;
#[cfg(feature = "dev-tools")]
mod bank;
#[cfg(feature = "dev-tools")]
mod bank_process;
#[cfg(feature = "dev-tools")]
mod bench;
#[cfg(feature = "dev-tools")]
mod broker_sink;
mod cancel;
mod completions;
#[cfg(feature = "dev-tools")]
mod demo;
mod dlq;
mod enqueue;
mod erase;
mod inspect;
mod install;
mod maintain;
mod man;
mod outcome;
#[cfg(feature = "dev-tools")]
mod prove;
mod rail;
mod recover;
mod repair;
mod retention;
mod run;
mod status;
mod token;
mod verify;

use std::ffi::OsString;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::{
    database::Database,
    failure::{EXIT_CODES, ExitStatus, Failure},
};

/// A transactional outbox for PostgreSQL: relayer, schema installer and operator tools
#[derive(Parser)]
#[command(name = "symphony", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    database: Database,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Install(install::Arguments),
    Verify(verify::Arguments),
    #[cfg(feature = "dev-tools")]
    Prove(prove::Arguments),
    Enqueue(enqueue::Arguments),
    Cancel(cancel::Arguments),
    Outcome(outcome::Arguments),
    Inspect(inspect::Arguments),
    Status(status::Arguments),
    Rail(rail::Arguments),
    Run(run::Arguments),
    Repair(repair::Arguments),
    Recover(recover::Arguments),
    Maintain(maintain::Arguments),
    Retention(retention::Arguments),
    Archive(archive::Arguments),
    Dlq(dlq::Arguments),
    Erase(erase::Arguments),
    Audit(audit::Arguments),
    #[cfg(feature = "dev-tools")]
    Demo(demo::Arguments),
    #[cfg(feature = "dev-tools")]
    Bank(bank::Arguments),
    #[cfg(feature = "dev-tools")]
    Bench(bench::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
    Token(token::Arguments),
    Api(api::Arguments),
}

/// The columns of a paragraph in `--help`.
const HELP_WIDTH: usize = 100;

impl Cli {
    /// Parses arguments, with a `--help` that fits on one screen.
    pub(crate) fn parse_compact(arguments: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        Self::from_arg_matches(&compact(Self::command()).try_get_matches_from(arguments)?)
    }

    pub(crate) async fn run(self) -> Result<ExitStatus, Failure> {
        let database = self.database;
        match self.command {
            Command::Install(arguments) => arguments.run(&database).await,
            Command::Verify(arguments) => arguments.run(&database).await,
            #[cfg(feature = "dev-tools")]
            Command::Prove(arguments) => arguments.run(&database).await,
            Command::Enqueue(arguments) => arguments.run(&database).await,
            Command::Cancel(arguments) => arguments.run(&database).await,
            Command::Outcome(arguments) => arguments.run(&database).await,
            Command::Inspect(arguments) => arguments.run(&database).await,
            Command::Status(arguments) => arguments.run(&database).await,
            Command::Rail(arguments) => arguments.run(&database).await,
            Command::Run(arguments) => arguments.run(&database).await,
            Command::Repair(arguments) => arguments.run(&database).await,
            Command::Recover(arguments) => arguments.run(&database).await,
            Command::Maintain(arguments) => arguments.run(&database).await,
            Command::Retention(arguments) => arguments.run(&database).await,
            Command::Archive(arguments) => arguments.run(&database).await,
            Command::Dlq(arguments) => arguments.run(&database).await,
            Command::Erase(arguments) => arguments.run(&database).await,
            Command::Audit(arguments) => arguments.run(&database).await,
            #[cfg(feature = "dev-tools")]
            Command::Demo(arguments) => arguments.run().await,
            #[cfg(feature = "dev-tools")]
            Command::Bank(arguments) => arguments.run().await,
            #[cfg(feature = "dev-tools")]
            Command::Bench(arguments) => arguments.run(&database).await,
            Command::Completions(arguments) => arguments.run(),
            Command::Man(arguments) => arguments.run(),
            Command::Token(arguments) => arguments.run(),
            Command::Api(arguments) => arguments.run(),
        }
    }
}

/// Gives each option one line, and moves a command's details below its options.
///
/// clap's long help takes three lines for each option, so that no command would fit on one screen.
fn compact(command: clap::Command) -> clap::Command {
    let details = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    let details: Vec<_> = details.split("\n\n").skip(1).map(wrapped).collect();
    let end = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let after_help = details.into_iter().chain([end]).collect::<Vec<_>>().join("\n\n");
    command
        .long_about(None::<&str>)
        .after_help(after_help)
        .mut_args(|argument| argument.long_help(None::<&str>))
        .mut_subcommands(compact)
}

fn wrapped(paragraph: &str) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for word in paragraph.split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > HELP_WIDTH {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += width;
    }
    text
}

/// The end of a command's `--help`: examples and exit codes.
fn with_examples(examples: &str) -> String {
    format!("Examples:\n{examples}\n\n{EXIT_CODES}")
}
