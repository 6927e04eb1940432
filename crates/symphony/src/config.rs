//! The settings of `symphony run`: the program's own file of defaults, and over it the user's.
//!
//! The defaults stand in `symphony.example.toml` and nowhere else. A setting that is not in that file does not exist, so a
//! misspelt one is refused. What a rail makes of its section is for the sinks to say; ranges are for the engine.

mod lane;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use symphony_relay::event::routing::{Route, Routes};
use symphony_relay::{Settings, metadata};
use symphony_sinks::without_value;
use toml::{Table, Value};

use crate::console::access;
use crate::failure::Failure;
use crate::server::{Limits, head::Hosts};

pub(crate) use lane::UnservedRails;
use lane::{Event, Metadata, Paced, Payment, RouteSection, StoreRoute};

/// Every setting, with its default.
pub(crate) const EXAMPLE: &str = include_str!("../../../symphony.example.toml");
/// The sections whose entries are the user's to name, or are for the sinks to know.
const NAMED: [&str; 4] = ["rails", "sinks", "stores", "traces"];
/// A file of settings is read by people: nobody writes one that is longer.
const LONGEST: u64 = 1024 * 1024;

/// All settings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) database: Database,
    pub(crate) relayer: Relayer,
    pub(crate) payment: Paced<Payment>,
    pub(crate) event: Paced<Event>,
    metadata: Paced<Metadata>,
    pub(crate) console: Console,
    /// For the sinks.
    pub(crate) traces: Table,
    defaults: BTreeMap<String, Table>,
    rails: BTreeMap<String, Table>,
    sinks: BTreeMap<String, Table>,
    stores: BTreeMap<String, Table>,
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

/// The API and the dashboard.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Console {
    pub(crate) read_url: String,
    pub(crate) act_url: String,
    pub(crate) listen: String,
    pub(crate) tokens: Vec<access::Section>,
}

/// Addresses may hold a password.
impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

/// The process.
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

/// The section of a rail, a sink or a store, split into what the engine reads and what the way out does.
#[derive(Debug)]
pub(crate) struct WayOut {
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
        let given: Table = text.parse().map_err(|error| not_toml(text, &error))?;
        lay_over(&mut all, given, "")?;
        Self::deserialize(Value::Table(all)).map_err(|error| unfit(&error))
    }

    /// What the HTTP server may hold, and under which names it answers.
    pub(crate) fn server_limits(&self) -> Result<Limits, Failure> {
        let Relayer { max_connections, max_connections_per_peer, hosts, .. } = &self.relayer;
        for (setting, value) in
            [("max_connections", *max_connections), ("max_connections_per_peer", *max_connections_per_peer)]
        {
            // With fewer, a browser would close its own connections.
            if !(16..=16_384).contains(&value) {
                return Err(wrong(format!("relayer.{setting} must be from 16 to 16384")));
            }
        }
        if max_connections_per_peer > max_connections {
            return Err(wrong("relayer.max_connections_per_peer must not be above relayer.max_connections"));
        }
        let hosts = Hosts::parse(hosts)?;
        Ok(Limits { connections: *max_connections, per_peer: *max_connections_per_peer, hosts })
    }

    /// The section of each rail, with the defaults of its kind below it.
    pub(crate) fn rails(&self) -> Result<Vec<WayOut>, Failure> {
        self.rails.iter().map(|(name, own)| way_out("rails", name, own, &self.defaults)).collect()
    }

    /// The section of each sink.
    pub(crate) fn sinks(&self) -> Result<Vec<WayOut>, Failure> {
        self.sinks.iter().map(|(name, own)| way_out("sinks", name, own, &BTreeMap::new())).collect()
    }

    /// Which sink gets which event.
    pub(crate) fn routes(&self) -> Result<Routes, Failure> {
        let route = |section: &RouteSection| {
            let RouteSection { aggregate_type, event_type, sink, destination } = section;
            if !self.sinks.contains_key(sink) {
                return Err(wrong(format!("event.routes: there is no section [sinks.{sink}]")));
            }
            Route::new(aggregate_type, event_type, sink, destination)
                .map_err(|error| wrong(format!("event.routes: destination {destination:?}: {error}")))
        };
        Ok(Routes::new(self.event.own.routes.iter().map(route).collect::<Result<_, _>>()?))
    }

    /// The section of each store.
    pub(crate) fn stores(&self) -> Result<Vec<WayOut>, Failure> {
        self.stores.iter().map(|(name, own)| way_out("stores", name, own, &BTreeMap::new())).collect()
    }

    /// Which store gets the metadata of which entities.
    pub(crate) fn store_routes(&self) -> Result<metadata::routing::Routes, Failure> {
        let route = |StoreRoute { entity_type, store }: &StoreRoute| {
            if !self.stores.contains_key(store) {
                return Err(wrong(format!("metadata.routes: there is no section [stores.{store}]")));
            }
            if entity_type.trim().is_empty() {
                return Err(wrong("metadata.routes: entity_type is blank: write a type, or \"*\" for any"));
            }
            Ok(metadata::routing::Route { entity_type: entity_type.clone(), store: store.clone() })
        };
        let routes = self.metadata.own.routes.iter().map(route).collect::<Result<_, _>>()?;
        Ok(metadata::routing::Routes::new(routes))
    }

    /// How the engine of the payment lane works.
    pub(crate) fn payment_settings(&self, rails: &[WayOut]) -> Settings {
        Settings { repair_every: self.payment.own.repair_every, ..self.payment.pace.settings(rails) }
    }

    /// How the engine of the event lane works. Claims take over what is stale, so there is nothing to repair.
    pub(crate) fn event_settings(&self, sinks: &[WayOut]) -> Settings {
        Settings { repair_every: Duration::ZERO, ..self.event.pace.settings(sinks) }
    }

    /// How the engine of the metadata lane works.
    pub(crate) fn metadata_settings(&self, stores: &[WayOut]) -> Settings {
        Settings { repair_every: self.metadata.own.repair_every, ..self.metadata.pace.settings(stores) }
    }
}

fn way_out(section: &str, name: &str, own: &Table, defaults: &BTreeMap<String, Table>) -> Result<WayOut, Failure> {
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
    Ok(WayOut { name: name.to_owned(), slots: slots.transpose()?, settings })
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

/// The file is no TOML: where, and of which setting. Never the line itself, which may hold a secret.
fn not_toml(text: &str, error: &toml::de::Error) -> Failure {
    let start = error.span().map_or(0, |span| span.start).min(text.len());
    let before = text.get(..start).unwrap_or_default();
    let (number, column) =
        (before.matches('\n').count() + 1, before.chars().rev().take_while(|c| *c != '\n').count() + 1);
    let line = text.lines().nth(number - 1).unwrap_or_default();
    // Only a name that the example has too: anything else may be a part of a secret.
    let key = line.split_once('=').map(|(key, _)| key.trim());
    let known = |key: &&str| !key.is_empty() && EXAMPLE.contains(&format!("{key} ="));
    let key = key.filter(known).map(|key| format!(", {key}")).unwrap_or_default();
    // The parser's words, unless they repeat a word of the line.
    let mut words = line.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 3);
    let said = error.message().lines().next().unwrap_or_default();
    let why = if words.any(|word| said.contains(word)) { "" } else { said };
    let separator = if why.is_empty() { "" } else { ": " };
    wrong(format!("line {number}, column {column}{key}: this is not TOML{separator}{why}"))
}

/// A setting has a value of the wrong type: which one, and what it must be. Never the value.
fn unfit(error: &toml::de::Error) -> Failure {
    let shown = error.to_string();
    let mut lines = shown.lines();
    let message = without_value(lines.next().unwrap_or_default());
    let mut path: Vec<_> = lines.filter_map(|line| line.strip_prefix("in `")?.strip_suffix('`')).collect();
    path.reverse();
    if path.is_empty() { wrong(message) } else { wrong(format!("{}: {message}", path.join("."))) }
}

/// Puts what was given over what there is. What there is says which names exist.
fn lay_over(all: &mut Table, given: Table, path: &str) -> Result<(), Failure> {
    for (name, value) in given {
        let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if NAMED.contains(&path) {
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
        assert_eq!(config.payment.own.lease, Duration::from_secs(30));
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
        assert!(refusal("[payment]\nlease = '-3s'").contains("must be a time"));
        assert!(refusal("[payment]\nlease = '4500ms'").contains("4.5s is not in whole seconds"));
        assert!(refusal("[relayer]\nlog_level = 'loud'").contains("log_level"));
        assert!(refusal("[payment").contains("line 1, column "));
    }

    #[test]
    fn what_is_no_toml_is_told_by_its_place_and_never_by_its_words() {
        let said = refusal("# ü\n[rails.sepa]\nsecret_env = whsec_hidden");
        assert!(said.contains("line 3, column 14, secret_env: this is not TOML"), "{said}");
        for text in [
            "whsec_hidden",
            "whsec_hidden =",
            "a = 'whsec_hidden",
            "whsec_hidden = 1\nwhsec_hidden = 2",
            "[whsec_hidden",
        ] {
            let said = refusal(text);
            assert!(!said.contains("hidden") && said.contains("line "), "{said}");
        }
    }

    #[test]
    fn a_route_names_a_sink_that_there_is() {
        let route = "[[event.routes]]\naggregate_type = '*'\nevent_type = '*'\nsink = 'bus'\ndestination = ";
        let routes = |text: &str| Config::parse(text).unwrap().routes();
        assert!(routes(&format!("{route}'a'")).unwrap_err().in_full().contains("no section [sinks.bus]"));
        let sinks = "[sinks.bus]\nkind = 'nats'\n";
        assert!(routes(&format!("{sinks}{route}'a.{{id}}'")).unwrap_err().in_full().contains("{id} is not known"));
        assert_eq!(
            routes(&format!("{sinks}{route}'a.{{event_type}}'")).unwrap().sinks().collect::<Vec<_>>(),
            ["bus"]
        );
        assert!(refusal("[event]\norder = 'strict'").contains("write \"held\" or \"aggregate\""));
        assert!(refusal(&format!("{route}'a'\ntopic = 'b'")).contains("topic"));
    }

    #[test]
    fn a_route_of_metadata_names_a_store_that_there_is() {
        let routes = |text: &str| Config::parse(text).unwrap().store_routes();
        let route = "[[metadata.routes]]\nentity_type = '*'\nstore = 'copies'\n";
        assert!(routes(route).unwrap_err().in_full().contains("no section [stores.copies]"));
        let stores = "[stores.copies]\nkind = 'redis'\n";
        assert_eq!(routes(&format!("{stores}{route}")).unwrap().stores().collect::<Vec<_>>(), ["copies"]);
        let blank = route.replace("'*'", "' '");
        assert!(routes(&format!("{stores}{blank}")).unwrap_err().in_full().contains("entity_type is blank"));
        assert!(refusal(&format!("{route}topic = 'b'")).contains("topic"));
        assert!(refusal("[metadata]\nlease = '30s'").contains("there is no setting metadata.lease"));
    }

    #[test]
    fn limits_of_the_server_have_bounds() {
        let limits = Config::load(None).unwrap().server_limits().unwrap();
        let default = Limits::default();
        assert_eq!((limits.connections, limits.per_peer), (default.connections, default.per_peer));
        let refusal = |text: &str| Config::parse(text).unwrap().server_limits().unwrap_err().in_full();
        assert!(refusal("[relayer]\nmax_connections = 8").contains("from 16 to 16384"));
        assert!(refusal("[relayer]\nmax_connections = 32").contains("must not be above relayer.max_connections"));
        assert!(refusal("[relayer]\nhosts = ['*']").contains("is not the name of a host"));
    }

    #[test]
    fn an_address_is_not_shown() {
        let config = Config::parse(
            "[database]\nurl = 'postgres://me:s3cret@h/db'\n[console]\nread_url = 'postgres://me:s3cret@h/db'",
        )
        .unwrap();
        assert!(!format!("{config:?}").contains("s3cret"));
    }
}
