//! The payload of every job of every peer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// 200 bytes of JSON: the due time of the enqueue, and padding.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Payload {
    /// When the enqueue was due, in microseconds since 1970. All processes share the clock of one machine.
    pub at: i64,
    /// Padding to 200 bytes.
    pub pad: String,
}

impl Payload {
    /// A payload that is enqueued now.
    pub fn now() -> Self {
        Self::due(Duration::ZERO)
    }

    /// A payload that is enqueued now, and was due `late` ago.
    pub(crate) fn due(late: Duration) -> Self {
        let late = i64::try_from(late.as_micros()).unwrap_or(0);
        // {"at":1763271418000000,"pad":"…"} has 32 bytes without its padding.
        Self { at: micros() - late, pad: "x".repeat(168) }
    }
}

/// Microseconds since 1970.
pub(crate) fn micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::Payload;

    #[test]
    fn a_payload_has_200_bytes() {
        assert_eq!(serde_json::to_string(&Payload::now()).map(|text| text.len()).ok(), Some(200));
    }
}
