//! `symphony bench`: measures throughput, latency and PostgreSQL's resource usage on this machine.
//!
//! Producers use the client library, and relayers run as separate processes with a null destination; see [`relayer`].
//! The deliver scenario has a real destination instead; see [`destination`].
//!
//! # Layout
//! - [`plan`]: one measurement; [`defaults`]: the measurements that the arguments ask for
//! - [`server`]: the private or given server, its databases, and resource usage
//! - [`workload`]: the rows that producers enqueue
//! - [`relayer`]: the relayer process; [`relayer_processes`]: starts and watches them
//! - [`scenario`]: the scenarios
//! - [`destination`]: the bank or the broker of the deliver scenario
//! - [`histogram`], [`clock`]: latencies and time
//! - [`result`], [`machine`]: the result; [`page`] and [`plot`]: the HTML report

mod clock;
mod defaults;
mod destination;
mod histogram;
mod machine;
mod page;
mod plan;
mod plot;
mod relayer;
mod relayer_processes;
mod result;
mod scenario;
mod server;
mod workload;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use symphony_db::schema::Lane;

use super::{demo, with_examples};
use crate::{
    database::Database,
    eprint_redacted,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
    progress,
    shutdown_signals::ShutdownSignals,
};
use destination::{Destination, DestinationKind, Unavailable};
use machine::Machine;
use plan::{Plan, Scenario};
use result::Report;
use server::BenchServer;

/// Benchmark Symphony on this machine: throughput, latency, and PostgreSQL's resource usage
///
/// enqueue: single enqueues. batch: many enqueues per transaction. drain: relayers drain a backlog. latency: commit to
/// dispatch at a steady rate. mixed: enqueues and relayers at once. idle: the cost of idle relayers.
///
/// Without a scenario, all of these run in every lane. The relayers are separate processes with the settings of
/// symphony run and a null destination, so the numbers hold no network time of a bank or broker.
///
/// deliver: relayers drain a backlog to a real server, which the benchmark starts and which must have received every
/// row. --to http is the simulated bank, for payments; the brokers get events. For kafka without --kafka-brokers the
/// server is the mock cluster of librdkafka, which keeps its data in memory.
///
/// Without --database-url, the benchmark starts a private PostgreSQL with durable commits, with a new database per
/// measurement, and removes it. A database that you give must hold no rows but those of benchmarks.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    override_usage = "symphony bench [OPTIONS] [SCENARIO]...",
    after_help = with_examples(
        "  symphony bench --report bench.html\n  symphony bench enqueue --clients 1,8,32 --for 10s\n  \
         symphony bench drain --count 100000 --relayers 2\n  \
         symphony bench deliver --to http,nats --count 20000\n  \
         symphony bench latency --lane event --rate 200 --for 30s --json\n  \
         symphony bench drain --ordered --rounds 5 --json | jq '[.measurements[].per_second] | sort'",
    )
)]
pub(crate) struct Arguments {
    /// What to measure: enqueue, batch, drain, latency, mixed, idle or deliver; default: all but deliver
    #[arg(value_name = "SCENARIO", hide_possible_values = true)]
    scenarios: Vec<Scenario>,
    /// Destination of deliver: http, nats, redis, rabbitmq, kafka; with several, one measurement each
    #[arg(long, value_name = "DESTINATION", value_delimiter = ',', hide_possible_values = true)]
    to: Vec<DestinationKind>,
    /// Brokers of a Kafka cluster with the topic symphony-bench, for deliver --to kafka
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    kafka_brokers: Vec<String>,
    /// Lane: payment, event or metadata; default: payment with a scenario, else all
    #[arg(long, value_name = "LANE")]
    lane: Option<Lane>,
    /// Ordered rail, or events in order per aggregate
    #[arg(long)]
    ordered: bool,
    /// Concurrent producer sessions; with several numbers, one measurement each
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=150))]
    clients: Vec<u32>,
    /// Rows to enqueue, instead of --for; default for drain and batch: 100,000, for deliver: 20,000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    count: Option<u64>,
    /// Rows per transaction of batch
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=5_000))]
    batch: u64,
    /// Duration, unless --count applies
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = demo::run_length)]
    length: Duration,
    /// Enqueues per second; default: 100 for latency, else as fast as possible
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// Relayers; default: 1, none for batch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=16))]
    relayers: Option<u32>,
    /// Concurrent dispatches per relayer; default as in symphony run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: Option<u32>,
    /// Maximum rows per claim; default as in symphony run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    batch_size: Option<u32>,
    /// Size of each payload
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    payload_bytes: u32,
    /// Number of participants, aggregates or entities
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    participants: u64,
    /// Hold a snapshot during a drain or a mixed run, so that VACUUM can remove no dead tuples
    #[arg(long)]
    hold_snapshot: bool,
    /// Payments that the ledger of a private server already has, over 24 weeks; with several numbers, one measurement
    /// each, in turn
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=200_000_000))]
    ledger: Vec<u32>,
    /// Repetitions of each measurement
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Run the payment lane on its own rails in a database that holds other rows
    #[arg(long)]
    beside_other_rows: bool,
    /// Also write an HTML report with plots
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    #[command(flatten)]
    format: OutputFormat,
    #[command(subcommand)]
    hidden: Option<Hidden>,
}

#[derive(clap::Subcommand)]
enum Hidden {
    #[command(hide = true)]
    Relayer(relayer::Arguments),
    #[cfg(feature = "kafka")]
    #[command(hide = true)]
    KafkaMock,
}

impl Arguments {
    pub(crate) async fn run(mut self, database: &Database) -> Result<ExitStatus, Failure> {
        match self.hidden.take() {
            Some(Hidden::Relayer(arguments)) => return arguments.run(database).await,
            #[cfg(feature = "kafka")]
            Some(Hidden::KafkaMock) => return destination::serve_kafka_mock().await,
            None => {}
        }
        let plans = self.plans()?;
        let mut signals = ShutdownSignals::listen()?;
        let report = signals.run(self.measure(database, &plans)).await??;
        progress::clear();
        self.format.print(&report, || report.text())?;
        // Last, so that an unwritable file does not lose the numbers.
        if let Some(file) = &self.report {
            page::write(&report, file)?;
        }
        for unavailable in &report.unavailable {
            eprint_redacted(&unavailable.failure().render());
        }
        Ok(if report.unavailable.is_empty() { ExitStatus::Success } else { ExitStatus::CheckFailed })
    }

    async fn measure(&self, database: &Database, plans: &[Plan]) -> Result<Report, Failure> {
        let machine = Machine::this();
        let server = match database.url() {
            Ok(url) => {
                let lanes: BTreeSet<Lane> = plans.iter().map(|plan| plan.lane).collect();
                BenchServer::given(url, self.beside_other_rows, &lanes.into_iter().collect::<Vec<_>>()).await?
            }
            Err(_) => {
                progress::show("starting a private PostgreSQL");
                BenchServer::private().await?
            }
        };
        let postgres = server.postgres().await?;
        let (mut measurements, mut unavailable) = (Vec::new(), Vec::<Unavailable>::new());
        for (place, plan) in plans.iter().enumerate() {
            progress::show_step(place + 1, plans.len(), &plan.describe());
            // Each measurement has a new destination, as it has a new database.
            let destination = match plan.to {
                Some(kind) if unavailable.iter().any(|missing| missing.is_of(kind)) => continue,
                Some(kind) => match Destination::start(kind, &self.kafka_brokers).await {
                    Ok(destination) => Some(destination),
                    Err(missing) => {
                        unavailable.push(missing);
                        continue;
                    }
                },
                None => None,
            };
            measurements.push(scenario::measure(&server, plan, destination.as_ref()).await?);
        }
        progress::clear();
        if measurements.is_empty()
            && let Some(last) = unavailable.pop()
        {
            unavailable.iter().for_each(|missing| eprint_redacted(&missing.failure().render()));
            return Err(last.failure());
        }
        server.close().await?;
        if let Some(leftovers) = server.leftovers() {
            eprintln!("{leftovers}");
        }
        Ok(Report { machine, postgres, measurements, unavailable })
    }
}
