//! The interface for metrics: the engine calls a [`Meter`], and an implementation counts and exports.

use std::time::Duration;

use crate::breaker::BreakerState;
use crate::lane::{Repaired, RouteSignal};
use crate::wake::Cause;

/// Receives the events of an engine. Every method does nothing by default; none may block.
pub trait Meter: Send + Sync + 'static {
    /// A claim is sent, for this cause.
    fn wakeup(&self, _cause: Cause) {}
    /// A claim returned this number of rows.
    fn claim(&self, _fill: ClaimFill, _rows: usize, _took: Duration) {}
    /// A dispatch began.
    fn dispatch_started(&self, _route: &str) {}
    /// A dispatch returned.
    fn dispatch_finished(&self, _route: &str, _latency: Duration, _signal: RouteSignal) {}
    /// A dispatch was cancelled or panicked.
    fn dispatch_abandoned(&self, _route: &str) {}
    /// How many dispatches of a route are running now.
    fn in_flight(&self, _route: &str, _count: usize) {}
    /// An attempt was recorded with this state.
    fn attempt(&self, _route: &str, _state: &'static str) {}
    /// The attempt that was just recorded has a retry scheduled.
    fn retry_scheduled(&self, _route: &str) {}
    /// A completion or a renewal found that a lease was lost.
    fn lease_lost(&self) {}
    /// A completion found a row that was terminal already.
    fn already_terminal(&self) {}
    /// The unique index rejected a second terminal write.
    fn backstop(&self) {}
    /// The number of rows ever quarantined, because they were pending although terminal.
    fn quarantined(&self, _total: u64) {}
    /// An outcome could not be recorded; its lease expires.
    fn given_up(&self) {}
    /// A renewal returned: how many leases are held, and how many are lost.
    fn renewed(&self, _held: usize, _lost: usize) {}
    /// Leases were released without a dispatch.
    fn released(&self, _count: usize) {}
    /// A repair returned.
    fn repaired(&self, _repaired: &Repaired) {}
    /// A claim requeued or ended expired leases.
    fn taken_over(&self, _taken_over: &Repaired) {}
    /// A circuit breaker changed its state.
    fn breaker(&self, _route: &str, _state: BreakerState) {}
    /// The listener connected, or was lost.
    fn listener_connected(&self, _connected: bool) {}
    /// A call to the database failed.
    fn call_failed(&self, _call: &'static str) {}
}

/// How many rows a claim returned, relative to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimFill {
    /// As many as its limit: more rows may be due.
    Full,
    /// Some, but fewer than its limit.
    Partial,
    /// None.
    Empty,
}

/// A meter that ignores every event: the default of an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopMeter;

impl Meter for NoopMeter {}
