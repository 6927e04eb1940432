//! Reads the settings of rails, sinks and stores, and reports what is wrong with them.
//!
//! Every error names the rail, sink or store, the setting, and what to write instead. It never shows the value of a
//! secret. Durations and the defaults that several destinations share are parsed here and nowhere else in this crate.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::de::{self, Deserializer, Visitor};

/// The settings of a rail, a sink or a store cannot be used. Correct the setting that it names.
#[derive(Debug, thiserror::Error)]
#[error("{owner}: {setting}: {problem}")]
pub struct ConfigError {
    /// Whose settings: `rail sepa`, `sink orders`, `store copies`, `traces`.
    pub owner: String,
    /// The setting, as it is written in the file.
    pub setting: String,
    /// What is wrong with it, and what to write instead.
    pub problem: String,
    /// The underlying error, such as a file that cannot be read.
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

/// A [`ConfigError`] whose owner is not yet known: the code below the registry does not know the names of rails.
#[derive(Debug)]
pub(crate) struct SettingError {
    setting: Cow<'static, str>,
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl SettingError {
    pub(crate) fn new(setting: impl Into<Cow<'static, str>>, text: impl Into<String>) -> Self {
        Self { setting: setting.into(), text: text.into(), source: None }
    }

    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub(crate) fn for_rail(self, rail: &str) -> ConfigError {
        self.owned_by(format!("rail {rail}"))
    }

    pub(crate) fn for_sink(self, sink: &str) -> ConfigError {
        self.owned_by(format!("sink {sink}"))
    }

    pub(crate) fn for_store(self, store: &str) -> ConfigError {
        self.owned_by(format!("store {store}"))
    }

    pub(crate) fn for_traces(self) -> ConfigError {
        self.owned_by("traces".to_owned())
    }

    fn append(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }

    /// Replaces the name of a setting in the text, for destinations whose setting has another name.
    pub(crate) fn with_name_replaced(mut self, name: &str, other: &str) -> Self {
        self.text = self.text.replace(name, other);
        self
    }

    fn is_unknown_setting(&self) -> bool {
        self.text.starts_with("unknown field")
    }

    pub(crate) fn owned_by(self, owner: String) -> ConfigError {
        ConfigError { owner, setting: self.setting.into_owned(), problem: self.text, source: self.source }
    }
}

/// Reads settings into a type that refuses unknown fields.
pub(crate) fn read<T: DeserializeOwned>(settings: toml::Table) -> Result<T, SettingError> {
    settings.try_into().map_err(|error: toml::de::Error| {
        let text = without_value(error.message());
        SettingError::new(setting_of(&error).unwrap_or_else(|| named_in(error.message())), text)
    })
}

/// Reads settings into two types: those that several destinations share, by name, and those of one kind.
///
/// `owner` says which destinations share them, for the error about an unknown setting.
pub(crate) fn read_both<S: DeserializeOwned, T: DeserializeOwned>(
    mut settings: toml::Table,
    shared_names: &[&str],
    owner: &str,
) -> Result<(S, T), SettingError> {
    let mut shared = toml::Table::new();
    for &name in shared_names {
        if let Some(value) = settings.remove(name) {
            shared.insert(name.to_owned(), value);
        }
    }
    let own = read(settings).map_err(|error: SettingError| {
        if error.is_unknown_setting() {
            error.append(&format!(", or one that {owner} has: `{}`", shared_names.join("`, `")))
        } else {
            error
        }
    })?;
    Ok((read(shared)?, own))
}

/// The path of keys that the error is about. The TOML parser shows it behind the message and nowhere else.
fn setting_of(error: &toml::de::Error) -> Option<String> {
    let shown = error.to_string();
    let path = shown.lines().rev().find_map(|line| line.strip_prefix("in `")?.strip_suffix('`'))?;
    (!path.is_empty()).then(|| path.to_owned())
}

/// The setting that a message quotes first, where there is no path: one that is missing, or unknown.
fn named_in(message: &str) -> String {
    let named = if quotes_value(message) { None } else { message.split('`').nth(1) };
    named.unwrap_or("settings").to_owned()
}

/// Whether a message of the TOML parser repeats the value that it is about.
fn quotes_value(message: &str) -> bool {
    message.starts_with("invalid ") || message.starts_with("unknown variant")
}

/// The message of the TOML parser without the value, which may be a secret in the wrong place.
#[must_use]
pub fn without_value(message: &str) -> String {
    match (quotes_value(message), message.rsplit_once(", expected ")) {
        (true, Some((_, expected))) => format!("must be {expected}"),
        (true, None) => "has a value that cannot be used".to_owned(),
        (false, _) => message.to_owned(),
    }
}

/// Reads a duration with its unit, such as `250ms`, `30s` or `5m`. A number without a unit, or below zero, is none.
pub fn parse_duration(text: &str) -> Option<Duration> {
    text.parse::<jiff::SignedDuration>().ok().and_then(|parsed| Duration::try_from(parsed).ok())
}

/// A duration as it is written in settings: `"30s"`, `"5m"`, `"250ms"`.
pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    struct Text;
    impl Visitor<'_> for Text {
        type Value = Duration;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a duration in quotes, such as \"30s\", \"5m\" or \"250ms\"")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
            parse_duration(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }
    deserializer.deserialize_str(Text)
}

/// A duration that may be left out.
pub(crate) fn optional_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

/// The default of a duration setting.
pub(crate) fn seconds<const N: u64>() -> Duration {
    Duration::from_secs(N)
}

/// The default of a setting that is on unless it is switched off.
pub(crate) fn enabled() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        url: String,
        #[serde(default, deserialize_with = "optional_duration")]
        timeout: Option<Duration>,
    }

    fn error(toml: &str) -> String {
        read::<Settings>(toml.parse().unwrap()).unwrap_err().for_rail("sepa").to_string()
    }

    #[test]
    fn a_duration_has_a_unit_and_is_not_negative() {
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(parse_duration("2m"), Some(Duration::from_secs(120)));
        assert_eq!(parse_duration("0s"), Some(Duration::ZERO));
        for wrong in ["", "30", "-3s", "soon"] {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn durations_are_read_with_their_unit() {
        let settings: Settings = read("url = 'x'\ntimeout = '1m 30s'".parse().unwrap()).unwrap();
        assert_eq!((settings.url.as_str(), settings.timeout), ("x", Some(Duration::from_secs(90))));
    }

    #[test]
    fn an_error_names_the_rail_the_setting_and_what_to_write() {
        let expected = "must be a duration in quotes, such as \"30s\", \"5m\" or \"250ms\"";
        assert_eq!(error("url = 'x'\ntimeout = 30"), format!("rail sepa: timeout: {expected}"));
        assert_eq!(error("url = 'x'\ntimeout = '-3s'"), format!("rail sepa: timeout: {expected}"));
        assert_eq!(error("url = 'x'\ntimeout = 'soon'"), format!("rail sepa: timeout: {expected}"));
        assert_eq!(error("timeout = '3s'"), "rail sepa: url: missing field `url`");
        let unknown = error("url = 'x'\nulr = 'y'");
        assert_eq!(unknown, "rail sepa: ulr: unknown field `ulr`, expected `url` or `timeout`");
    }

    #[test]
    fn a_value_of_the_wrong_type_is_not_repeated() {
        assert_eq!(error("url = { hidden = 'whsec_1' }"), "rail sepa: url: must be a string");
        for (message, expected) in [
            ("invalid type: string \"whsec_1, expected x\", expected u64", "must be u64"),
            ("unknown variant `whsec_1`, expected `json` or `any`", "must be `json` or `any`"),
            ("unknown variant `whsec_1`, there are no variants", "has a value that cannot be used"),
            ("missing field `url`", "missing field `url`"),
        ] {
            assert_eq!(without_value(message), expected);
        }
    }
}
