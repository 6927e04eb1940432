//! `symphony run`: the relayer.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use serde_json::json;
use symphony_outbox::WorkerId;
use symphony_outbox::bell::Channel;
use symphony_outbox::connect::Target;
use symphony_relay::payment::PaymentLane;
use symphony_relay::rail::Rail;
use symphony_relay::ringer::Ringer;
use symphony_relay::stop::{Stop, Wish};
use symphony_relay::{Engine, Settings, Summary};
use symphony_sinks::rail;
use uuid::Uuid;

use super::with_examples;
use crate::{
    config::{Config, EXAMPLE, RailSection},
    database::Database,
    failure::{Answer, Failure},
    interruption::Interruption,
    output,
    relayer::{
        checks::{self, Serving},
        endpoints::{self, Shown},
        gauges::Gauges,
        log,
        meter::LaneMeter,
    },
};

/// How long a second signal gives tasks to be dropped before the process is gone.
const LEAVE: Duration = Duration::from_secs(1);

/// Carry what is committed to its rails, until told to stop
///
/// Claims due instructions under leases, sends each to its rail, and records what came of it. Any number of copies may run;
/// kill any of them at any moment, and nothing is lost. Needs a login with the roles symphony_executor and
/// symphony_readonly.
///
/// The first SIGTERM or Ctrl-C finishes what runs and exits with 0; a second one leaves at once, and leases expire.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony run --config symphony.toml\n  symphony run --config symphony.toml --check\n  symphony run --print-example > symphony.toml"
))]
pub(crate) struct Arguments {
    /// The file of settings; what it leaves out is as in --print-example
    #[arg(long, env = "SYMPHONY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The address at which to listen for work, where --database-url leads to a pooler
    #[arg(long, env = "SYMPHONY_LISTEN_URL", hide_env_values = true, value_name = "URL")]
    listen_url: Option<String>,
    /// Check the settings, the schema, the login and the rails, and exit
    #[arg(long)]
    check: bool,
    /// Print every setting with its default, and exit
    #[arg(long)]
    print_example: bool,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<Answer, Failure> {
        if self.print_example {
            output::line(EXAMPLE)?;
            return Ok(Answer::Yes);
        }
        let config = Config::load(self.config.as_deref())?;
        let mut interruption = Interruption::listen()?;
        log::start(config.relayer.log_format, config.relayer.log_level)?;

        let url = database.url_or(&config.database.url)?;
        let listen_url = [self.listen_url.as_deref().unwrap_or_default(), &config.database.listen_url, url]
            .into_iter()
            .find(|url| !url.trim().is_empty())
            .unwrap_or(url);
        let (target, bell) = (Arc::new(Target::parse(url)?), Arc::new(Target::parse(listen_url)?));
        let sections = config.rails()?;
        let rails = rails(&sections)?;
        let can_be_asked = rails.iter().map(|(name, rail)| (name.as_str(), rail.can_be_asked())).collect();
        let serving = Serving { rails: can_be_asked, unserved: config.payment.unserved_rails };
        // A database that hangs must not keep the program from ending: nothing is under way yet.
        interruption
            .or(check(&target, &serving))
            .await
            .map_err(|caught| caught.saying("interrupted before anything was claimed"))??;

        let worker = worker_name(&config.relayer.worker);
        let settings = config.payment_settings(&sections);
        let lane = PaymentLane::new(Arc::clone(&target), worker.clone(), config.payment.lease, rails);
        let engine = Engine::new(Arc::new(lane), settings.clone()).map_err(|wrong| {
            Failure::usage(format!("payment.{wrong}")).hint("see: symphony run --print-example")
        })?;
        if self.check {
            output::line("everything is in order\n")?;
            return Ok(Answer::Yes);
        }

        let mut registry = Registry::with_prefix("symphony");
        let meter = LaneMeter::new("payment", &mut registry);
        let (stop, signal) = Stop::new();
        let listener = match config.relayer.endpoints.trim() {
            "" => None,
            address => Some(endpoints::bind(address).await?),
        };
        // The one line on stdout: whoever started it knows where it is and that it has begun.
        let place = listener.as_ref().and_then(endpoints::place).map(|place| format!("http://{place}"));
        output::line(&format!("{}\n", json!({ "worker": worker.as_str(), "endpoints": place })))?;
        tracing::info!(worker = worker.as_str(), endpoints = place, "the relayer begins");
        if let Some(listener) = listener {
            let gauges = Gauges::new(Arc::clone(&target));
            let shown = Shown { registry, meter: Arc::clone(&meter), gauges, stop: signal.clone() };
            tokio::spawn(endpoints::serve(listener, shown));
        }

        let ringer = Ringer::new(bell, Channel::PAYMENT);
        let work = engine.with_meter(meter).run(Some(ringer), signal.clone());
        let summary = until_stopped(work, &stop, interruption, &settings).await?;
        tracing::info!(
            claimed = summary.claimed,
            recorded = summary.recorded,
            abandoned = summary.abandoned,
            lease_lost = summary.lease_lost,
            given_up = summary.given_up,
            released = summary.released,
            left_behind = summary.left_behind,
            "the relayer ends"
        );
        if signal.wish() == Wish::Leave { Ok(Answer::No) } else { Ok(Answer::Yes) }
    }
}

/// Why not to start, if there is a reason.
async fn check(target: &Target, serving: &Serving<'_>) -> Result<(), Failure> {
    let mut client = target.connect().await?;
    checks::schema(&mut client).await?;
    checks::roles(&client).await?;
    checks::rails(&client, serving).await
}

/// Lets the engine work, and tells it of each signal.
async fn until_stopped(
    work: impl Future<Output = Summary>,
    stop: &Stop,
    mut interruption: Interruption,
    settings: &Settings,
) -> Result<Summary, Failure> {
    tokio::pin!(work);
    let mut told = 0_u32;
    loop {
        let caught = tokio::select! {
            summary = &mut work => return Ok(summary),
            caught = interruption.caught() => caught,
        };
        stop.signal();
        told += 1;
        if told == 1 {
            tracing::info!(grace = ?settings.grace, "stopping: what runs may finish; a second signal leaves at once");
        } else {
            tracing::warn!("leaving at once: leases expire by themselves");
            let _ = tokio::time::timeout(LEAVE, &mut work).await;
            return Err(caught.saying("left at once: what was under way is unknown until its lease has expired"));
        }
    }
}

/// The way out of each section.
fn rails(sections: &[RailSection]) -> Result<BTreeMap<String, Arc<dyn Rail>>, Failure> {
    let built = |section: &RailSection| match rail(&section.name, section.settings.clone()) {
        Ok(rail) => Ok((section.name.clone(), rail)),
        Err(wrong) => {
            Err(Failure::usage(wrong.to_string()).hint("docs/sinks/ explains the settings of each kind"))
        }
    };
    sections.iter().map(built).collect()
}

/// A name that no other process has.
fn worker_name(given: &str) -> WorkerId {
    if !given.trim().is_empty() {
        return given.into();
    }
    let host = rustix::system::uname().nodename().to_string_lossy().chars().take(100).collect::<String>();
    let random = Uuid::new_v4().simple().to_string();
    format!("{host}-{}-{}", std::process::id(), &random[..8]).as_str().into()
}
