//! What a publisher says, and the SQL by which it does. Knows no driver: both of them use this.

use serde::{Deserialize, Serialize};

use crate::Payload;

/// One event.
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(super) const PUBLISH: &str = "select m10_recovery.publish_outbox($1, $2, $3, $4) as id";

/// Something that happened to an aggregate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Event {
    /// What kind of thing it happened to.
    pub aggregate_type: String,
    /// Which one of that kind.
    pub aggregate_id: String,
    /// What happened.
    pub event_type: String,
    /// More about it: any JSON.
    pub payload: Payload,
}
