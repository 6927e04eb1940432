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

/// Whether a text is an unsigned decimal such as `10.00`, as JSON writes it too.
pub(crate) fn is_decimal(text: &str) -> bool {
    amount::parts(text).is_some()
}

/// An amount in the smallest unit of its currency. None if either is invalid, or the amount has more decimal places.
pub(crate) fn minor_units(amount: &str, currency: &str) -> Option<String> {
    let (whole, fraction) = amount::parts(amount)?;
    let places = currency::places_of(currency).ok()?;
    let padding = places.checked_sub(fraction.len())?;
    let digits = format!("{whole}{fraction}{}", "0".repeat(padding));
    let units = digits.trim_start_matches('0');
    Some(if units.is_empty() { "0".to_owned() } else { units.to_owned() })
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
    fn minor_units_are_the_same_amount_without_a_point() {
        for (amount, currency, units) in [
            ("10.50", "EUR", Some("1050")),
            ("10", "EUR", Some("1000")),
            ("0.05", "EUR", Some("5")),
            ("0.00", "EUR", Some("0")),
            ("1000", "JPY", Some("1000")),
            ("1.5", "KWD", Some("1500")),
            ("9999999999999999.99", "EUR", Some("999999999999999999")),
            ("1.005", "EUR", None),
            ("1.0", "JPY", None),
            ("-1", "EUR", None),
            ("1e3", "EUR", None),
            ("1", "eur", None),
        ] {
            assert_eq!(minor_units(amount, currency).as_deref(), units, "{amount} {currency}");
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
