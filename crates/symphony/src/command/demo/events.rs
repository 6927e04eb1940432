//! The lane of events: each order is told of, in strict order for each aggregate, at one of two places.
//!
//! The places are brokers of their own where this machine has them, and receivers over HTTP where it does not. One of them is killed
//! in the middle of the run and started again a moment later.

mod outage;
mod place;
mod receiver;
mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use symphony_outbox::event::Event;
use symphony_proof::kit::brokers::Kind;
use symphony_proof::shop::news::{self, Numbers};
use tokio_postgres::Client;

use super::{
    lane::{Lane, Look, Row},
    rate::Rate,
    stage::Stage,
    view::{grouped, span},
};
use crate::failure::Failure;
use outage::Outage;
use place::Place;
pub(super) use verdict::Verdict;

/// A kind of news, and where it goes.
pub(super) struct News {
    aggregate_type: &'static str,
    event_type: &'static str,
    /// The broker that is looked for.
    kind: Kind,
    /// The sink, and the subject or stream in it.
    sink: &'static str,
}

/// Of orders that are paid in whatever order.
pub(super) const ORDERS: News =
    News { aggregate_type: "merchant", event_type: "OrderPlaced", kind: Kind::Nats, sink: "orders" };
/// Of those that are paid in their order.
pub(super) const PAYROLL: News =
    News { aggregate_type: "payroll", event_type: "PayrollOrdered", kind: Kind::Redis, sink: "payroll" };

/// Soon again, so that nobody has to wait for a pause that is made for an outage of hours.
const SETTINGS: &str = r#"
[event]
source = "//shop.example"
order = "aggregate"

[event.breaker]
first_pause = "250ms"
longest_pause = "1s"
"#;

impl News {
    /// The event that tells of an order.
    pub(super) fn of(&self, order_id: &str, participant_id: &str) -> Event {
        news::of_order(self.aggregate_type, participant_id, self.event_type, order_id)
    }
}

/// The events of the demo.
pub(super) struct Events {
    owner: Client,
    places: [(News, Place); 2],
    password_file: PathBuf,
    rate: Rate,
    outage: Outage,
    /// Relayers that were killed, and how many of their claims were made older.
    dead: Vec<String>,
    freed: u64,
}

impl Events {
    pub(super) async fn open(stage: &Stage) -> Result<Self, Failure> {
        let mut places = Vec::with_capacity(2);
        for news in [ORDERS, PAYROLL] {
            let place = Place::open(news.kind, stage.password(), news.sink).await?;
            places.push((news, place));
        }
        let places = <[_; 2]>::try_from(places).map_err(|_| Failure::no("there are not two places for events"))?;
        let owner = stage.owner().await?;
        Ok(Self {
            owner,
            places,
            password_file: stage.password_file(),
            rate: Rate::new(),
            outage: Outage::Never,
            dead: Vec::new(),
            freed: 0,
        })
    }

    /// Where they go, in words, and why not elsewhere.
    pub(super) fn where_to(&self) -> String {
        let [first, second] = self.places.each_ref().map(|(_, place)| place.name());
        let mut words = format!("events go to {first} and to {second}, in strict order for each aggregate");
        for why in self.places.iter().filter_map(|(_, place)| place.instead_of()) {
            words.push_str(&format!("\n{why}"));
        }
        words
    }

    /// Where somebody may look who wants to.
    pub(super) fn how_to_look(&self) -> String {
        let [first, second] = self.places.each_ref().map(|(_, place)| place.name());
        format!("{first}; {second}")
    }

    /// Lets a place be killed so long after the beginning.
    pub(super) fn plan_outage(&mut self, after: Duration) {
        self.outage = Outage::Ahead { after };
    }

    /// Kills the first place when its time has come, and starts it again a moment later. Says what it did.
    pub(super) async fn disturb(&mut self, elapsed: Duration) -> Result<Option<String>, Failure> {
        let [(_, place), _] = &mut self.places;
        self.outage.pass(place, elapsed).await
    }

    /// Makes the claims of the dead older. One that was under way when its relayer died is granted after that.
    async fn free(&mut self) -> Result<u64, Failure> {
        let freed = if self.dead.is_empty() { 0 } else { news::bury(&self.owner, &self.dead).await? };
        self.freed += freed;
        Ok(freed)
    }

    /// No more orders come: starts again what is down.
    pub(super) async fn close(&mut self) -> Result<Option<String>, Failure> {
        self.disturb(Duration::MAX).await
    }
}

impl Lane for Events {
    type Verdict = Verdict;

    fn settings(&self) -> String {
        let mut settings = SETTINGS.to_owned();
        for (News { aggregate_type, sink, .. }, _) in &self.places {
            settings.push_str(&format!(
                "\n[[event.routes]]\naggregate_type = \"{aggregate_type}\"\nevent_type = \"*\"\nsink = \"{sink}\"\n\
                 destination = \"{sink}\"\n"
            ));
        }
        for (News { sink, .. }, place) in &self.places {
            settings.push_str(&format!("\n[sinks.{sink}]\n{}", place.section(&self.password_file)));
        }
        settings
    }

    async fn look(&mut self) -> Result<Look, Failure> {
        self.free().await?;
        let numbers = news::numbers(&self.owner).await?;
        let rate = self.rate.of(numbers.committed - numbers.waiting);
        Ok(look_of(&numbers, rate))
    }

    /// The contract gives a dead relayer's events back after 5 minutes. Nobody wants to watch that: its claims are made older.
    async fn died(&mut self, worker: &str) -> Result<Option<String>, Failure> {
        self.dead.push(worker.to_owned());
        let freed = self.free().await?;
        Ok(Some(format!("{freed} events freed")))
    }

    async fn audit(&mut self) -> Result<Verdict, Failure> {
        verdict::reach(&self.owner, &self.places, self.outage.kills(), self.freed).await
    }
}

/// These numbers, with what was published in a second, as they are shown.
pub(super) fn look_of(numbers: &Numbers, rate: u64) -> Look {
    let Numbers { committed, waiting, oldest_ms } = *numbers;
    let (published, oldest) = (committed - waiting, span(oldest_ms));
    let rows = vec![
        Row::new("events", grouped(published), format!("{rate}/s published and confirmed")),
        Row::new("", grouped(waiting), format!("wait; the oldest is {oldest} old")),
    ];
    let words = format!("events {published} ({rate}/s), waiting {waiting}, oldest {oldest}");
    Look { open: waiting, rows, words }
}
