//! What came back, whole: a status, when to try again, and a body that may be JSON.

use std::time::Duration;

use serde_json::Value;
use symphony_outbox::payment::RailAnswer;

use crate::config::Problem;

/// The longest reference or code that the ledger keeps.
const LONGEST: usize = 200;

/// Why nothing follows from an answer, in the words of an error message.
pub(super) const AMBIGUOUS: &str = "with a body that can be read in more than one way";

/// An answer that was read to its end.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// When to try again, where the header was there and could be read.
    pub(super) retry_after: Option<Duration>,
    /// The body, where it is a JSON object.
    pub(super) body: Option<Value>,
    /// Whether the body can be read in more than one way: nothing follows from such an answer.
    pub(super) ambiguous: bool,
}

/// Where in an answer to look for what.
#[derive(Clone, Debug)]
pub(super) struct AnswerKeys {
    pub(super) reference: Place,
    pub(super) code: Place,
    pub(super) status: Place,
}

/// A place in a JSON object: a key of its own, or a JSON pointer (`/error/code`).
#[derive(Clone, Debug)]
pub(super) enum Place {
    Key(String),
    Pointer(String),
}

impl Place {
    pub(super) fn parse(setting: &'static str, text: &str) -> Result<Self, Problem> {
        match text {
            "" => Err(Problem::new(
                setting,
                "must be a key such as \"code\" or a JSON pointer such as \"/error/code\"",
            )),
            pointer if pointer.starts_with('/') => Ok(Self::Pointer(pointer.to_owned())),
            key => Ok(Self::Key(key.to_owned())),
        }
    }
}

impl Reply {
    /// The word at a place: a text, or a whole number as text. Nothing else is a word.
    pub(super) fn word(&self, place: &Place) -> Option<String> {
        let body = self.body.as_ref()?;
        let found = match place {
            Place::Key(key) => body.get(key),
            Place::Pointer(pointer) => body.pointer(pointer),
        };
        match found? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
            _ => None,
        }
    }

    /// What is recorded of it.
    pub(super) fn recorded(&self, reference: &Place, code: &Place) -> RailAnswer {
        RailAnswer {
            reference: self.word(reference).and_then(|text| printable(&text)),
            code: self
                .word(code)
                .and_then(|text| printable(&text))
                .or_else(|| Some(format!("HTTP {}", self.status))),
        }
    }
}

/// A text from outside, fit for a ledger and a terminal: bounded, and without characters that do things.
fn printable(text: &str) -> Option<String> {
    let plain = |c: char| if c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric() { c } else { '\u{fffd}' };
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let mut kept: String = text.chars().map(plain).take(LONGEST).collect();
    if text.chars().nth(LONGEST).is_some() {
        kept.pop();
        kept.push('…');
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reply(body: Value) -> Reply {
        Reply { status: 200, retry_after: None, body: Some(body), ambiguous: false }
    }

    #[test]
    fn a_word_is_a_text_or_a_whole_number() {
        let code = Place::parse("code_key", "code").unwrap();
        assert_eq!(reply(json!({ "code": "AC04" })).word(&code).as_deref(), Some("AC04"));
        assert_eq!(reply(json!({ "code": 51 })).word(&code).as_deref(), Some("51"));
        for body in [json!({}), json!({ "code": null }), json!({ "code": 5.1 }), json!({ "code": ["x"] })] {
            assert_eq!(reply(body).word(&code), None);
        }
    }

    #[test]
    fn a_pointer_reaches_into_the_answer() {
        let code = Place::parse("code_key", "/errors/0/code").unwrap();
        assert_eq!(reply(json!({ "errors": [{ "code": "X" }] })).word(&code).as_deref(), Some("X"));
        assert_eq!(reply(json!({ "errors": [] })).word(&code), None);
        assert!(Place::parse("code_key", "").is_err());
    }

    #[test]
    fn what_is_recorded_is_bounded_and_does_nothing() {
        assert_eq!(printable("a\u{0}b\u{1b}[2Jc\u{202e}").unwrap(), "a\u{fffd}b\u{fffd}[2Jc\u{fffd}");
        assert_eq!(printable("Zürich 7"), Some("Zürich 7".to_owned()));
        assert_eq!(printable(" \n"), None);
        let long = printable(&"é".repeat(5_000)).unwrap();
        assert_eq!((long.chars().count(), long.chars().last()), (LONGEST, Some('…')));
        assert_eq!(printable(&"x".repeat(LONGEST)).unwrap(), "x".repeat(LONGEST));
    }
}
