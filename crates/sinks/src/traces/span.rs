//! Creates the spans of dispatches: name, links and attributes by the OpenTelemetry messaging conventions.
//!
//! Attributes are ids, routes, states and error codes. A span never holds a payload or personal data.

use std::sync::Arc;

use opentelemetry::trace::{
    Link, Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags,
    TraceId, TraceState, Tracer as _,
};
use opentelemetry::{Context as OtelContext, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span as SdkSpan};
use symphony_relay::trace::{ChildSpan, Context, DispatchSpan, Span, SpanStatus, Tracer};

/// Longer error codes are cut, to bound the size of a span.
const MAX_CODE_CHARS: usize = 100;

/// Creates the spans of one lane.
pub(super) struct LaneTracer {
    pub(super) tracer: SdkTracer,
    pub(super) lane: &'static str,
    pub(super) kind: SpanKind,
    pub(super) worker: Arc<str>,
}

impl LaneTracer {
    fn begin(&self, builder: SpanBuilder, parent: Option<SpanContext>) -> Option<Box<dyn Span>> {
        let root = OtelContext::new();
        let parent = parent.map_or(root.clone(), |parent| root.with_remote_span_context(parent));
        let span = self.tracer.build_with_context(builder, &parent);
        let context = relay_context(span.span_context())?;
        Some(Box::new(OpenSpan { span, context, ended: false }))
    }
}

impl Tracer for LaneTracer {
    fn start_dispatch(&self, dispatch: &DispatchSpan<'_>) -> Option<Box<dyn Span>> {
        let DispatchSpan { id, route, origin } = dispatch;
        let mut attributes = vec![
            KeyValue::new("messaging.system", "symphony"),
            KeyValue::new("messaging.operation.name", "send"),
            KeyValue::new("messaging.operation.type", "send"),
            KeyValue::new("messaging.destination.name", (*route).to_owned()),
            KeyValue::new("messaging.message.id", (*id).to_owned()),
            KeyValue::new("symphony.lane", self.lane),
            KeyValue::new("symphony.worker", Arc::clone(&self.worker)),
        ];
        attributes.extend(origin.attempt.map(|attempt| KeyValue::new("symphony.attempt", i64::from(attempt))));
        let producer = origin.producer.map(|context| otel_context(context, true));
        let link = producer.iter().cloned().map(Link::with_context).collect();
        let builder = SpanBuilder::from_name(format!("send {route}"))
            .with_kind(self.kind.clone())
            .with_attributes(attributes)
            .with_links(link);
        self.begin(builder, producer)
    }

    fn start_child(&self, child: &ChildSpan<'_>) -> Option<Box<dyn Span>> {
        let builder = SpanBuilder::from_name(format!("{} {}", child.name, child.route))
            .with_kind(SpanKind::Client)
            .with_attributes([KeyValue::new("symphony.lane", self.lane)]);
        self.begin(builder, Some(otel_context(child.parent, false)))
    }
}

/// A span that has not ended.
struct OpenSpan {
    span: SdkSpan,
    context: Context,
    ended: bool,
}

impl OpenSpan {
    fn finish(&mut self, state: &'static str, error: Option<String>, failed: bool) {
        self.ended = true;
        self.span.set_attribute(KeyValue::new("symphony.state", state));
        let error = error.map(|code| code.chars().take(MAX_CODE_CHARS).collect::<String>());
        if let Some(code) = &error {
            self.span.set_attribute(KeyValue::new("error.type", code.clone()));
        }
        if failed {
            self.span.set_status(Status::error(error.unwrap_or_else(|| state.to_owned())));
        }
        self.span.end();
    }
}

impl Span for OpenSpan {
    fn context(&self) -> Context {
        self.context
    }

    fn end(mut self: Box<Self>, status: SpanStatus) {
        self.finish(status.state, status.error, status.failed);
    }
}

/// A dispatch that is cancelled drops its span.
impl Drop for OpenSpan {
    fn drop(&mut self) {
        if !self.ended {
            self.finish("CUT_OFF", None, true);
        }
    }
}

fn relay_context(span: &SpanContext) -> Option<Context> {
    let (trace_id, span_id) = (span.trace_id().to_bytes(), span.span_id().to_bytes());
    Context::new(u128::from_be_bytes(trace_id), u64::from_be_bytes(span_id), span.is_sampled())
}

fn otel_context(context: Context, remote: bool) -> SpanContext {
    let flags = if context.is_sampled() { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace_id, span_id) = context.ids();
    SpanContext::new(TraceId::from(trace_id), SpanId::from(span_id), flags, remote, TraceState::default())
}
