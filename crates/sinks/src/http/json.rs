//! Parses the body of a response as a JSON object that every parser reads in the same way.
//!
//! Parsers disagree about a duplicate key: some keep the first value, some the last. A response that one parser reads
//! as refused and another as executed decides nothing. It is therefore told apart from an object and from no JSON at
//! all.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The kind of a body.
#[derive(Debug, PartialEq)]
pub(super) enum Body {
    /// One JSON object without a duplicate key at any depth.
    Object(Value),
    /// Begins like a JSON object and is not exactly one: a duplicate key, a second document, invalid UTF-8, or more
    /// levels than the parser reads.
    Ambiguous,
    /// Anything else: an empty body, an HTML page, a JSON value that is not an object.
    Other,
}

/// Parses a complete body.
pub(super) fn read(body: &[u8]) -> Body {
    // The parser refuses invalid UTF-8, lone surrogates, trailing characters and more than 128 levels.
    match serde_json::from_slice(body) {
        Ok(Strict(object @ Value::Object(_))) => Body::Object(object),
        _ if begins_like_an_object(body) => Body::Ambiguous,
        _ => Body::Other,
    }
}

/// Whether this is one JSON document of any kind that every parser reads in the same way.
pub(super) fn is_strict(text: &[u8]) -> bool {
    serde_json::from_slice::<Strict>(text).is_ok()
}

fn begins_like_an_object(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    body.trim_ascii_start().starts_with(b"{")
}

/// A value without duplicate keys.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without duplicate keys")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Strict, E> {
        Ok(Strict(Value::Null))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Strict, E> {
        Ok(Strict(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Strict, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Strict(Value::Array(array)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Strict, A::Error> {
        let mut object = Map::new();
        while let Some((key, Strict(value))) = entries.next_entry::<String, Strict>()? {
            if object.insert(key, value).is_some() {
                return Err(de::Error::custom("a duplicate key"));
            }
        }
        Ok(Strict(Value::Object(object)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn one_object_is_parsed_and_everything_else_is_told_apart() {
        let object = json!({"a": [1, -2, 1.5, true, null, "x", {"b": {}}], "c": u64::MAX});
        assert_eq!(read(object.to_string().as_bytes()), Body::Object(object));
        assert_eq!(read(b" \n{} "), Body::Object(json!({})));
        for other in ["", "  ", "<html>{}</html>", "[]", "\"REFUSED\"", "7", "null", "REFUSED"] {
            assert_eq!(read(other.as_bytes()), Body::Other, "{other}");
        }
        for twice in [r#"{"a": 1, "a": 1}"#, r#"{"b": [{"a": 1, "\u0061": 2}]}"#, "{}{}", "{", "\u{feff}{}"] {
            assert_eq!(read(twice.as_bytes()), Body::Ambiguous, "{twice}");
        }
    }

    proptest! {
        #![proptest_config(crate::proptest_config::proptest_config())]

        #[test]
        fn no_bytes_make_it_panic_or_pass_for_another_kind(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut body = b"{".to_vec();
            body.extend(bytes);
            prop_assert_ne!(read(&body), Body::Other);
        }
    }
}
