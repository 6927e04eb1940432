//! Where in a JSON or XML document the output of a template stands, and how a value is written there.
//!
//! The position is read from the text that was written so far. A value is therefore escaped for the place where it lands,
//! whichever branches and loops of the template led to it, and it can end neither a string nor an element.

use std::fmt::Write as _;

use minijinja::Value;
use minijinja::value::ValueKind;

use super::variables::ExactNumber;

/// The language of a template's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Syntax {
    /// A JSON document.
    Json,
    /// An XML document.
    Xml,
    /// The value of a header or of a query parameter. The caller encodes all of it.
    Text,
}

/// The position behind the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// Where JSON has a value or a key.
    JsonValue,
    /// Inside a JSON string.
    JsonString {
        /// Behind a backslash.
        escaped: bool,
    },
    /// In the text of an XML element.
    XmlText,
    /// Inside an XML tag.
    XmlTag,
    /// Inside the value of an XML attribute, with its quote.
    XmlAttribute(u8),
    /// In plain text.
    Text,
}

impl Position {
    pub(super) fn start(syntax: Syntax) -> Self {
        match syntax {
            Syntax::Json => Self::JsonValue,
            Syntax::Xml => Self::XmlText,
            Syntax::Text => Self::Text,
        }
    }

    /// The position behind this output too.
    pub(super) fn after(self, output: &[u8]) -> Self {
        output.iter().fold(self, |position, &byte| match (position, byte) {
            (Self::JsonValue, b'"') => Self::JsonString { escaped: false },
            (Self::JsonString { escaped: false }, b'"') => Self::JsonValue,
            (Self::JsonString { escaped: false }, b'\\') => Self::JsonString { escaped: true },
            (Self::JsonString { .. }, _) => Self::JsonString { escaped: false },
            (Self::XmlText, b'<') => Self::XmlTag,
            (Self::XmlTag, b'>') => Self::XmlText,
            (Self::XmlTag, b'"' | b'\'') => Self::XmlAttribute(byte),
            (Self::XmlAttribute(quote), _) if byte == quote => Self::XmlTag,
            (other, _) => other,
        })
    }

    /// A value as it is written here. The error says why it has no place here.
    pub(super) fn write(self, value: &Value) -> Result<String, String> {
        let mut text = String::new();
        match self {
            Self::JsonValue => json(value, &mut text)?,
            Self::JsonString { escaped: true } => return Err("a value cannot stand behind a backslash".to_owned()),
            Self::JsonString { escaped: false } => {
                let quoted = serde_json::Value::from(scalar(value)?).to_string();
                text.push_str(&quoted[1..quoted.len() - 1]);
            }
            Self::XmlText | Self::XmlAttribute(_) => {
                let is_attribute = self != Self::XmlText;
                for c in scalar(value)?.chars() {
                    xml(c, is_attribute, &mut text)?;
                }
            }
            Self::XmlTag => {
                return Err(
                    "a value can stand in the text of an element or in a quoted attribute, and nowhere else"
                        .to_owned(),
                );
            }
            Self::Text => text = scalar(value)?,
        }
        Ok(text)
    }
}

/// A text, an integer, an exact number or a boolean, as text.
fn scalar(value: &Value) -> Result<String, String> {
    if let Some(number) = value.downcast_object_ref::<ExactNumber>() {
        return Ok(number.0.clone());
    }
    match value.kind() {
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_owned()),
        ValueKind::Bool => Ok(value.is_true().to_string()),
        ValueKind::Number if value.is_integer() => Ok(value.to_string()),
        ValueKind::Number => Err("a computed number with a fraction is inexact: keep amounts as text".to_owned()),
        ValueKind::None => Err("a value is null: test it with {% if %}, or use the filter default".to_owned()),
        _ => Err("a value is a list or an object here, and must be a text or a number".to_owned()),
    }
}

/// A value as JSON. The payload was parsed with a limit on its depth.
fn json(value: &Value, text: &mut String) -> Result<(), String> {
    let unreadable = |_| "a value cannot be read".to_owned();
    match value.kind() {
        ValueKind::None => text.push_str("null"),
        ValueKind::String => text.push_str(&serde_json::Value::from(scalar(value)?).to_string()),
        ValueKind::Seq => {
            text.push('[');
            for (index, item) in value.try_iter().map_err(unreadable)?.enumerate() {
                if index > 0 {
                    text.push(',');
                }
                json(&item, text)?;
            }
            text.push(']');
        }
        ValueKind::Map => {
            text.push('{');
            for (index, key) in value.try_iter().map_err(unreadable)?.enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&serde_json::Value::from(scalar(&key)?).to_string());
                text.push(':');
                json(&value.get_item(&key).map_err(unreadable)?, text)?;
            }
            text.push('}');
        }
        _ => text.push_str(&scalar(value)?),
    }
    Ok(())
}

fn xml(c: char, is_attribute: bool, text: &mut String) -> Result<(), String> {
    match c {
        '&' => text.push_str("&amp;"),
        '<' => text.push_str("&lt;"),
        '>' => text.push_str("&gt;"),
        '"' => text.push_str("&quot;"),
        '\'' => text.push_str("&apos;"),
        // A parser would turn these into spaces or into a line feed.
        '\r' => text.push_str("&#13;"),
        '\n' | '\t' if is_attribute => {
            // Writing to a String cannot fail.
            let _ = write!(text, "&#{};", u32::from(c));
        }
        '\n' | '\t' => text.push(c),
        '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
            return Err("a value has a control character, which XML cannot carry".to_owned());
        }
        _ => text.push(c),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(syntax: Syntax, before: &str, value: &str, after: &str) -> String {
        let position = Position::start(syntax).after(before.as_bytes());
        format!("{before}{}{after}", position.write(&Value::from(value)).unwrap())
    }

    #[test]
    fn a_value_is_written_for_its_place() {
        let value = Value::from("a\"<&>'\n");
        for (syntax, before, expected) in [
            (Syntax::Json, "{\"a\": ", r#""a\"<&>'\n""#),
            (Syntax::Json, "{\"a\": \"x ", r#"a\"<&>'\n"#),
            (Syntax::Xml, "<a>", "a&quot;&lt;&amp;&gt;&apos;\n"),
            (Syntax::Xml, "<a b='", "a&quot;&lt;&amp;&gt;&apos;&#10;"),
            (Syntax::Text, "", "a\"<&>'\n"),
        ] {
            let position = Position::start(syntax).after(before.as_bytes());
            assert_eq!(position.write(&value).unwrap(), expected, "{before}");
        }
    }

    #[test]
    fn a_value_has_no_place_in_a_tag_or_behind_a_backslash() {
        for (syntax, before) in
            [(Syntax::Xml, "<"), (Syntax::Xml, "<a "), (Syntax::Xml, "<a b="), (Syntax::Json, "\"\\")]
        {
            assert!(
                Position::start(syntax).after(before.as_bytes()).write(&Value::from("x")).is_err(),
                "{before}"
            );
        }
    }

    #[test]
    fn what_cannot_be_written_exactly_is_refused() {
        for value in [Value::from(0.1 + 0.2), Value::from(()), Value::from(vec![1, 2])] {
            assert!(Position::XmlText.write(&value).is_err(), "{value}");
        }
        assert!(Position::JsonValue.write(&Value::from(1.5)).is_err());
        assert!(Position::XmlText.write(&Value::from("a\u{1}")).is_err());
    }

    proptest! {
        #![proptest_config(crate::proptest_config::proptest_config())]

        #[test]
        fn no_value_leaves_its_json_string(value in any::<String>()) {
            for (before, after) in [("{\"a\": ", ", \"b\": 1}"), ("{\"a\": \"", "\", \"b\": 1}")] {
                let text = written(Syntax::Json, before, &value, after);
                let read: serde_json::Value = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(read, serde_json::json!({ "a": value, "b": 1 }));
            }
        }

        #[test]
        fn no_value_leaves_its_xml_element_or_attribute(value in "[^\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\u{fffe}\u{ffff}]{0,40}") {
            let text = written(Syntax::Xml, "<r><a>", &value, "</a></r>");
            let document = roxmltree::Document::parse(&text).unwrap();
            prop_assert_eq!(document.descendants().filter(roxmltree::Node::is_element).count(), 2);
            let read = document.root_element().first_child().unwrap().text().unwrap_or_default().to_owned();
            prop_assert_eq!(&read, &value);
            for quote in ["'", "\""] {
                let text = written(Syntax::Xml, &format!("<r a={quote}"), &value, &format!("{quote}/>"));
                let document = roxmltree::Document::parse(&text).unwrap();
                prop_assert_eq!(document.root_element().attributes().len(), 1);
                prop_assert_eq!(document.root_element().attribute("a").unwrap(), &value);
            }
        }
    }
}
