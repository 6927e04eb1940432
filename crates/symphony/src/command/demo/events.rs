//! The demo's event lane: one event per order, in order per aggregate, to one of two destinations.
//!
//! The destinations are private brokers, or HTTP receivers where a broker is not installed. One of them is killed in
//! the middle of the run and restarted.

mod audit;
mod destination;
mod outage;
mod receiver;

use std::path::PathBuf;
use std::time::Duration;

use symphony_db::event::Event;
use symphony_testkit::brokers::Kind;
use symphony_testkit::shop::events::{self as shop_events, Numbers};
use tokio_postgres::Client;

use super::{
    display::{grouped, span},
    environment::DemoEnvironment,
    lane::{Lane, LaneProgress, Row},
    rate::Rate,
};
use crate::failure::Failure;
pub(super) use audit::EventAudit;
use destination::Destination;
use outage::Outage;

/// A type of event and its route.
pub(super) struct EventRoute {
    aggregate_type: &'static str,
    event_type: &'static str,
    /// The broker to start.
    kind: Kind,
    /// The sink, and the subject or stream in it.
    sink: &'static str,
}

/// Events of orders on the plain rail.
pub(super) const ORDER_EVENTS: EventRoute =
    EventRoute { aggregate_type: "merchant", event_type: "OrderPlaced", kind: Kind::Nats, sink: "orders" };
/// Events of orders on the ordered rail.
pub(super) const PAYROLL_EVENTS: EventRoute =
    EventRoute { aggregate_type: "payroll", event_type: "PayrollOrdered", kind: Kind::Redis, sink: "payroll" };

/// Short circuit breaker pauses: the defaults are for outages of hours.
const SETTINGS: &str = r#"
[event]
source = "//shop.example"
order = "aggregate"

[event.breaker]
open_for = "250ms"
max_open_for = "1s"
"#;

impl EventRoute {
    /// The event of an order.
    pub(super) fn event(&self, order_id: &str, participant_id: &str) -> Event {
        shop_events::of_order(self.aggregate_type, participant_id, self.event_type, order_id)
    }
}

/// The events of the demo.
pub(super) struct Events {
    owner: Client,
    destinations: [(EventRoute, Destination); 2],
    password_file: PathBuf,
    rate: Rate,
    outage: Outage,
    /// Killed relayers, and how many of their claims the demo expired.
    dead: Vec<String>,
    freed: u64,
}

impl Events {
    pub(super) async fn open(environment: &DemoEnvironment) -> Result<Self, Failure> {
        let mut destinations = Vec::with_capacity(2);
        for route in [ORDER_EVENTS, PAYROLL_EVENTS] {
            let destination = Destination::open(route.kind, environment.password(), route.sink).await?;
            destinations.push((route, destination));
        }
        let destinations = <[_; 2]>::try_from(destinations)
            .map_err(|_| Failure::new("the demo needs two destinations for events"))?;
        let owner = environment.owner().await?;
        Ok(Self {
            owner,
            destinations,
            password_file: environment.password_file(),
            rate: Rate::new(),
            outage: Outage::None,
            dead: Vec::new(),
            freed: 0,
        })
    }

    /// Describes the destinations, and why a broker is missing.
    pub(super) fn where_to(&self) -> String {
        let [first, second] = self.destinations.each_ref().map(|(_, destination)| destination.name());
        let mut words = format!("events go to {first} and to {second}, in order per aggregate");
        for why in self.destinations.iter().filter_map(|(_, destination)| destination.fallback_reason()) {
            words.push_str(&format!("\n{why}"));
        }
        words
    }

    /// Names the destinations for a user who wants to connect.
    pub(super) fn connection_hint(&self) -> String {
        let [first, second] = self.destinations.each_ref().map(|(_, destination)| destination.name());
        format!("{first}; {second}")
    }

    /// Plans the outage of the first destination.
    pub(super) fn plan_outage(&mut self, after: Duration) {
        self.outage = Outage::Planned { after };
    }

    /// Kills or restarts the first destination when it is time, and describes what it did.
    pub(super) async fn disturb(&mut self, elapsed: Duration) -> Result<Option<String>, Failure> {
        let [(_, destination), _] = &mut self.destinations;
        self.outage.advance(destination, elapsed).await
    }

    /// Expires the claims of killed relayers. Repeated, because a claim may commit after its relayer was killed.
    async fn expire_claims(&mut self) -> Result<u64, Failure> {
        let freed =
            if self.dead.is_empty() { 0 } else { shop_events::expire_claims(&self.owner, &self.dead).await? };
        self.freed += freed;
        Ok(freed)
    }

    /// Ends the outage after the load: restarts the broker if it is down.
    pub(super) async fn close(&mut self) -> Result<Option<String>, Failure> {
        self.disturb(Duration::MAX).await
    }
}

impl Lane for Events {
    type Audit = EventAudit;

    fn settings(&self) -> String {
        let mut settings = SETTINGS.to_owned();
        for (EventRoute { aggregate_type, sink, .. }, _) in &self.destinations {
            settings.push_str(&format!(
                "\n[[event.routes]]\naggregate_type = \"{aggregate_type}\"\nevent_type = \"*\"\nsink = \"{sink}\"\n\
                 destination = \"{sink}\"\n"
            ));
        }
        for (EventRoute { sink, .. }, destination) in &self.destinations {
            settings.push_str(&format!("\n[sinks.{sink}]\n{}", destination.section(&self.password_file)));
        }
        settings
    }

    async fn progress(&mut self) -> Result<LaneProgress, Failure> {
        self.expire_claims().await?;
        let numbers = shop_events::numbers(&self.owner).await?;
        let rate = self.rate.update(numbers.committed - numbers.waiting);
        Ok(progress_of(&numbers, rate))
    }

    /// An event's claim expires after 5 minutes, which is too long for a demo: the demo expires it at once.
    async fn relayer_killed(&mut self, worker: &str) -> Result<Option<String>, Failure> {
        self.dead.push(worker.to_owned());
        let expired = self.expire_claims().await?;
        Ok(Some(format!("{expired} event claims expired")))
    }

    async fn audit(&mut self) -> Result<EventAudit, Failure> {
        audit::run(&self.owner, &self.destinations, self.outage.kills(), self.freed).await
    }
}

/// The lane's progress, from its numbers and the events published per second.
pub(super) fn progress_of(numbers: &Numbers, rate: u64) -> LaneProgress {
    let Numbers { committed, waiting, oldest_ms } = *numbers;
    let (published, oldest) = (committed - waiting, span(oldest_ms));
    let rows = vec![
        Row::new("events", grouped(published), format!("{rate}/s published and confirmed")),
        Row::new("", grouped(waiting), format!("pending; oldest {oldest}")),
    ];
    let line = format!("events {published} ({rate}/s), pending {waiting}, oldest {oldest}");
    LaneProgress { open: waiting, rows, line }
}
