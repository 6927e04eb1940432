//! Builds a [`Relayer`]: its database, its destinations and its settings.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use symphony_db::WorkerId;
use symphony_db::connect::Target;
use symphony_db::relayers::session_name;
use symphony_db::schema::Lane;
use tokio::task::JoinSet;

use super::{Relayer, StartError, checks, run_lane};
use crate::epoch::EpochFence;
use crate::event::order::Order;
use crate::event::routing::{Route as EventRoute, Routes as EventRoutes};
use crate::event::{EventConfig, EventLane};
use crate::metadata::routing::{Route as MetadataRoute, Routes as MetadataRoutes};
use crate::metadata::{MetadataConfig, MetadataLane};
use crate::metrics::Meter;
use crate::payment::{History, PaymentLane};
use crate::rail::{BoxFuture, Rail};
use crate::sink::Sink;
use crate::stop::StopHandle;
use crate::store::Store;
use crate::trace::Tracer;
use crate::{Engine, Settings, lane};

/// The term of a lease on a payment, as in `symphony run`.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The margin of claims on events and metadata, as in `symphony run`: they last minutes, and are not renewed.
const CLAIM_MARGIN: Duration = Duration::from_secs(10);

/// What a lane sends to, to be closed at the end.
pub(super) enum Destination {
    Sink(Arc<dyn Sink>),
    Store(Arc<dyn Store>),
}

impl Destination {
    pub(super) fn close(&self) -> BoxFuture<'_, ()> {
        match self {
            Self::Sink(sink) => sink.close(),
            Self::Store(store) => store.close(),
        }
    }
}

/// A relayer that is not started yet. A lane runs if it has a rail or a route.
#[must_use]
pub struct RelayerBuilder {
    database: String,
    listen: Option<String>,
    worker: Option<WorkerId>,
    lease: Duration,
    rails: BTreeMap<String, Arc<dyn Rail>>,
    history: Option<Arc<History>>,
    sinks: BTreeMap<String, Arc<dyn Sink>>,
    event_source: String,
    event_order: Order,
    event_routes: Vec<EventRoute>,
    stores: BTreeMap<String, Arc<dyn Store>>,
    metadata_routes: Vec<MetadataRoute>,
    settings: BTreeMap<&'static str, Settings>,
    meters: BTreeMap<&'static str, Arc<dyn Meter>>,
    tracers: BTreeMap<&'static str, Arc<dyn Tracer>>,
}

impl RelayerBuilder {
    pub(super) fn new(database: String) -> Self {
        Self {
            database,
            listen: None,
            worker: None,
            lease: DEFAULT_LEASE,
            rails: BTreeMap::new(),
            history: None,
            sinks: BTreeMap::new(),
            event_source: String::new(),
            event_order: Order::Held,
            event_routes: Vec::new(),
            stores: BTreeMap::new(),
            metadata_routes: Vec::new(),
            settings: BTreeMap::new(),
            meters: BTreeMap::new(),
            tracers: BTreeMap::new(),
        }
    }

    /// The URL for LISTEN, if that of the database is of a pooler.
    pub fn listen_url(mut self, url: impl Into<String>) -> Self {
        self.listen = Some(url.into());
        self
    }

    /// The name of this relayer. Each running relayer needs another one; the default is unique.
    pub fn worker(mut self, name: &str) -> Self {
        self.worker = Some(name.into());
        self
    }

    /// Serves the payments of a registered rail.
    pub fn rail(mut self, name: impl Into<String>, rail: impl Rail) -> Self {
        self.rails.insert(name.into(), Arc::new(rail));
        self
    }

    /// The term of a lease on a payment. It is renewed while a dispatch runs.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Begins with this history of acknowledged commits, and keeps it up to date: save it, to notice a restore of the database that
    /// happens while no relayer runs.
    pub fn history(mut self, history: Arc<History>) -> Self {
        self.history = Some(history);
        self
    }

    /// The CloudEvents `source` of every event: a URI reference.
    pub fn event_source(mut self, source: impl Into<String>) -> Self {
        self.event_source = source.into();
        self
    }

    /// The order guarantee within an aggregate; [`Order::Held`] by default.
    pub fn event_order(mut self, order: Order) -> Self {
        self.event_order = order;
        self
    }

    /// Adds a sink, for routes to name.
    pub fn sink(mut self, name: impl Into<String>, sink: impl Sink) -> Self {
        self.sinks.insert(name.into(), Arc::new(sink));
        self
    }

    /// Adds a route of events. The first route that matches an event decides.
    pub fn event_route(mut self, route: EventRoute) -> Self {
        self.event_routes.push(route);
        self
    }

    /// Adds a metadata store, for routes to name.
    pub fn store(mut self, name: impl Into<String>, store: impl Store) -> Self {
        self.stores.insert(name.into(), Arc::new(store));
        self
    }

    /// Adds a route of metadata. The first route that matches an entity decides.
    pub fn metadata_route(mut self, route: MetadataRoute) -> Self {
        self.metadata_routes.push(route);
        self
    }

    /// The settings of a lane's engine.
    pub fn settings(mut self, lane: Lane, settings: Settings) -> Self {
        self.settings.insert(lane.name(), settings);
        self
    }

    /// Reports the metrics of a lane to this meter.
    pub fn meter(mut self, lane: Lane, meter: Arc<dyn Meter>) -> Self {
        self.meters.insert(lane.name(), meter);
        self
    }

    /// Exports a span of each dispatch of a lane to this tracer.
    pub fn tracer(mut self, lane: Lane, tracer: Arc<dyn Tracer>) -> Self {
        self.tracers.insert(lane.name(), tracer);
        self
    }

    /// Checks the database, and starts the engines in tasks of this runtime.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub async fn start(mut self) -> Result<Relayer, StartError> {
        let worker = self.worker.take().unwrap_or_else(unique_worker);
        let named = |url: &str| {
            Target::parse(url).map(|target| Arc::new(target.with_session_name(&session_name(worker.as_str()))))
        };
        let target = named(&self.database)?;
        let listen_target = match &self.listen {
            Some(url) => named(url)?,
            None => Arc::clone(&target),
        };
        let rails = self.rails.iter().map(|(name, rail)| (name.clone(), rail.supports_inquiry())).collect();
        // One for all lanes: what one of them learns of the epoch keeps every lane off an old primary.
        let fence = Arc::new(EpochFence::default());
        let payment = self.payment_engine(&target, &worker, &fence)?;
        let event = self.event_engine(&target, &worker, &fence)?;
        let metadata = self.metadata_engine(&target, &worker, &fence)?;
        let served = [
            payment.as_ref().map(|_| Lane::Payment),
            event.as_ref().map(|_| Lane::Event),
            metadata.as_ref().map(|_| Lane::Metadata),
        ];
        let served: Vec<_> = served.into_iter().flatten().collect();
        if served.is_empty() {
            return Err(StartError::NothingToServe);
        }
        check(&target, &served, &rails).await?;

        let (stop, signal) = StopHandle::new();
        let mut lanes = JoinSet::new();
        if let Some(engine) = payment {
            let listen = Arc::clone(&listen_target);
            lanes.spawn(run_lane(engine, Lane::Payment, listen, Vec::new(), signal.clone()));
        }
        if let Some(engine) = event {
            let sinks = self.sinks.into_values().map(Destination::Sink).collect();
            lanes.spawn(run_lane(engine, Lane::Event, Arc::clone(&listen_target), sinks, signal.clone()));
        }
        if let Some(engine) = metadata {
            let stores = self.stores.into_values().map(Destination::Store).collect();
            lanes.spawn(run_lane(engine, Lane::Metadata, listen_target, stores, signal));
        }
        tracing::info!(worker = worker.as_str(), "the relayer starts");
        Ok(Relayer { worker, stop, lanes })
    }

    fn payment_engine(
        &mut self,
        target: &Arc<Target>,
        worker: &WorkerId,
        fence: &Arc<EpochFence>,
    ) -> Result<Option<Engine<PaymentLane>>, StartError> {
        let rails = std::mem::take(&mut self.rails);
        if rails.is_empty() {
            return Ok(None);
        }
        let mut lane =
            PaymentLane::new(Arc::clone(target), worker.clone(), self.lease, rails).with_fence(Arc::clone(fence));
        if let Some(history) = self.history.take() {
            lane = lane.with_history(history);
        }
        if self.tracers.contains_key(Lane::Payment.name()) {
            lane = lane.with_trace_contexts();
        }
        let settings = self.settings_of(Lane::Payment);
        self.engine(Lane::Payment, lane, settings).map(Some)
    }

    fn event_engine(
        &mut self,
        target: &Arc<Target>,
        worker: &WorkerId,
        fence: &Arc<EpochFence>,
    ) -> Result<Option<Engine<EventLane>>, StartError> {
        if self.event_routes.is_empty() {
            return Ok(None);
        }
        if self.event_source.trim().is_empty() {
            return Err(StartError::NoEventSource);
        }
        let routes = EventRoutes::new(std::mem::take(&mut self.event_routes));
        is_known(routes.sinks(), &self.sinks)?;
        let settings = shared_slots(self.settings_of(Lane::Event), &self.sinks);
        let (source, order) = (self.event_source.clone(), self.event_order);
        let config = EventConfig { source, routes, sinks: self.sinks.clone(), order };
        let lane = EventLane::new(Arc::clone(target), worker.clone(), config).with_fence(Arc::clone(fence));
        self.engine(Lane::Event, lane, settings).map(Some)
    }

    fn metadata_engine(
        &mut self,
        target: &Arc<Target>,
        worker: &WorkerId,
        fence: &Arc<EpochFence>,
    ) -> Result<Option<Engine<MetadataLane>>, StartError> {
        if self.metadata_routes.is_empty() {
            return Ok(None);
        }
        let routes = MetadataRoutes::new(std::mem::take(&mut self.metadata_routes));
        is_known(routes.stores(), &self.stores)?;
        let settings = shared_slots(self.settings_of(Lane::Metadata), &self.stores);
        let config = MetadataConfig { routes, stores: self.stores.clone() };
        let lane = MetadataLane::new(Arc::clone(target), worker.clone(), config).with_fence(Arc::clone(fence));
        self.engine(Lane::Metadata, lane, settings).map(Some)
    }

    fn settings_of(&self, lane: Lane) -> Settings {
        let default = match lane {
            Lane::Payment => Settings::default(),
            // The next claim takes over an expired one, so this lane has nothing to repair.
            Lane::Event => {
                Settings { repair_every: Duration::ZERO, lease_margin: CLAIM_MARGIN, ..Settings::default() }
            }
            Lane::Metadata => Settings { lease_margin: CLAIM_MARGIN, ..Settings::default() },
        };
        self.settings.get(lane.name()).cloned().unwrap_or(default)
    }

    fn engine<L: lane::Lane>(&self, of: Lane, lane: L, settings: Settings) -> Result<Engine<L>, StartError> {
        let mut engine = Engine::new(Arc::new(lane), settings)
            .map_err(|source| StartError::Setting { lane: of.name(), source })?;
        if let Some(meter) = self.meters.get(of.name()) {
            engine = engine.with_meter(Arc::clone(meter));
        }
        if let Some(tracer) = self.tracers.get(of.name()) {
            engine = engine.with_tracer(Arc::clone(tracer));
        }
        Ok(engine)
    }
}

async fn check(target: &Target, lanes: &[Lane], rails: &BTreeMap<String, bool>) -> Result<(), StartError> {
    // The schema check guards this connection before any function is called on it.
    let mut client = target.connect_session().await?.into_client();
    for difference in checks::schema(&mut client, lanes).await? {
        let difference = difference.to_string();
        tracing::warn!(?difference, "the schema differs from this build in a way that changes no behaviour");
    }
    checks::roles(&client).await?;
    if !rails.is_empty() {
        let found = checks::rails(&client, rails).await?;
        for rail in found.retired {
            tracing::warn!(
                event = "RETIRED_RAIL",
                ?rail,
                "a retired rail is served: producers cannot enqueue to it"
            );
        }
        for rail in found.unserved {
            tracing::info!(?rail, "a registered rail is not served here: its payments need another relayer");
        }
        for rail in found.without_inquiry {
            tracing::warn!(
                ?rail,
                "the rail's policy is INQUIRE and it supports no inquiry: each unknown outcome becomes a dead letter"
            );
        }
    }
    Ok(())
}

fn is_known<'a, T>(
    mut named: impl Iterator<Item = &'a str>,
    known: &BTreeMap<String, T>,
) -> Result<(), StartError> {
    match named.find(|name| !known.contains_key(*name)) {
        Some(name) => Err(StartError::UnknownDestination(name.to_owned())),
        None => Ok(()),
    }
}

/// Keeps a slow destination from taking all slots, because claims of these lanes cannot select by destination.
fn shared_slots<T>(mut settings: Settings, destinations: &BTreeMap<String, T>) -> Settings {
    if destinations.len() > 1 {
        let share = (settings.slots * 3 / 4).max(1);
        for name in destinations.keys() {
            settings.route_slots.entry(name.clone()).or_insert(share);
        }
    }
    settings
}

/// A name that no other process has.
fn unique_worker() -> WorkerId {
    let random = RandomState::new().hash_one(std::process::id());
    format!("relayer-{}-{random:016x}", std::process::id()).as_str().into()
}
