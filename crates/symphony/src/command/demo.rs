//! `symphony demo`: the whole system under load, with a bank that fails, relayers and a broker that are killed, then an audit.
//!
//! Everything is real and runs in processes of its own: a private PostgreSQL, a simulated bank, brokers and stores, two relayers. Nothing of
//! it outlives the demo.
//!
//! # Layout
//! - [`stage`]: what is set up before anybody pays
//! - [`lane`]: what is asked of a lane; [`payments`], [`events`] and [`metadata`] are three, [`lanes`] are all
//! - [`load`]: the business that writes to all of them
//! - [`fleet`]: the relayers, and who kills them
//! - [`dashboard`]: the console over all of it
//! - [`rate`]: how fast a number grows
//! - [`view`]: how it is shown
//! - [`verdict`]: what the audits come to, in words and as JSON

mod dashboard;
mod events;
mod fleet;
mod lane;
mod lanes;
mod load;
mod metadata;
mod payments;
mod rate;
mod stage;
mod verdict;
mod view;

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use tokio::time::MissedTickBehavior;

use super::{inspect, with_examples};
use crate::{
    failure::{Answer, Failure},
    interruption::Interruption,
    output::Form,
};
use dashboard::Dashboard;
use fleet::Fleet;
use lanes::Lanes;
use load::{Load, Tally};
use stage::Stage;
use verdict::Verdict;
use view::{Phase, Sight, View};

/// How long what is enqueued may take to end after the last enqueue. A retry is due within seconds; this is for machines that have
/// something else to do, and longer than the 5 minutes after which an event comes back whose claim nobody knows of.
const DRAIN: Duration = Duration::from_secs(360);
/// When a place where events go is killed, at the latest; in short demos it is half-way.
const OUTAGE: Duration = Duration::from_secs(15);
/// How often is counted and shown.
const TICK: Duration = Duration::from_millis(500);
/// The longest demo.
const LONGEST: Duration = Duration::from_secs(3600);

/// Run the whole system under load, kill parts of it, and audit every payment, every event and every entry of metadata
///
/// Starts a private PostgreSQL, a simulated bank that fails in the ways of banks, NATS and Redis, and two relayers; enqueues payments,
/// publishes events and creates entries of metadata in transactions with orders of a shop; kills a relayer with kill -9 now and
/// then, and NATS once. Metadata goes to a second database and to a second Redis. Where a broker is not installed, its events go
/// to a receiver over HTTP, and its metadata to the second database. At the end it waits until everything has ended, and compares
/// the outbox with the bank's own ledger, payment by payment, with what somebody else finds in the brokers, event by event, and
/// with what somebody else finds in the stores, entity by entity. The exit code is 0 if nothing was lost, nothing executed twice,
/// no event of an aggregate overtook another, no store has an earlier version, and everything else agrees.
///
/// A dead relayer's events and entries come back after 5 minutes. Nobody has to watch that: the demo makes its claims older.
///
/// It says first where its dashboard is: the console of `symphony run`, open to this machine alone, where rails can be paused and dead
/// letters decided upon while it runs. On a terminal everything stays after the audit, relayers included, until Ctrl-C; in a pipe it ends by itself.
///
/// Ctrl-C ends it early, with the audit; a second one leaves at once. It touches no other database, and removes
/// whatever it has started.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony demo\n  symphony demo --for 2m --faults many --kill-every 3s\n  \
     symphony demo --for 10s --json | jq .report.counts\n  \
     symphony demo --no-keep   # ends after the audit, on a terminal too",
))]
pub(crate) struct Arguments {
    /// Enqueue for so long
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = length)]
    length: Duration,
    /// Take so many orders a second, each with a payment, an event and an entry of metadata, if the machine can
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    payments_per_second: u32,
    /// Payments are for so many participants
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    participants: u32,
    /// How often the bank fails
    #[arg(long, value_name = "MIX", value_parser = ["none", "some", "many"], default_value = "some")]
    faults: String,
    /// Kill a relayer so often, and a broker once; 0s is never
    #[arg(long, value_name = "TIME", default_value = "7s", value_parser = pause)]
    kill_every: Duration,
    /// The same seed gives the same orders and the same faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// After the audit leave everything running until Ctrl-C, and say how to reach it; so it is on a terminal, without --json
    #[arg(long, overrides_with = "no_keep")]
    keep: bool,
    /// End after the audit, on a terminal too
    #[arg(long, overrides_with = "keep")]
    no_keep: bool,
    #[command(flatten)]
    form: Form,
}

fn time(text: &str) -> Result<Duration, String> {
    let time = text.parse::<SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
    time.filter(|time| *time <= LONGEST).ok_or_else(|| "a time such as 10s or 2m, at most 1h".to_owned())
}

pub(super) fn length(text: &str) -> Result<Duration, String> {
    time(text).and_then(|time| if time.is_zero() { Err("a time such as 10s or 2m".to_owned()) } else { Ok(time) })
}

fn pause(text: &str) -> Result<Duration, String> {
    time(text).and_then(|time| {
        let sane = time.is_zero() || time >= Duration::from_millis(500);
        if sane { Ok(time) } else { Err("500ms at least, or 0s for never".to_owned()) }
    })
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<Answer, Failure> {
        let mut interruption = Interruption::listen()?;
        let mut view = View::new(self.form, self.length);
        let dashboard = Dashboard::reserve().await?;
        let address = dashboard.address().to_owned();
        view.say(&format!("the dashboard is at {address}"))?;
        view.say("starting a private PostgreSQL, a bank, brokers and two relayers")?;
        let (stage, mut lanes, mut fleet) = interruption.or(self.start(dashboard)).await??;
        view.say(&format!(
            "PostgreSQL {} on port {}, the bank on {}, faults: {}, seed {}\n{}\n{}",
            stage.version(),
            stage.port(),
            lanes.payments.bank_place(),
            self.faults,
            self.seed,
            lanes.events.where_to(),
            lanes.metadata.where_to(),
        ))?;

        let began = Instant::now();
        let load = Load::start(&stage, self.payments_per_second, self.participants, self.seed).await?;
        let (tally, early) = self.pay(&mut view, &mut lanes, &mut fleet, load, &mut interruption, began).await?;
        let kept = self.keep || (self.is_watched() && !early);
        // Whoever asks again does not want to wait.
        let ending = self.end(&mut view, &mut lanes, &fleet, tally, began, kept);
        let verdict = interruption.or(ending).await??.at(kept.then_some(address));
        let story = stage.story().await?;

        let text = || verdict.text(view.colours(), story.as_ref().map(inspect::text).as_deref());
        self.form.print(&verdict, text)?;
        if let Some(address) = verdict.dashboard() {
            // What people redrive from now on is carried as well.
            fleet.start_again()?;
            let eventful = story.as_ref().map(|story| story.instruction_id.as_str());
            view.say(&format!("\n{}", stage.how_to_look(address, &lanes, eventful)))?;
            // It was asked for, so it is no failure: the answer is that of the audit.
            interruption.caught().await;
        }
        Ok(if verdict.holds() { Answer::Yes } else { Answer::No })
    }

    /// Whether somebody sits there who may want to look around when it is over.
    fn is_watched(&self) -> bool {
        !self.no_keep && !self.form.json && io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    async fn start(&self, dashboard: Dashboard) -> Result<(Stage, Lanes, Fleet), Failure> {
        let stage = Stage::set().await?;
        dashboard.open(&stage).await?;
        let mut lanes = Lanes::open(&stage, &self.faults, self.seed).await?;
        if !self.kill_every.is_zero() {
            lanes.events.plan_outage(OUTAGE.min(self.length / 2));
        }
        let fleet = Fleet::start(&stage, &lanes).await?;
        Ok((stage, lanes, fleet))
    }

    /// Lets the business enqueue and kills whoever carries it, until the time is over or somebody asks to end, which is said.
    async fn pay(
        &self,
        view: &mut View,
        lanes: &mut Lanes,
        fleet: &mut Fleet,
        mut load: Load,
        interruption: &mut Interruption,
        began: Instant,
    ) -> Result<(Tally, bool), Failure> {
        let mut early = false;
        let mut next_kill = self.kill_every;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = interruption.caught() => {
                    view.say("stopping early: what is enqueued is carried, then audited; Ctrl-C again leaves at once")?;
                    early = true;
                    break;
                }
            }
            load.check()?;
            fleet.check()?;
            // What is due is done before the end is looked at: on a machine that is slow enough, one tick is the whole demo.
            if let Some(what) = lanes.events.disturb(began.elapsed()).await? {
                view.event(&what)?;
            }
            if !self.kill_every.is_zero() && began.elapsed() >= next_kill {
                next_kill += self.kill_every;
                let who = fleet.kill_one().await?;
                let freed = lanes.died(&who).await?;
                view.event(&format!("kill -9 {who}; started again{freed}"))?;
            }
            if began.elapsed() >= self.length {
                break;
            }
            let looks = lanes.look().await?;
            view.show(&Phase::Paying, &Sight { elapsed: began.elapsed(), kills: fleet.kills(), looks })?;
        }
        Ok((load.stop().await?, early))
    }

    /// Waits until everything has ended, stops whoever works, and audits.
    async fn end(
        &self,
        view: &mut View,
        lanes: &mut Lanes,
        fleet: &Fleet,
        tally: Tally,
        began: Instant,
        kept: bool,
    ) -> Result<Verdict, Failure> {
        let kills = fleet.kills();
        if let Some(what) = lanes.events.close().await? {
            view.event(&what)?;
        }
        let draining = Instant::now();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            fleet.check()?;
            for rail in lanes.payments.resume_rails().await? {
                view.event(&format!("the rail {rail} was paused; resumed, so that its payments can end"))?;
            }
            let sight = Sight { elapsed: began.elapsed(), kills, looks: lanes.look().await? };
            view.show(&Phase::Draining, &sight)?;
            if sight.open() == 0 || draining.elapsed() >= DRAIN {
                break;
            }
        }
        fleet.stop().await?;
        view.say(
            "auditing: the outbox against the bank's ledger, and against what is in the brokers and the stores",
        )?;
        if !kept {
            lanes.payments.close_bank().await;
        }
        Ok(Verdict::new(lanes.audit().await?, tally, kills, self.seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_a_bound() {
        assert_eq!(length("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(length("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "30", "0s", "-3s", "2h", "soon"] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
        assert_eq!(pause("0s"), Ok(Duration::ZERO));
        assert!(pause("10ms").is_err());
    }
}
