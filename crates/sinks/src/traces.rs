//! Spans of dispatches, drawn as OpenTelemetry sees them and carried to a collector by OTLP.
//!
//! Nothing here can hold up a dispatch: a span that has ended goes into a queue of bounded length or is dropped, and one task
//! carries what is queued. What is lost is counted, and said once. `docs/traces.md` is its manual.
//!
//! # Layout
//!
//! - `drawing`: what a span shows
//! - `carrier`: the queue, and the task that empties it

mod carrier;
mod drawing;

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

use crate::config::{self, ConfigError, Problem};
use crate::http::otlp::{self, Collector};
use carrier::Carrier;
use drawing::LaneTracer;

/// The longest queue, whatever the settings say: a span takes about a kilobyte.
const LONGEST_QUEUE: usize = 65_536;

/// What is its own; the rest says where the collector is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default = "symphony")]
    service_name: String,
    #[serde(default = "all")]
    sample_ratio: f64,
    #[serde(default = "two_thousand")]
    queue: usize,
}

impl Settings {
    fn check(&self) -> Result<(), Problem> {
        if self.service_name.trim().is_empty() {
            return Err(Problem::new("service_name", "must name what the spans are of, such as \"symphony\""));
        }
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            return Err(Problem::new("sample_ratio", "must be from 0.0 to 1.0"));
        }
        if !(1..=LONGEST_QUEUE).contains(&self.queue) {
            return Err(Problem::new("queue", format!("must be from 1 to {LONGEST_QUEUE}")));
        }
        Ok(())
    }
}

/// Somebody who counts spans. None of it may block.
pub trait Tally: Send + Sync + 'static {
    /// So many spans were taken by the collector.
    fn exported(&self, spans: u64);
    /// So many spans are lost, and why.
    fn dropped(&self, loss: Loss, spans: u64);
}

/// Why spans are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// They came faster than the collector takes them.
    QueueFull,
    /// The collector did not take them, or could not be reached.
    NotTaken,
}

/// Who draws spans and carries them away.
pub struct Traces {
    provider: SdkTracerProvider,
    worker: Arc<str>,
    stop: watch::Sender<bool>,
    carrier: JoinHandle<()>,
}

impl Traces {
    /// Begins to carry spans. The table is that of the settings, and `worker` the name under which this process holds leases.
    ///
    /// Files and environment variables that the settings name are read here, once. The collector is not asked: the first span connects.
    /// Must be called within a runtime.
    ///
    /// # Errors
    ///
    /// What is wrong with which setting, and what to write instead.
    pub fn start(settings: toml::Table, worker: &str, tally: Arc<dyn Tally>) -> Result<Self, ConfigError> {
        Self::build(settings, worker, tally).map_err(Problem::of_traces)
    }

    fn build(settings: toml::Table, worker: &str, tally: Arc<dyn Tally>) -> Result<Self, Problem> {
        let (place, own): (otlp::Settings, Settings) =
            config::read_both(settings, &otlp::NAMES, "every connection to a collector")?;
        own.check()?;
        let collector = Collector::build(&place)?;
        let resource = Resource::builder()
            .with_service_name(own.service_name)
            .with_attributes([
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("service.instance.id", worker.to_owned()),
            ])
            .build();
        let (stop, stopped) = watch::channel(false);
        let (queue, carrier) = Carrier::new(own.queue, collector, &resource, tally, stopped);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(queue)
            // Whoever began a trace has decided whether it is recorded; of those that begin here, a share is.
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(own.sample_ratio))))
            .with_resource(resource)
            .build();
        Ok(Self { provider, worker: worker.into(), stop, carrier: tokio::spawn(carrier.run()) })
    }

    /// Who draws the spans of the payment lane, where an answer is waited for.
    #[must_use]
    pub fn of_payments(&self) -> Arc<dyn Tracer> {
        self.tracer("payment", SpanKind::Client)
    }

    /// Who draws the spans of the event lane.
    #[must_use]
    pub fn of_events(&self) -> Arc<dyn Tracer> {
        self.tracer("event", SpanKind::Producer)
    }

    /// Who draws the spans of the metadata lane.
    #[must_use]
    pub fn of_metadata(&self) -> Arc<dyn Tracer> {
        self.tracer("metadata", SpanKind::Client)
    }

    fn tracer(&self, lane: &'static str, kind: SpanKind) -> Arc<dyn Tracer> {
        let tracer = self.provider.tracer("symphony");
        Arc::new(LaneTracer { tracer, lane, kind, worker: Arc::clone(&self.worker) })
    }

    /// Carries what is queued, for as long as this at the most, and ends.
    pub async fn end(mut self, within: Duration) {
        self.stop.send_replace(true);
        if tokio::time::timeout(within, &mut self.carrier).await.is_err() {
            self.carrier.abort();
            tracing::warn!(?within, "the collector did not take the last spans in time: they are lost");
        }
    }
}

fn symphony() -> String {
    "symphony".to_owned()
}

fn all() -> f64 {
    1.0
}

fn two_thousand() -> usize {
    2048
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: &str = include_str!("../../../docs/traces.md");
    const EXAMPLE: &str = include_str!("../../../symphony.example.toml");

    struct Nobody;

    impl Tally for Nobody {
        fn exported(&self, _: u64) {}
        fn dropped(&self, _: Loss, _: u64) {}
    }

    fn start(toml: &str) -> Result<Traces, ConfigError> {
        let place = "endpoint = 'http://collector.example/v1/traces'\nallow_plain = true\n";
        Traces::start(format!("{place}{toml}").parse().unwrap(), "worker", Arc::new(Nobody))
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
        let plain = Traces::start("endpoint = 'http://c.example/'".parse().unwrap(), "w", Arc::new(Nobody));
        let said = plain.err().unwrap().to_string();
        assert_eq!(said, "traces: endpoint: must be https://; allow_plain = true lets it go without TLS");
    }

    #[tokio::test]
    async fn the_manual_names_every_setting_and_the_example_has_the_defaults() {
        let said = refusal("no_such_setting = 1");
        let settings: Vec<&str> = said.split('`').skip(3).step_by(2).collect();
        assert_eq!(settings.len(), otlp::NAMES.len() + 3, "{said}");
        for setting in settings {
            assert!(MANUAL.contains(&format!("\n| `{setting}` |")), "{setting} is missing in docs/traces.md");
        }
        let example: toml::Table = EXAMPLE.parse().unwrap();
        let (place, own): (otlp::Settings, Settings) =
            config::read_both(example["traces"].as_table().unwrap().clone(), &otlp::NAMES, "all").unwrap();
        let (bare, by_default): (otlp::Settings, Settings) =
            config::read_both("endpoint = ''".parse().unwrap(), &otlp::NAMES, "all").unwrap();
        assert_eq!(format!("{place:?} {own:?}"), format!("{bare:?} {by_default:?}"));
    }
}
