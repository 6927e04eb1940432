//! The queue of spans that have ended, and the task that carries them to the collector.
//!
//! What is held is bounded: the queue, and one batch beside it. A batch that the collector may take later is tried a few times; what it does not
//! take then is lost. While that goes on, spans that find the queue full are lost as well.

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
use crate::http::otlp::{Collector, Failure};

/// The most spans that go together.
const TOGETHER: usize = 512;
/// How long the first of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long to wait before a batch is tried again; after the last of these it is lost.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// The end of the queue where spans come in.
#[derive(Debug)]
pub(super) struct Queue {
    spans: mpsc::Sender<SpanData>,
    losses: Arc<Losses>,
}

/// Counts what is lost, and says so when it begins.
struct Losses {
    tally: Arc<dyn Tally>,
    /// Whether it was said that the queue is full, since the collector last took something.
    full: AtomicBool,
}

impl std::fmt::Debug for Losses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Losses").finish_non_exhaustive()
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.spans.try_send(span).is_ok() {
            return;
        }
        self.losses.tally.dropped(Loss::QueueFull, 1);
        if !self.losses.full.swap(true, Ordering::Relaxed) {
            tracing::warn!("spans come faster than the collector takes them: those without room are lost");
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The task at the other end.
pub(super) struct Carrier {
    spans: mpsc::Receiver<SpanData>,
    collector: Collector,
    resource: ResourceAttributesWithSchema,
    losses: Arc<Losses>,
    stop: watch::Receiver<bool>,
    /// Whether it was said that the collector does not take spans.
    fails: bool,
}

impl Carrier {
    pub(super) fn new(
        length: usize,
        collector: Collector,
        resource: &Resource,
        tally: Arc<dyn Tally>,
        stop: watch::Receiver<bool>,
    ) -> (Queue, Self) {
        let (sender, spans) = mpsc::channel(length);
        let losses = Arc::new(Losses { tally, full: AtomicBool::new(false) });
        let queue = Queue { spans: sender, losses: Arc::clone(&losses) };
        (queue, Self { spans, collector, resource: resource.into(), losses, stop, fails: false })
    }

    /// Carries until it is told to stop and nothing is queued.
    pub(super) async fn run(mut self) {
        while let Some(batch) = self.gather().await {
            self.carry(batch).await;
        }
    }

    /// The next batch; none where there is nothing left and nothing will come.
    async fn gather(&mut self) -> Option<Vec<SpanData>> {
        let mut batch = Vec::new();
        let mut until = None;
        while batch.len() < TOGETHER && !*self.stop.borrow() {
            let room = TOGETHER - batch.len();
            let come = self.spans.recv_many(&mut batch, room);
            let waiting = async {
                match until {
                    Some(until) => timeout_at(until, come).await.unwrap_or_default(),
                    None => come.await,
                }
            };
            let came = tokio::select! {
                came = waiting => came,
                // Told to stop, or nobody is left who could tell.
                _ = self.stop.changed() => 0,
            };
            if came == 0 {
                break;
            }
            until = until.or_else(|| Some(Instant::now() + GATHER));
        }
        if *self.stop.borrow() {
            self.spans.close();
            self.spans.recv_many(&mut batch, TOGETHER).await;
        }
        (!batch.is_empty()).then_some(batch)
    }

    async fn carry(&mut self, batch: Vec<SpanData>) {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let mut pauses = PAUSES.into_iter();
        loop {
            match self.collector.post(body.clone()).await {
                Ok(()) => return self.taken(count),
                Err(Failure::Later(why)) => {
                    self.tell(&why);
                    let Some(pause) = pauses.next() else { break };
                    // Who stops does not wait.
                    if *self.stop.borrow() || tokio::time::timeout(pause, self.stop.changed()).await.is_ok() {
                        break;
                    }
                }
                Err(Failure::Never(why)) => {
                    self.tell(&why);
                    break;
                }
            }
        }
        self.losses.tally.dropped(Loss::NotTaken, count);
    }

    fn taken(&mut self, count: u64) {
        self.losses.tally.exported(count);
        self.losses.full.store(false, Ordering::Relaxed);
        if std::mem::take(&mut self.fails) {
            tracing::info!("the collector takes spans again");
        }
    }

    fn tell(&mut self, why: &str) {
        if !std::mem::replace(&mut self.fails, true) {
            tracing::warn!(
                why,
                "the collector does not take spans: they are lost unless it soon does; all else goes on"
            );
        }
    }
}
