//! The section of a lane: what is its own, and how its engine works.
//!
//! Reads and names; whether a route leads anywhere is for [`Config`](super::Config), ranges are for the engine.

use std::time::Duration;

use jiff::SignedDuration;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use symphony_relay::event::order::Order;
use symphony_relay::{Settings, breaker};
use toml::Value;

use super::WayOut;

/// The payment lane. What does not exist was refused before: the example says which names there are.
#[derive(Debug, Deserialize)]
pub(crate) struct Payment {
    #[serde(deserialize_with = "whole_seconds")]
    pub(crate) lease: Duration,
    #[serde(deserialize_with = "time")]
    pub(super) repair_every: Duration,
    pub(crate) unserved_rails: UnservedRails,
}

/// The event lane.
#[derive(Debug, Deserialize)]
pub(crate) struct Event {
    pub(crate) source: String,
    #[serde(deserialize_with = "order")]
    pub(crate) order: Order,
    pub(super) routes: Vec<RouteSection>,
}

/// The metadata lane.
#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    #[serde(deserialize_with = "time")]
    pub(super) repair_every: Duration,
    pub(super) routes: Vec<StoreRoute>,
}

/// A lane's section: what is its own, and how its engine works.
#[derive(Debug)]
pub(crate) struct Paced<T> {
    pub(crate) own: T,
    pub(super) pace: Pace,
}

/// Each reads what it knows. Serde's own way to put two into one forgets which setting was wrong.
impl<'de, T: DeserializeOwned> Deserialize<'de> for Paced<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let section = Value::deserialize(source)?;
        let own =
            T::deserialize(section.clone()).map_err(|error| D::Error::custom(error.to_string().trim_end()))?;
        let pace = Pace::deserialize(section).map_err(|error| D::Error::custom(error.to_string().trim_end()))?;
        Ok(Self { own, pace })
    }
}

/// How a lane's engine works.
#[derive(Debug, Deserialize)]
pub(super) struct Pace {
    slots: usize,
    batch: usize,
    #[serde(deserialize_with = "time")]
    poll: Duration,
    #[serde(deserialize_with = "time")]
    window: Duration,
    #[serde(deserialize_with = "time")]
    gather: Duration,
    #[serde(deserialize_with = "time")]
    call_timeout: Duration,
    #[serde(deserialize_with = "time")]
    lease_margin: Duration,
    #[serde(deserialize_with = "time")]
    grace: Duration,
    breaker: Breaker,
}

/// Which sink gets an event.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteSection {
    pub(super) aggregate_type: String,
    pub(super) event_type: String,
    pub(super) sink: String,
    pub(super) destination: String,
}

/// Which store gets the metadata of an entity.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoreRoute {
    pub(super) entity_type: String,
    pub(super) store: String,
}

/// What to do about a registered rail that has no section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UnservedRails {
    /// Say so, and let `run --check` fail: what is enqueued there waits until a relayer serves it.
    Warn,
    /// Another relayer serves it.
    Allow,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Breaker {
    failures: u32,
    #[serde(deserialize_with = "time")]
    first_pause: Duration,
    #[serde(deserialize_with = "time")]
    longest_pause: Duration,
}

impl Pace {
    pub(super) fn settings(&self, ways_out: &[WayOut]) -> Settings {
        // A slow way out alone must not have all slots: the others would wait for its timeouts.
        let share = (ways_out.len() > 1).then(|| (self.slots * 3 / 4).max(1));
        Settings {
            slots: self.slots,
            route_slots: ways_out
                .iter()
                .filter_map(|way| Some((way.name.clone(), way.slots.or(share)?)))
                .collect(),
            batch: self.batch,
            window: self.window,
            // A build for tests can be told never to poll, to show that being woken is enough.
            poll: Some(self.poll).filter(|poll| !(cfg!(feature = "fail-points") && poll.is_zero())),
            gather: self.gather,
            call_timeout: self.call_timeout,
            lease_margin: self.lease_margin,
            grace: self.grace,
            breaker: breaker::Policy {
                failures: self.breaker.failures,
                first_pause: self.breaker.first_pause,
                longest_pause: self.breaker.longest_pause,
            },
            ..Settings::default()
        }
    }
}

fn order<'de, D: Deserializer<'de>>(source: D) -> Result<Order, D::Error> {
    match String::deserialize(source)?.as_str() {
        "held" => Ok(Order::Held),
        "aggregate" => Ok(Order::Aggregate),
        _ => Err(D::Error::custom("must be an order: write \"held\" or \"aggregate\"")),
    }
}

fn time<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(source)?;
    let wrong = || D::Error::custom("must be a time: write \"500ms\", \"30s\" or \"5m\"");
    let length: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(length).map_err(|_| wrong())
}

/// A time that the database counts in seconds: it would round what is in between, and nobody would be told.
fn whole_seconds<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
    let length = time(source)?;
    if length.subsec_nanos() == 0 {
        return Ok(length);
    }
    Err(D::Error::custom(format!("{length:?} is not in whole seconds")))
}
