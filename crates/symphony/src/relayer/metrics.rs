//! The engine's metrics for Prometheus: counters, gauges and histograms per lane and route.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use symphony_relay::breaker::BreakerState;
use symphony_relay::lane::{Repaired, RouteSignal};
use symphony_relay::metrics::{ClaimFill, Meter};
use symphony_relay::wake::Cause;

/// Upper bounds in seconds: from a rail in the same rack to the longest usual timeout.
const BUCKETS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

type IntCounter = Counter<u64, AtomicU64>;
type IntGauge = Gauge<i64, AtomicI64>;

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

/// All metrics, for every lane. A clone shares the same counters.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    notify_wakeups: Family<Lane, IntCounter>,
    claim_batches: Family<Claim, IntCounter>,
    claimed: Family<Lane, IntCounter>,
    claim_latency: Family<Lane, Histogram, fn() -> Histogram>,
    attempts: Family<Attempt, IntCounter>,
    retries: Family<Route, IntCounter>,
    abandoned: Family<Route, IntCounter>,
    lease_lost: Family<Lane, IntCounter>,
    terminal_backstop: Family<Lane, IntCounter>,
    given_up: Family<Lane, IntCounter>,
    released: Family<Lane, IntCounter>,
    reaper_requeues: Family<Lane, IntCounter>,
    reaper_ended: Family<Lane, IntCounter>,
    repair_passes: Family<Lane, IntCounter>,
    database_trouble: Family<Call, IntCounter>,
    in_flight: Family<Route, IntGauge>,
    breaker_open: Family<Route, IntGauge>,
    listener_connected: Family<Lane, IntGauge>,
    claims_failing: Family<Lane, IntGauge>,
    latency: Family<Route, Histogram, fn() -> Histogram>,
}

impl Metrics {
    /// Registers the metrics. The registry puts `symphony_` before each name.
    pub(crate) fn new(registry: &mut Registry) -> Self {
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
                "Claims that succeeded, by how full their batch was",
                Family::default(),
            ),
            claimed: of(r, "claimed", "Rows claimed", Family::default()),
            // symphony_claim_latency_seconds: the registry adds the prefix.
            claim_latency: of(
                r,
                "claim_latency_seconds",
                "Duration of a successful claim call, empty ones included (not the wait of a row)",
                Family::new_with_constructor(histogram as fn() -> Histogram),
            ),
            attempts: of(
                r,
                "attempts",
                "Attempts recorded, by state, including those of expired leases",
                Family::default(),
            ),
            retries: of(r, "retries_scheduled", "Attempts after which a retry is scheduled", Family::default()),
            abandoned: of(r, "dispatch_abandoned", "Dispatches cancelled before they returned", Family::default()),
            lease_lost: of(r, "lease_lost", "Leases found lost by a completion or a renewal", Family::default()),
            terminal_backstop: of(
                r,
                "terminal_backstop",
                "Duplicate terminal writes rejected and rows quarantined; must be 0, page on any",
                Family::default(),
            ),
            given_up: of(r, "outcomes_given_up", "Dispatch results that could not be recorded", Family::default()),
            released: of(r, "leases_released", "Leases released before their dispatch began", Family::default()),
            reaper_requeues: of(
                r,
                "reaper_requeues",
                "Rows requeued after an expired lease, by repair or by a claim",
                Family::default(),
            ),
            reaper_ended: of(
                r,
                "reaper_ended",
                "Rows that failed terminally after an expired lease, by repair or by a claim",
                Family::default(),
            ),
            repair_passes: of(r, "repair_passes", "Repair passes that succeeded", Family::default()),
            database_trouble: of(r, "database_trouble", "Database calls that failed", Family::default()),
            in_flight: of(r, "in_flight", "Dispatches in flight", Family::default()),
            breaker_open: of(
                r,
                "breaker_open",
                "1 while the circuit breaker of a route is open or half-open",
                Family::default(),
            ),
            listener_connected: of(
                r,
                "listener_connected",
                "1 while the LISTEN connection is up",
                Family::default(),
            ),
            claims_failing: of(
                r,
                "claims_failing",
                "1 from the first claim that failed until one succeeds",
                Family::default(),
            ),
            latency: of(
                r,
                "dispatch_latency_seconds",
                "Duration of dispatches",
                Family::new_with_constructor(histogram as fn() -> Histogram),
            ),
        }
    }
}

/// The metrics of one lane's engine.
#[derive(Debug)]
pub(crate) struct LaneMetrics {
    lane: &'static str,
    metrics: Metrics,
    /// When the database last answered.
    last_answer: Mutex<Option<Instant>>,
    /// When the first claim failed after the last that succeeded.
    claims_fail_since: Mutex<Option<Instant>>,
    /// Quarantined rows that are already in the counter.
    quarantined: AtomicU64,
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

impl LaneMetrics {
    /// The metrics of this lane. Counters that may stay at zero are exported as zero.
    pub(crate) fn new(lane: &'static str, metrics: Metrics) -> Arc<Self> {
        for gauge in [&metrics.listener_connected, &metrics.claims_failing] {
            let _ = gauge.get_or_create(&Lane { lane }).set(0);
        }
        for count in [
            &metrics.notify_wakeups,
            &metrics.claimed,
            &metrics.lease_lost,
            &metrics.terminal_backstop,
            &metrics.given_up,
            &metrics.released,
            &metrics.reaper_requeues,
            &metrics.reaper_ended,
        ] {
            let _ = count.get_or_create(&Lane { lane });
        }
        Arc::new(Self {
            lane,
            metrics,
            last_answer: Mutex::new(None),
            claims_fail_since: Mutex::new(None),
            quarantined: AtomicU64::new(0),
        })
    }

    /// The metrics of a lane with repair passes: their counter is exported from the start, so that an alert sees zero.
    pub(crate) fn with_repair(lane: &'static str, metrics: Metrics) -> Arc<Self> {
        let _ = metrics.repair_passes.get_or_create(&Lane { lane });
        Self::new(lane, metrics)
    }

    /// The time since the database last answered; none if it never did.
    pub(crate) fn since_last_answer(&self) -> Option<Duration> {
        self.last_answer.lock().ok().and_then(|last| last.map(|at| at.elapsed()))
    }

    /// For how long claims have failed and none has succeeded; none while they succeed.
    pub(crate) fn claims_fail_for(&self) -> Option<Duration> {
        self.claims_fail_since.lock().ok().and_then(|since| since.map(|at| at.elapsed()))
    }

    fn answered(&self) {
        if let Ok(mut last) = self.last_answer.lock() {
            *last = Some(Instant::now());
        }
    }

    fn lane(&self) -> Lane {
        Lane { lane: self.lane }
    }

    /// Counts expired leases of other workers, whether repair or a claim found them.
    fn expired_leases(&self, leases: &Repaired) {
        self.metrics.reaper_requeues.get_or_create(&self.lane()).inc_by(many(leases.requeued));
        self.metrics.reaper_ended.get_or_create(&self.lane()).inc_by(many(leases.ended));
        for ((rail, state), count) in &leases.attempts {
            let attempt = Attempt { lane: self.lane, rail: rail.clone(), state };
            self.metrics.attempts.get_or_create(&attempt).inc_by(many(*count));
        }
    }

    fn route(&self, rail: &str) -> Route {
        Route { lane: self.lane, rail: rail.to_owned() }
    }
}

fn many(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

impl Meter for LaneMetrics {
    fn wakeup(&self, cause: Cause) {
        if cause == Cause::Notified {
            self.metrics.notify_wakeups.get_or_create(&self.lane()).inc();
        }
    }

    fn claim(&self, fill: ClaimFill, rows: usize, took: Duration) {
        self.answered();
        if let Ok(mut since) = self.claims_fail_since.lock()
            && since.take().is_some()
        {
            self.metrics.claims_failing.get_or_create(&self.lane()).set(0);
        }
        let size = match fill {
            ClaimFill::Full => Size::full,
            ClaimFill::Partial => Size::partial,
            ClaimFill::Empty => Size::empty,
        };
        self.metrics.claim_batches.get_or_create(&Claim { lane: self.lane, size }).inc();
        self.metrics.claimed.get_or_create(&self.lane()).inc_by(many(rows));
        self.metrics.claim_latency.get_or_create(&self.lane()).observe(took.as_secs_f64());
    }

    fn dispatch_finished(&self, route: &str, latency: Duration, _signal: RouteSignal) {
        self.metrics.latency.get_or_create(&self.route(route)).observe(latency.as_secs_f64());
    }

    fn dispatch_abandoned(&self, route: &str) {
        self.metrics.abandoned.get_or_create(&self.route(route)).inc();
    }

    fn in_flight(&self, route: &str, count: usize) {
        self.metrics.in_flight.get_or_create(&self.route(route)).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn attempt(&self, route: &str, state: &'static str) {
        self.answered();
        self.metrics.attempts.get_or_create(&Attempt { lane: self.lane, rail: route.to_owned(), state }).inc();
    }

    fn retry_scheduled(&self, route: &str) {
        self.metrics.retries.get_or_create(&self.route(route)).inc();
    }

    fn lease_lost(&self) {
        self.metrics.lease_lost.get_or_create(&self.lane()).inc();
    }

    fn backstop(&self) {
        self.metrics.terminal_backstop.get_or_create(&self.lane()).inc();
    }

    fn quarantined(&self, total: u64) {
        let counted = self.quarantined.fetch_max(total, Ordering::Relaxed);
        self.metrics.terminal_backstop.get_or_create(&self.lane()).inc_by(total.saturating_sub(counted));
    }

    fn given_up(&self) {
        self.metrics.given_up.get_or_create(&self.lane()).inc();
    }

    fn renewed(&self, _held: usize, _lost: usize) {
        self.answered();
    }

    fn released(&self, count: usize) {
        self.metrics.released.get_or_create(&self.lane()).inc_by(many(count));
    }

    fn repaired(&self, repaired: &Repaired) {
        self.metrics.repair_passes.get_or_create(&self.lane()).inc();
        self.expired_leases(repaired);
    }

    fn taken_over(&self, taken_over: &Repaired) {
        self.expired_leases(taken_over);
    }

    fn breaker(&self, route: &str, state: BreakerState) {
        let open = i64::from(state != BreakerState::Closed);
        self.metrics.breaker_open.get_or_create(&self.route(route)).set(open);
    }

    fn listener_connected(&self, connected: bool) {
        self.metrics.listener_connected.get_or_create(&self.lane()).set(i64::from(connected));
    }

    fn call_failed(&self, call: &'static str) {
        if call == "claim"
            && let Ok(mut since) = self.claims_fail_since.lock()
        {
            since.get_or_insert_with(Instant::now);
            self.metrics.claims_failing.get_or_create(&self.lane()).set(1);
        }
        self.metrics.database_trouble.get_or_create(&Call { lane: self.lane, call }).inc();
    }
}
