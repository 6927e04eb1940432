//! Traces: whose trace a dispatch continues, and what is told of it to whoever draws spans.
//!
//! Like [`metrics`](crate::metrics), it says what happened and does not know who listens: how spans are kept and where they go is
//! not an engine's business. Nothing is told but ids, names and codes: no payload, and nobody's name.
//!
//! What leaves while a dispatch runs can carry its trace on: [`current`] says which it is, to whatever runs in its task.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio::task_local;

/// A place in a trace, as the W3C sees it: the trace, a span in it, and whether it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Context {
    trace_id: u128,
    span_id: u64,
    sampled: bool,
}

/// The name of a trace, written as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Context {
    /// A place in a trace, if neither id is zero: those stand for none.
    #[must_use]
    pub fn new(trace_id: u128, span_id: u64, sampled: bool) -> Option<Self> {
        (trace_id != 0 && span_id != 0).then_some(Self { trace_id, span_id, sampled })
    }

    /// Reads a `traceparent`. What is malformed is none: the W3C rule is to begin a new trace then.
    #[must_use]
    pub fn parse(traceparent: &str) -> Option<Self> {
        let lower = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let mut parts = traceparent.split('-');
        let mut part = |length: usize| parts.next().filter(|part| part.len() == length && lower(part));
        let (version, trace_id, span_id, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // A later version may have more behind it; this one has not, and `ff` is none.
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

    /// Whether who began it wants it recorded.
    #[must_use]
    pub fn is_sampled(self) -> bool {
        self.sampled
    }
}

/// As a `traceparent`.
impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

/// Where a job comes from, as far as its lane knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Which attempt this is, from 1.
    pub attempt: Option<u32>,
    /// The trace in which it was made.
    pub caller: Option<Context>,
}

/// A dispatch that begins.
#[derive(Clone, Copy, Debug)]
pub struct Dispatch<'a> {
    /// The row, by its id.
    pub id: &'a str,
    /// The rail, sink or store that it goes to.
    pub route: &'a str,
    /// Where it comes from.
    pub origin: Origin,
}

/// A part of a dispatch that is worth a span of its own.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The span that it is a part of.
    pub parent: Context,
    /// What is done, in a word.
    pub what: &'static str,
    /// The rail, sink or store with which it is done.
    pub route: &'a str,
}

/// How what a span shows has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// In a word of the lane's, such as the state that is asked for.
    pub state: &'static str,
    /// The code of what went wrong: a fixed word, no text of others.
    pub error: Option<String>,
    /// Whether it did not do what it was meant to, or nobody knows.
    pub failed: bool,
}

impl End {
    /// It did what it was meant to.
    #[must_use]
    pub fn well(state: &'static str) -> Self {
        Self { state, error: None, failed: false }
    }

    /// It did not, or nobody knows.
    #[must_use]
    pub fn badly(state: &'static str, error: Option<&str>) -> Self {
        Self { state, error: error.map(str::to_owned), failed: true }
    }
}

/// Exports spans. No method may block or fail.
pub trait Tracer: Send + Sync + 'static {
    /// A dispatch begins. It continues the trace of its origin, where there is one. None: nobody draws it.
    fn dispatch(&self, dispatch: &Dispatch<'_>) -> Option<Box<dyn Span>>;

    /// A part of a dispatch begins.
    fn part(&self, part: &Part<'_>) -> Option<Box<dyn Span>>;
}

/// What has begun and not ended. Dropped without an end, it was cut off.
pub trait Span: Send + 'static {
    /// Where it is: what is done on its behalf names this as its parent.
    fn context(&self) -> Context;

    /// It has ended.
    fn end(self: Box<Self>, end: End);
}

/// A span that has begun, and who draws it.
pub(crate) struct Begun {
    tracer: Arc<dyn Tracer>,
    span: Box<dyn Span>,
    route: Arc<str>,
}

impl Begun {
    pub(crate) fn dispatch(tracer: &Arc<dyn Tracer>, id: &str, route: &Arc<str>, origin: Origin) -> Option<Self> {
        let span = tracer.dispatch(&Dispatch { id, route, origin })?;
        Some(Self { tracer: Arc::clone(tracer), span, route: Arc::clone(route) })
    }

    pub(crate) fn trace_id(&self) -> TraceId {
        self.span.context().trace_id()
    }

    /// Does the work within the span, and says how that ended.
    async fn around<T>(self, work: impl Future<Output = T>, end: impl FnOnce(&T) -> End) -> T {
        let context = self.span.context();
        let drawn = Some((self.tracer, self.route));
        let done = CURRENT.scope(Current { context, drawn }, work).await;
        self.span.end(end(&done));
        done
    }
}

/// Where a task works, and who draws what it does for which route.
#[derive(Clone)]
struct Current {
    context: Context,
    drawn: Option<(Arc<dyn Tracer>, Arc<str>)>,
}

task_local! {
    static CURRENT: Current;
}

/// The span in which this task works; none where nobody draws spans. For what leaves on its behalf.
#[must_use]
pub fn current() -> Option<Context> {
    CURRENT.try_with(|current| current.context).ok()
}

/// Does the work as if it were a part of this span, which others draw. What leaves meanwhile carries its context.
pub async fn on_behalf_of<T>(context: Context, work: impl Future<Output = T>) -> T {
    CURRENT.scope(Current { context, drawn: None }, work).await
}

/// Does the work within this span, if there is one.
pub(crate) async fn within<T>(
    begun: Option<Begun>,
    work: impl Future<Output = T>,
    end: impl FnOnce(&T) -> End,
) -> T {
    match begun {
        Some(begun) => begun.around(work, end).await,
        None => work.await,
    }
}

/// Does a part of the work within a span of its own, if this task works in one.
pub(crate) async fn part<T>(what: &'static str, work: impl Future<Output = T>, end: impl FnOnce(&T) -> End) -> T {
    let begun = CURRENT.try_with(Clone::clone).ok().and_then(|Current { context, drawn }| {
        let (tracer, route) = drawn?;
        let span = tracer.part(&Part { parent: context, what, route: &route })?;
        Some(Begun { tracer, span, route })
    });
    within(begun, work, end).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_written_as_it_was_read() {
        let context = Context::parse(GIVEN).unwrap();
        assert_eq!(context.to_string(), GIVEN);
        assert_eq!(context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(context.is_sampled());
        let unsampled = GIVEN.replace("-01", "-00");
        assert_eq!(Context::parse(&unsampled).unwrap().to_string(), unsampled);
    }

    #[test]
    fn flags_and_versions_to_come_are_read_as_far_as_they_are_known() {
        assert!(Context::parse(&GIVEN.replace("-01", "-ff")).unwrap().is_sampled());
        assert!(!Context::parse(&GIVEN.replace("-01", "-fe")).unwrap().is_sampled());
        assert_eq!(Context::parse(&GIVEN.replacen("00-", "cc-", 1)), Context::parse(GIVEN));
        assert_eq!(Context::parse(&format!("{}-more", GIVEN.replacen("00-", "cc-", 1))), Context::parse(GIVEN));
    }

    #[test]
    fn what_is_malformed_is_no_context() {
        for text in [
            "",
            "nonsense",
            &GIVEN[1..],
            &GIVEN.replacen("00-", "ff-", 1),
            &GIVEN.to_uppercase(),
            &GIVEN.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &GIVEN.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &GIVEN.replace("00f067aa0ba902b7", "+0f067aa0ba902b7"),
            &GIVEN.replace('-', "_"),
            &format!("{GIVEN}-more"),
            &format!("{GIVEN}\n"),
        ] {
            assert_eq!(Context::parse(text), None, "{text:?}");
        }
    }
}
