//! `symphony demo`: runs the whole system under load and fault injection, then audits the result.
//!
//! A private PostgreSQL, a simulated bank, brokers, stores and two relayers run as separate processes, and end with
//! the demo.
//!
//! # Layout
//! - [`environment`]: the private PostgreSQL with the schema, the shop's tables and the rails
//! - [`lane`]: the interface of a lane, for [`payments`], [`events`] and [`metadata`]; [`lanes`] holds all three
//! - [`load_generator`]: the shop that enqueues to all lanes
//! - [`relayers`]: the relayer processes, and their kills
//! - [`dashboard`]: the console
//! - [`rate`]: the growth of a counter per second
//! - [`display`]: progress on the terminal
//! - [`result`]: the audits' results, as text and as JSON

mod dashboard;
mod display;
mod environment;
mod events;
mod lane;
mod lanes;
mod load_generator;
mod metadata;
mod payments;
mod rate;
mod relayers;
mod result;

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use tokio::time::MissedTickBehavior;

use super::{inspect, with_examples};
use crate::{
    failure::{ExitStatus, Failure},
    output::OutputFormat,
    shutdown_signals::ShutdownSignals,
};
use dashboard::Dashboard;
use display::{Phase, Progress, View};
use environment::DemoEnvironment;
use lanes::Lanes;
use load_generator::{LoadCounts, LoadGenerator};
use relayers::Relayers;
use result::DemoResult;

/// How long all rows may take to reach a terminal state after the last enqueue. Retries are due within seconds; the
/// limit is for slow machines, and longer than the 5 minutes after which an event's claim expires.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(360);
/// When the broker is killed: after this time, or half-way through a shorter demo.
const MAX_OUTAGE_START: Duration = Duration::from_secs(15);
/// How often progress is read and shown.
const TICK_INTERVAL: Duration = Duration::from_millis(500);
/// The longest `--for` of a demo or a benchmark.
const MAX_RUN: Duration = Duration::from_secs(3600);

/// Run the whole system under load and fault injection, and audit every payment, event and metadata entry
///
/// Starts a private PostgreSQL, a simulated bank, NATS, Redis and two relayers. A shop commits orders, each with a
/// payment, an event and a metadata entry. The demo kills relayers with kill -9, and NATS once. Then it waits for
/// terminal states and compares the outbox with the bank's ledger, the brokers and the stores. The exit code is 0 if
/// nothing is lost, paid twice, out of order or out of date.
///
/// Claims of a killed relayer on events and metadata last 5 minutes; the demo expires them at once. Without NATS or
/// Redis, events go to an HTTP receiver and metadata to a second database.
///
/// The first line of the output is the dashboard's address. On a terminal everything runs until Ctrl-C after the
/// audit. Ctrl-C during the load starts the audit early; a second one exits at once. No other database is touched.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony demo\n  symphony demo --for 2m --faults many --kill-every 3s\n  \
     symphony demo --for 10s --json | jq .report.counts\n  \
     symphony demo --no-keep   # exit after the audit, also on a terminal",
))]
pub(crate) struct Arguments {
    /// Duration of the load
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = run_length)]
    length: Duration,
    /// Orders per second, each with a payment, an event and a metadata entry
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    payments_per_second: u32,
    /// Number of participants
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    participants: u32,
    /// Preset of the bank's faults
    #[arg(long, value_name = "MIX", value_parser = ["none", "some", "many"], default_value = "some")]
    faults: String,
    /// Interval between relayer kills; a broker is killed once; 0s: no kills
    #[arg(long, value_name = "TIME", default_value = "7s", value_parser = kill_interval)]
    kill_every: Duration,
    /// Seed: the same seed gives the same orders and faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// After the audit keep everything running until Ctrl-C; the default on a terminal without --json
    #[arg(long, overrides_with = "no_keep")]
    keep: bool,
    /// Exit after the audit, also on a terminal
    #[arg(long, overrides_with = "keep")]
    no_keep: bool,
    #[command(flatten)]
    format: OutputFormat,
}

fn at_most_an_hour(text: &str) -> Result<Duration, String> {
    let parsed = symphony_sinks::parse_duration(text).filter(|parsed| *parsed <= MAX_RUN);
    parsed.ok_or_else(|| "write a duration such as 10s or 2m, at most 1h".to_owned())
}

/// Parses `--for`.
pub(super) fn run_length(text: &str) -> Result<Duration, String> {
    match at_most_an_hour(text)? {
        Duration::ZERO => Err("write a duration such as 10s or 2m".to_owned()),
        length => Ok(length),
    }
}

fn kill_interval(text: &str) -> Result<Duration, String> {
    let interval = at_most_an_hour(text)?;
    let valid = interval.is_zero() || interval >= Duration::from_millis(500);
    if valid { Ok(interval) } else { Err("write 500ms at least, or 0s for no kills".to_owned()) }
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitStatus, Failure> {
        let mut signals = ShutdownSignals::listen()?;
        let mut view = View::new(self.format, self.length);
        let dashboard = Dashboard::reserve().await?;
        let address = dashboard.address().to_owned();
        view.say(&format!("the dashboard is at {address}"))?;
        view.say("starting a private PostgreSQL, a simulated bank, brokers and two relayers")?;
        let (environment, mut lanes, mut relayers) = signals.run(self.start(dashboard)).await??;
        view.say(&format!(
            "PostgreSQL {} on port {}, the bank on {}, faults: {}, seed {}\n{}\n{}",
            environment.version(),
            environment.port(),
            lanes.payments.bank_address(),
            self.faults,
            self.seed,
            lanes.events.where_to(),
            lanes.metadata.where_to(),
        ))?;

        let began = Instant::now();
        let load =
            LoadGenerator::start(&environment, self.payments_per_second, self.participants, self.seed).await?;
        let (tally, early) = self.pay(&mut view, &mut lanes, &mut relayers, load, &mut signals, began).await?;
        let kept = self.keep || (self.is_interactive() && !early);
        // A second signal skips the audit.
        let ending = self.end(&mut view, &mut lanes, &relayers, tally, began, kept);
        let result = signals.run(ending).await??.with_dashboard(kept.then_some(address));
        let history = environment.eventful_payment().await?;

        let text = || result.text(view.colours(), history.as_ref().map(inspect::text).as_deref());
        self.format.print(&result, text)?;
        if let Some(address) = result.dashboard() {
            // Payments that the user redrives from now on are dispatched as well.
            relayers.start_again()?;
            let eventful = history.as_ref().map(|history| history.instruction_id.as_str());
            view.say(&format!("\n{}", environment.how_to_connect(address, &lanes, eventful)))?;
            // Ctrl-C is how the user ends a kept demo: the exit code stays that of the audit.
            signals.recv().await;
        }
        Ok(if result.holds() { ExitStatus::Success } else { ExitStatus::CheckFailed })
    }

    /// Whether a user at a terminal may want to look around after the audit.
    fn is_interactive(&self) -> bool {
        !self.no_keep && !self.format.json && io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    async fn start(&self, dashboard: Dashboard) -> Result<(DemoEnvironment, Lanes, Relayers), Failure> {
        let environment = DemoEnvironment::start().await?;
        dashboard.serve(&environment).await?;
        let mut lanes = Lanes::open(&environment, &self.faults, self.seed).await?;
        if !self.kill_every.is_zero() {
            lanes.events.plan_outage(MAX_OUTAGE_START.min(self.length / 2));
        }
        let relayers = Relayers::start(&environment, &lanes).await?;
        Ok((environment, lanes, relayers))
    }

    /// Runs the load and injects faults, until the time is over or a signal arrives. Returns whether it ended early.
    async fn pay(
        &self,
        view: &mut View,
        lanes: &mut Lanes,
        relayers: &mut Relayers,
        mut load: LoadGenerator,
        signals: &mut ShutdownSignals,
        began: Instant,
    ) -> Result<(LoadCounts, bool), Failure> {
        let mut early = false;
        let mut next_kill = self.kill_every;
        let mut ticks = tokio::time::interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = signals.recv() => {
                    view.say("stopping early: draining, then the audit; Ctrl-C again exits at once")?;
                    early = true;
                    break;
                }
            }
            load.check()?;
            relayers.check()?;
            // Faults come before the check of the time: on a slow machine, one tick may be the whole demo.
            if let Some(what) = lanes.events.disturb(began.elapsed()).await? {
                view.event(&what)?;
            }
            if !self.kill_every.is_zero() && began.elapsed() >= next_kill {
                next_kill += self.kill_every;
                let worker = relayers.kill_next().await?;
                let expired = lanes.relayer_killed(&worker).await?;
                view.event(&format!("relayer killed: kill -9 {worker}; restarted{expired}"))?;
            }
            if began.elapsed() >= self.length {
                break;
            }
            let lanes = lanes.progress().await?;
            view.show(&Phase::Load, &Progress { elapsed: began.elapsed(), kills: relayers.kills(), lanes })?;
        }
        Ok((load.stop().await?, early))
    }

    /// Waits for terminal states, stops the relayers, and runs the audits.
    async fn end(
        &self,
        view: &mut View,
        lanes: &mut Lanes,
        relayers: &Relayers,
        tally: LoadCounts,
        began: Instant,
        kept: bool,
    ) -> Result<DemoResult, Failure> {
        let kills = relayers.kills();
        if let Some(what) = lanes.events.close().await? {
            view.event(&what)?;
        }
        let draining = Instant::now();
        let mut ticks = tokio::time::interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            relayers.check()?;
            for rail in lanes.payments.resume_rails().await? {
                view.event(&format!(
                    "the rail {rail} was paused; resumed, so that its payments can be dispatched"
                ))?;
            }
            let progress = Progress { elapsed: began.elapsed(), kills, lanes: lanes.progress().await? };
            view.show(&Phase::Draining, &progress)?;
            if progress.open() == 0 || draining.elapsed() >= DRAIN_TIMEOUT {
                break;
            }
        }
        relayers.stop().await?;
        view.say("auditing: comparing the outbox with the bank's ledger, the brokers and the stores")?;
        if !kept {
            lanes.payments.close_bank().await;
        }
        Ok(DemoResult::new(lanes.audit().await?, tally, kills, self.seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_range() {
        assert_eq!(run_length("90s"), Ok(Duration::from_secs(90)));
        for wrong in ["0s", "2h", "soon"] {
            assert!(run_length(wrong).is_err(), "{wrong}");
        }
        assert_eq!(kill_interval("0s"), Ok(Duration::ZERO));
        assert!(kill_interval("10ms").is_err());
    }
}
