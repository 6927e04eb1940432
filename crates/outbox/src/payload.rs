//! What a rail or a broker is given, kept as the JSON text that it is.
//!
//! A `serde_json::Value` would read an amount with a fraction into a float. The text goes to the database and
//! comes back with every digit, and whoever parses it chooses the type of its numbers.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// A payload: JSON text, not yet interpreted. The payment lane takes only an object.
///
/// It may hold personal data, so `Debug` does not show it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Payload(Box<RawValue>);

impl Payload {
    /// The JSON of a value.
    ///
    /// # Errors
    ///
    /// Where the value has no JSON, such as a map whose keys are not text.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        to_raw_value(value).map(Self)
    }

    /// The JSON text, every digit of it.
    pub fn as_json(&self) -> &str {
        self.0.get()
    }

    /// Reads it as a type of the caller's.
    ///
    /// # Errors
    ///
    /// Where the JSON does not fit that type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_json())
    }

    #[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
    pub(crate) fn raw(&self) -> &RawValue {
        &self.0
    }
}

impl From<serde_json::Value> for Payload {
    #[expect(clippy::expect_used, reason = "a Value has only text for keys, the one thing that JSON refuses")]
    fn from(value: serde_json::Value) -> Self {
        Self::of(&value).expect("a Value is JSON")
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.as_json().len())
    }
}

#[cfg(feature = "tokio-postgres")]
impl<'a> tokio_postgres::types::FromSql<'a> for Payload {
    fn from_sql(
        of: &tokio_postgres::types::Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        tokio_postgres::types::Json::from_sql(of, raw).map(|json| Self(json.0))
    }

    tokio_postgres::types::accepts!(JSON, JSONB);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_payload_is_not_printed() {
        let payload = Payload::from(json!({ "iban": "DE02" }));
        assert_eq!(format!("{payload:?}"), "Payload(15 bytes)");
    }

    #[test]
    fn a_payload_keeps_every_digit() {
        let json = r#"{"amount":100000000000000000.010}"#;
        let payload: Payload = serde_json::from_str(json).unwrap();
        assert_eq!(payload.as_json(), json);
        assert_eq!(serde_json::to_string(&payload).unwrap(), json);
    }
}
