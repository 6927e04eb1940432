//! Records the spans of dispatches with OpenTelemetry and exports them to a collector by OTLP.
//!
//! Tracing cannot delay a dispatch. An ended span enters a bounded queue or is dropped, and one task exports the queue.
//! Dropped spans are counted, and logged once per outage. See `docs/traces.md`.
//!
//! # Layout
//!
//! - `span`: the name, links and attributes of a span
//! - `exporter`: the queue, and the task that exports it in batches

mod exporter;
mod span;

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanKind, TracerProvider as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use serde::Deserialize;
use symphony_relay::trace::Tracer;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::{self, ConfigError, SettingError};
use crate::http::otlp::{self, Collector};
use exporter::Exporter;
use span::LaneTracer;

/// The largest value of `queue`: a span takes about a kilobyte.
const MAX_QUEUE_SPANS: usize = 65_536;

/// The settings of tracing itself. The others, in [`otlp::Settings`], name the collector.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default = "default_service_name")]
    service_name: String,
    #[serde(default = "default_sample_ratio")]
    sample_ratio: f64,
    #[serde(default = "default_queue")]
    queue: usize,
}

impl Settings {
    fn check(&self) -> Result<(), SettingError> {
        if self.service_name.trim().is_empty() {
            return Err(SettingError::new(
                "service_name",
                "must name the service of the spans, such as \"symphony\"",
            ));
        }
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            return Err(SettingError::new("sample_ratio", "must be from 0.0 to 1.0"));
        }
        if !(1..=MAX_QUEUE_SPANS).contains(&self.queue) {
            return Err(SettingError::new("queue", format!("must be from 1 to {MAX_QUEUE_SPANS}")));
        }
        Ok(())
    }
}

/// Counts exported and dropped spans, for metrics. No method may block.
pub trait Tally: Send + Sync + 'static {
    /// The collector has taken this number of spans.
    fn exported(&self, spans: u64);
    /// This number of spans is lost.
    fn dropped(&self, loss: Loss, spans: u64);
}

/// Why spans are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// The queue was full: spans ended faster than the collector took them.
    QueueFull,
    /// The collector refused them, or could not be reached.
    NotTaken,
}

/// The tracing of one relayer: a tracer per lane, and the task that exports their spans.
pub struct Traces {
    provider: SdkTracerProvider,
    worker: Arc<str>,
    stop: watch::Sender<bool>,
    exporter: JoinHandle<()>,
}

impl Traces {
    /// Starts the export of spans from the table `traces` of the settings. `worker` is the name of this process in
    /// leases.
    ///
    /// Files and environment variables that the settings name are read here, once. The first batch connects to the
    /// collector. Must be called within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// The setting that is wrong, and what to write instead.
    pub fn start(settings: toml::Table, worker: &str, tally: Arc<dyn Tally>) -> Result<Self, ConfigError> {
        Self::build(settings, worker, tally).map_err(SettingError::for_traces)
    }

    fn build(settings: toml::Table, worker: &str, tally: Arc<dyn Tally>) -> Result<Self, SettingError> {
        let (collector, own): (otlp::Settings, Settings) =
            config::read_both(settings, &otlp::SETTING_NAMES, "every connection to a collector")?;
        own.check()?;
        let collector = Collector::build(&collector)?;
        let resource = Resource::builder()
            .with_service_name(own.service_name)
            .with_attributes([
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("service.instance.id", worker.to_owned()),
            ])
            .build();
        let (stop, stopped) = watch::channel(false);
        let (queue, exporter) = Exporter::new(own.queue, collector, &resource, tally, stopped);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(queue)
            // A trace that the producer began keeps its sampling decision; sample_ratio applies to traces that begin
            // here.
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(own.sample_ratio))))
            .with_resource(resource)
            .build();
        Ok(Self { provider, worker: worker.into(), stop, exporter: tokio::spawn(exporter.run()) })
    }

    /// The tracer of the payment lane. Its spans are client spans, since a dispatch waits for the bank's response.
    #[must_use]
    pub fn of_payments(&self) -> Arc<dyn Tracer> {
        self.tracer("payment", SpanKind::Client)
    }

    /// The tracer of the event lane.
    #[must_use]
    pub fn of_events(&self) -> Arc<dyn Tracer> {
        self.tracer("event", SpanKind::Producer)
    }

    /// The tracer of the metadata lane.
    #[must_use]
    pub fn of_metadata(&self) -> Arc<dyn Tracer> {
        self.tracer("metadata", SpanKind::Client)
    }

    fn tracer(&self, lane: &'static str, kind: SpanKind) -> Arc<dyn Tracer> {
        let tracer = self.provider.tracer("symphony");
        Arc::new(LaneTracer { tracer, lane, kind, worker: Arc::clone(&self.worker) })
    }

    /// Exports the queued spans, waits at most this long, and stops.
    pub async fn end(mut self, within: Duration) {
        self.stop.send_replace(true);
        if tokio::time::timeout(within, &mut self.exporter).await.is_err() {
            self.exporter.abort();
            tracing::warn!(?within, "the collector did not take the last spans in time; dropped them");
        }
    }
}

fn default_service_name() -> String {
    "symphony".to_owned()
}

fn default_sample_ratio() -> f64 {
    1.0
}

fn default_queue() -> usize {
    2048
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: &str = include_str!("../../../docs/traces.md");
    const EXAMPLE: &str = include_str!("../../../symphony.example.toml");

    struct NoMetrics;

    impl Tally for NoMetrics {
        fn exported(&self, _: u64) {}
        fn dropped(&self, _: Loss, _: u64) {}
    }

    fn start(toml: &str) -> Result<Traces, ConfigError> {
        let collector = "endpoint = 'http://collector.example/v1/traces'\nallow_plain = true\n";
        Traces::start(format!("{collector}{toml}").parse().unwrap(), "worker", Arc::new(NoMetrics))
    }

    fn refusal(toml: &str) -> String {
        start(toml).err().unwrap().to_string()
    }

    #[tokio::test]
    async fn settings_that_make_no_sense_are_refused_by_name() {
        assert!(refusal("sample_ratio = 1.5").starts_with("traces: sample_ratio: must be from 0.0 to 1.0"));
        assert!(refusal("sample_ratio = nan").starts_with("traces: sample_ratio: must be"));
        assert!(refusal("queue = 0").starts_with("traces: queue: must be from 1 to 65536"));
        assert!(refusal("service_name = ' '").starts_with("traces: service_name: must name"));
        assert!(refusal("timeout = '0s'").starts_with("traces: timeout: must be"));
        assert!(refusal("headers = { traceparent = 'x' }").contains("is set by Symphony itself"));
        assert!(refusal("bearer_env = 'NO_SUCH_VARIABLE_OF_TRACES'").starts_with("traces: bearer_env: "));
        let plain = Traces::start("endpoint = 'http://c.example/'".parse().unwrap(), "w", Arc::new(NoMetrics));
        let error = plain.err().unwrap().to_string();
        assert_eq!(error, "traces: endpoint: must be https://; set allow_plain = true to permit plain HTTP");
    }

    #[tokio::test]
    async fn the_manual_names_every_setting_and_the_example_has_the_defaults() {
        let error = refusal("no_such_setting = 1");
        let settings: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        assert_eq!(settings.len(), otlp::SETTING_NAMES.len() + 3, "{error}");
        for setting in settings {
            assert!(MANUAL.contains(&format!("\n| `{setting}` |")), "{setting} is missing in docs/traces.md");
        }
        let example: toml::Table = EXAMPLE.parse().unwrap();
        let (collector, own): (otlp::Settings, Settings) =
            config::read_both(example["traces"].as_table().unwrap().clone(), &otlp::SETTING_NAMES, "all").unwrap();
        let (bare, by_default): (otlp::Settings, Settings) =
            config::read_both("endpoint = ''".parse().unwrap(), &otlp::SETTING_NAMES, "all").unwrap();
        assert_eq!(format!("{collector:?} {own:?}"), format!("{bare:?} {by_default:?}"));
    }
}
