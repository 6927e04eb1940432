//! `symphony demo`: the whole system under load, with a bank that fails and relayers that are killed, then an audit.
//!
//! Everything is real and runs in processes of its own: a private PostgreSQL, a simulated bank, two relayers. Nothing of it
//! outlives the demo.
//!
//! # Layout
//! - [`stage`]: what is set up before anybody pays
//! - [`load`]: the business that enqueues
//! - [`fleet`]: the relayers, and who kills them
//! - [`counts`]: what is going on, at one moment
//! - [`view`]: how that is shown
//! - [`verdict`]: the audit, in words and as JSON

mod counts;
mod fleet;
mod load;
mod stage;
mod verdict;
mod view;

use std::time::{Duration, Instant};

use jiff::SignedDuration;
use tokio::time::MissedTickBehavior;

use super::{inspect, with_examples};
use crate::{
    failure::{Answer, Failure},
    interruption::Interruption,
    output::Form,
};
use counts::Counter;
use fleet::Fleet;
use load::{Load, Tally};
use stage::Stage;
use verdict::Verdict;
use view::{Phase, View};

/// How long what is enqueued may take to end after the last enqueue. A retry is due within seconds; this is for machines
/// that have something else to do.
const DRAIN: Duration = Duration::from_secs(180);
/// How often is counted and shown.
const TICK: Duration = Duration::from_millis(500);
/// The longest demo.
const LONGEST: Duration = Duration::from_secs(3600);

/// Run the whole system under load, kill its relayers, and audit every payment
///
/// Starts a private PostgreSQL, a simulated bank that fails in the ways of banks, and two relayers; enqueues payments in
/// transactions with orders of a shop; kills a relayer with kill -9 now and then. At the end it waits until every payment has
/// ended, and compares the outbox with the bank's own ledger, payment by payment. The exit code is 0 if nothing was lost,
/// nothing executed twice, and everything else agrees.
///
/// Ctrl-C ends it early, with the audit; a second one leaves at once. It touches no other database, and removes
/// whatever it has started.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony demo\n  symphony demo --for 2m --faults many --kill-every 3s\n  \
     symphony demo --for 10s --json | jq .report.counts\n  \
     symphony demo --keep   # and try the other commands on what it leaves",
))]
pub(crate) struct Arguments {
    /// Enqueue for so long
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = length)]
    length: Duration,
    /// Enqueue so many payments a second, if the machine can
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    payments_per_second: u32,
    /// Payments are for so many participants
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    participants: u32,
    /// How often the bank fails
    #[arg(long, value_name = "MIX", value_parser = ["none", "some", "many"], default_value = "some")]
    faults: String,
    /// Kill a relayer so often; 0s is never
    #[arg(long, value_name = "TIME", default_value = "7s", value_parser = pause)]
    kill_every: Duration,
    /// The same seed gives the same payments and the same faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// At the end leave PostgreSQL, the bank and the folder in place until Ctrl-C, and say how to reach them
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    form: Form,
}

fn time(text: &str) -> Result<Duration, String> {
    let time = text.parse::<SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
    time.filter(|time| *time <= LONGEST).ok_or_else(|| "a time such as 10s or 2m, at most 1h".to_owned())
}

fn length(text: &str) -> Result<Duration, String> {
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
        view.say("starting a private PostgreSQL, a bank and two relayers")?;
        let (stage, mut fleet) = interruption.or(self.start()).await??;
        view.say(&format!(
            "PostgreSQL {} on port {}, the bank on {}, faults: {}, seed {}",
            stage.version(),
            stage.port(),
            stage.bank_place(),
            self.faults,
            self.seed
        ))?;

        let mut counter = Counter::new(stage.owner().await?, stage.bank_place());
        let load = Load::start(&stage, self.payments_per_second, self.participants, self.seed).await?;
        let tally = self.pay(&mut view, &mut counter, &mut fleet, load, &mut interruption).await?;
        let kills = fleet.kills();
        // Whoever asks again does not want to wait.
        let ending = self.end(&mut view, &mut counter, fleet, &stage, tally, kills);
        let (verdict, story) = interruption.or(ending).await??;

        let text = || verdict.text(view.colours(), story.as_ref().map(inspect::text).as_deref(), self.keep);
        self.form.print(&verdict, text)?;
        if self.keep {
            view.say(&format!(
                "\n{}",
                stage.how_to_look(story.as_ref().map(|story| story.instruction_id.as_str()))
            ))?;
            // It was asked for, so it is no failure: the answer is that of the audit.
            interruption.caught().await;
        }
        Ok(if verdict.holds() { Answer::Yes } else { Answer::No })
    }

    async fn start(&self) -> Result<(Stage, Fleet), Failure> {
        let stage = Stage::set(&self.faults, self.seed).await?;
        let fleet = Fleet::start(&stage).await?;
        Ok((stage, fleet))
    }

    /// Lets the business enqueue and kills relayers, until the time is over or somebody asks to end.
    async fn pay(
        &self,
        view: &mut View,
        counter: &mut Counter,
        fleet: &mut Fleet,
        mut load: Load,
        interruption: &mut Interruption,
    ) -> Result<Tally, Failure> {
        let began = Instant::now();
        let mut next_kill = self.kill_every;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = interruption.caught() => {
                    view.say("stopping early: what is enqueued is paid, then audited; Ctrl-C again leaves at once")?;
                    break;
                }
            }
            load.check()?;
            fleet.check()?;
            if began.elapsed() >= self.length {
                break;
            }
            if !self.kill_every.is_zero() && began.elapsed() >= next_kill {
                next_kill += self.kill_every;
                let who = fleet.kill_one().await?;
                view.event(&format!("kill -9 {who}; started again"))?;
            }
            view.show(&Phase::Paying, &counter.count(fleet.kills()).await?)?;
        }
        load.stop().await
    }

    /// Waits until everything has ended, stops whoever works, and audits.
    async fn end(
        &self,
        view: &mut View,
        counter: &mut Counter,
        fleet: Fleet,
        stage: &Stage,
        tally: Tally,
        kills: u32,
    ) -> Result<(Verdict, Option<inspect::Story>), Failure> {
        let began = Instant::now();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let last = loop {
            ticks.tick().await;
            fleet.check()?;
            let counts = counter.count(kills).await?;
            view.show(&Phase::Draining, &counts)?;
            if counts.numbers.pending == 0 || began.elapsed() >= DRAIN {
                break counts;
            }
        };
        fleet.stop().await?;
        view.say("auditing: the outbox against the bank's ledger")?;
        if !self.keep {
            stage.close_bank().await;
        }
        let verdict = verdict::reach(stage, tally, last, self.seed).await?;
        let story = stage.story().await?;
        Ok((verdict, story))
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
