//! The interface for metrics: an engine reports events, and an implementation counts and exports them.

use std::time::Duration;

use crate::breaker::Health;
use crate::lane::{Repaired, RouteSignal};
use crate::wake::Cause;

/// Counts events of an engine. Every method does nothing by default; none may block.
pub trait Meter: Send + Sync + 'static {
    /// A claim is sent, and why.
    fn wakeup(&self, _cause: Cause) {}
    /// A claim came back with so many rows.
    fn claim(&self, _size: Catch, _rows: usize, _took: Duration) {}
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
    /// The attempt that was just recorded is not the last of its row, which is scheduled again.
    fn retry_scheduled(&self, _route: &str) {}
    /// A lease was lost, found out by a completion or a renewal.
    fn lease_lost(&self) {}
    /// A completion met a row that had ended already.
    fn already_terminal(&self) {}
    /// The terminal backstop rejected a second terminal write.
    fn backstop(&self) {}
    /// So many rows were ever quarantined, because they were pending although they had ended.
    fn quarantined(&self, _total: u64) {}
    /// An outcome could not be recorded; its lease expires.
    fn given_up(&self) {}
    /// A renewal came back: so many leases hold, so many are lost.
    fn renewed(&self, _held: usize, _lost: usize) {}
    /// Leases were released unstarted.
    fn released(&self, _count: usize) {}
    /// A pass of repair came back.
    fn repaired(&self, _repaired: &Repaired) {}
    /// A claim met expired leases and took them over.
    fn taken_over(&self, _taken_over: &Repaired) {}
    /// A breaker changed.
    fn breaker(&self, _route: &str, _health: Health) {}
    /// The listener connected, or was lost.
    fn listener_connected(&self, _connected: bool) {}
    /// A call to the database failed.
    fn call_failed(&self, _call: &'static str) {}
}

/// How much a claim brought, measured by what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Catch {
    /// As much as it asked for: there may be more.
    Full,
    /// Something, but not all.
    Partial,
    /// Nothing.
    Empty,
}

/// Counts nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Meter for Silent {}
