//! The policy of a rail, and a change to it. The database checks the ranges.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{OnEpochChange, OnFailure, OnUnknown};

/// A rail and its policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Rail {
    /// Its name.
    pub rail_type: String,
    /// The number of attempts after which a payment moves to the dead-letter queue.
    pub max_attempts: i32,
    /// The delay after the first retryable attempt; each further attempt doubles it.
    pub backoff_base_seconds: i32,
    /// The maximum delay.
    pub backoff_cap_seconds: i32,
    /// Whether each participant's payments are dispatched strictly in sequence (FIFO).
    pub ordered: bool,
    /// The in-flight limit: leases at once over all relayers; none means no limit.
    pub max_in_flight: Option<i32>,
    /// Whether it is paused: claims skip it.
    pub paused: bool,
    /// What to do after an unknown outcome.
    pub on_unknown: OnUnknown,
    /// How long the rail remembers an idempotency key; none means for ever.
    pub key_memory_seconds: Option<i32>,
    /// The operator who changed it last.
    pub updated_by: String,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// When it was retired, after which nothing can be enqueued to it; none while it is registered.
    pub retired_at: Option<Timestamp>,
    /// What to do with payments of earlier epochs when a new one is opened.
    pub on_epoch_change: OnEpochChange,
    /// The epoch that holds it: claims skip it until an operator releases it; none if it is not held.
    pub held_since_epoch: Option<i64>,
    /// Whether it publishes to the event lane how its payments end.
    pub publish_outcomes: bool,
    /// What a failure on an ordered rail does to the later payments of its participant.
    pub on_failure: OnFailure,
    /// The rate limit: leases per second over all relayers; none means no limit.
    pub max_per_second: Option<i32>,
    /// How long after an attempt that awaits confirmation the next inquiry is due.
    pub confirm_every_seconds: i32,
}

impl Rail {
    /// Whether payments can be enqueued to it.
    pub fn is_registered(&self) -> bool {
        self.retired_at.is_none()
    }
}

/// Reads a row of the rails table or its view.
pub(super) fn from_row(row: &tokio_postgres::Row) -> Result<Rail, tokio_postgres::Error> {
    Ok(Rail {
        rail_type: row.try_get("rail_type")?,
        max_attempts: row.try_get("max_attempts")?,
        backoff_base_seconds: row.try_get("backoff_base_seconds")?,
        backoff_cap_seconds: row.try_get("backoff_cap_seconds")?,
        ordered: row.try_get("ordered")?,
        max_in_flight: row.try_get("max_in_flight")?,
        paused: row.try_get("paused")?,
        on_unknown: row.try_get("on_unknown")?,
        key_memory_seconds: row.try_get("key_memory_seconds")?,
        updated_by: row.try_get("updated_by")?,
        updated_at: row.try_get("updated_at")?,
        retired_at: row.try_get("retired_at")?,
        on_epoch_change: row.try_get("on_epoch_change")?,
        held_since_epoch: row.try_get("held_since_epoch")?,
        publish_outcomes: row.try_get("publish_outcomes")?,
        on_failure: row.try_get("on_failure")?,
        max_per_second: row.try_get("max_per_second")?,
        confirm_every_seconds: row.try_get("confirm_every_seconds")?,
    })
}

/// A change to a rail's policy. A field that is left out keeps its value, or takes its default when a rail is
/// registered.
///
/// It cannot pause a rail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RailPolicy {
    /// The number of attempts after which a payment moves to the dead-letter queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "json-schema", schemars(range(min = 1, max = 20)))]
    pub max_attempts: Option<u32>,
    /// The delay after the first retryable attempt; each further attempt doubles it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "json-schema", schemars(range(min = 1, max = 86_400)))]
    pub backoff_base_seconds: Option<u32>,
    /// The maximum delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "json-schema", schemars(range(min = 1, max = 2_592_000)))]
    pub backoff_cap_seconds: Option<u32>,
    /// Whether each participant's payments are dispatched strictly in sequence (FIFO).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordered: Option<bool>,
    /// The in-flight limit: leases at once over all relayers; null removes the limit.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "json-schema", schemars(range(min = 1, max = 999_999_999)))]
    pub max_in_flight: Change<u32>,
    /// What to do after an unknown outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_unknown: Option<OnUnknown>,
    /// How long the rail remembers an idempotency key; null means for ever.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "json-schema", schemars(range(min = 1, max = 999_999_999)))]
    pub key_memory_seconds: Change<u32>,
    /// What to do with payments of earlier epochs when a new one is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_epoch_change: Option<OnEpochChange>,
    /// Whether to publish to the event lane how its payments end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_outcomes: Option<bool>,
    /// What a failure does to the later payments of its participant. HOLD needs an ordered rail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// The rate limit: leases per second over all relayers, with bursts of one second's worth; null removes the limit.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "json-schema", schemars(range(min = 1, max = 1_000_000)))]
    pub max_per_second: Change<u32>,
    /// How long after an attempt that awaits confirmation the next inquiry is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "json-schema", schemars(range(min = 1, max = 2_592_000)))]
    pub confirm_every_seconds: Option<u32>,
}

/// A change to an optional field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// Keep its value.
    #[default]
    Keep,
    /// Set it to null.
    Clear,
    /// Set it to this value.
    Set(T),
}

impl<T> Change<T> {
    fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }
}

/// null is [`Change::Clear`]; a missing field is [`Change::Keep`].
impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Clear, Self::Set))
    }
}

#[cfg(feature = "json-schema")]
impl<T: schemars::JsonSchema> schemars::JsonSchema for Change<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        Option::<T>::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Option::<T>::json_schema(generator)
    }
}

impl<T: Serialize> Serialize for Change<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Set(value) => value.serialize(serializer),
            Self::Keep | Self::Clear => serializer.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_says_what_to_set_what_to_clear_and_nothing_else() {
        let policy = RailPolicy {
            max_attempts: Some(3),
            max_in_flight: Change::Clear,
            key_memory_seconds: Change::Set(60),
            on_unknown: Some(OnUnknown::Stop),
            ..RailPolicy::default()
        };
        assert_eq!(
            serde_json::to_value(policy).unwrap(),
            json!({ "max_attempts": 3, "max_in_flight": null, "key_memory_seconds": 60, "on_unknown": "STOP" })
        );
        let read: RailPolicy =
            serde_json::from_value(json!({ "max_in_flight": null, "key_memory_seconds": 60 })).unwrap();
        let given = RailPolicy {
            max_in_flight: Change::Clear,
            key_memory_seconds: Change::Set(60),
            ..RailPolicy::default()
        };
        assert_eq!(read, given);
        assert!(serde_json::from_value::<RailPolicy>(json!({ "paused": true })).is_err());
    }
}
