//! A relayer as `symphony run` starts it, but for its ways out: they take everything at once and keep nothing.
//!
//! It is this program once more, started by `symphony bench`, and tells on stdout how far it has come. What takes everything is known here
//! and nowhere else: no setting of `symphony run` leads to it, and it serves no name but those of a benchmark.

mod nothing;
mod tape;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use symphony_outbox::WorkerId;
use symphony_outbox::connect::Target;
use symphony_outbox::listener::Channel;
use symphony_outbox::schema::Lane;
use symphony_proof::track;
use symphony_relay::event::routing::{Route, Routes};
use symphony_relay::event::{EventLane, Publishing, order::Order};
use symphony_relay::listener::PostgresListener;
use symphony_relay::metadata::{MetadataLane, Storing, routing};
use symphony_relay::payment::PaymentLane;
use symphony_relay::rail::Rail;
use symphony_relay::sink::Sink;
use symphony_relay::stop::{StopHandle, StopSignal};
use symphony_relay::store::Store;
use symphony_relay::{Engine, Settings, lane};
use tokio::time::MissedTickBehavior;

use super::goods;
use crate::{
    config::Config,
    database::Database,
    failure::{Answer, Failure},
    interruption::Interruption,
    output,
};
use nothing::Nothing;
pub(super) use tape::Sighting;
use tape::Tape;

/// How often it says how far it has come, at most.
const TICK: Duration = Duration::from_millis(20);
/// What the sink and the store are called.
const WAY_OUT: &str = "nothing";

/// Carry what a benchmark has sent to nowhere; `symphony bench` starts it
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The lane that it serves
    #[arg(long, value_name = "LANE", default_value = "payment")]
    lane: Lane,
    /// Keep order
    #[arg(long)]
    ordered: bool,
    /// Dispatches at the same time; as `symphony run` has it unless given
    #[arg(long, value_name = "N")]
    slots: Option<usize>,
    /// The most that one claim brings; as `symphony run` has it unless given
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,
    /// Write what was dispatched when to this file at the end
    #[arg(long, value_name = "FILE")]
    times: Option<PathBuf>,
    /// Write how long claims took to this file at the end
    #[arg(long, value_name = "FILE")]
    claims: Option<PathBuf>,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<Answer, Failure> {
        let mut interruption = Interruption::listen()?;
        let target = Arc::new(Target::parse(database.url()?)?);
        self.refuse_others(&target).await?;
        let tape = Arc::new(Tape::new(self.times.is_some(), self.claims.is_some()));
        let (stop, signal) = StopHandle::new();
        let work = self.work(&target, &tape, signal)?;
        tokio::pin!(work);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut news = true;
        loop {
            tokio::select! {
                () = &mut work => break,
                // One that idles is not to be seen idling by how it tells of it.
                () = tape.changed(), if !news => news = true,
                _ = ticks.tick(), if news => {
                    news = false;
                    if !say(&tape.sighting())? {
                        // Nobody reads any more.
                        stop.signal();
                    }
                }
                _ = interruption.caught() => stop.signal(),
            }
        }
        let cannot = |error| Failure::because("the times cannot be written", error);
        if let Some(file) = &self.times {
            tape.write_times(file).map_err(cannot)?;
        }
        if let Some(file) = &self.claims {
            tape.write_claims(file).map_err(cannot)?;
        }
        say(&tape.last_sighting())?;
        Ok(Answer::Yes)
    }

    /// A claim of events or of metadata takes whatever is there: so nothing of anybody else's may be.
    async fn refuse_others(&self, target: &Target) -> Result<(), Failure> {
        let client = target.connect().await?;
        if self.lane != Lane::Payment && track::is_foreign(&client, self.lane).await? {
            return Err(Failure::no(format!("the {} lane holds what no benchmark has sent", self.lane.name())));
        }
        Ok(())
    }

    /// As `symphony run` would do it by its defaults.
    fn work<'a>(
        &self,
        target: &'a Arc<Target>,
        tape: &Arc<Tape>,
        stop: StopSignal,
    ) -> Result<std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>, Failure> {
        let config = Config::load(None)?;
        let worker: WorkerId = format!("bench-{}", std::process::id()).as_str().into();
        let nothing = Arc::new(Nothing(Arc::clone(tape)));
        let name = goods::name(self.lane, self.ordered);
        let own = Arc::clone(target);
        Ok(match self.lane {
            Lane::Payment => {
                let rails = BTreeMap::from([(name, nothing as Arc<dyn Rail>)]);
                let lane = PaymentLane::new(own, worker, config.payment.own.lease, rails);
                let settings = self.settings(config.payment_settings(&[]));
                Box::pin(serve(lane, settings, target, Channel::PAYMENT, tape, stop)?)
            }
            Lane::Event => {
                let route = Route::new(&name, "*", WAY_OUT, WAY_OUT);
                let route = route.map_err(|error| Failure::because("there is no such route", error))?;
                let publishing = Publishing {
                    source: "//bench".to_owned(),
                    routes: Routes::new(vec![route]),
                    sinks: BTreeMap::from([(WAY_OUT.to_owned(), nothing as Arc<dyn Sink>)]),
                    order: if self.ordered { Order::Aggregate } else { config.event.own.order },
                };
                let settings = self.settings(config.event_settings(&[]));
                Box::pin(serve(
                    EventLane::new(own, worker, publishing),
                    settings,
                    target,
                    Channel::EVENT,
                    tape,
                    stop,
                )?)
            }
            Lane::Metadata => {
                let route = routing::Route { entity_type: name, store: WAY_OUT.to_owned() };
                let storing = Storing {
                    routes: routing::Routes::new(vec![route]),
                    stores: BTreeMap::from([(WAY_OUT.to_owned(), nothing as Arc<dyn Store>)]),
                };
                let settings = self.settings(config.metadata_settings(&[]));
                Box::pin(serve(
                    MetadataLane::new(own, worker, storing),
                    settings,
                    target,
                    Channel::METADATA,
                    tape,
                    stop,
                )?)
            }
        })
    }

    fn settings(&self, settings: Settings) -> Settings {
        Settings {
            slots: self.slots.unwrap_or(settings.slots),
            batch: self.batch_size.unwrap_or(settings.batch),
            // Repair ends whatever has expired, on the rails of others too.
            repair_every: Duration::ZERO,
            ..settings
        }
    }
}

fn serve<'a, L: lane::Lane>(
    lane: L,
    settings: Settings,
    target: &'a Arc<Target>,
    channel: Channel,
    tape: &Arc<Tape>,
    stop: StopSignal,
) -> Result<impl Future<Output = ()> + 'a, Failure> {
    let engine = Engine::new(Arc::new(lane), settings).map_err(|wrong| Failure::usage(wrong.to_string()))?;
    let engine = engine.with_meter(Arc::clone(tape) as _);
    Ok(async move {
        engine.run(Some(PostgresListener::new(Arc::clone(target), channel)), stop).await;
    })
}

/// Whether somebody has read it.
fn say(sighting: &Sighting) -> Result<bool, Failure> {
    let line = serde_json::to_string(sighting)
        .map_err(|error| Failure::because("a relayer cannot say how far it has come", error))?;
    output::line_is_read(&line)
}
