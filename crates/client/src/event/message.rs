//! The event that a producer publishes, and the SQL of both drivers.

use serde::{Deserialize, Serialize};

use crate::Payload;

#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(super) const PUBLISH: &str = "select m10_recovery.publish_outbox($1, $2, $3, $4) as id";

/// A domain event of an aggregate.
///
/// ```
/// use serde_json::json;
/// use symphony_client::event::Event;
///
/// let event = Event::new("order", "order-1", "OrderPlaced", json!({ "total": "10.50" }));
/// assert_eq!(event.event_type, "OrderPlaced");
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// The type of the aggregate, such as `order`.
    pub aggregate_type: String,
    /// The id of the aggregate within its type.
    pub aggregate_id: String,
    /// The type of the event, such as `OrderPlaced`.
    pub event_type: String,
    /// The content of the event: any JSON.
    pub payload: Payload,
}

impl Event {
    /// The arguments are in the order of the SQL function `m10_recovery.publish_outbox`.
    pub fn new(
        aggregate_type: impl Into<String>,
        aggregate_id: impl Into<String>,
        event_type: impl Into<String>,
        payload: impl Into<Payload>,
    ) -> Self {
        Self {
            aggregate_type: aggregate_type.into(),
            aggregate_id: aggregate_id.into(),
            event_type: event_type.into(),
            payload: payload.into(),
        }
    }
}
