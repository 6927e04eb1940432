//! Validates the payload of a payment before it is sent: amount, currency and destination.
//!
//! Without IO. Whether the payment is covered or permitted is for the bank to decide. An error names the field and what
//! it should be, never the value, which may be personal data.

mod amount;
mod currency;
mod destination;

use serde::Deserialize;
use serde_json::value::RawValue;
use symphony_db::payment::Payload;
use symphony_relay::rail::Invalid;

pub use destination::Destination;

/// The validated fields. They stay text, so that no number is ever parsed as a float.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    amount: Option<&'a RawValue>,
    #[serde(borrow)]
    currency: Option<&'a RawValue>,
    #[serde(borrow)]
    destination: Option<&'a RawValue>,
}

/// Validates a payload.
///
/// # Errors
///
/// The first field that is wrong, and what it should be.
pub fn check(payload: &Payload, destination: Destination) -> Result<(), Invalid> {
    // A duplicate field does not parse either: the bank might read the other one.
    let fields: Fields<'_> = serde_json::from_str(payload.as_json()).map_err(|_| {
        invalid("payload must be a JSON object that names amount, currency and destination once each")
    })?;
    let places = currency::places(fields.currency)?;
    amount::check(fields.amount, places)?;
    destination.check(fields.destination)
}

fn invalid(message: impl Into<String>) -> Invalid {
    Invalid { message: message.into() }
}

/// The text of a JSON string, if that is what the field holds.
fn text(field: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(field?.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(json: &str) -> String {
        let payload: Payload = serde_json::from_str(json).unwrap();
        check(&payload, Destination::Any).unwrap_err().message
    }

    #[test]
    fn a_payment_with_amount_and_currency_passes() {
        let payload: Payload =
            serde_json::from_str(r#"{"amount": "10.00", "currency": "EUR", "note": [1]}"#).unwrap();
        check(&payload, Destination::Any).unwrap();
    }

    #[test]
    fn a_payload_that_is_no_object_is_refused() {
        for json in ["[]", "1", "null", "\"amount\""] {
            assert!(message(json).starts_with("payload must be a JSON object"), "{json}");
        }
    }

    #[test]
    fn a_duplicate_field_is_refused() {
        let twice = r#"{"amount": "1.00", "currency": "EUR", "amount": "1000000.00"}"#;
        assert!(message(twice).contains("once each"));
    }

    #[test]
    fn a_missing_field_is_named() {
        assert!(message(r#"{"currency": "EUR"}"#).starts_with("amount must be"));
        assert!(message(r#"{"amount": "1"}"#).starts_with("currency must be"));
        assert!(message(r#"{"amount": null, "currency": "EUR"}"#).starts_with("amount must be"));
    }
}
