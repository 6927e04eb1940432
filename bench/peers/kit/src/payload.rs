//! What every job of every peer carries.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// 200 bytes of JSON: when the call was made that enqueued it, and filling.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Payload {
    /// Microseconds since 1970, by the clock of the machine that all processes share.
    pub at: i64,
    /// Makes it 200 bytes.
    pub pad: String,
}

impl Payload {
    /// A payload of a call that begins now.
    pub fn now() -> Self {
        Self::due(Duration::ZERO)
    }

    /// A payload of a call that begins now and should have begun so much earlier.
    pub(crate) fn due(late: Duration) -> Self {
        let late = i64::try_from(late.as_micros()).unwrap_or(0);
        // {"at":1763271418000000,"pad":"…"} has 32 bytes without its filling.
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
