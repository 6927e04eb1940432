//! What this process serves: a lane with its ways out where the settings name any, and nothing of a lane where they do not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use symphony_outbox::WorkerId;
use symphony_outbox::connect::Target;
use symphony_outbox::listener::Channel;
use symphony_outbox::schema::Lane;
use symphony_relay::event::{EventLane, Publishing};
use symphony_relay::listener::PostgresListener;
use symphony_relay::metadata::{MetadataLane, Storing};
use symphony_relay::payment::PaymentLane;
use symphony_relay::rail::Rail;
use symphony_relay::settings::OutOfRange;
use symphony_relay::sink::Sink;
use symphony_relay::stop::StopSignal;
use symphony_relay::store::Store;
use symphony_relay::trace::Tracer;
use symphony_relay::{Engine, Settings, Summary, lane};
use symphony_sinks::ConfigError;
use symphony_sinks::traces::Traces;

use super::checks::{self, Serving};
use super::meter::LaneMeter;
use crate::config::{Config, UnservedRails, WayOut};
use crate::database;
use crate::failure::Failure;

/// How long a sink or a store may take to let go of their connections.
const GOODBYE: Duration = Duration::from_secs(2);

/// The lanes of this process.
pub(crate) struct Served {
    payment: Option<Payment>,
    event: Option<Event>,
    metadata: Option<Metadata>,
    grace: Duration,
}

struct Payment {
    engine: Engine<PaymentLane>,
    /// The rails, and whether each can be asked what became of a payment.
    rails: Vec<(String, bool)>,
    unserved: UnservedRails,
}

struct Event {
    engine: Engine<EventLane>,
    sinks: Vec<Arc<dyn Sink>>,
}

struct Metadata {
    engine: Engine<MetadataLane>,
    stores: Vec<Arc<dyn Store>>,
}

impl Served {
    /// Builds what the settings name. No database and no broker is asked.
    pub(crate) fn build(
        config: &Config,
        target: &Arc<Target>,
        worker: &WorkerId,
        traces: Option<&Traces>,
    ) -> Result<Self, Failure> {
        let payment = Payment::build(config, target, worker, traces)?;
        let event = Event::build(config, target, worker, traces)?;
        let metadata = Metadata::build(config, target, worker, traces)?;
        let graces = [
            payment.as_ref().map(|(_, grace)| *grace),
            event.as_ref().map(|(_, grace)| *grace),
            metadata.as_ref().map(|(_, grace)| *grace),
        ];
        let Some(grace) = graces.into_iter().flatten().max() else {
            return Err(Failure::usage(
                "no rail has a section in the settings and no event or metadata a route, so there is nothing to serve",
            )
            .hint(
                "add [rails.NAME], or [sinks.NAME] and [[event.routes]], or [stores.NAME] and [[metadata.routes]]; \
                 see all settings with: symphony run --print-example",
            ));
        };
        let payment = payment.map(|(payment, _)| payment);
        let event = event.map(|(event, _)| event);
        let metadata = metadata.map(|(metadata, _)| metadata);
        Ok(Self { payment, event, metadata, grace })
    }

    /// Which lanes.
    pub(crate) fn lanes(&self) -> Vec<Lane> {
        let payment = self.payment.as_ref().map(|_| Lane::Payment);
        let event = self.event.as_ref().map(|_| Lane::Event);
        let metadata = self.metadata.as_ref().map(|_| Lane::Metadata);
        payment.into_iter().chain(event).chain(metadata).collect()
    }

    /// The rails that have a section.
    pub(crate) fn rails(&self) -> BTreeSet<String> {
        self.payment.iter().flat_map(|payment| payment.rails.iter().map(|(name, _)| name.clone())).collect()
    }

    /// How long a stop may take.
    pub(crate) fn grace(&self) -> Duration {
        self.grace
    }

    /// Why not to start, if there is a reason. `only_check` is whether nothing is started afterwards.
    pub(crate) async fn check(&self, target: &Target, only_check: bool) -> Result<(), Failure> {
        // Guarded by the check of the schema, before anything in it is called.
        let mut client = database::open(target).await?;
        checks::schema(&mut client, &self.lanes()).await?;
        checks::roles(&client).await?;
        if let Some(payment) = &self.payment {
            let rails = payment.rails.iter().map(|(name, asked)| (name.as_str(), *asked)).collect();
            checks::rails(&client, &Serving { rails, unserved: payment.unserved }, only_check).await?;
        }
        Ok(())
    }

    /// Works until it is told to stop. The meters are those of [`Served::lanes`], in their order.
    pub(crate) async fn run(self, listen_target: &Arc<Target>, meters: Vec<Arc<LaneMeter>>, stop: &StopSignal) {
        let meters = &mut meters.into_iter();
        let payment = self.payment.and_then(|payment| Some((payment, meters.next()?)));
        let event = self.event.and_then(|event| Some((event, meters.next()?)));
        let metadata = self.metadata.and_then(|metadata| Some((metadata, meters.next()?)));
        let payment = async {
            if let Some((payment, meter)) = payment {
                work(payment.engine, meter, listen_target, Channel::PAYMENT, stop, Lane::Payment).await;
            }
        };
        let event = async {
            if let Some((event, meter)) = event {
                work(event.engine, meter, listen_target, Channel::EVENT, stop, Lane::Event).await;
                for sink in event.sinks {
                    let _ = tokio::time::timeout(GOODBYE, sink.close()).await;
                }
            }
        };
        let metadata = async {
            if let Some((metadata, meter)) = metadata {
                work(metadata.engine, meter, listen_target, Channel::METADATA, stop, Lane::Metadata).await;
                for store in metadata.stores {
                    let _ = tokio::time::timeout(GOODBYE, store.close()).await;
                }
            }
        };
        tokio::join!(payment, event, metadata);
    }
}

/// A lane that the settings name, with how long its stop may take.
type Built<L> = Result<Option<(L, Duration)>, Failure>;

impl Payment {
    fn build(config: &Config, target: &Arc<Target>, worker: &WorkerId, traces: Option<&Traces>) -> Built<Self> {
        let rails = config.rails()?;
        if rails.is_empty() {
            return Ok(None);
        }
        let ways: BTreeMap<String, Arc<dyn Rail>> = ways_out(&rails, symphony_sinks::rail)?;
        let settings = config.payment_settings(&rails);
        let grace = settings.grace;
        let asked = ways.iter().map(|(name, rail)| (name.clone(), rail.can_be_asked())).collect();
        let mut lane = PaymentLane::new(Arc::clone(target), worker.clone(), config.payment.own.lease, ways);
        if traces.is_some() {
            lane = lane.asking_for_callers();
        }
        let engine = engine(lane, settings, "payment", traces.map(Traces::of_payments))?;
        Ok(Some((Self { engine, rails: asked, unserved: config.payment.own.unserved_rails }, grace)))
    }
}

impl Event {
    fn build(config: &Config, target: &Arc<Target>, worker: &WorkerId, traces: Option<&Traces>) -> Built<Self> {
        let (sections, routes) = (config.sinks()?, config.routes()?);
        if routes.sinks().next().is_none() {
            return Ok(None);
        }
        if config.event.own.source.trim().is_empty() {
            return Err(Failure::usage("event.source is empty, and events must say where they come from")
                .hint("for example: source = \"//orders.example\""));
        }
        let sinks: BTreeMap<String, Arc<dyn Sink>> = ways_out(&sections, symphony_sinks::sink)?;
        let settings = config.event_settings(&sections);
        let grace = settings.grace;
        let ways = sinks.values().cloned().collect();
        let (source, order) = (config.event.own.source.clone(), config.event.own.order);
        let lane = EventLane::new(Arc::clone(target), worker.clone(), Publishing { source, routes, sinks, order });
        let engine = engine(lane, settings, "event", traces.map(Traces::of_events))?;
        Ok(Some((Self { engine, sinks: ways }, grace)))
    }
}

impl Metadata {
    fn build(config: &Config, target: &Arc<Target>, worker: &WorkerId, traces: Option<&Traces>) -> Built<Self> {
        let (sections, routes) = (config.stores()?, config.store_routes()?);
        if routes.stores().next().is_none() {
            return Ok(None);
        }
        let stores: BTreeMap<String, Arc<dyn Store>> = ways_out(&sections, symphony_sinks::store)?;
        let settings = config.metadata_settings(&sections);
        let grace = settings.grace;
        let ways = stores.values().cloned().collect();
        let lane = MetadataLane::new(Arc::clone(target), worker.clone(), Storing { routes, stores });
        let engine = engine(lane, settings, "metadata", traces.map(Traces::of_metadata))?;
        Ok(Some((Self { engine, stores: ways }, grace)))
    }
}

async fn work<L: lane::Lane>(
    engine: Engine<L>,
    meter: Arc<LaneMeter>,
    listen_target: &Arc<Target>,
    channel: Channel,
    stop: &StopSignal,
    lane: Lane,
) {
    let listener = PostgresListener::new(Arc::clone(listen_target), channel);
    let Summary { claimed, recorded, abandoned, lease_lost, given_up, released, left_behind, .. } =
        engine.with_meter(meter).run(Some(listener), stop.clone()).await;
    tracing::info!(
        lane = lane.name(),
        claimed,
        recorded,
        abandoned,
        lease_lost,
        given_up,
        released,
        left_behind,
        "the relayer ends"
    );
}

/// What each section describes, by its name.
fn ways_out<W>(
    sections: &[WayOut],
    build: impl Fn(&str, toml::Table) -> Result<W, ConfigError>,
) -> Result<BTreeMap<String, W>, Failure> {
    let built = |section: &WayOut| match build(&section.name, section.settings.clone()) {
        Ok(way) => Ok((section.name.clone(), way)),
        Err(wrong) => {
            Err(Failure::usage(wrong.to_string()).hint("docs/sinks/ explains the settings of each kind"))
        }
    };
    sections.iter().map(built).collect()
}

/// The engine of a lane, whose section in the settings this is.
fn engine<L: lane::Lane>(
    lane: L,
    settings: Settings,
    section: &str,
    tracer: Option<Arc<dyn Tracer>>,
) -> Result<Engine<L>, Failure> {
    let out_of_range =
        |wrong: OutOfRange| Failure::usage(format!("{section}.{wrong}")).hint("see: symphony run --print-example");
    let engine = Engine::new(Arc::new(lane), settings).map_err(out_of_range)?;
    Ok(match tracer {
        Some(tracer) => engine.with_tracer(tracer),
        None => engine,
    })
}
