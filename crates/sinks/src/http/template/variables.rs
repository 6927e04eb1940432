//! The values that a template can name: the fields of a payment, with every digit as it was enqueued.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Object, ObjectRepr};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use symphony_relay::rail::{Invalid, Payment};

/// The levels of a payload, as many as the JSON parser reads.
const MAX_DEPTH: usize = 128;

/// A number of the payload that is no 64-bit integer. It is written as it was, and never computed with.
#[derive(Debug)]
pub(super) struct ExactNumber(pub(super) String);

impl Object for ExactNumber {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The fields of a payment by their names in templates.
///
/// They are the same on every attempt, and so is what a template makes of them. There is no time and no random number.
pub(in crate::http) struct Variables(pub(super) Vec<(&'static str, Value)>);

impl Variables {
    /// The fields of this payment.
    pub(in crate::http) fn of(payment: &Payment) -> Result<Self, Invalid> {
        let unreadable = |message: &str| Invalid { message: message.to_owned() };
        let payload: &RawValue =
            serde_json::from_str(payment.payload.as_json()).map_err(|_| unreadable("payload must be JSON"))?;
        let payload = value(payload, 0)
            .ok_or_else(|| unreadable("payload must be JSON that names each field of an object once"))?;
        Ok(Self(vec![
            ("instruction_id", Value::from(payment.instruction_id.as_str())),
            ("participant_id", Value::from(payment.participant_id.as_str())),
            ("sequence_id", Value::from(payment.sequence_id)),
            ("idempotency_key", Value::from(payment.idempotency_key.as_str())),
            ("rail_type", Value::from(payment.rail_type.as_str())),
            ("payload", payload),
        ]))
    }
}

/// A JSON value. None if it is too deep, or an object names a key twice: the bank might read the other one.
fn value(raw: &RawValue, depth: usize) -> Option<Value> {
    let text = raw.get();
    if depth > MAX_DEPTH {
        return None;
    }
    Some(match text.as_bytes().first()? {
        b'{' => {
            let Fields(fields) = serde_json::from_str(text).ok()?;
            let mut keys = BTreeSet::new();
            if !fields.iter().all(|(key, _)| keys.insert(key.as_str())) {
                return None;
            }
            let fields: Option<Vec<_>> = fields
                .iter()
                .map(|(key, raw)| Some((Value::from(key.as_str()), value(raw, depth + 1)?)))
                .collect();
            Value::from_pairs(fields?)
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            Value::from(items.into_iter().map(|raw| value(raw, depth + 1)).collect::<Option<Vec<_>>>()?)
        }
        b'"' => Value::from(serde_json::from_str::<String>(text).ok()?),
        b't' => Value::from(true),
        b'f' => Value::from(false),
        b'n' => Value::from(()),
        _ => match text.parse::<i64>() {
            // "-0" and the like are written as they were.
            Ok(integer) if integer.to_string() == text => Value::from(integer),
            _ => Value::from_object(ExactNumber(text.to_owned())),
        },
    })
}

/// The fields of an object in their order.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        source.deserialize_map(FieldsVisitor)
    }
}
