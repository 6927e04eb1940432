//! A complete HTTP response of a bank, and the fields of its JSON body that the settings name.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::Value;
use symphony_db::payment::RailAnswer;

use crate::config::SettingError;

/// The longest reference or code that the ledger keeps.
const MAX_CHARS: usize = 200;

/// Why a response cannot be classified, as part of an error message.
pub(super) const AMBIGUOUS: &str = "with a body that can be read in more than one way";

/// A response that was read completely.
#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: u16,
    /// The delay of the header `Retry-After`, if it is there and valid.
    pub(super) retry_after: Option<Duration>,
    /// The body, if it is a JSON object.
    pub(super) body: Option<Value>,
    /// Whether parsers could read the body in different ways: such a response decides nothing.
    pub(super) ambiguous: bool,
    /// Whether a header says that the answer repeats that of an earlier request with the same idempotency key.
    pub(super) is_replay: bool,
}

/// The headers by which banks mark a repeated answer, with the value `true`.
const REPLAY_HEADERS: [&str; 2] = ["idempotent-replay", "idempotent-replayed"];

/// Whether the headers mark a repeated answer.
pub(super) fn is_replay(headers: &HeaderMap) -> bool {
    let marks = |name: &str| headers.get(name).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"));
    REPLAY_HEADERS.into_iter().any(marks)
}

/// Where in the body the bank's reference, code and status are, from the settings.
#[derive(Clone, Debug)]
pub(super) struct ResponseFields {
    pub(super) reference: FieldPath,
    pub(super) code: FieldPath,
    pub(super) status: FieldPath,
}

/// The path of a field in a JSON object: a top-level key, or a JSON pointer (`/error/code`).
#[derive(Clone, Debug)]
pub(super) enum FieldPath {
    Key(String),
    Pointer(String),
}

impl FieldPath {
    pub(super) fn parse(setting: &'static str, text: &str) -> Result<Self, SettingError> {
        match text {
            "" => Err(SettingError::new(
                setting,
                "must be a key such as \"code\" or a JSON pointer such as \"/error/code\"",
            )),
            pointer if pointer.starts_with('/') => Ok(Self::Pointer(pointer.to_owned())),
            key => Ok(Self::Key(key.to_owned())),
        }
    }
}

impl HttpResponse {
    /// The field at a path: a text, or an integer as text. Other types count as absent.
    pub(super) fn field(&self, path: &FieldPath) -> Option<String> {
        field(self.body.as_ref()?, path)
    }

    /// What the ledger records of the response.
    pub(super) fn rail_answer(&self, reference: &FieldPath, code: &FieldPath) -> RailAnswer {
        RailAnswer {
            reference: self.field(reference).and_then(|text| printable(&text)),
            code: self
                .field(code)
                .and_then(|text| printable(&text))
                .or_else(|| Some(format!("HTTP {}", self.status))),
        }
    }
}

/// The field of a body at a path: a text, or an integer as text. Other types count as absent.
pub(super) fn field(body: &Value, path: &FieldPath) -> Option<String> {
    let found = match path {
        FieldPath::Key(key) => body.get(key),
        FieldPath::Pointer(pointer) => body.pointer(pointer),
    };
    match found? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

/// A bank's text made safe for the ledger and a terminal: bounded, without control and formatting characters.
pub(super) fn printable(text: &str) -> Option<String> {
    let plain = |c: char| if c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric() { c } else { '\u{fffd}' };
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let mut kept: String = text.chars().map(plain).take(MAX_CHARS).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        kept.pop();
        kept.push('…');
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;
    use serde_json::json;

    use super::*;

    fn response(body: Value) -> HttpResponse {
        HttpResponse { status: 200, retry_after: None, body: Some(body), ambiguous: false, is_replay: false }
    }

    #[test]
    fn a_field_is_a_text_or_an_integer() {
        let code = FieldPath::parse("code_key", "code").unwrap();
        assert_eq!(response(json!({ "code": "AC04" })).field(&code).as_deref(), Some("AC04"));
        assert_eq!(response(json!({ "code": 51 })).field(&code).as_deref(), Some("51"));
        for body in [json!({}), json!({ "code": null }), json!({ "code": 5.1 }), json!({ "code": ["x"] })] {
            assert_eq!(response(body).field(&code), None);
        }
    }

    #[test]
    fn a_repeated_answer_is_marked_by_a_header_of_the_value_true() {
        for (name, value, expected) in [
            ("idempotent-replay", "true", true),
            ("idempotent-replayed", "True", true),
            ("idempotent-replay", "false", false),
            ("idempotent-replay", "", false),
            ("x-replay", "true", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(is_replay(&headers), expected, "{name}: {value}");
        }
    }

    #[test]
    fn a_json_pointer_reaches_nested_fields() {
        let code = FieldPath::parse("code_key", "/errors/0/code").unwrap();
        assert_eq!(response(json!({ "errors": [{ "code": "X" }] })).field(&code).as_deref(), Some("X"));
        assert_eq!(response(json!({ "errors": [] })).field(&code), None);
        assert!(FieldPath::parse("code_key", "").is_err());
    }

    #[test]
    fn recorded_text_is_bounded_and_has_no_control_characters() {
        assert_eq!(printable("a\u{0}b\u{1b}[2Jc\u{202e}").unwrap(), "a\u{fffd}b\u{fffd}[2Jc\u{fffd}");
        assert_eq!(printable("Zürich 7"), Some("Zürich 7".to_owned()));
        assert_eq!(printable(" \n"), None);
        let long = printable(&"é".repeat(5_000)).unwrap();
        assert_eq!((long.chars().count(), long.chars().last()), (MAX_CHARS, Some('…')));
        assert_eq!(printable(&"x".repeat(MAX_CHARS)).unwrap(), "x".repeat(MAX_CHARS));
    }
}
