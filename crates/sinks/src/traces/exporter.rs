//! Queues ended spans and exports them to the collector in batches.
//!
//! Memory is bounded by the queue and one batch. A retryable batch is retried after [`RETRY_DELAYS`] and then dropped.
//! Meanwhile, spans that meet a full queue are dropped as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

use super::{Loss, Tally};
use crate::http::otlp::{Collector, ExportError};

/// The largest batch, in spans.
const MAX_BATCH: usize = 512;
/// How long the first span of a batch waits for others.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// The delays before the retries of a batch; after the last retry it is dropped.
const RETRY_DELAYS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// The sending side of the queue.
#[derive(Debug)]
pub(super) struct SpanQueue {
    spans: mpsc::Sender<SpanData>,
    drops: Arc<DropLog>,
}

/// Counts dropped spans, and logs the first of an outage.
struct DropLog {
    tally: Arc<dyn Tally>,
    /// Whether a full queue was logged since the last successful export.
    full: AtomicBool,
}

impl std::fmt::Debug for DropLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DropLog").finish_non_exhaustive()
    }
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.spans.try_send(span).is_ok() {
            return;
        }
        self.drops.tally.dropped(Loss::QueueFull, 1);
        if !self.drops.full.swap(true, Ordering::Relaxed) {
            tracing::warn!("trace queue is full, spans come faster than the collector takes them; dropping spans");
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The task that exports the queue.
pub(super) struct Exporter {
    spans: mpsc::Receiver<SpanData>,
    collector: Collector,
    resource: ResourceAttributesWithSchema,
    drops: Arc<DropLog>,
    stop: watch::Receiver<bool>,
    /// Whether a failed export was logged since the last successful one.
    failing: bool,
}

impl Exporter {
    pub(super) fn new(
        length: usize,
        collector: Collector,
        resource: &Resource,
        tally: Arc<dyn Tally>,
        stop: watch::Receiver<bool>,
    ) -> (SpanQueue, Self) {
        let (sender, spans) = mpsc::channel(length);
        let drops = Arc::new(DropLog { tally, full: AtomicBool::new(false) });
        let queue = SpanQueue { spans: sender, drops: Arc::clone(&drops) };
        (queue, Self { spans, collector, resource: resource.into(), drops, stop, failing: false })
    }

    /// Exports until it is stopped and the queue is empty.
    pub(super) async fn run(mut self) {
        while let Some(batch) = self.next_batch().await {
            self.export(batch).await;
        }
    }

    /// The next batch; none if the queue is empty and closed.
    async fn next_batch(&mut self) -> Option<Vec<SpanData>> {
        let mut batch = Vec::new();
        let mut flush_at = None;
        while batch.len() < MAX_BATCH && !*self.stop.borrow() {
            let limit = MAX_BATCH - batch.len();
            let receive = self.spans.recv_many(&mut batch, limit);
            let receive = async {
                match flush_at {
                    Some(flush_at) => timeout_at(flush_at, receive).await.unwrap_or_default(),
                    None => receive.await,
                }
            };
            let received = tokio::select! {
                received = receive => received,
                // Stopped, or the sender of the signal is gone.
                _ = self.stop.changed() => 0,
            };
            if received == 0 {
                break;
            }
            flush_at = flush_at.or_else(|| Some(Instant::now() + FLUSH_INTERVAL));
        }
        if *self.stop.borrow() {
            self.spans.close();
            self.spans.recv_many(&mut batch, MAX_BATCH).await;
        }
        (!batch.is_empty()).then_some(batch)
    }

    async fn export(&mut self, batch: Vec<SpanData>) {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let mut delays = RETRY_DELAYS.into_iter();
        loop {
            match self.collector.post(body.clone()).await {
                Ok(()) => return self.exported(count),
                Err(ExportError::Retryable(why)) => {
                    self.log_failure(&why);
                    let Some(delay) = delays.next() else { break };
                    // A stop ends the retries.
                    if *self.stop.borrow() || tokio::time::timeout(delay, self.stop.changed()).await.is_ok() {
                        break;
                    }
                }
                Err(ExportError::Refused(why)) => {
                    self.log_failure(&why);
                    break;
                }
            }
        }
        self.drops.tally.dropped(Loss::NotTaken, count);
    }

    fn exported(&mut self, count: u64) {
        self.drops.tally.exported(count);
        self.drops.full.store(false, Ordering::Relaxed);
        if std::mem::take(&mut self.failing) {
            tracing::info!("the collector takes spans again");
        }
    }

    fn log_failure(&mut self, why: &str) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(
                why,
                "the collector does not take spans; they are dropped unless a retry succeeds. Dispatches are not affected"
            );
        }
    }
}
