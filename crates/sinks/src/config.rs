//! What can be wrong with the settings of a way out, said so that somebody can mend it.
//!
//! Every error names the rail, sink or store, the setting and what to write instead. It never shows what a secret held.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::de::{self, Deserializer, Visitor};

/// The settings of a rail, a sink or a store cannot be used. Mend the setting that it names.
#[derive(Debug, thiserror::Error)]
#[error("{owner}: {setting}: {problem}")]
pub struct ConfigError {
    /// Whose settings: `rail sepa`, `sink orders`, `store copies`, `traces`.
    pub owner: String,
    /// The setting, as it is written in the file.
    pub setting: String,
    /// What is wrong with it, and what to write instead.
    pub problem: String,
    /// What lies beneath, such as a file that cannot be read.
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

/// The same, before anybody has said what it is about.
#[derive(Debug)]
pub(crate) struct Problem {
    setting: Cow<'static, str>,
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Problem {
    pub(crate) fn new(setting: impl Into<Cow<'static, str>>, text: impl Into<String>) -> Self {
        Self { setting: setting.into(), text: text.into(), source: None }
    }

    pub(crate) fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// About a rail.
    pub(crate) fn of(self, rail: &str) -> ConfigError {
        self.about(format!("rail {rail}"))
    }

    /// About a sink.
    pub(crate) fn of_sink(self, sink: &str) -> ConfigError {
        self.about(format!("sink {sink}"))
    }

    /// About a store.
    pub(crate) fn of_store(self, store: &str) -> ConfigError {
        self.about(format!("store {store}"))
    }

    /// About the traces.
    pub(crate) fn of_traces(self) -> ConfigError {
        self.about("traces".to_owned())
    }

    /// What is wrong, with more about it.
    fn and(mut self, more: &str) -> Self {
        self.text.push_str(more);
        self
    }

    /// The same in the words of a sink, whose settings have other names.
    pub(crate) fn instead_of(mut self, name: &str, other: &str) -> Self {
        self.text = self.text.replace(name, other);
        self
    }

    fn is_about_an_unknown_setting(&self) -> bool {
        self.text.starts_with("unknown field")
    }

    fn about(self, owner: String) -> ConfigError {
        ConfigError { owner, setting: self.setting.into_owned(), problem: self.text, source: self.source }
    }
}

/// Reads settings into a type that refuses what it does not know.
pub(crate) fn read<T: DeserializeOwned>(settings: toml::Table) -> Result<T, Problem> {
    settings.try_into().map_err(|error: toml::de::Error| {
        let text = without_value(error.message());
        Problem::new(setting_of(&error).unwrap_or_else(|| named_in(error.message())), text)
    })
}

/// Reads settings into two types: what several ways out share, under these names, and what is one's own.
pub(crate) fn read_both<S: DeserializeOwned, T: DeserializeOwned>(
    mut settings: toml::Table,
    names: &[&str],
    who: &str,
) -> Result<(S, T), Problem> {
    let mut shared = toml::Table::new();
    for &name in names {
        if let Some(value) = settings.remove(name) {
            shared.insert(name.to_owned(), value);
        }
    }
    let own = read(settings).map_err(|problem: Problem| {
        if problem.is_about_an_unknown_setting() {
            problem.and(&format!(", or one that {who} has: `{}`", names.join("`, `")))
        } else {
            problem
        }
    })?;
    Ok((read(shared)?, own))
}

/// The path of keys that the error is about: the reader shows it behind the message and nowhere else.
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

/// Whether a message of the reader repeats the value that it is about.
fn quotes_value(message: &str) -> bool {
    message.starts_with("invalid ") || message.starts_with("unknown variant")
}

/// What the reader of a settings file found wrong, without the value: that may be a secret in the wrong place.
#[must_use]
pub fn without_value(message: &str) -> String {
    match (quotes_value(message), message.rsplit_once(", expected ")) {
        (true, Some((_, expected))) => format!("must be {expected}"),
        (true, None) => "has a value that cannot be used".to_owned(),
        (false, _) => message.to_owned(),
    }
}

/// A time as it is written in settings: `"30s"`, `"5m"`, `"250ms"`.
pub(crate) fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    struct Text;
    impl Visitor<'_> for Text {
        type Value = Duration;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a time in quotes, such as \"30s\", \"5m\" or \"250ms\"")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
            let parsed = text.parse::<jiff::SignedDuration>().ok();
            parsed
                .and_then(|time| Duration::try_from(time).ok())
                .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }
    deserializer.deserialize_str(Text)
}

/// The same, for a setting that may be left out.
pub(crate) fn optional_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    time(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        url: String,
        #[serde(default, deserialize_with = "optional_time")]
        timeout: Option<Duration>,
    }

    fn problem(toml: &str) -> String {
        read::<Settings>(toml.parse().unwrap()).unwrap_err().of("sepa").to_string()
    }

    #[test]
    fn times_are_read_with_their_unit() {
        let settings: Settings = read("url = 'x'\ntimeout = '1m 30s'".parse().unwrap()).unwrap();
        assert_eq!((settings.url.as_str(), settings.timeout), ("x", Some(Duration::from_secs(90))));
    }

    #[test]
    fn an_error_names_the_rail_the_setting_and_what_to_write() {
        let time = "must be a time in quotes, such as \"30s\", \"5m\" or \"250ms\"";
        assert_eq!(problem("url = 'x'\ntimeout = 30"), format!("rail sepa: timeout: {time}"));
        assert_eq!(problem("url = 'x'\ntimeout = '-3s'"), format!("rail sepa: timeout: {time}"));
        assert_eq!(problem("url = 'x'\ntimeout = 'soon'"), format!("rail sepa: timeout: {time}"));
        assert_eq!(problem("timeout = '3s'"), "rail sepa: url: missing field `url`");
        let unknown = problem("url = 'x'\nulr = 'y'");
        assert_eq!(unknown, "rail sepa: ulr: unknown field `ulr`, expected `url` or `timeout`");
    }

    #[test]
    fn a_value_of_the_wrong_type_is_not_repeated() {
        assert_eq!(problem("url = { hidden = 'whsec_1' }"), "rail sepa: url: must be a string");
        for (message, said) in [
            ("invalid type: string \"whsec_1, expected x\", expected u64", "must be u64"),
            ("unknown variant `whsec_1`, expected `json` or `any`", "must be `json` or `any`"),
            ("unknown variant `whsec_1`, there are no variants", "has a value that cannot be used"),
            ("missing field `url`", "missing field `url`"),
        ] {
            assert_eq!(without_value(message), said);
        }
    }
}
