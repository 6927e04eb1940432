//! Renders the templates of the settings: request bodies, headers and query parameters.
//!
//! A template is written by an operator, its values by producers. It is compiled and rendered with a sample when the
//! relayer starts, so that only a payload can make it fail later. A missing field is an error, never an empty text. What
//! it can do is bounded: instructions, bytes of output, and no statement that escapes the escaping. See
//! `docs/sinks/http-templates.md`.
//!
//! # Layout
//!
//! - `position`: escapes each value for the place in the document where it is written
//! - `variables`: what a template can name
//! - `filters`: what it can do with a value

mod filters;
mod position;
mod variables;

use std::io::{Error as IoError, Write};
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::Object;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use symphony_relay::rail::Invalid;

use crate::config::SettingError;
use position::Position;
pub(super) use position::Syntax;
pub(super) use variables::Variables;

/// The most bytes that a template may write. A bank's own limit is far lower.
const MAX_OUTPUT_BYTES: usize = 4 * 1024 * 1024;
/// The most instructions of one rendering. A payment with a thousand lines needs some ten thousand.
const MAX_INSTRUCTIONS: u64 = 1_000_000;
const MAX_RECURSION: usize = 64;
/// The name of the template in its environment, which holds no other.
const NAME: &str = "template";
/// The variable through which a value learns where it is written. No template can name it.
const CURSOR: &str = "\0cursor";

/// The statements that a template may use. Others, such as `macro` and `set` without `=`, capture output, which would be
/// escaped for the wrong place; or they switch escaping off.
const STATEMENTS: [&str; 7] = ["if", "elif", "else", "endif", "for", "endfor", "set"];

/// A compiled template.
pub(super) struct Template {
    /// The setting that holds it.
    setting: String,
    syntax: Syntax,
    environment: Environment<'static>,
}

impl Template {
    /// Compiles a template. `setting` is the name of the setting that holds it, for errors.
    pub(super) fn compile(setting: &str, source: String, syntax: Syntax) -> Result<Self, SettingError> {
        let wrong = |text: String| SettingError::new(setting.to_owned(), text);
        check_statements(&source).map_err(wrong)?;
        if syntax == Syntax::Xml && source.contains("<!") {
            return Err(wrong(
                "must have no <!-- comment -->, CDATA or DOCTYPE; comments are {# written so #}".to_owned(),
            ));
        }
        let mut environment = Environment::empty();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(MAX_INSTRUCTIONS));
        environment.set_recursion_limit(MAX_RECURSION);
        filters::add_to(&mut environment);
        environment.set_formatter(move |out, state, value| {
            if value.is_undefined() {
                return Err(Error::from(ErrorKind::UndefinedError));
            }
            let cursor = state.lookup(CURSOR);
            let position = cursor.as_ref().and_then(|cursor| cursor.downcast_object_ref::<Cursor>());
            let position = position.map_or(Position::start(syntax), Cursor::position);
            let text = position.write(value).map_err(|why| Error::new(ErrorKind::BadEscape, why))?;
            Ok(out.write_str(&text)?)
        });
        environment
            .add_template_owned(NAME, source)
            .map_err(|error| wrong(format!("is not a template: {}", describe(&error))))?;
        Ok(Self { setting: setting.to_owned(), syntax, environment })
    }

    /// Renders the template for a payment. The error names the setting and the line, and no value.
    pub(super) fn render(&self, variables: &Variables) -> Result<String, Invalid> {
        let invalid = |why: String| Invalid { message: format!("payload does not fit {}: {why}", self.setting) };
        let cursor = Arc::new(Cursor(Mutex::new(Position::start(self.syntax))));
        let mut output = Output { bytes: Vec::new(), cursor: Arc::clone(&cursor) };
        let names = variables.0.iter().cloned().chain([(CURSOR, Value::from_dyn_object(cursor))]);
        let context = Value::from_pairs(names);
        let rendered = self
            .environment
            .get_template(NAME)
            .and_then(|template| template.render_captured_to(context, &mut output).map(drop));
        rendered.map_err(|error| invalid(describe(&error)))?;
        String::from_utf8(output.bytes).map_err(|_| invalid("the output is not UTF-8".to_owned()))
    }
}

/// The kind of an error and its line. The detail is shown only where it cannot quote a value.
fn describe(error: &Error) -> String {
    let line = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    let what = match (error.kind(), error.detail()) {
        (ErrorKind::UndefinedError, _) => "it names a field that the payment does not have".to_owned(),
        (ErrorKind::WriteFailure, _) => format!("the output is longer than {MAX_OUTPUT_BYTES} bytes"),
        (ErrorKind::OutOfFuel, _) => format!("it takes more than {MAX_INSTRUCTIONS} instructions"),
        (
            ErrorKind::BadEscape | ErrorKind::SyntaxError | ErrorKind::UnknownFilter | ErrorKind::UnknownTest,
            Some(detail),
        ) => detail.to_owned(),
        (kind, _) => kind.to_string(),
    };
    format!("{line}{what}")
}

/// Refuses statements that are not in the list.
fn check_statements(source: &str) -> Result<(), String> {
    for statement in source.split("{%").skip(1) {
        let statement = statement.split("%}").next().unwrap_or_default();
        let mut words = statement.trim_start_matches(['-', '+']).split_whitespace();
        let word = words.next().unwrap_or_default();
        if !STATEMENTS.contains(&word) {
            return Err(format!("has a statement other than {}", STATEMENTS.join(", ")));
        }
        if word == "set" && !statement.contains('=') {
            return Err("has a {% set %} without a value: write {% set name = value %}".to_owned());
        }
        if word == "for" && words.any(|word| word.trim_end_matches('-') == "recursive") {
            return Err("has a recursive loop, which templates cannot have".to_owned());
        }
    }
    Ok(())
}

/// The position of the output, which the formatter of values reads.
#[derive(Debug)]
struct Cursor(Mutex<Position>);

impl Object for Cursor {}

impl Cursor {
    fn position(&self) -> Position {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The output, which moves the position.
struct Output {
    bytes: Vec<u8>,
    cursor: Arc<Cursor>,
}

impl Write for Output {
    fn write(&mut self, more: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + more.len() > MAX_OUTPUT_BYTES {
            return Err(IoError::other("too long"));
        }
        let mut position = self.cursor.0.lock().unwrap_or_else(PoisonError::into_inner);
        *position = position.after(more);
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use symphony_relay::rail::Payment;

    use super::*;

    fn payment(payload: &str) -> Payment {
        Payment {
            outbox_id: uuid::Uuid::nil().into(),
            instruction_id: "invoice-1".to_owned(),
            participant_id: "acme".to_owned(),
            sequence_id: 7,
            idempotency_key: "invoice-1/payout".to_owned(),
            rail_type: "sepa".to_owned(),
            payload: serde_json::from_str(payload).unwrap(),
            attempt_count: 0,
        }
    }

    fn render(syntax: Syntax, source: &str, payload: &str) -> Result<String, String> {
        let template = Template::compile("body", source.to_owned(), syntax)
            .map_err(|error| error.for_rail("sepa").to_string())?;
        let variables = Variables::of(&payment(payload)).map_err(|invalid| invalid.message)?;
        template.render(&variables).map_err(|invalid| invalid.message)
    }

    #[test]
    fn numbers_keep_every_digit_and_are_never_floats() {
        let payload = r#"{"rate": 1.10, "large": 123456789012345678901234567890.00, "n": 7, "amount": "10.00"}"#;
        let source = r#"{"a": {{ payload.rate }}, "b": "{{ payload.large }}", "c": {{ payload.n + 1 }}, "d": {{ payload.amount }}}"#;
        assert_eq!(
            render(Syntax::Json, source, payload).unwrap(),
            r#"{"a": 1.10, "b": "123456789012345678901234567890.00", "c": 8, "d": "10.00"}"#
        );
        assert!(render(Syntax::Json, "{{ payload.rate + 1 }}", payload).is_err());
        assert!(render(Syntax::Json, "{{ payload.n / 2 }}", payload).unwrap_err().contains("inexact"));
        assert!(render(Syntax::Json, "{{ payload.n + 0.5 }}", payload).unwrap_err().contains("inexact"));
    }

    #[test]
    fn branches_and_loops_escape_for_the_place_that_they_lead_to() {
        let source = "<l>{% for item in payload.items %}<i n=\"{{ item.name }}\">{% if item.note is defined %}{{ item.note }}{% else %}none{% endif %}</i>{% endfor %}</l>";
        let payload = r#"{"items": [{"name": "a\"b", "note": "<&>"}, {"name": "c"}]}"#;
        assert_eq!(
            render(Syntax::Xml, source, payload).unwrap(),
            "<l><i n=\"a&quot;b\">&lt;&amp;&gt;</i><i n=\"c\">none</i></l>"
        );
    }

    #[test]
    fn a_missing_field_is_an_error_that_shows_no_value() {
        for source in
            ["{{ payload.name }}", "{{ payload.a.b }}", "{% if payload.name %}x{% endif %}", "{{ nmae }}"]
        {
            let error = render(Syntax::Text, source, r#"{"secret": "DE02120300000000202051"}"#).unwrap_err();
            assert_eq!(
                error,
                "payload does not fit body: line 1: it names a field that the payment does not have"
            );
        }
        assert_eq!(render(Syntax::Text, "{{ payload.name | default('-') }}", "{}").unwrap(), "-");
    }

    #[test]
    fn a_template_cannot_switch_escaping_off() {
        for source in [
            "{% autoescape false %}{{ payload.x }}{% endautoescape %}",
            "{%- autoescape false -%}{{ payload.x }}{% endautoescape %}",
            "{% set x %}{{ payload.x }}{% endset %}{{ x }}",
            "{% macro m() %}{{ payload.x }}{% endmacro %}{{ m() }}",
            "{% filter upper %}{{ payload.x }}{% endfilter %}",
            "{% raw %}{{ payload.x }}{% endraw %}",
            "{% for x in payload.x recursive %}{{ loop(x) }}{% endfor %}",
            "{% include 'other' %}",
            "{{ payload.x | safe }}",
            "{{ payload.x | escape }}",
            "<a><![CDATA[{{ payload.x }}]]></a>",
            "<!-- {{ payload.x }} --><a/>",
        ] {
            assert!(render(Syntax::Xml, source, r#"{"x": "<b/>"}"#).is_err(), "{source}");
        }
    }

    #[test]
    fn what_a_template_can_do_is_bounded() {
        let items = format!(r#"{{"items": [{}1]}}"#, "1,".repeat(9_999));
        let double = "{% for a in payload.items %}{% for b in payload.items %}{% endfor %}{% endfor %}";
        assert!(render(Syntax::Text, double, &items).unwrap_err().contains("instructions"));
        let long = format!(r#"{{"items": [{}1], "text": "{}"}}"#, "1,".repeat(9_999), "x".repeat(1_000));
        let output = "{% for a in payload.items %}{{ payload.text }}{% endfor %}";
        assert!(render(Syntax::Text, output, &long).unwrap_err().contains("longer than"));
        assert!(render(Syntax::Text, "{{ payload }}", "{}").is_err());
    }

    #[test]
    fn a_payload_that_names_a_field_twice_is_refused() {
        let error = render(Syntax::Text, "x", r#"{"a": {"b": 1, "b": 2}}"#).unwrap_err();
        assert!(error.contains("once"), "{error}");
    }

    #[test]
    fn a_template_that_cannot_be_parsed_is_named_with_its_line() {
        let error = render(Syntax::Text, "a\n{{ payload. }}", "{}").unwrap_err();
        assert!(error.starts_with("rail sepa: body: is not a template: line 2: "), "{error}");
        let error = render(Syntax::Text, "{{ payload.x | upcase }}", r#"{"x": "a"}"#).unwrap_err();
        assert!(error.contains("upcase"), "{error}");
    }
}
