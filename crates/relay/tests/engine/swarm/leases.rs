//! What becomes of a lease at its engine: its dispatch starts, returns, or is dropped.

use std::time::Duration;

use super::faults::DispatchEnd;
use super::lane::Lease;
use super::state::{LeaseRecord, State};
use super::trace::Event;

impl LeaseRecord {
    /// A lease that the database has just granted. Its engine considers it expired at `expires` at the latest.
    pub(crate) fn new(lease: Lease, engine: usize, route: &'static str, expires: Duration) -> Self {
        Self {
            lease,
            engine,
            route,
            expires,
            delivered: Duration::ZERO,
            in_time: false,
            dispatched: false,
            end: None,
            dropped: None,
            lost: None,
            abandoned: false,
            release_sent: false,
            in_call: false,
            settled: None,
        }
    }
}

impl State {
    pub(crate) fn dispatch_started(&mut self, lease: Lease) {
        self.running.insert(lease.token);
        let record = self.leases.get_mut(&lease.token).expect("a lease that was granted");
        record.dispatched = true;
        let (engine, route) = (record.engine, record.route);
        self.record(Some(engine), Event::DispatchStarted(lease, route));
    }

    pub(crate) fn dispatch_returned(&mut self, lease: Lease, key: Option<u32>, end: DispatchEnd) {
        let record = self.leases.get_mut(&lease.token).expect("a lease that was granted");
        record.end = Some(end);
        if let Some(key) = key {
            let succeeded = end == DispatchEnd::Paid;
            self.engines[record.engine].succeeded.insert(key, succeeded);
        }
    }

    /// The dispatch of a job ended or was cancelled, or the job was never started.
    pub(crate) fn job_dropped(&mut self, lease: Lease, key: Option<u32>) {
        let now = self.now();
        let record = self.leases.get_mut(&lease.token).expect("a lease that was granted");
        record.dropped = Some(now);
        if record.dispatched {
            // The engine may have taken the end of the dispatch before the result of the renewal.
            record.lost = record.lost.filter(|lost| *lost < now);
        }
        let (number, end) = (record.engine, record.end);
        let engine = &mut self.engines[number];
        if let Some(key) = key {
            if end.is_none() {
                engine.succeeded.insert(key, false);
            }
            if let Some(turns) = engine.turns.get_mut(&key) {
                turns.retain(|token| *token != lease.token);
            }
            engine.turn_ended.notify_waiters();
        }
        if self.running.remove(&lease.token) {
            self.record(Some(number), Event::DispatchEnded(lease, end));
        }
    }
}
