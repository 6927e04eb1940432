//! Whether spans are drawn: where the settings or the environment name a collector. What becomes of them is counted here.

use std::sync::Arc;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use symphony_outbox::WorkerId;
use symphony_sinks::traces::{Loss, Tally, Traces};
use toml::{Table, Value};

use crate::failure::Failure;

/// The variables that every program with OpenTelemetry knows: the whole address, the address before `/v1/traces`, and who we are.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const BASE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const SERVICE: &str = "OTEL_SERVICE_NAME";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Why {
    reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the name is the label's value")]
enum Reason {
    queue_full,
    not_taken,
}

/// Counts spans.
#[derive(Debug, Default)]
struct Counts {
    exported: Counter,
    dropped: Family<Why, Counter>,
}

impl Counts {
    fn new(registry: &mut Registry) -> Self {
        let counts = Self::default();
        registry.register("trace_spans_exported", "Spans that the collector took", counts.exported.clone());
        registry.register("trace_spans_dropped", "Spans that are lost, by reason", counts.dropped.clone());
        // What may stay at nothing is shown as that.
        for reason in [Reason::queue_full, Reason::not_taken] {
            let _ = counts.dropped.get_or_create(&Why { reason });
        }
        counts
    }
}

impl Tally for Counts {
    fn exported(&self, spans: u64) {
        self.exported.inc_by(spans);
    }

    fn dropped(&self, loss: Loss, spans: u64) {
        let reason = match loss {
            Loss::QueueFull => Reason::queue_full,
            Loss::NotTaken => Reason::not_taken,
        };
        self.dropped.get_or_create(&Why { reason }).inc_by(spans);
    }
}

/// Begins to draw spans, where a collector is named. Nothing is asked of it yet.
pub(crate) fn start(
    section: &Table,
    worker: &WorkerId,
    registry: &mut Registry,
) -> Result<Option<Traces>, Failure> {
    let settings = given(section, |name| std::env::var(name).ok());
    if settings.get("endpoint").and_then(Value::as_str).is_some_and(|endpoint| endpoint.trim().is_empty()) {
        return Ok(None);
    }
    let started = Traces::start(settings, worker.as_str(), Arc::new(Counts::new(registry)));
    started.map(Some).map_err(|wrong| {
        let hint = format!("docs/traces.md explains the settings; {ENDPOINT} and {BASE} go before endpoint");
        Failure::usage(wrong.to_string()).hint(hint)
    })
}

/// The section, and over it what the environment says.
fn given(section: &Table, variable: impl Fn(&str) -> Option<String>) -> Table {
    let said = |name| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let below = |base: String| format!("{}/v1/traces", base.trim_end_matches('/'));
    let mut settings = section.clone();
    if let Some(endpoint) = said(ENDPOINT).or_else(|| said(BASE).map(below)) {
        settings.insert("endpoint".to_owned(), endpoint.into());
    }
    if let Some(name) = said(SERVICE) {
        settings.insert("service_name".to_owned(), name.into());
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(variables: &[(&str, &str)]) -> String {
        let section = "endpoint = 'https://file'".parse().unwrap();
        let variable =
            |name: &str| variables.iter().find(|(given, _)| *given == name).map(|(_, value)| (*value).to_owned());
        given(&section, variable)["endpoint"].as_str().unwrap().to_owned()
    }

    #[test]
    fn the_environment_goes_before_the_file_and_the_whole_address_before_its_beginning() {
        assert_eq!(endpoint(&[]), "https://file");
        assert_eq!(endpoint(&[(BASE, " ")]), "https://file");
        assert_eq!(endpoint(&[(BASE, "https://base/")]), "https://base/v1/traces");
        assert_eq!(endpoint(&[(BASE, "https://base"), (ENDPOINT, "https://whole/x")]), "https://whole/x");
    }
}
