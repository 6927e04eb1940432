//! The lanes that this process serves: those for which the settings have a rail or a route, each with its engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use symphony_console::RequestPreview;
use symphony_db::WorkerId;
use symphony_db::connect::Target;
use symphony_db::listener::Channel;
use symphony_db::schema::Lane;
use symphony_relay::epoch::EpochFence;
use symphony_relay::event::{EventConfig, EventLane};
use symphony_relay::listener::PostgresListener;
use symphony_relay::metadata::{MetadataConfig, MetadataLane};
use symphony_relay::metrics::Meter;
use symphony_relay::payment::{History, PaymentLane};
use symphony_relay::rail::{self, Rail};
use symphony_relay::settings::OutOfRange;
use symphony_relay::sink::Sink;
use symphony_relay::stop::StopSignal;
use symphony_relay::store::Store;
use symphony_relay::trace::Tracer;
use symphony_relay::{Engine, Settings, Summary, lane};
use symphony_sinks::ConfigError;
use symphony_sinks::traces::Traces;

use super::callbacks;
use super::checks::{self, Serving};
use super::state_file::StateFile;
use crate::config::{Config, DestinationSection, UnservedRails};
use crate::database;
use crate::failure::Failure;

/// How long a sink or a store may take to close its connections.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The served lanes.
pub(crate) struct ServedLanes {
    payment: Option<Payment>,
    event: Option<Event>,
    metadata: Option<Metadata>,
    grace: Duration,
}

struct Payment {
    engine: Engine<PaymentLane>,
    rails: BTreeMap<String, Arc<dyn Rail>>,
    /// Where the rails that name it send to.
    endpoints: BTreeMap<String, String>,
    /// The rails that take callbacks.
    callback_rails: BTreeMap<String, Arc<dyn Rail>>,
    unserved: UnservedRails,
    /// Where the history is saved; none without a state file.
    state: Option<(StateFile, Arc<History>)>,
}

struct Event {
    engine: Engine<EventLane>,
    sinks: Vec<Arc<dyn Sink>>,
}

struct Metadata {
    engine: Engine<MetadataLane>,
    stores: Vec<Arc<dyn Store>>,
}

impl ServedLanes {
    /// Builds the lanes that the settings name, without a connection to a database or a broker.
    pub(crate) fn build(
        config: &Config,
        target: &Arc<Target>,
        worker: &WorkerId,
        traces: Option<&Traces>,
    ) -> Result<Self, Failure> {
        let fence = Arc::new(EpochFence::default());
        let payment = Payment::build(config, target, worker, &fence, traces)?;
        let event = Event::build(config, target, worker, &fence, traces)?;
        let metadata = Metadata::build(config, target, worker, &fence, traces)?;
        let graces = [
            payment.as_ref().map(|(_, grace)| *grace),
            event.as_ref().map(|(_, grace)| *grace),
            metadata.as_ref().map(|(_, grace)| *grace),
        ];
        let Some(grace) = graces.into_iter().flatten().max() else {
            return Err(Failure::usage(
                "nothing to serve: the settings have no rail, and no route for events or metadata",
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

    pub(crate) fn lanes(&self) -> Vec<Lane> {
        let payment = self.payment.as_ref().map(|_| Lane::Payment);
        let event = self.event.as_ref().map(|_| Lane::Event);
        let metadata = self.metadata.as_ref().map(|_| Lane::Metadata);
        payment.into_iter().chain(event).chain(metadata).collect()
    }

    /// The rails that have a section in the settings.
    pub(crate) fn rails(&self) -> BTreeSet<String> {
        self.payment.iter().flat_map(|payment| payment.rails.keys().cloned()).collect()
    }

    /// Where the rails send to, as the ledger will name it.
    pub(crate) fn endpoints(&self) -> BTreeMap<String, String> {
        self.payment.as_ref().map(|payment| payment.endpoints.clone()).unwrap_or_default()
    }

    /// The rails that take callbacks.
    pub(crate) fn callback_rails(&self) -> BTreeMap<String, Arc<dyn Rail>> {
        self.payment.as_ref().map(|payment| payment.callback_rails.clone()).unwrap_or_default()
    }

    /// Shows the requests of the rails that this process serves, for the console.
    pub(crate) fn previews(&self) -> RequestPreview {
        let rails = self.payment.as_ref().map(|payment| payment.rails.clone()).unwrap_or_default();
        Box::new(move |outbox, payload| {
            let payment = rail::Payment {
                outbox_id: outbox.outbox_id,
                instruction_id: outbox.instruction_id.clone(),
                participant_id: outbox.participant_id.clone(),
                sequence_id: outbox.sequence_id,
                idempotency_key: outbox.idempotency_key.clone(),
                rail_type: outbox.rail_type.clone(),
                payload: payload.clone(),
                attempt_count: outbox.attempts,
            };
            let preview = rails.get(&outbox.rail_type)?.preview(&payment)?;
            Some(preview.map_err(|invalid| invalid.message))
        })
    }

    /// How long running dispatches may take after a stop.
    pub(crate) fn grace(&self) -> Duration {
        self.grace
    }

    /// Runs the startup checks. `only_check` is set by `run --check`, which starts nothing afterwards.
    pub(crate) async fn check(&self, target: &Target, only_check: bool) -> Result<(), Failure> {
        // The schema check guards this connection before any function is called on it.
        let mut client = database::open(target).await?;
        checks::schema(&mut client, &self.lanes()).await?;
        checks::roles(&client).await?;
        if only_check {
            checks::replication(&client).await?;
            checks::epoch(&client).await?;
        }
        if let Some(payment) = &self.payment {
            let rails =
                payment.rails.iter().map(|(name, rail)| (name.as_str(), rail.supports_inquiry())).collect();
            checks::rails(&client, &Serving { rails, unserved: payment.unserved }, only_check).await?;
            if only_check {
                checks::credentials(&payment.rails).await;
            }
        }
        Ok(())
    }

    /// Runs the engines until they are stopped. `meters` are in the order of [`ServedLanes::lanes`].
    pub(crate) async fn run(self, listen_target: &Arc<Target>, meters: Vec<Arc<dyn Meter>>, stop: &StopSignal) {
        let meters = &mut meters.into_iter();
        let payment = self.payment.and_then(|payment| Some((payment, meters.next()?)));
        let event = self.event.and_then(|event| Some((event, meters.next()?)));
        let metadata = self.metadata.and_then(|metadata| Some((metadata, meters.next()?)));
        let payment = async {
            if let Some((payment, meter)) = payment {
                let work = work(payment.engine, meter, listen_target, Channel::PAYMENT, stop, Lane::Payment);
                match payment.state {
                    Some((file, history)) => file.keep(&history, work).await,
                    None => work.await,
                }
            }
        };
        let event = async {
            if let Some((event, meter)) = event {
                work(event.engine, meter, listen_target, Channel::EVENT, stop, Lane::Event).await;
                for sink in event.sinks {
                    let _ = tokio::time::timeout(CLOSE_TIMEOUT, sink.close()).await;
                }
            }
        };
        let metadata = async {
            if let Some((metadata, meter)) = metadata {
                work(metadata.engine, meter, listen_target, Channel::METADATA, stop, Lane::Metadata).await;
                for store in metadata.stores {
                    let _ = tokio::time::timeout(CLOSE_TIMEOUT, store.close()).await;
                }
            }
        };
        tokio::join!(payment, event, metadata);
    }
}

/// A lane that the settings name, with the time that its stop may take.
type Built<L> = Result<Option<(L, Duration)>, Failure>;

impl Payment {
    fn build(
        config: &Config,
        target: &Arc<Target>,
        worker: &WorkerId,
        fence: &Arc<EpochFence>,
        traces: Option<&Traces>,
    ) -> Built<Self> {
        let sections = config.rails()?;
        if sections.is_empty() {
            callbacks::check_address(&config.callbacks, std::iter::empty())?;
            return Ok(None);
        }
        let rails_by_name: BTreeMap<String, Arc<dyn Rail>> = destinations(&sections, symphony_sinks::rail)?;
        let settings = config.payment_settings(&sections);
        let grace = settings.grace;
        let rails = rails_by_name.clone();
        let endpoint =
            |(name, rail): (&String, &Arc<dyn Rail>)| Some((name.clone(), rail.endpoint()?.to_string()));
        let endpoints = rails_by_name.iter().filter_map(endpoint).collect();
        let callback_rails: BTreeMap<_, _> = rails_by_name
            .iter()
            .filter(|(_, rail)| rail.supports_callback())
            .map(|(name, rail)| (name.clone(), Arc::clone(rail)))
            .collect();
        callbacks::check_address(&config.callbacks, callback_rails.keys())?;
        let mut lane =
            PaymentLane::new(Arc::clone(target), worker.clone(), config.payment.own.lease, rails_by_name)
                .with_fence(Arc::clone(fence));
        if traces.is_some() {
            lane = lane.with_trace_contexts();
        }
        let state = state_file(config, worker)?;
        if let Some((_, history)) = &state {
            lane = lane.with_history(Arc::clone(history));
        }
        let engine = engine(lane, settings, "payment", traces.map(Traces::of_payments))?;
        let unserved = config.payment.own.unserved_rails;
        Ok(Some((Self { engine, rails, endpoints, callback_rails, unserved, state }, grace)))
    }
}

fn state_file(config: &Config, worker: &WorkerId) -> Result<Option<(StateFile, Arc<History>)>, Failure> {
    let path = config.payment.own.state_file.trim();
    if path.is_empty() {
        return Ok(None);
    }
    if config.relayer.worker.trim().is_empty() {
        return Err(Failure::usage("payment.state_file needs a name of the worker that stays the same")
            .hint("set relayer.worker, to another name for each relayer"));
    }
    StateFile::open(path.as_ref(), worker).map(Some)
}

impl Event {
    fn build(
        config: &Config,
        target: &Arc<Target>,
        worker: &WorkerId,
        fence: &Arc<EpochFence>,
        traces: Option<&Traces>,
    ) -> Built<Self> {
        let (sections, routes) = (config.sinks()?, config.routes()?);
        if routes.sinks().next().is_none() {
            return Ok(None);
        }
        if config.event.own.source.trim().is_empty() {
            return Err(Failure::usage("event.source is empty, but every event carries its source")
                .hint("for example: source = \"//orders.example\""));
        }
        let sinks: BTreeMap<String, Arc<dyn Sink>> = destinations(&sections, symphony_sinks::sink)?;
        let settings = config.event_settings(&sections);
        let grace = settings.grace;
        let closing = sinks.values().cloned().collect();
        let (source, order) = (config.event.own.source.clone(), config.event.own.order);
        let lane =
            EventLane::new(Arc::clone(target), worker.clone(), EventConfig { source, routes, sinks, order })
                .with_fence(Arc::clone(fence));
        let engine = engine(lane, settings, "event", traces.map(Traces::of_events))?;
        Ok(Some((Self { engine, sinks: closing }, grace)))
    }
}

impl Metadata {
    fn build(
        config: &Config,
        target: &Arc<Target>,
        worker: &WorkerId,
        fence: &Arc<EpochFence>,
        traces: Option<&Traces>,
    ) -> Built<Self> {
        let (sections, routes) = (config.stores()?, config.store_routes()?);
        if routes.stores().next().is_none() {
            return Ok(None);
        }
        let stores: BTreeMap<String, Arc<dyn Store>> = destinations(&sections, symphony_sinks::store)?;
        let settings = config.metadata_settings(&sections);
        let grace = settings.grace;
        let closing = stores.values().cloned().collect();
        let lane = MetadataLane::new(Arc::clone(target), worker.clone(), MetadataConfig { routes, stores })
            .with_fence(Arc::clone(fence));
        let engine = engine(lane, settings, "metadata", traces.map(Traces::of_metadata))?;
        Ok(Some((Self { engine, stores: closing }, grace)))
    }
}

async fn work<L: lane::Lane>(
    engine: Engine<L>,
    meter: Arc<dyn Meter>,
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

/// Builds the destination of each section, by its name.
fn destinations<W>(
    sections: &[DestinationSection],
    build: impl Fn(&str, toml::Table) -> Result<W, ConfigError>,
) -> Result<BTreeMap<String, W>, Failure> {
    let built =
        |section: &DestinationSection| Ok((section.name.clone(), build(&section.name, section.settings.clone())?));
    sections.iter().map(built).collect()
}

/// Builds a lane's engine. `section` names its settings in errors.
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
