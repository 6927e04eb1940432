//! The commands, one per file. Each says what it does, reads its arguments, calls the library and prints.

mod api;
mod audit;
mod bank;
mod bench;
mod completions;
mod demo;
mod dlq;
mod enqueue;
mod inspect;
mod install;
mod man;
mod prove;
mod rail;
mod repair;
mod run;
mod status;
mod token;
mod verify;
mod warrant;

use clap::{Parser, Subcommand};

use crate::{
    database::Database,
    failure::{Answer, EXIT_CODES, Failure},
};

/// A transactional outbox for PostgreSQL: installs it, verifies it, proves it, and shows what happens in it
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
    Prove(prove::Arguments),
    Enqueue(enqueue::Arguments),
    Inspect(inspect::Arguments),
    Status(status::Arguments),
    Rail(rail::Arguments),
    Run(run::Arguments),
    Repair(repair::Arguments),
    Dlq(dlq::Arguments),
    Audit(audit::Arguments),
    Demo(demo::Arguments),
    Bank(bank::Arguments),
    Bench(bench::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
    Token(token::Arguments),
    Api(api::Arguments),
}

impl Cli {
    pub(crate) async fn run(self) -> Result<Answer, Failure> {
        let database = self.database;
        match self.command {
            Command::Install(arguments) => arguments.run(&database).await,
            Command::Verify(arguments) => arguments.run(&database).await,
            Command::Prove(arguments) => arguments.run(&database).await,
            Command::Enqueue(arguments) => arguments.run(&database).await,
            Command::Inspect(arguments) => arguments.run(&database).await,
            Command::Status(arguments) => arguments.run(&database).await,
            Command::Rail(arguments) => arguments.run(&database).await,
            Command::Run(arguments) => arguments.run(&database).await,
            Command::Repair(arguments) => arguments.run(&database).await,
            Command::Dlq(arguments) => arguments.run(&database).await,
            Command::Audit(arguments) => arguments.run(&database).await,
            Command::Demo(arguments) => arguments.run().await,
            Command::Bank(arguments) => arguments.run().await,
            Command::Bench(arguments) => arguments.run(&database).await,
            Command::Completions(arguments) => arguments.run(),
            Command::Man(arguments) => arguments.run(),
            Command::Token(arguments) => arguments.run(),
            Command::Api(arguments) => arguments.run(),
        }
    }
}

/// What stands below the options in --help.
fn with_examples(examples: &str) -> String {
    format!("Examples:\n{examples}\n\n{EXIT_CODES}")
}
