//! The rail of a given kind. A new way out adds an arm here, and nothing else outside of its own file.

use std::sync::Arc;

use serde::Deserialize;
use symphony_relay::rail::Rail;

use crate::config::{self, ConfigError, Problem};
use crate::noop::NoopRail;

const KINDS: &str =
    if cfg!(feature = "http") { "\"http\" or \"noop\"" } else { "\"noop\" (built without \"http\")" };

/// A rail that can do nothing by halves has no settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct None {}

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

#[cfg_attr(not(feature = "http"), expect(unused_variables, reason = "a noop rail needs no name"))]
fn build(name: &str, mut settings: toml::Table) -> Result<Arc<dyn Rail>, Problem> {
    let kind = settings.remove("kind");
    match kind.as_ref().and_then(|kind| kind.as_str()) {
        #[cfg(feature = "http")]
        Some("http") => Ok(Arc::new(crate::http::HttpRail::build(name, config::read(settings)?)?)),
        Some("noop") => {
            let None {} = config::read(settings)?;
            Ok(Arc::new(NoopRail))
        }
        _ => Err(Problem::new("kind", format!("must be {KINDS}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(toml: &str) -> String {
        match rail("sepa", toml.parse().unwrap()) {
            Ok(_) => panic!("{toml} was taken"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_noop_rail_has_no_settings() {
        assert!(!rail("bench", "kind = 'noop'".parse().unwrap()).unwrap().can_be_asked());
        assert!(refusal("kind = 'noop'\nurl = 'x'").starts_with("rail sepa: url: unknown field"));
    }

    #[test]
    fn a_kind_that_nobody_knows_is_refused_with_those_that_there_are() {
        for toml in ["", "kind = 'htpp'", "kind = 1"] {
            assert!(refusal(toml).starts_with("rail sepa: kind: must be "), "{toml}");
        }
    }
}
