//! What the engine tells about itself, as Prometheus counts it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use symphony_relay::breaker::Health;
use symphony_relay::lane::{Repaired, RouteSignal};
use symphony_relay::metrics::{Catch, Meter};
use symphony_relay::wake::Cause;

/// Upper bounds in seconds: from a rail in the same rack to one that is given up.
const BUCKETS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

type Count = Counter<u64, AtomicU64>;
type Level = Gauge<i64, AtomicI64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Lane {
    lane: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    lane: &'static str,
    rail: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Attempt {
    lane: &'static str,
    rail: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Claim {
    lane: &'static str,
    size: Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the name is the label's value")]
enum Size {
    full,
    partial,
    empty,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    lane: &'static str,
    call: &'static str,
}

/// Everything that is counted, for every lane. A copy counts the same.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    notify_wakeups: Family<Lane, Count>,
    claim_batches: Family<Claim, Count>,
    claimed: Family<Lane, Count>,
    claim_latency: Family<Lane, Histogram, fn() -> Histogram>,
    attempts: Family<Attempt, Count>,
    retries: Family<Route, Count>,
    abandoned: Family<Route, Count>,
    lease_lost: Family<Lane, Count>,
    terminal_backstop: Family<Lane, Count>,
    given_up: Family<Lane, Count>,
    released: Family<Lane, Count>,
    reaper_requeues: Family<Lane, Count>,
    reaper_ended: Family<Lane, Count>,
    repair_passes: Family<Lane, Count>,
    database_trouble: Family<Call, Count>,
    in_flight: Family<Route, Level>,
    breaker_open: Family<Route, Level>,
    listener_connected: Family<Lane, Level>,
    latency: Family<Route, Histogram, fn() -> Histogram>,
}

impl Counts {
    /// Registers what is counted, under names that begin with `symphony_`.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        /// Registers one of them.
        fn of<M: Clone + prometheus_client::registry::Metric>(
            registry: &mut Registry,
            name: &str,
            help: &str,
            metric: M,
        ) -> M {
            registry.register(name, help, metric.clone());
            metric
        }
        let r = registry;
        Self {
            notify_wakeups: of(r, "notify_wakeups", "Claims caused by a notification", Family::default()),
            claim_batches: of(
                r,
                "claim_batches",
                "Claims that came back, by how much they brought",
                Family::default(),
            ),
            claimed: of(r, "claimed", "Rows that claims brought", Family::default()),
            claim_latency: of(
                r,
                "claim_latency_seconds",
                "How long claims took",
                Family::new_with_constructor(histogram as fn() -> Histogram),
            ),
            attempts: of(
                r,
                "attempts",
                "Attempts that were recorded, by state, those of expired leases included",
                Family::default(),
            ),
            retries: of(r, "retries_scheduled", "Attempts after which the row is tried again", Family::default()),
            abandoned: of(r, "dispatch_abandoned", "Dispatches that were cut off", Family::default()),
            lease_lost: of(r, "lease_lost", "Leases found lost by a completion or a renewal", Family::default()),
            terminal_backstop: of(
                r,
                "terminal_backstop",
                "Rows quarantined because they had ended already, and second ends that the ledger stopped",
                Family::default(),
            ),
            given_up: of(r, "outcomes_given_up", "Outcomes that could not be recorded", Family::default()),
            released: of(r, "leases_released", "Leases given back unstarted", Family::default()),
            reaper_requeues: of(
                r,
                "reaper_requeues",
                "Expired leases whose rows went back, by repair or by a claim that took them over",
                Family::default(),
            ),
            reaper_ended: of(
                r,
                "reaper_ended",
                "Expired leases whose rows had no attempts left, found by repair or by a claim",
                Family::default(),
            ),
            repair_passes: of(r, "repair_passes", "Passes over expired leases that came back", Family::default()),
            database_trouble: of(r, "database_trouble", "Calls to the database that failed", Family::default()),
            in_flight: of(r, "in_flight", "Dispatches that run now", Family::default()),
            breaker_open: of(r, "breaker_open", "1 while a rail, sink or store is left alone", Family::default()),
            listener_connected: of(
                r,
                "listener_connected",
                "1 while commits can wake this process",
                Family::default(),
            ),
            latency: of(
                r,
                "dispatch_latency_seconds",
                "How long dispatches took",
                Family::new_with_constructor(histogram as fn() -> Histogram),
            ),
        }
    }
}

/// Counts what one lane's engine does.
#[derive(Debug)]
pub(crate) struct LaneMeter {
    lane: &'static str,
    counts: Counts,
    /// When the database last answered.
    contact: Mutex<Option<Instant>>,
    /// How many quarantined rows are counted already.
    quarantined: AtomicU64,
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

impl LaneMeter {
    /// Counts for this lane. What may stay at nothing is shown as that.
    pub(crate) fn new(lane: &'static str, counts: Counts) -> Arc<Self> {
        let _ = counts.listener_connected.get_or_create(&Lane { lane }).set(0);
        for count in [
            &counts.notify_wakeups,
            &counts.claimed,
            &counts.lease_lost,
            &counts.terminal_backstop,
            &counts.given_up,
            &counts.released,
            &counts.reaper_requeues,
            &counts.reaper_ended,
        ] {
            let _ = count.get_or_create(&Lane { lane });
        }
        Arc::new(Self { lane, counts, contact: Mutex::new(None), quarantined: AtomicU64::new(0) })
    }

    /// Counts for a lane whose expired leases are given back by passes of repair, so that none at all can be seen.
    pub(crate) fn with_repair(lane: &'static str, counts: Counts) -> Arc<Self> {
        let _ = counts.repair_passes.get_or_create(&Lane { lane });
        Self::new(lane, counts)
    }

    /// How long ago the database last answered; none where it never did.
    pub(crate) fn silence(&self) -> Option<Duration> {
        self.contact.lock().ok().and_then(|contact| contact.map(|at| at.elapsed()))
    }

    fn answered(&self) {
        if let Ok(mut contact) = self.contact.lock() {
            *contact = Some(Instant::now());
        }
    }

    fn lane(&self) -> Lane {
        Lane { lane: self.lane }
    }

    /// Expired leases of other workers, whoever ended them.
    fn ended_leases(&self, leases: &Repaired) {
        self.counts.reaper_requeues.get_or_create(&self.lane()).inc_by(many(leases.requeued));
        self.counts.reaper_ended.get_or_create(&self.lane()).inc_by(many(leases.ended));
        for ((rail, state), count) in &leases.attempts {
            let attempt = Attempt { lane: self.lane, rail: rail.clone(), state };
            self.counts.attempts.get_or_create(&attempt).inc_by(many(*count));
        }
    }

    fn route(&self, rail: &str) -> Route {
        Route { lane: self.lane, rail: rail.to_owned() }
    }
}

fn many(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

impl Meter for LaneMeter {
    fn wakeup(&self, cause: Cause) {
        if cause == Cause::Notified {
            self.counts.notify_wakeups.get_or_create(&self.lane()).inc();
        }
    }

    fn claim(&self, catch: Catch, rows: usize, took: Duration) {
        self.answered();
        let size = match catch {
            Catch::Full => Size::full,
            Catch::Partial => Size::partial,
            Catch::Empty => Size::empty,
        };
        self.counts.claim_batches.get_or_create(&Claim { lane: self.lane, size }).inc();
        self.counts.claimed.get_or_create(&self.lane()).inc_by(many(rows));
        self.counts.claim_latency.get_or_create(&self.lane()).observe(took.as_secs_f64());
    }

    fn dispatch_finished(&self, route: &str, latency: Duration, _signal: RouteSignal) {
        self.counts.latency.get_or_create(&self.route(route)).observe(latency.as_secs_f64());
    }

    fn dispatch_abandoned(&self, route: &str) {
        self.counts.abandoned.get_or_create(&self.route(route)).inc();
    }

    fn in_flight(&self, route: &str, count: usize) {
        self.counts.in_flight.get_or_create(&self.route(route)).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn attempt(&self, route: &str, state: &'static str) {
        self.answered();
        self.counts.attempts.get_or_create(&Attempt { lane: self.lane, rail: route.to_owned(), state }).inc();
    }

    fn retry_scheduled(&self, route: &str) {
        self.counts.retries.get_or_create(&self.route(route)).inc();
    }

    fn lease_lost(&self) {
        self.counts.lease_lost.get_or_create(&self.lane()).inc();
    }

    fn backstop(&self) {
        self.counts.terminal_backstop.get_or_create(&self.lane()).inc();
    }

    fn quarantined(&self, total: u64) {
        let counted = self.quarantined.fetch_max(total, Ordering::Relaxed);
        self.counts.terminal_backstop.get_or_create(&self.lane()).inc_by(total.saturating_sub(counted));
    }

    fn given_up(&self) {
        self.counts.given_up.get_or_create(&self.lane()).inc();
    }

    fn renewed(&self, _held: usize, _lost: usize) {
        self.answered();
    }

    fn released(&self, count: usize) {
        self.counts.released.get_or_create(&self.lane()).inc_by(many(count));
    }

    fn repaired(&self, repaired: &Repaired) {
        self.counts.repair_passes.get_or_create(&self.lane()).inc();
        self.ended_leases(repaired);
    }

    fn taken_over(&self, taken_over: &Repaired) {
        self.ended_leases(taken_over);
    }

    fn breaker(&self, route: &str, health: Health) {
        let open = i64::from(health != Health::Closed);
        self.counts.breaker_open.get_or_create(&self.route(route)).set(open);
    }

    fn listener_connected(&self, connected: bool) {
        self.counts.listener_connected.get_or_create(&self.lane()).set(i64::from(connected));
    }

    fn call_failed(&self, call: &'static str) {
        self.counts.database_trouble.get_or_create(&Call { lane: self.lane, call }).inc();
    }
}
