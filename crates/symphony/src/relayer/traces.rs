//! The trace exporter: runs if the settings or the environment name a collector, and counts exported and lost spans.

use std::sync::Arc;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use symphony_db::WorkerId;
use symphony_sinks::traces::{Loss, Tally, Traces};
use toml::{Table, Value};

use crate::failure::Failure;

/// OpenTelemetry's variables: the whole endpoint, the endpoint without `/v1/traces`, and the service's name.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const BASE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const SERVICE: &str = "OTEL_SERVICE_NAME";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DropLabels {
    reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the name is the label's value")]
enum Reason {
    queue_full,
    not_taken,
}

/// The counters of spans.
#[derive(Debug, Default)]
struct SpanCounts {
    exported: Counter,
    dropped: Family<DropLabels, Counter>,
}

impl SpanCounts {
    fn new(registry: &mut Registry) -> Self {
        let counts = Self::default();
        registry.register("trace_spans_exported", "Spans that the collector accepted", counts.exported.clone());
        registry.register("trace_spans_dropped", "Spans dropped, by reason", counts.dropped.clone());
        // Counters that may stay at zero are exported as zero.
        for reason in [Reason::queue_full, Reason::not_taken] {
            let _ = counts.dropped.get_or_create(&DropLabels { reason });
        }
        counts
    }
}

impl Tally for SpanCounts {
    fn exported(&self, spans: u64) {
        self.exported.inc_by(spans);
    }

    fn dropped(&self, loss: Loss, spans: u64) {
        let reason = match loss {
            Loss::QueueFull => Reason::queue_full,
            Loss::NotTaken => Reason::not_taken,
        };
        self.dropped.get_or_create(&DropLabels { reason }).inc_by(spans);
    }
}

/// Starts the exporter if a collector is named. It does not connect yet.
pub(crate) fn start(
    section: &Table,
    worker: &WorkerId,
    registry: &mut Registry,
) -> Result<Option<Traces>, Failure> {
    let settings = with_environment(section, |name| std::env::var(name).ok());
    if settings.get("endpoint").and_then(Value::as_str).is_some_and(|endpoint| endpoint.trim().is_empty()) {
        return Ok(None);
    }
    let started = Traces::start(settings, worker.as_str(), Arc::new(SpanCounts::new(registry)));
    started.map(Some).map_err(|wrong| {
        let hint = format!("docs/traces.md explains the settings; {ENDPOINT} and {BASE} override endpoint");
        Failure::usage(wrong.to_string()).hint(hint)
    })
}

/// The section, with the environment's values merged over it.
fn with_environment(section: &Table, variable: impl Fn(&str) -> Option<String>) -> Table {
    let value_of = |name| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let traces_path = |base: String| format!("{}/v1/traces", base.trim_end_matches('/'));
    let mut settings = section.clone();
    if let Some(endpoint) = value_of(ENDPOINT).or_else(|| value_of(BASE).map(traces_path)) {
        settings.insert("endpoint".to_owned(), endpoint.into());
    }
    if let Some(name) = value_of(SERVICE) {
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
        with_environment(&section, variable)["endpoint"].as_str().unwrap().to_owned()
    }

    #[test]
    fn the_environment_overrides_the_file_and_the_whole_endpoint_overrides_the_base() {
        assert_eq!(endpoint(&[]), "https://file");
        assert_eq!(endpoint(&[(BASE, " ")]), "https://file");
        assert_eq!(endpoint(&[(BASE, "https://base/")]), "https://base/v1/traces");
        assert_eq!(endpoint(&[(BASE, "https://base"), (ENDPOINT, "https://whole/x")]), "https://whole/x");
    }
}
