//! The payload that a rail, a broker or a store receives, kept as JSON text.
//!
//! A `serde_json::Value` would parse an amount with a fraction into a float. The text keeps every digit, and the code
//! that parses it chooses the type of its numbers.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// A payload: JSON text that is not parsed. The payment lane accepts only an object.
///
/// It may hold personal data, so `Debug` does not show it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Payload(Box<RawValue>);

impl Payload {
    /// Serializes a value.
    ///
    /// # Errors
    ///
    /// If the value has no JSON, such as a map whose keys are not strings.
    pub fn new(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        to_raw_value(value).map(Self)
    }

    /// The JSON text.
    pub fn as_json(&self) -> &str {
        self.0.get()
    }

    /// Deserializes it into a type of your choice.
    ///
    /// # Errors
    ///
    /// If the JSON does not fit that type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_json())
    }

    #[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
    pub(crate) fn raw(&self) -> &RawValue {
        &self.0
    }
}

impl From<serde_json::Value> for Payload {
    #[expect(clippy::expect_used, reason = "a Value has only string keys, and other keys are all that can fail")]
    fn from(value: serde_json::Value) -> Self {
        Self::new(&value).expect("a Value is JSON")
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
