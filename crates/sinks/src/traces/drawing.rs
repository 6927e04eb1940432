//! What a span shows: which row went where, at which attempt, and how that ended. Ids, names and codes; never a payload, and nobody's name.

use std::sync::Arc;

use opentelemetry::trace::{
    Link, Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags,
    TraceId, TraceState, Tracer as _,
};
use opentelemetry::{Context as Surroundings, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span as SdkSpan};
use symphony_relay::trace::{Context, Dispatch, End, Part, Span, Tracer};

/// A code is a word. What is longer is cut: a span must stay small.
const LONGEST_CODE: usize = 100;

/// Draws the spans of one lane.
pub(super) struct LaneTracer {
    pub(super) tracer: SdkTracer,
    pub(super) lane: &'static str,
    pub(super) kind: SpanKind,
    pub(super) worker: Arc<str>,
}

impl LaneTracer {
    fn begin(&self, builder: SpanBuilder, parent: Option<SpanContext>) -> Option<Box<dyn Span>> {
        let nowhere = Surroundings::new();
        let around = parent.map_or(nowhere.clone(), |parent| nowhere.with_remote_span_context(parent));
        let span = self.tracer.build_with_context(builder, &around);
        let context = here(span.span_context())?;
        Some(Box::new(Drawn { span, context, ended: false }))
    }
}

impl Tracer for LaneTracer {
    fn dispatch(&self, dispatch: &Dispatch<'_>) -> Option<Box<dyn Span>> {
        let Dispatch { id, route, origin } = dispatch;
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
        let caller = origin.caller.map(|caller| there(caller, true));
        let link = caller.iter().cloned().map(Link::with_context).collect();
        let builder = SpanBuilder::from_name(format!("send {route}"))
            .with_kind(self.kind.clone())
            .with_attributes(attributes)
            .with_links(link);
        self.begin(builder, caller)
    }

    fn part(&self, part: &Part<'_>) -> Option<Box<dyn Span>> {
        let builder = SpanBuilder::from_name(format!("{} {}", part.what, part.route))
            .with_kind(SpanKind::Client)
            .with_attributes([KeyValue::new("symphony.lane", self.lane)]);
        self.begin(builder, Some(there(part.parent, false)))
    }
}

/// A span that has begun.
struct Drawn {
    span: SdkSpan,
    context: Context,
    ended: bool,
}

impl Drawn {
    fn finish(&mut self, state: &'static str, error: Option<String>, failed: bool) {
        self.ended = true;
        self.span.set_attribute(KeyValue::new("symphony.state", state));
        let error = error.map(|code| code.chars().take(LONGEST_CODE).collect::<String>());
        if let Some(code) = &error {
            self.span.set_attribute(KeyValue::new("error.type", code.clone()));
        }
        if failed {
            self.span.set_status(Status::error(error.unwrap_or_else(|| state.to_owned())));
        }
        self.span.end();
    }
}

impl Span for Drawn {
    fn context(&self) -> Context {
        self.context
    }

    fn end(mut self: Box<Self>, end: End) {
        self.finish(end.state, end.error, end.failed);
    }
}

/// A dispatch that is cut off drops its span.
impl Drop for Drawn {
    fn drop(&mut self) {
        if !self.ended {
            self.finish("CUT_OFF", None, true);
        }
    }
}

fn here(span: &SpanContext) -> Option<Context> {
    let (trace_id, span_id) = (span.trace_id().to_bytes(), span.span_id().to_bytes());
    Context::new(u128::from_be_bytes(trace_id), u64::from_be_bytes(span_id), span.is_sampled())
}

fn there(context: Context, remote: bool) -> SpanContext {
    let flags = if context.is_sampled() { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace_id, span_id) = context.ids();
    SpanContext::new(TraceId::from(trace_id), SpanId::from(span_id), flags, remote, TraceState::default())
}
