//! The settings of `symphony run`: the user's file, merged over the defaults.
//!
//! `symphony.example.toml` holds all defaults. A setting that is not in that file does not exist, so a misspelt one is
//! refused. The sinks crate parses the sections of rails, sinks and stores, and the engine checks ranges.

mod lane;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use symphony_console::access;
use symphony_console::server::{Hosts, Limits};
use symphony_relay::event::routing::{Route, Routes};
use symphony_relay::{Settings, metadata};
use symphony_sinks::without_value;
use toml::{Table, Value};

use crate::failure::Failure;

pub(crate) use lane::UnservedRails;
use lane::{Event, LaneSection, Metadata, Payment, RouteSection, SlowRoutes, StoreRoute};

/// Every setting with its default, as `symphony run --print-example` prints it.
pub(crate) const EXAMPLE: &str = include_str!("../../../symphony.example.toml");
/// Sections whose entries the user names, or whose settings only the sinks crate knows.
const USER_NAMED_SECTIONS: [&str; 4] = ["rails", "sinks", "stores", "traces"];
/// A larger file is not a settings file.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// All settings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) database: Database,
    pub(crate) relayer: Relayer,
    pub(crate) payment: LaneSection<Payment>,
    pub(crate) event: LaneSection<Event>,
    metadata: LaneSection<Metadata>,
    pub(crate) console: Console,
    pub(crate) callbacks: Callbacks,
    /// Parsed by the sinks crate.
    pub(crate) traces: Table,
    defaults: BTreeMap<String, Table>,
    rails: BTreeMap<String, Table>,
    sinks: BTreeMap<String, Table>,
    stores: BTreeMap<String, Table>,
}

/// The connections to the outbox's database.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) listen_url: String,
    pub(crate) password_file: String,
}

/// URLs may hold a password.
impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

/// The API and the dashboard.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Console {
    pub(crate) read_url: String,
    pub(crate) act_url: String,
    pub(crate) listen: String,
    pub(crate) tokens: Vec<access::TokenConfig>,
}

/// URLs may hold a password.
impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

/// The listener for callbacks of banks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Callbacks {
    pub(crate) listen: String,
    pub(crate) max_per_second: u32,
}

/// The process: its name, its endpoints and its log.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Relayer {
    pub(crate) worker: String,
    pub(crate) endpoints: String,
    hosts: Vec<String>,
    max_connections: usize,
    max_connections_per_peer: usize,
    pub(crate) log_format: LogFormat,
    pub(crate) log_level: LogLevel,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Plain text.
    Text,
}

/// The lowest severity that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    /// Errors alone.
    Error,
    /// Errors and warnings.
    Warn,
    /// Also events of normal work.
    Info,
    /// Also what the engine does about them.
    Debug,
    /// Everything.
    Trace,
}

/// The section of a rail, a sink or a store: the engine reads `slots`, the sinks crate reads the rest.
#[derive(Debug)]
pub(crate) struct DestinationSection {
    pub(crate) name: String,
    /// Concurrent dispatches, if fewer than the lane's.
    pub(crate) slots: Option<usize>,
    /// Parsed by the sinks crate.
    pub(crate) settings: Table,
}

impl Config {
    /// Reads the user's file and merges it over the defaults. Without a file, the defaults apply.
    pub(crate) fn load(file: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = file else { return Self::parse("") };
        let text = read(path).map_err(|error| {
            Failure::usage(format!("cannot read the settings file {}: {error}", path.display()))
                .hint("see all settings with: symphony run --print-example")
        })?;
        Self::parse(&text).map_err(|failure| failure.with_context(&format!("the settings in {}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let mut all: Table = EXAMPLE.parse().map_err(invalid)?;
        let given: Table = text.parse().map_err(|error| invalid_toml(text, &error))?;
        merge(&mut all, given, "")?;
        Self::deserialize(Value::Table(all)).map_err(|error| wrong_type(&error))
    }

    /// The HTTP server's connection limits, and the host names that it answers to.
    pub(crate) fn server_limits(&self) -> Result<Limits, Failure> {
        let Relayer { max_connections, max_connections_per_peer, hosts, .. } = &self.relayer;
        for (setting, value) in
            [("max_connections", *max_connections), ("max_connections_per_peer", *max_connections_per_peer)]
        {
            // With fewer, a browser would close its own connections.
            if !(16..=16_384).contains(&value) {
                return Err(invalid(format!("relayer.{setting} must be from 16 to 16384")));
            }
        }
        if max_connections_per_peer > max_connections {
            return Err(invalid("relayer.max_connections_per_peer must not be above relayer.max_connections"));
        }
        let hosts = Hosts::parse(hosts)?;
        Ok(Limits { connections: *max_connections, per_peer: *max_connections_per_peer, hosts })
    }

    /// The section of each rail, with the defaults of its kind below it.
    pub(crate) fn rails(&self) -> Result<Vec<DestinationSection>, Failure> {
        self.rails.iter().map(|(name, own)| destination_section("rails", name, own, &self.defaults)).collect()
    }

    /// The section of each sink.
    pub(crate) fn sinks(&self) -> Result<Vec<DestinationSection>, Failure> {
        self.sinks.iter().map(|(name, own)| destination_section("sinks", name, own, &BTreeMap::new())).collect()
    }

    /// The routes from events to sinks.
    pub(crate) fn routes(&self) -> Result<Routes, Failure> {
        let route = |section: &RouteSection| {
            let RouteSection { aggregate_type, event_type, sink, destination } = section;
            if !self.sinks.contains_key(sink) {
                return Err(invalid(format!("event.routes: there is no section [sinks.{sink}]")));
            }
            Route::new(aggregate_type, event_type, sink, destination)
                .map_err(|error| invalid(format!("event.routes: destination {destination:?}: {error}")))
        };
        Ok(Routes::new(self.event.own.routes.iter().map(route).collect::<Result<_, _>>()?))
    }

    /// The section of each store.
    pub(crate) fn stores(&self) -> Result<Vec<DestinationSection>, Failure> {
        self.stores.iter().map(|(name, own)| destination_section("stores", name, own, &BTreeMap::new())).collect()
    }

    /// The routes from entity types to stores.
    pub(crate) fn store_routes(&self) -> Result<metadata::routing::Routes, Failure> {
        let route = |StoreRoute { entity_type, store }: &StoreRoute| {
            if !self.stores.contains_key(store) {
                return Err(invalid(format!("metadata.routes: there is no section [stores.{store}]")));
            }
            if entity_type.trim().is_empty() {
                return Err(invalid("metadata.routes: entity_type is blank; write a type, or \"*\" for any"));
            }
            Ok(metadata::routing::Route { entity_type: entity_type.clone(), store: store.clone() })
        };
        let routes = self.metadata.own.routes.iter().map(route).collect::<Result<_, _>>()?;
        Ok(metadata::routing::Routes::new(routes))
    }

    /// The engine settings of the payment lane.
    pub(crate) fn payment_settings(&self, rails: &[DestinationSection]) -> Settings {
        Settings {
            repair_every: self.payment.own.repair_every,
            ..self.payment.engine.settings(rails, SlowRoutes::ShareSlots)
        }
    }

    /// The engine settings of the event lane. It has no repair: claims take over expired claims.
    pub(crate) fn event_settings(&self, sinks: &[DestinationSection]) -> Settings {
        Settings { repair_every: Duration::ZERO, ..self.event.engine.settings(sinks, SlowRoutes::Capped) }
    }

    /// The engine settings of the metadata lane.
    pub(crate) fn metadata_settings(&self, stores: &[DestinationSection]) -> Settings {
        Settings {
            repair_every: self.metadata.own.repair_every,
            ..self.metadata.engine.settings(stores, SlowRoutes::Capped)
        }
    }
}

fn destination_section(
    section: &str,
    name: &str,
    own: &Table,
    defaults: &BTreeMap<String, Table>,
) -> Result<DestinationSection, Failure> {
    let mut own = own.clone();
    let slots = own.remove("slots").map(|slots| {
        slots
            .as_integer()
            .and_then(|slots| usize::try_from(slots).ok())
            .ok_or_else(|| Failure::usage(format!("{section}.{name}.slots must be a number from 1 to 1024")))
    });
    let kind = own.get("kind").and_then(Value::as_str).unwrap_or_default();
    let mut settings = defaults.get(kind).cloned().unwrap_or_default();
    settings.extend(own);
    Ok(DestinationSection { name: name.to_owned(), slots: slots.transpose()?, settings })
}

fn read(path: &Path) -> std::io::Result<String> {
    let length = std::fs::metadata(path)?.len();
    if length > MAX_FILE_BYTES {
        return Err(std::io::Error::other(format!(
            "it has {length} bytes, more than the limit of {MAX_FILE_BYTES}"
        )));
    }
    std::fs::read_to_string(path)
}

fn invalid(error: impl std::fmt::Display) -> Failure {
    Failure::usage(error.to_string().trim_end().to_owned())
        .hint("see all settings with: symphony run --print-example")
}

/// A syntax error: its position and the setting's name. The line itself is never shown, because it may hold a secret.
fn invalid_toml(text: &str, error: &toml::de::Error) -> Failure {
    let start = error.span().map_or(0, |span| span.start).min(text.len());
    let before = text.get(..start).unwrap_or_default();
    let (number, column) =
        (before.matches('\n').count() + 1, before.chars().rev().take_while(|c| *c != '\n').count() + 1);
    let line = text.lines().nth(number - 1).unwrap_or_default();
    // Only a name that the example has as well: any other text may be part of a secret.
    let key = line.split_once('=').map(|(key, _)| key.trim());
    let known = |key: &&str| !key.is_empty() && EXAMPLE.contains(&format!("{key} ="));
    let key = key.filter(known).map(|key| format!(", {key}")).unwrap_or_default();
    // The parser's message, unless it repeats a word of the line.
    let mut words = line.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 3);
    let message = error.message().lines().next().unwrap_or_default();
    let why = if words.any(|word| message.contains(word)) { "" } else { message };
    let separator = if why.is_empty() { "" } else { ": " };
    invalid(format!("line {number}, column {column}{key}: this is not TOML{separator}{why}"))
}

/// A setting has a value of the wrong type: its name, and what it must be. The value is never shown.
fn wrong_type(error: &toml::de::Error) -> Failure {
    let shown = error.to_string();
    let mut lines = shown.lines();
    let message = without_value(lines.next().unwrap_or_default());
    let mut path: Vec<_> = lines.filter_map(|line| line.strip_prefix("in `")?.strip_suffix('`')).collect();
    path.reverse();
    if path.is_empty() { invalid(message) } else { invalid(format!("{}: {message}", path.join("."))) }
}

/// Merges the user's settings over the defaults, which say which names exist.
fn merge(all: &mut Table, given: Table, path: &str) -> Result<(), Failure> {
    for (name, value) in given {
        let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if USER_NAMED_SECTIONS.contains(&path) {
            all.insert(name, value);
            continue;
        }
        match (all.get_mut(&name), value) {
            (Some(Value::Table(below)), Value::Table(given)) => merge(below, given, &at)?,
            (Some(Value::Table(_)), _) => return Err(invalid(format!("{at} is a section; write [{at}]"))),
            (Some(current), value) => *current = value,
            // A kind of rail may have settings without a default.
            (None, value) if path.starts_with("defaults.") => {
                all.insert(name, value);
            }
            (None, _) => return Err(invalid(format!("there is no setting {at}"))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Config::parse(text).unwrap_err().render()
    }

    #[test]
    fn the_example_is_what_the_engine_does_by_default() {
        let config = Config::load(None).unwrap();
        assert_eq!(config.payment_settings(&[]), Settings::default());
        assert_eq!(config.payment.own.lease, Duration::from_secs(30));
        assert!(config.rails().unwrap().is_empty());
    }

    #[test]
    fn the_users_settings_override_the_defaults() {
        let config = Config::parse(
            "[payment]\nslots = 3\n[defaults.http]\ntimeout = '9s'\n\
             [rails.sepa]\nkind = 'http'\nslots = 2\nurl = 'https://b'\n[rails.b]\nkind = 'http'\ntimeout = '1s'\n",
        )
        .unwrap();
        let rails = config.rails().unwrap();
        assert_eq!(config.payment_settings(&rails).slots, 3);
        let slots = BTreeMap::from([("sepa".to_owned(), 2)]);
        assert_eq!(config.payment_settings(&rails).route_slots, slots);
        assert!(config.payment_settings(&[]).route_slots.is_empty());
        assert_eq!(rails[0].settings["timeout"].as_str(), Some("1s"));
        assert_eq!(rails[1].settings["timeout"].as_str(), Some("9s"));
        assert_eq!(rails[1].settings["url"].as_str(), Some("https://b"));
        assert!(!rails[1].settings.contains_key("slots"));
    }

    #[test]
    fn an_unknown_setting_or_a_wrong_type_is_refused_by_name() {
        assert!(refusal("[payment]\nslot = 3").contains("there is no setting payment.slot"));
        assert!(refusal("[payments]\nslots = 3").contains("there is no setting payments"));
        assert!(refusal("payment = 3").contains("payment is a section"));
        assert!(refusal("[payment]\nslots = 'many'").contains("slots"));
        assert!(refusal("[payment]\nlease = 30").contains("lease"));
        assert!(refusal("[payment]\nlease = 'soon'").contains("write \"500ms\""));
        assert!(refusal("[payment]\nlease = '-3s'").contains("must be a duration"));
        assert!(refusal("[payment]\nlease = '4500ms'").contains("4.5s is not in whole seconds"));
        assert!(refusal("[relayer]\nlog_level = 'loud'").contains("log_level"));
        assert!(refusal("[payment").contains("line 1, column "));
    }

    #[test]
    fn a_syntax_error_shows_its_position_and_never_the_text() {
        let error = refusal("# ü\n[rails.sepa]\nsecret_env = whsec_hidden");
        assert!(error.contains("line 3, column 14, secret_env: this is not TOML"), "{error}");
        for text in [
            "whsec_hidden",
            "whsec_hidden =",
            "a = 'whsec_hidden",
            "whsec_hidden = 1\nwhsec_hidden = 2",
            "[whsec_hidden",
        ] {
            let error = refusal(text);
            assert!(!error.contains("hidden") && error.contains("line "), "{error}");
        }
    }

    #[test]
    fn a_route_names_an_existing_sink() {
        let route = "[[event.routes]]\naggregate_type = '*'\nevent_type = '*'\nsink = 'bus'\ndestination = ";
        let routes = |text: &str| Config::parse(text).unwrap().routes();
        assert!(routes(&format!("{route}'a'")).unwrap_err().render().contains("no section [sinks.bus]"));
        let sinks = "[sinks.bus]\nkind = 'nats'\n";
        assert!(
            routes(&format!("{sinks}{route}'a.{{id}}'"))
                .unwrap_err()
                .render()
                .contains("unknown placeholder {id}")
        );
        assert_eq!(
            routes(&format!("{sinks}{route}'a.{{event_type}}'")).unwrap().sinks().collect::<Vec<_>>(),
            ["bus"]
        );
        assert!(refusal("[event]\norder = 'strict'").contains("write \"held\" or \"aggregate\""));
        assert!(refusal(&format!("{route}'a'\ntopic = 'b'")).contains("topic"));
    }

    #[test]
    fn a_route_of_metadata_names_an_existing_store() {
        let routes = |text: &str| Config::parse(text).unwrap().store_routes();
        let route = "[[metadata.routes]]\nentity_type = '*'\nstore = 'copies'\n";
        assert!(routes(route).unwrap_err().render().contains("no section [stores.copies]"));
        let stores = "[stores.copies]\nkind = 'redis'\n";
        assert_eq!(routes(&format!("{stores}{route}")).unwrap().stores().collect::<Vec<_>>(), ["copies"]);
        let blank = route.replace("'*'", "' '");
        assert!(routes(&format!("{stores}{blank}")).unwrap_err().render().contains("entity_type is blank"));
        assert!(refusal(&format!("{route}topic = 'b'")).contains("topic"));
        assert!(refusal("[metadata]\nlease = '30s'").contains("there is no setting metadata.lease"));
    }

    #[test]
    fn connection_limits_have_a_range() {
        let limits = Config::load(None).unwrap().server_limits().unwrap();
        let default = Limits::default();
        assert_eq!((limits.connections, limits.per_peer), (default.connections, default.per_peer));
        let refusal = |text: &str| Config::parse(text).unwrap().server_limits().unwrap_err().render();
        assert!(refusal("[relayer]\nmax_connections = 8").contains("from 16 to 16384"));
        assert!(refusal("[relayer]\nmax_connections = 32").contains("must not be above relayer.max_connections"));
        assert!(refusal("[relayer]\nhosts = ['*']").contains("is not a host name"));
    }

    #[test]
    fn debug_output_shows_no_password() {
        let config = Config::parse(
            "[database]\nurl = 'postgres://me:s3cret@h/db'\n[console]\nread_url = 'postgres://me:s3cret@h/db'",
        )
        .unwrap();
        assert!(!format!("{config:?}").contains("s3cret"));
    }
}
