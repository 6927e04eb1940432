//! The body of a payment request: Symphony's envelope, the payload alone, or the output of a template.
//!
//! A body is the same on every attempt, byte for byte: banks compare bodies under a known key.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use reqwest::header::HeaderValue;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use symphony_db::payment::Payload;
use symphony_relay::rail::{Invalid, Payment};

use super::json;
use super::template::{Syntax, Template, Variables};
use crate::config::SettingError;
use crate::money;

/// The largest file with a template or a sample.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// What a template is rendered with at the start if the settings have no sample.
const SAMPLE: &str =
    r#"{"amount": "10.00", "currency": "EUR", "destination": {"iban": "DE89370400440532013000"}}"#;

/// The setting `body`.
#[derive(Clone, Debug, Default)]
pub(super) enum BodySetting {
    /// The payload among the fields of the payment.
    #[default]
    Envelope,
    /// The payload as it was enqueued.
    Payload,
    /// A template.
    Template(TemplateSetting),
}

impl<'de> Deserialize<'de> for BodySetting {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(BodyVisitor)
    }
}

struct BodyVisitor;

impl<'de> Visitor<'de> for BodyVisitor {
    type Value = BodySetting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"envelope\", \"payload\", or { template_file = \"/path\", format = \"json\" } or \"xml\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<BodySetting, E> {
        match text {
            "envelope" => Ok(BodySetting::Envelope),
            "payload" => Ok(BodySetting::Payload),
            other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<BodySetting, A::Error> {
        TemplateSetting::deserialize(MapAccessDeserializer::new(map)).map(BodySetting::Template)
    }
}

/// The settings of a body from a template.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TemplateSetting {
    template: Option<String>,
    template_file: Option<PathBuf>,
    format: Format,
    content_type: Option<String>,
}

/// The format of a template's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Json,
    Xml,
}

/// How bodies are made.
pub(super) enum Body {
    Envelope,
    Payload,
    Template(Box<TemplateBody>),
}

/// A body from a template.
pub(super) struct TemplateBody {
    template: Template,
    format: Format,
    content_type: HeaderValue,
}

/// The envelope. Byte for byte the same on every attempt, redrive and later enqueue of the same payment: banks compare bodies under a
/// known key.
#[derive(Serialize)]
struct Envelope<'a> {
    instruction_id: &'a str,
    participant_id: &'a str,
    idempotency_key: &'a str,
    rail_type: &'a str,
    payload: &'a Payload,
}

impl Body {
    pub(super) fn build(setting: BodySetting) -> Result<Self, SettingError> {
        let TemplateSetting { template, template_file, format, content_type } = match setting {
            BodySetting::Envelope => return Ok(Self::Envelope),
            BodySetting::Payload => return Ok(Self::Payload),
            BodySetting::Template(setting) => setting,
        };
        let (name, source) = match (template, template_file) {
            (Some(text), None) => ("body.template", text),
            (None, Some(path)) => ("body.template_file", read("body.template_file", &path)?),
            _ => return Err(SettingError::new("body", "must have one of template and template_file")),
        };
        let (syntax, default_type) = match format {
            Format::Json => (Syntax::Json, "application/json"),
            Format::Xml => (Syntax::Xml, "application/xml"),
        };
        let content_type = HeaderValue::from_str(content_type.as_deref().unwrap_or(default_type))
            .map_err(|_| SettingError::new("body.content_type", "must be printable ASCII"))?;
        let template = Template::compile(name, source, syntax)?;
        Ok(Self::Template(Box::new(TemplateBody { template, format, content_type })))
    }

    /// Whether a payload may not fit it.
    pub(super) fn is_template(&self) -> bool {
        matches!(self, Self::Template(_))
    }

    pub(super) fn content_type(&self) -> HeaderValue {
        match self {
            Self::Envelope | Self::Payload => HeaderValue::from_static("application/json"),
            Self::Template(body) => body.content_type.clone(),
        }
    }

    /// The bytes to send.
    pub(super) fn bytes(&self, payment: &Payment) -> Result<Vec<u8>, Invalid> {
        match self {
            Self::Payload => Ok(payment.payload.as_json().as_bytes().to_vec()),
            Self::Template(body) => {
                let text = body.template.render(&Variables::of(payment)?)?;
                check(&text, body.format)?;
                Ok(text.into_bytes())
            }
            Self::Envelope => {
                let envelope = Envelope {
                    instruction_id: &payment.instruction_id,
                    participant_id: &payment.participant_id,
                    idempotency_key: &payment.idempotency_key,
                    rail_type: &payment.rail_type,
                    payload: &payment.payload,
                };
                serde_json::to_vec(&envelope).map_err(|_| Invalid { message: "payload must be JSON".to_owned() })
            }
        }
    }
}

/// Refuses output that is not one document of its format. A missing comma between two branches would cause it.
fn check(text: &str, format: Format) -> Result<(), Invalid> {
    let why = match format {
        Format::Json if json::is_strict(text.as_bytes()) => return Ok(()),
        Format::Json => "JSON that names each field of an object once".to_owned(),
        Format::Xml => match roxmltree::Document::parse(text) {
            Ok(_) => return Ok(()),
            // The position only: the message may quote a value.
            Err(error) => format!("well-formed XML (line {})", error.pos().row),
        },
    };
    Err(Invalid { message: format!("payload does not fit body: the output of the template is not {why}") })
}

/// The payment with which templates are rendered when the settings are read.
pub(super) fn sample(rail: &str, file: Option<&Path>) -> Result<Payment, SettingError> {
    let text = match file {
        Some(path) => read("sample_file", path)?,
        None => SAMPLE.to_owned(),
    };
    let payload: Payload = serde_json::from_str(&text)
        .map_err(|_| SettingError::new("sample_file", "must hold the JSON of a payload"))?;
    money::check(&payload, money::Destination::Any)
        .map_err(|invalid| SettingError::new("sample_file", invalid.message))?;
    Ok(Payment {
        outbox_id: uuid::Uuid::nil().into(),
        instruction_id: "sample-instruction".to_owned(),
        participant_id: "sample-participant".to_owned(),
        sequence_id: 1,
        idempotency_key: "sample-instruction/1".to_owned(),
        rail_type: rail.to_owned(),
        payload,
        attempt_count: 0,
    })
}

fn read(setting: &'static str, path: &Path) -> Result<String, SettingError> {
    let mut text = String::new();
    File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)).map_err(
        |error| SettingError::new(setting, "must name a file with text that can be read").with_source(error),
    )?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(SettingError::new(setting, format!("names a file of more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}
