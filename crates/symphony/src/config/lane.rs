//! The section of a lane: the settings that only this lane has, and the engine settings that all lanes share.
//!
//! It parses. [`Config`](super::Config) checks that routes name an existing sink or store; the engine checks ranges.

use std::time::Duration;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use symphony_relay::event::order::Order;
use symphony_relay::{Settings, breaker};
use toml::Value;

use super::DestinationSection;

/// The payment lane. [`Config`](super::Config) has already refused unknown names.
#[derive(Debug, Deserialize)]
pub(crate) struct Payment {
    #[serde(deserialize_with = "whole_seconds")]
    pub(crate) lease: Duration,
    #[serde(deserialize_with = "parse_duration")]
    pub(super) repair_every: Duration,
    pub(crate) unserved_rails: UnservedRails,
    pub(crate) state_file: String,
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
    #[serde(deserialize_with = "parse_duration")]
    pub(super) repair_every: Duration,
    pub(super) routes: Vec<StoreRoute>,
}

/// A lane's section: its own settings and those of its engine.
#[derive(Debug)]
pub(crate) struct LaneSection<T> {
    pub(crate) own: T,
    pub(super) engine: EngineSection,
}

/// Parses the section twice, once for each part: `#[serde(flatten)]` would lose the name of a wrong setting.
impl<'de, T: DeserializeOwned> Deserialize<'de> for LaneSection<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let section = Value::deserialize(source)?;
        let own =
            T::deserialize(section.clone()).map_err(|error| D::Error::custom(error.to_string().trim_end()))?;
        let engine =
            EngineSection::deserialize(section).map_err(|error| D::Error::custom(error.to_string().trim_end()))?;
        Ok(Self { own, engine })
    }
}

/// The engine settings that every lane has.
#[derive(Debug, Deserialize)]
pub(super) struct EngineSection {
    slots: usize,
    max_batch: usize,
    #[serde(deserialize_with = "parse_duration")]
    poll_interval: Duration,
    #[serde(deserialize_with = "parse_duration")]
    debounce: Duration,
    #[serde(deserialize_with = "parse_duration")]
    flush_interval: Duration,
    #[serde(deserialize_with = "parse_duration")]
    call_timeout: Duration,
    #[serde(deserialize_with = "parse_duration")]
    lease_margin: Duration,
    #[serde(deserialize_with = "parse_duration")]
    grace: Duration,
    breaker: Breaker,
}

/// A route from events to a sink.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteSection {
    pub(super) aggregate_type: String,
    pub(super) event_type: String,
    pub(super) sink: String,
    pub(super) destination: String,
}

/// A route from an entity type to a store.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoreRoute {
    pub(super) entity_type: String,
    pub(super) store: String,
}

/// What keeps a slow destination from taking all slots: the others would wait for its timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlowRoutes {
    /// The engine, as in [`symphony_relay::Lane::route_count`].
    ShareSlots,
    /// A cap per destination, because claims of the lane cannot select by destination.
    Capped,
}

/// What to do about a registered rail that has no section in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UnservedRails {
    /// Log a warning, and let `run --check` fail: payments on it wait until a relayer serves it.
    Warn,
    /// Another relayer serves it.
    Allow,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Breaker {
    failures: u32,
    #[serde(deserialize_with = "parse_duration")]
    open_for: Duration,
    #[serde(deserialize_with = "parse_duration")]
    max_open_for: Duration,
}

impl EngineSection {
    pub(super) fn settings(&self, destinations: &[DestinationSection], slow: SlowRoutes) -> Settings {
        let cap = destinations.len() > 1 && slow == SlowRoutes::Capped;
        let share = cap.then(|| (self.slots * 3 / 4).max(1));
        Settings {
            slots: self.slots,
            route_slots: destinations
                .iter()
                .filter_map(|section| Some((section.name.clone(), section.slots.or(share)?)))
                .collect(),
            max_batch: self.max_batch,
            debounce: self.debounce,
            // A test build can switch polling off, to show that notifications are enough.
            poll_interval: Some(self.poll_interval)
                .filter(|poll| !(cfg!(feature = "fail-points") && poll.is_zero())),
            flush_interval: self.flush_interval,
            call_timeout: self.call_timeout,
            lease_margin: self.lease_margin,
            grace: self.grace,
            breaker: breaker::Policy {
                failures: self.breaker.failures,
                open_for: self.breaker.open_for,
                max_open_for: self.breaker.max_open_for,
            },
            ..Settings::default()
        }
    }
}

fn order<'de, D: Deserializer<'de>>(source: D) -> Result<Order, D::Error> {
    match String::deserialize(source)?.as_str() {
        "held" => Ok(Order::Held),
        "aggregate" => Ok(Order::Aggregate),
        _ => Err(D::Error::custom("is not an order; write \"held\" or \"aggregate\"")),
    }
}

fn parse_duration<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(source)?;
    let parsed = symphony_sinks::parse_duration(&text);
    parsed.ok_or_else(|| D::Error::custom("must be a duration; write \"500ms\", \"30s\" or \"5m\""))
}

/// A duration that the database counts in seconds. A fraction is refused, because the database would round it silently.
fn whole_seconds<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
    let length = parse_duration(source)?;
    if length.subsec_nanos() == 0 {
        return Ok(length);
    }
    Err(D::Error::custom(format!("{length:?} is not in whole seconds; write \"30s\" or \"5m\"")))
}
