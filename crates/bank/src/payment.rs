//! Parses a payment and computes the fingerprint by which two bodies under one key are compared.
//!
//! Two bodies are equal if they hold the same JSON, whatever the order of members and the whitespace. A number counts
//! as the text that was written: 1.1 and 1.10 differ, and neither becomes a float.

use serde::{
    Deserialize,
    de::{self, Deserializer, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::wire::PaymentRequest;

/// The deepest nesting of a body.
const MAX_DEPTH: usize = 32;
/// The longest name or id, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 512;
/// The longest amount, in bytes.
const MAX_AMOUNT_BYTES: usize = 40;

/// A parsed payment.
pub(super) struct Payment {
    pub(super) key: String,
    pub(super) instruction_id: String,
    pub(super) participant_id: String,
    pub(super) sequence_id: i64,
    /// The money, or the code with which the bank refuses it.
    pub(super) money: Result<Money, &'static str>,
    pub(super) fingerprint: String,
}

/// Amount and currency as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Money {
    pub(super) amount: String,
    pub(super) currency: String,
}

/// Why a body is not a payment. The message never quotes the body.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// Write JSON with the four fields.
    #[error("the body is not JSON with instruction_id, participant_id, idempotency_key and payload")]
    Malformed,
    /// Name each member once.
    #[error("an object has the same member twice")]
    DuplicateMember,
    /// Nest less.
    #[error("the body is nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// Give it a name, and not too long.
    #[error("{field} must have 1 to {MAX_NAME_BYTES} bytes")]
    Name { field: &'static str },
}

impl Payment {
    /// Parses a body.
    pub(super) fn read(body: &[u8]) -> Result<Self, Error> {
        let raw: &RawValue = serde_json::from_slice(body).map_err(|_| Error::Malformed)?;
        let mut canonical = Vec::with_capacity(body.len());
        write(&mut canonical, raw, 0)?;
        let request: PaymentRequest = serde_json::from_slice(body).map_err(|_| Error::Malformed)?;
        for (field, value) in [
            ("instruction_id", &request.instruction_id),
            ("participant_id", &request.participant_id),
            ("idempotency_key", &request.idempotency_key),
        ] {
            if value.is_empty() || value.len() > MAX_NAME_BYTES {
                return Err(Error::Name { field });
            }
        }
        let fingerprint = Sha256::digest(&canonical).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self {
            key: request.idempotency_key,
            instruction_id: request.instruction_id,
            participant_id: request.participant_id,
            sequence_id: request.sequence_id,
            money: money(&request.payload),
            fingerprint,
        })
    }
}

#[derive(Default, Deserialize)]
struct Payload<'a> {
    #[serde(borrow)]
    amount: Option<&'a RawValue>,
    #[serde(borrow)]
    currency: Option<&'a RawValue>,
}

/// The money of a payload. An invalid amount is a refusal, so that the client does not retry it.
fn money(payload: &RawValue) -> Result<Money, &'static str> {
    let payload: Payload<'_> = serde_json::from_str(payload.get()).unwrap_or_default();
    // An amount may be a JSON number: its text counts, never its float value.
    let amount = payload.amount.map_or("", RawValue::get).trim_matches('"');
    let (whole, places) = amount.split_once('.').unwrap_or((amount, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let positive = amount.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    if amount.len() > MAX_AMOUNT_BYTES || !digits(whole) || !digits(places) || !positive {
        return Err("INVALID_AMOUNT");
    }
    let currency: String =
        payload.currency.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err("INVALID_CURRENCY");
    }
    Ok(Money { amount: amount.to_owned(), currency })
}

/// Writes canonical JSON, which does not depend on whitespace, escapes and the order of members.
fn write(out: &mut Vec<u8>, raw: &RawValue, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::TooDeep);
    }
    let text = raw.get();
    match text.bytes().next() {
        Some(b'{') => {
            let Members(mut members) = serde_json::from_str(text).map_err(|_| Error::Malformed)?;
            members.sort_by(|left, right| left.0.cmp(&right.0));
            if members.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                return Err(Error::DuplicateMember);
            }
            out.push(b'{');
            for (name, value) in &members {
                string(out, name)?;
                out.push(b':');
                write(out, value, depth + 1)?;
                out.push(b',');
            }
            out.push(b'}');
        }
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| Error::Malformed)?;
            out.push(b'[');
            for element in elements {
                write(out, element, depth + 1)?;
                out.push(b',');
            }
            out.push(b']');
        }
        Some(b'"') => {
            let value: String = serde_json::from_str(text).map_err(|_| Error::Malformed)?;
            string(out, &value)?;
        }
        _ => out.extend_from_slice(text.as_bytes()),
    }
    Ok(())
}

fn string(out: &mut Vec<u8>, value: &str) -> Result<(), Error> {
    serde_json::to_writer(out, value).map_err(|_| Error::Malformed)
}

/// The members of an object as they stand, twins included.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry().map_err(de::Error::custom)? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(sequence_id: i64, payload: &str) -> String {
        format!(
            r#"{{"instruction_id":"I","participant_id":"P","sequence_id":{sequence_id},"idempotency_key":"K","payload":{payload}}}"#
        )
    }

    fn fingerprint(body: &str) -> String {
        Payment::read(body.as_bytes()).map(|demand| demand.fingerprint).unwrap()
    }

    #[test]
    fn order_spaces_and_escapes_make_no_other_body() {
        let one = fingerprint(&body(1, r#"{"amount":"1.10","currency":"EUR","to":["a","b"]}"#));
        let same = fingerprint(&body(1, r#"{ "to" : ["\u0061", "b"], "currency":"EUR", "amount": "1.10" }"#));
        assert_eq!(one, same);
    }

    #[test]
    fn whatever_else_differs_makes_another_body() {
        let one = fingerprint(&body(1, r#"{"amount":1.10,"to":["a","b"],"sequence_id":1}"#));
        for other in [
            r#"{"amount":1.1,"to":["a","b"],"sequence_id":1}"#,
            r#"{"amount":"1.10","to":["a","b"],"sequence_id":1}"#,
            r#"{"amount":1.10,"to":["b","a"],"sequence_id":1}"#,
            r#"{"amount":1.10,"to":["a,b"],"sequence_id":1}"#,
            r#"{"amount":1.10,"to":["a","b"],"sequence_id":2}"#,
            r#"{"amount":1.10,"to":["a","b"],"sequence_id":1,"more":null}"#,
        ] {
            assert_ne!(one, fingerprint(&body(1, other)), "{other}");
        }
        assert_ne!(fingerprint(&body(1, "{}")), fingerprint(&body(2, "{}")));
        let further = body(1, "{}").replacen('{', r#"{"urgent":true,"#, 1);
        assert_ne!(fingerprint(&body(1, "{}")), fingerprint(&further));
    }

    #[test]
    fn an_amount_keeps_every_digit_and_an_invalid_one_is_refused() {
        let read = |payload: &str| Payment::read(body(1, payload).as_bytes()).unwrap().money;
        for amount in ["\"12345678901234567890.123456789\"", "12345678901234567890.123456789"] {
            let money = read(&format!(r#"{{"amount":{amount},"currency":"EUR"}}"#)).unwrap();
            assert_eq!(
                (money.amount.as_str(), money.currency.as_str()),
                ("12345678901234567890.123456789", "EUR")
            );
        }
        for amount in ["0", "\"0.00\"", "-1", "1e3", "\"\"", "\"1,5\"", "\"1.\"", "null", "{}", "\" 1\""] {
            let payload = format!(r#"{{"amount":{amount},"currency":"EUR"}}"#);
            assert_eq!(read(&payload), Err("INVALID_AMOUNT"), "{amount}");
        }
        assert_eq!(read("[]"), Err("INVALID_AMOUNT"));
        for currency in ["\"eur\"", "\"EURO\"", "978", "null"] {
            let payload = format!(r#"{{"amount":"1","currency":{currency}}}"#);
            assert_eq!(read(&payload), Err("INVALID_CURRENCY"), "{currency}");
        }
    }

    #[test]
    fn an_ambiguous_or_deeply_nested_body_is_refused() {
        let error = |body: &str| Payment::read(body.as_bytes()).err();
        assert_eq!(error(&body(1, r#"{"amount":"1","amount":"2"}"#)), Some(Error::DuplicateMember));
        assert_eq!(error(&body(1, &format!("{}{}", "[".repeat(40), "]".repeat(40)))), Some(Error::TooDeep));
        assert_eq!(error(&body(1, &format!("{}{}", "[".repeat(9000), "]".repeat(9000)))), Some(Error::TooDeep));
        for wrong in ["", "{", "[]", "{}", "null"] {
            assert_eq!(error(wrong), Some(Error::Malformed), "{wrong}");
        }
        let nameless = body(1, "{}").replace(r#""K""#, r#""""#);
        assert_eq!(error(&nameless), Some(Error::Name { field: "idempotency_key" }));
    }
}
