//! Distributed tracing: W3C trace contexts, and the [`Tracer`] interface that exports a span of each dispatch.
//!
//! Like [`metrics`](crate::metrics), the engine reports what happened; an implementation of [`Tracer`] samples and
//! exports it. Spans carry ids, names and codes only: no payload and no personal data.
//!
//! A rail, sink or store propagates the trace of the running dispatch: it sends [`current`] as the `traceparent`.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio::task_local;

/// A W3C trace context: the trace, the span, and the sampled flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Context {
    trace_id: u128,
    span_id: u64,
    sampled: bool,
}

/// The id of a trace, written as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Context {
    /// A context, if neither id is zero: the W3C defines zero as invalid.
    #[must_use]
    pub fn new(trace_id: u128, span_id: u64, sampled: bool) -> Option<Self> {
        (trace_id != 0 && span_id != 0).then_some(Self { trace_id, span_id, sampled })
    }

    /// Parses a `traceparent`. A malformed one is `None`: the W3C rule is to start a new trace then.
    #[must_use]
    pub fn parse(traceparent: &str) -> Option<Self> {
        let lower = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let mut parts = traceparent.split('-');
        let mut part = |length: usize| parts.next().filter(|part| part.len() == length && lower(part));
        let (version, trace_id, span_id, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // A later version may append fields; version 00 may not, and `ff` is invalid.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let flags = u8::from_str_radix(flags, 16).ok()?;
        let trace_id = u128::from_str_radix(trace_id, 16).ok()?;
        Self::new(trace_id, u64::from_str_radix(span_id, 16).ok()?, flags & 1 == 1)
    }

    /// The trace.
    #[must_use]
    pub fn trace_id(self) -> TraceId {
        TraceId(self.trace_id)
    }

    /// The trace and the span, as numbers.
    #[must_use]
    pub fn ids(self) -> (u128, u64) {
        (self.trace_id, self.span_id)
    }

    /// Whether the caller that started the trace records it.
    #[must_use]
    pub fn is_sampled(self) -> bool {
        self.sampled
    }
}

/// Formats the context as a `traceparent`.
impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

/// Where a job comes from, as far as its lane knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The number of this attempt, from 1.
    pub attempt: Option<u32>,
    /// The trace context in which the producer enqueued the row.
    pub producer: Option<Context>,
}

/// The start of a dispatch, for [`Tracer::start_dispatch`].
#[derive(Clone, Copy, Debug)]
pub struct DispatchSpan<'a> {
    /// The id of the row.
    pub id: &'a str,
    /// The rail, sink or store of the dispatch.
    pub route: &'a str,
    /// The attempt and the producer's trace.
    pub origin: Origin,
}

/// The start of one step of a dispatch, such as an inquiry, for [`Tracer::start_child`].
#[derive(Clone, Copy, Debug)]
pub struct ChildSpan<'a> {
    /// The span of the dispatch.
    pub parent: Context,
    /// The name of the step.
    pub name: &'static str,
    /// The rail, sink or store of the dispatch.
    pub route: &'a str,
}

/// How a span ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanStatus {
    /// A state of the lane, such as the requested state of an attempt.
    pub state: &'static str,
    /// The error code: a fixed word, never the text of an external system.
    pub error: Option<String>,
    /// Whether it failed or its outcome is unknown.
    pub failed: bool,
}

impl SpanStatus {
    /// A span that succeeded.
    #[must_use]
    pub fn ok(state: &'static str) -> Self {
        Self { state, error: None, failed: false }
    }

    /// A span that failed or whose outcome is unknown.
    #[must_use]
    pub fn failed(state: &'static str, error: Option<&str>) -> Self {
        Self { state, error: error.map(str::to_owned), failed: true }
    }
}

/// Exports spans. No method may block or fail.
pub trait Tracer: Send + Sync + 'static {
    /// A dispatch starts. Its span continues the trace of its producer, if that is known. `None` if it is not traced.
    fn start_dispatch(&self, dispatch: &DispatchSpan<'_>) -> Option<Box<dyn Span>>;

    /// A step of a dispatch starts. `None` if it is not traced.
    fn start_child(&self, child: &ChildSpan<'_>) -> Option<Box<dyn Span>>;
}

/// A span that has not ended. Dropped without [`end`](Self::end), its dispatch was cancelled.
pub trait Span: Send + 'static {
    /// The context of this span, which its children and outgoing requests name as their parent.
    fn context(&self) -> Context;

    /// Ends the span.
    fn end(self: Box<Self>, status: SpanStatus);
}

/// A span that has not ended, and the tracer of its children.
pub(crate) struct OpenSpan {
    tracer: Arc<dyn Tracer>,
    span: Box<dyn Span>,
    route: Arc<str>,
}

impl OpenSpan {
    pub(crate) fn dispatch(tracer: &Arc<dyn Tracer>, id: &str, route: &Arc<str>, origin: Origin) -> Option<Self> {
        let span = tracer.start_dispatch(&DispatchSpan { id, route, origin })?;
        Some(Self { tracer: Arc::clone(tracer), span, route: Arc::clone(route) })
    }

    pub(crate) fn trace_id(&self) -> TraceId {
        self.span.context().trace_id()
    }

    async fn run<T>(self, work: impl Future<Output = T>, status: impl FnOnce(&T) -> SpanStatus) -> T {
        let context = self.span.context();
        let children = Some((self.tracer, self.route));
        let result = CURRENT.scope(Current { context, children }, work).await;
        self.span.end(status(&result));
        result
    }
}

/// The span in which a task runs, and the tracer and the route of its children.
#[derive(Clone)]
struct Current {
    context: Context,
    children: Option<(Arc<dyn Tracer>, Arc<str>)>,
}

task_local! {
    static CURRENT: Current;
}

/// The context of the span in which this task runs, for outgoing requests. `None` if the dispatch is not traced.
#[must_use]
pub fn current() -> Option<Context> {
    CURRENT.try_with(|current| current.context).ok()
}

/// Runs the work in a span that another process exports: [`current`] returns this context meanwhile.
pub async fn in_context<T>(context: Context, work: impl Future<Output = T>) -> T {
    CURRENT.scope(Current { context, children: None }, work).await
}

/// Runs the work in this span, if there is one, and ends the span.
pub(crate) async fn in_span<T>(
    span: Option<OpenSpan>,
    work: impl Future<Output = T>,
    status: impl FnOnce(&T) -> SpanStatus,
) -> T {
    match span {
        Some(span) => span.run(work, status).await,
        None => work.await,
    }
}

/// Runs one step of a dispatch in a child span, if the dispatch is traced.
pub(crate) async fn in_child_span<T>(
    name: &'static str,
    work: impl Future<Output = T>,
    status: impl FnOnce(&T) -> SpanStatus,
) -> T {
    let span = CURRENT.try_with(Clone::clone).ok().and_then(|Current { context, children }| {
        let (tracer, route) = children?;
        let span = tracer.start_child(&ChildSpan { parent: context, name, route: &route })?;
        Some(OpenSpan { tracer, span, route })
    });
    in_span(span, work, status).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_formatted_as_it_was_parsed() {
        let context = Context::parse(TRACEPARENT).unwrap();
        assert_eq!(context.to_string(), TRACEPARENT);
        assert_eq!(context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(context.is_sampled());
        let unsampled = TRACEPARENT.replace("-01", "-00");
        assert_eq!(Context::parse(&unsampled).unwrap().to_string(), unsampled);
    }

    #[test]
    fn unknown_flags_and_later_versions_are_ignored() {
        assert!(Context::parse(&TRACEPARENT.replace("-01", "-ff")).unwrap().is_sampled());
        assert!(!Context::parse(&TRACEPARENT.replace("-01", "-fe")).unwrap().is_sampled());
        assert_eq!(Context::parse(&TRACEPARENT.replacen("00-", "cc-", 1)), Context::parse(TRACEPARENT));
        assert_eq!(
            Context::parse(&format!("{}-more", TRACEPARENT.replacen("00-", "cc-", 1))),
            Context::parse(TRACEPARENT)
        );
    }

    #[test]
    fn a_malformed_traceparent_is_no_context() {
        for text in [
            "",
            "nonsense",
            &TRACEPARENT[1..],
            &TRACEPARENT.replacen("00-", "ff-", 1),
            &TRACEPARENT.to_uppercase(),
            &TRACEPARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &TRACEPARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &TRACEPARENT.replace("00f067aa0ba902b7", "+0f067aa0ba902b7"),
            &TRACEPARENT.replace('-', "_"),
            &format!("{TRACEPARENT}-more"),
            &format!("{TRACEPARENT}\n"),
        ] {
            assert_eq!(Context::parse(text), None, "{text:?}");
        }
    }
}
