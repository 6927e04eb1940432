//! `symphony bench`: how fast it is on this machine, and what limits it.
//!
//! Sends through the calls that producers use and carries through relayers that are processes of their own, on a private PostgreSQL
//! or in a database that was given for it. What a relayer of this kind sends goes nowhere; see [`relayer`].
//!
//! # Layout
//! - [`plan`]: what one measurement is to be; [`standard`]: those that nobody had to ask for
//! - [`ground`]: where it runs, and what the server spends meanwhile
//! - [`goods`]: what is sent
//! - [`relayer`]: who carries it, and [`fleet`]: how those processes are started and heard
//! - [`scenario`]: the measurements
//! - [`scale`], [`clock`]: times
//! - [`result`], [`machine`]: what is said at the end; [`page`] and [`plot`]: the same as a page with plots

mod clock;
mod fleet;
mod goods;
mod ground;
mod machine;
mod page;
mod plan;
mod plot;
mod relayer;
mod result;
mod scale;
mod scenario;
mod standard;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use symphony_outbox::schema::Lane;

use super::{demo, with_examples};
use crate::{
    database::Database,
    failure::{Answer, Failure},
    interruption::Interruption,
    output::Form,
    progress,
};
use ground::Ground;
use machine::Machine;
use plan::{Plan, Scenario};
use result::Report;

/// Measure how fast it is on this machine, and what PostgreSQL spends on it
///
/// Without a scenario it runs them all, in every lane: single enqueues, batches, a backlog that relayers carry away, the time from commit to
/// dispatch at a steady rate, enqueues and relayers at once, and relayers that have nothing to do. Relayers are processes of their own, set as `symphony run` sets them;
/// only their ways out lead nowhere.
///
/// Without --database-url it starts a private PostgreSQL with durable commits, gives each measurement a database of its own, and removes
/// everything. A database that is given must be one for this: it is refused if it holds anything that no benchmark has put there.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    override_usage = "symphony bench [OPTIONS] [SCENARIO]...",
    after_help = with_examples(
        "  symphony bench --report bench.html\n  symphony bench enqueue --clients 1,8,32 --for 10s\n  \
         symphony bench drain --count 100000 --relayers 2\n  \
         symphony bench latency --lane event --rate 200 --for 30s --json\n  \
         symphony bench drain --ordered --rounds 5 --json | jq '[.measurements[].per_second] | sort'",
    )
)]
pub(crate) struct Arguments {
    /// What to measure; all of them unless given
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<Scenario>,
    /// The lane, payment, event or metadata; payment where a scenario is given, else all of them
    #[arg(long, value_name = "LANE")]
    lane: Option<Lane>,
    /// Payments by an ordered rail, or events in the order of their aggregate
    #[arg(long)]
    ordered: bool,
    /// Sessions that send at the same time; several numbers are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=150))]
    clients: Vec<u32>,
    /// Send so many, instead of for so long; 100,000 to drain or in batches unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    count: Option<u64>,
    /// So many in one transaction, in batches
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=5_000))]
    batch: u64,
    /// Send for so long, where it is not counted
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = demo::length)]
    length: Duration,
    /// Send so many a second: 100 to measure latency, as many as can be otherwise, unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// So many relayers; 1 unless given, and none for batches
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=16))]
    relayers: Option<u32>,
    /// Dispatches at the same time in a relayer; as `symphony run` has it unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: Option<u32>,
    /// The most that one claim of a relayer brings; as `symphony run` has it unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    batch_size: Option<u32>,
    /// The size of each payload
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    payload_bytes: u32,
    /// So many participants, aggregates or entities in turn
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    participants: u64,
    /// Leave a transaction open during a mixed run, so that the server can clean nothing away
    #[arg(long)]
    hold_snapshot: bool,
    /// Measure so often
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Run the payment lane, on rails of its own, though the database holds what no benchmark has put there
    #[arg(long)]
    beside_other_rows: bool,
    /// Write a page with plots to this file as well
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
    #[command(subcommand)]
    hidden: Option<Hidden>,
}

#[derive(clap::Subcommand)]
enum Hidden {
    #[command(hide = true)]
    Relayer(relayer::Arguments),
}

impl Arguments {
    pub(crate) async fn run(mut self, database: &Database) -> Result<Answer, Failure> {
        if let Some(Hidden::Relayer(arguments)) = self.hidden.take() {
            return arguments.run(database).await;
        }
        let plans = self.plans()?;
        let mut interruption = Interruption::listen()?;
        let report = interruption.or(self.measure(database, &plans)).await??;
        progress::done();
        self.form.print(&report, || report.text())?;
        // Last: whoever cannot have the page still has the numbers.
        if let Some(file) = &self.report {
            page::write(&report, file)?;
        }
        Ok(Answer::Yes)
    }

    async fn measure(&self, database: &Database, plans: &[Plan]) -> Result<Report, Failure> {
        let machine = Machine::this();
        let ground = match database.url() {
            Ok(url) => {
                let lanes: BTreeSet<Lane> = plans.iter().map(|plan| plan.lane).collect();
                Ground::given(url, self.beside_other_rows, &lanes.into_iter().collect::<Vec<_>>()).await?
            }
            Err(_) => {
                progress::say("starting a private PostgreSQL");
                Ground::private().await?
            }
        };
        let postgres = ground.postgres().await?;
        let mut measurements = Vec::new();
        for (place, plan) in plans.iter().enumerate() {
            progress::part(place + 1, plans.len(), &plan.in_words());
            measurements.push(scenario::measure(&ground, plan).await?);
        }
        progress::done();
        if let Some(remains) = ground.remains() {
            eprintln!("{remains}");
        }
        Ok(Report { machine, postgres, measurements })
    }
}
