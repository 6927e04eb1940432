//! The rail, sink or store of a given kind. A new way out adds an arm here, and nothing else outside of its own file.

use std::sync::Arc;

use symphony_relay::rail::Rail;
use symphony_relay::sink::Sink;
use symphony_relay::store::Store;

use crate::config::{ConfigError, Problem};

/// Every kind of rail, and whether this build has it. None takes a payment without sending it: a ledger would call it paid.
const RAILS: [(&str, bool); 1] = [("http", cfg!(feature = "http"))];

/// Builds a rail from its table in the settings: `kind` says which, the rest is that kind's own.
///
/// Files and environment variables that the settings name are read here, once.
///
/// # Errors
///
/// What is wrong with which setting, and what to write instead.
pub fn rail(name: &str, settings: toml::Table) -> Result<Arc<dyn Rail>, ConfigError> {
    build(name, settings).map_err(|problem| problem.of(name))
}

#[cfg_attr(not(feature = "http"), expect(unused_variables, reason = "there is no rail that needs a name"))]
fn build(name: &str, mut settings: toml::Table) -> Result<Arc<dyn Rail>, Problem> {
    let kind = settings.remove("kind");
    match kind.as_ref().and_then(|kind| kind.as_str()) {
        #[cfg(feature = "http")]
        Some("http") => Ok(Arc::new(crate::http::HttpRail::build(name, crate::config::read(settings)?)?)),
        kind => Err(not_here(kind, &RAILS)),
    }
}

/// Every kind of sink, and whether this build has it.
const SINKS: [(&str, bool); 5] = [
    ("nats", cfg!(feature = "nats")),
    ("redis", cfg!(feature = "redis")),
    ("rabbitmq", cfg!(feature = "rabbitmq")),
    ("kafka", cfg!(feature = "kafka")),
    ("http", cfg!(feature = "http")),
];

/// Builds a sink from its table in the settings: `kind` says which, the rest is that kind's own.
///
/// Files and environment variables that the settings name are read here, once. No broker is asked: the first
/// publication connects.
///
/// # Errors
///
/// What is wrong with which setting, and what to write instead.
pub fn sink(name: &str, settings: toml::Table) -> Result<Arc<dyn Sink>, ConfigError> {
    build_sink(settings).map_err(|problem| problem.of_sink(name))
}

fn build_sink(mut settings: toml::Table) -> Result<Arc<dyn Sink>, Problem> {
    let kind = settings.remove("kind");
    match kind.as_ref().and_then(|kind| kind.as_str()) {
        #[cfg(feature = "nats")]
        Some("nats") => Ok(Arc::new(crate::event::nats::Nats::build(settings)?)),
        #[cfg(feature = "redis")]
        Some("redis") => Ok(Arc::new(crate::event::redis::Redis::build(settings)?)),
        #[cfg(feature = "rabbitmq")]
        Some("rabbitmq") => Ok(Arc::new(crate::event::rabbitmq::RabbitMq::build(settings)?)),
        #[cfg(feature = "kafka")]
        Some("kafka") => Ok(Arc::new(crate::event::kafka::Kafka::build(settings)?)),
        #[cfg(feature = "http")]
        Some("http") => Ok(Arc::new(crate::http::cloudevents::HttpSink::build(settings)?)),
        kind => Err(not_here(kind, &SINKS)),
    }
}

/// Every kind of store, and whether this build has it.
const STORES: [(&str, bool); 3] = [
    ("postgres", cfg!(feature = "postgres")),
    ("redis", cfg!(feature = "redis")),
    ("http", cfg!(feature = "http")),
];

/// Builds a store from its table in the settings: `kind` says which, the rest is that kind's own.
///
/// Files and environment variables that the settings name are read here, once. No server is asked: the first write
/// connects.
///
/// # Errors
///
/// What is wrong with which setting, and what to write instead.
pub fn store(name: &str, settings: toml::Table) -> Result<Arc<dyn Store>, ConfigError> {
    build_store(settings).map_err(|problem| problem.of_store(name))
}

fn build_store(mut settings: toml::Table) -> Result<Arc<dyn Store>, Problem> {
    let kind = settings.remove("kind");
    match kind.as_ref().and_then(|kind| kind.as_str()) {
        #[cfg(feature = "postgres")]
        Some("postgres") => Ok(Arc::new(crate::metadata::postgres::Postgres::build(settings)?)),
        #[cfg(feature = "redis")]
        Some("redis") => Ok(Arc::new(crate::metadata::redis::Redis::build(settings)?)),
        #[cfg(feature = "http")]
        Some("http") => Ok(Arc::new(crate::http::put::HttpStore::build(settings)?)),
        kind => Err(not_here(kind, &STORES)),
    }
}

/// What there is instead of a kind that is not here.
fn not_here(kind: Option<&str>, kinds: &[(&str, bool)]) -> Problem {
    if let Some(kind) = kind.filter(|kind| kinds.contains(&(kind, false))) {
        let text = format!("is {kind:?}, which this build does not have: build with the feature {kind:?}");
        return Problem::new("kind", text);
    }
    let here = kinds.iter().filter(|(_, here)| *here).map(|(kind, _)| format!("{kind:?}"));
    Problem::new("kind", format!("must be one of {}", here.collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_sink_or_store_that_nobody_knows_is_refused_with_those_that_there_are() {
        for toml in ["", "kind = 'natz'", "kind = 1"] {
            let said = sink("orders", toml.parse().unwrap()).err().unwrap().to_string();
            assert!(said.starts_with("sink orders: kind: must be one of "), "{said}");
            let said = store("copies", toml.parse().unwrap()).err().unwrap().to_string();
            assert!(said.starts_with("store copies: kind: must be one of "), "{said}");
        }
    }

    fn refusal(toml: &str) -> String {
        match rail("sepa", toml.parse().unwrap()) {
            Ok(_) => panic!("{toml} was taken"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_kind_that_nobody_knows_is_refused_with_those_that_there_are() {
        for toml in ["", "kind = 'htpp'", "kind = 'noop'", "kind = 1"] {
            assert!(refusal(toml).starts_with("rail sepa: kind: must be one of "), "{toml}");
        }
    }
}
