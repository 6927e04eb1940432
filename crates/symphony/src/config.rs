//! The settings of `symphony run`: the program's own file of defaults, and over it the user's.
//!
//! The defaults stand in `symphony.example.toml` and nowhere else. A setting that is not in that file does not exist, so a
//! misspelt one is refused. What a rail makes of its section is for the sinks to say; ranges are for the engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, de::Error as _};
use symphony_relay::{Settings, breaker};
use toml::{Table, Value};

use crate::failure::Failure;

/// Every setting, with its default.
pub(crate) const EXAMPLE: &str = include_str!("../../../symphony.example.toml");
/// The section whose entries are the user's to name.
const RAILS: &str = "rails";
/// A file of settings is read by people: nobody writes one that is longer.
const LONGEST: u64 = 1024 * 1024;

/// All settings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) database: Database,
    pub(crate) relayer: Relayer,
    pub(crate) payment: Payment,
    defaults: BTreeMap<String, Table>,
    rails: BTreeMap<String, Table>,
}

/// Where the outbox is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) listen_url: String,
}

/// Addresses may hold a password.
impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

/// The process.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Relayer {
    pub(crate) worker: String,
    pub(crate) endpoints: String,
    pub(crate) log_format: LogFormat,
    pub(crate) log_level: LogLevel,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For machines.
    Json,
    /// For people.
    Text,
}

/// The least serious that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    /// Something is broken.
    Error,
    /// Something may break.
    Warn,
    /// What happened.
    Info,
    /// What was done about it.
    Debug,
    /// Everything.
    Trace,
}

/// The payment lane.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Payment {
    #[serde(deserialize_with = "whole_seconds")]
    pub(crate) lease: Duration,
    slots: usize,
    batch: usize,
    #[serde(deserialize_with = "time")]
    poll: Duration,
    #[serde(deserialize_with = "time")]
    window: Duration,
    #[serde(deserialize_with = "time")]
    gather: Duration,
    #[serde(deserialize_with = "time")]
    call_timeout: Duration,
    #[serde(deserialize_with = "time")]
    lease_margin: Duration,
    #[serde(deserialize_with = "time")]
    repair_every: Duration,
    #[serde(deserialize_with = "time")]
    grace: Duration,
    pub(crate) unserved_rails: UnservedRails,
    breaker: Breaker,
}

/// What to do about a registered rail that has no section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UnservedRails {
    /// Do not start: its money would wait for ever.
    Refuse,
    /// Another relayer serves it.
    Allow,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Breaker {
    failures: u32,
    #[serde(deserialize_with = "time")]
    first_pause: Duration,
    #[serde(deserialize_with = "time")]
    longest_pause: Duration,
}

/// A rail's section, split into what the engine reads and what the way out does.
#[derive(Debug)]
pub(crate) struct RailSection {
    pub(crate) name: String,
    /// Dispatches at the same time, where it has fewer than the process.
    pub(crate) slots: Option<usize>,
    /// For the sinks.
    pub(crate) settings: Table,
}

impl Config {
    /// Reads the user's file over the defaults; without one, the defaults alone.
    pub(crate) fn load(file: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = file else { return Self::parse("") };
        let text = read(path).map_err(|error| {
            Failure::usage(format!("cannot read the settings in {}: {error}", path.display()))
                .hint("see all settings with: symphony run --print-example")
        })?;
        Self::parse(&text).map_err(|failure| failure.within(&format!("the settings in {}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let mut all: Table = EXAMPLE.parse().map_err(wrong)?;
        let given: Table = text.parse().map_err(wrong)?;
        lay_over(&mut all, given, "")?;
        Self::deserialize(Value::Table(all)).map_err(wrong)
    }

    /// The section of each rail, with the defaults of its kind below it.
    pub(crate) fn rails(&self) -> Result<Vec<RailSection>, Failure> {
        let section = |(name, own): (&String, &Table)| {
            let mut own = own.clone();
            let slots = own.remove("slots").map(|slots| {
                slots
                    .as_integer()
                    .and_then(|slots| usize::try_from(slots).ok())
                    .ok_or_else(|| Failure::usage(format!("rails.{name}.slots must be a number from 1 to 1024")))
            });
            let kind = own.get("kind").and_then(Value::as_str).unwrap_or_default();
            let mut settings = self.defaults.get(kind).cloned().unwrap_or_default();
            settings.extend(own);
            Ok(RailSection { name: name.clone(), slots: slots.transpose()?, settings })
        };
        self.rails.iter().map(section).collect()
    }

    /// How the engine of the payment lane works.
    pub(crate) fn payment_settings(&self, rails: &[RailSection]) -> Settings {
        let payment = &self.payment;
        // A slow rail alone must not have all of them: the others would wait for its timeouts.
        let share = (rails.len() > 1).then(|| (payment.slots * 3 / 4).max(1));
        Settings {
            slots: payment.slots,
            route_slots: rails
                .iter()
                .filter_map(|rail| Some((rail.name.clone(), rail.slots.or(share)?)))
                .collect(),
            batch: payment.batch,
            window: payment.window,
            // A build for tests can be told never to poll, to show that being woken is enough.
            poll: Some(payment.poll).filter(|poll| !(cfg!(feature = "fail-points") && poll.is_zero())),
            gather: payment.gather,
            call_timeout: payment.call_timeout,
            lease_margin: payment.lease_margin,
            repair_every: payment.repair_every,
            grace: payment.grace,
            breaker: breaker::Policy {
                failures: payment.breaker.failures,
                first_pause: payment.breaker.first_pause,
                longest_pause: payment.breaker.longest_pause,
            },
        }
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let length = std::fs::metadata(path)?.len();
    if length > LONGEST {
        return Err(std::io::Error::other(format!("it has {length} bytes, and at most {LONGEST} are read")));
    }
    std::fs::read_to_string(path)
}

fn wrong(error: impl std::fmt::Display) -> Failure {
    Failure::usage(error.to_string().trim_end().to_owned())
        .hint("see all settings with: symphony run --print-example")
}

/// Puts what was given over what there is. What there is says which names exist.
fn lay_over(all: &mut Table, given: Table, path: &str) -> Result<(), Failure> {
    for (name, value) in given {
        let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if path == RAILS {
            all.insert(name, value);
            continue;
        }
        match (all.get_mut(&name), value) {
            (Some(Value::Table(below)), Value::Table(given)) => lay_over(below, given, &at)?,
            (Some(Value::Table(_)), _) => return Err(wrong(format!("{at} is a section: write [{at}]"))),
            (Some(there), value) => *there = value,
            // A kind of rail may have settings without a default.
            (None, value) if path.starts_with("defaults.") => {
                all.insert(name, value);
            }
            (None, _) => return Err(wrong(format!("there is no setting {at}"))),
        }
    }
    Ok(())
}

fn time<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(source)?;
    let wrong = || D::Error::custom(format!("{text:?} is no time: write \"500ms\", \"30s\" or \"5m\""));
    let length: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(length).map_err(|_| wrong())
}

/// A time that the database counts in seconds: it would round what is in between, and nobody would be told.
fn whole_seconds<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
    let length = time(source)?;
    if length.subsec_nanos() == 0 {
        return Ok(length);
    }
    Err(D::Error::custom(format!("{length:?} is not in whole seconds")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Config::parse(text).unwrap_err().in_full()
    }

    #[test]
    fn the_example_is_what_the_engine_does_by_default() {
        let config = Config::load(None).unwrap();
        assert_eq!(config.payment_settings(&[]), Settings::default());
        assert_eq!(config.payment.lease, Duration::from_secs(30));
        assert!(config.rails().unwrap().is_empty());
    }

    #[test]
    fn what_is_given_goes_before_what_is_there() {
        let config = Config::parse(
            "[payment]\nslots = 3\n[defaults.http]\ntimeout = '9s'\n\
             [rails.sepa]\nkind = 'http'\nslots = 2\nurl = 'https://b'\n[rails.b]\nkind = 'http'\ntimeout = '1s'\n",
        )
        .unwrap();
        let rails = config.rails().unwrap();
        assert_eq!(config.payment_settings(&rails).slots, 3);
        // Where several are served, none has all slots unless its section says so.
        let slots = BTreeMap::from([("b".to_owned(), 2), ("sepa".to_owned(), 2)]);
        assert_eq!(config.payment_settings(&rails).route_slots, slots);
        assert!(config.payment_settings(&[]).route_slots.is_empty());
        assert_eq!(rails[0].settings["timeout"].as_str(), Some("1s"));
        assert_eq!(rails[1].settings["timeout"].as_str(), Some("9s"));
        assert_eq!(rails[1].settings["url"].as_str(), Some("https://b"));
        assert!(!rails[1].settings.contains_key("slots"));
    }

    #[test]
    fn what_does_not_exist_or_has_another_type_is_refused_by_name() {
        assert!(refusal("[payment]\nslot = 3").contains("there is no setting payment.slot"));
        assert!(refusal("[payments]\nslots = 3").contains("there is no setting payments"));
        assert!(refusal("payment = 3").contains("payment is a section"));
        assert!(refusal("[payment]\nslots = 'many'").contains("slots"));
        assert!(refusal("[payment]\nlease = 30").contains("lease"));
        assert!(refusal("[payment]\nlease = 'soon'").contains("write \"500ms\""));
        assert!(refusal("[payment]\nlease = '-3s'").contains("no time"));
        assert!(refusal("[payment]\nlease = '4500ms'").contains("4.5s is not in whole seconds"));
        assert!(refusal("[relayer]\nlog_level = 'loud'").contains("log_level"));
        assert!(refusal("[payment").contains("error"));
    }

    #[test]
    fn an_address_is_not_shown() {
        let config = Config::parse("[database]\nurl = 'postgres://me:s3cret@h/db'").unwrap();
        assert!(!format!("{config:?}").contains("s3cret"));
    }
}
