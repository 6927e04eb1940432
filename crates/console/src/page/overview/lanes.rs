//! The lanes table of the overview.

use symphony_db::LaneStats;
use symphony_db::payment::reader::RailBacklog;

use super::super::time::{millis, number, seconds};
use crate::api;

/// An installed lane as a row of the table.
pub(super) struct Lane {
    pub(super) name: &'static str,
    /// The page of the lane.
    pub(super) path: &'static str,
    pub(super) due: String,
    /// Expired leases included.
    pub(super) leased: String,
    pub(super) expired: String,
    pub(super) scheduled: String,
    pub(super) oldest: String,
    pub(super) oldest_pending: String,
    pub(super) dlq: String,
    pub(super) rate: String,
    pub(super) dispatched: String,
    pub(super) retried: String,
    pub(super) failed: String,
    pub(super) latency: String,
    pub(super) total: String,
}

/// The installed lanes.
pub(super) fn of(overview: &api::Overview) -> Vec<Lane> {
    let payments = overview.payments.as_ref().map(|lane| {
        let rails = &lane.backlog.rails;
        let sum = |of: fn(&RailBacklog) -> i64, more: fn(&RailBacklog) -> bool| {
            number(rails.iter().map(of).sum(), rails.iter().any(more))
        };
        let dead = &lane.dead_letters;
        Lane {
            name: "Payments",
            path: "/search",
            due: sum(|rail| rail.due, |rail| rail.more_due),
            leased: sum(|rail| rail.leased, |rail| rail.more_due),
            expired: sum(|rail| rail.expired, |rail| rail.more_due),
            scheduled: sum(|rail| rail.scheduled, |rail| rail.more_scheduled),
            oldest: seconds(oldest(rails)),
            oldest_pending: seconds(oldest_pending(rails)),
            dlq: number(dead.known + dead.unknown, dead.more),
            ..recent(&lane.recent.lane)
        }
    });
    let events = overview.events.as_ref().map(|lane| {
        let backlog = &lane.backlog;
        Lane {
            name: "Events",
            path: "/events",
            due: number(backlog.due, backlog.more_due),
            leased: number(backlog.claimed, backlog.more_claimed),
            expired: number(backlog.stuck, backlog.more_stuck),
            scheduled: number(backlog.scheduled, backlog.more_scheduled),
            oldest: seconds(backlog.oldest_due_age_seconds),
            oldest_pending: seconds(backlog.oldest_pending_age_seconds),
            dlq: "–".to_owned(),
            failed: "–".to_owned(),
            ..recent(&lane.recent)
        }
    });
    let metadata = overview.metadata.as_ref().map(|lane| {
        let backlog = &lane.backlog;
        Lane {
            name: "Metadata",
            path: "/metadata",
            due: number(backlog.due, backlog.more_due),
            leased: number(backlog.processing, backlog.more_processing),
            expired: number(backlog.stuck, backlog.more_stuck),
            scheduled: number(backlog.scheduled, backlog.more_scheduled),
            oldest: seconds(backlog.oldest_due_age_seconds),
            oldest_pending: seconds(backlog.oldest_pending_age_seconds),
            dlq: number(backlog.dlq, backlog.more_dlq),
            ..recent(&lane.recent)
        }
    });
    [payments, events, metadata].into_iter().flatten().collect()
}

/// How long the oldest due payment of any rail has been due, in seconds.
pub(super) fn oldest(rails: &[RailBacklog]) -> f64 {
    rails.iter().map(|rail| rail.oldest_due_age_seconds).fold(0.0, f64::max)
}

/// The age of the oldest pending payment of any rail, in seconds, scheduled ones included.
fn oldest_pending(rails: &[RailBacklog]) -> f64 {
    rails.iter().map(|rail| rail.oldest_pending_age_seconds).fold(0.0, f64::max)
}

/// The recent results of a lane; the caller fills in the backlog.
fn recent(stats: &LaneStats) -> Lane {
    let [p50, p95, p99] = [stats.latency_p50_ms, stats.latency_p95_ms, stats.latency_p99_ms].map(millis);
    Lane {
        name: "",
        path: "",
        due: String::new(),
        leased: String::new(),
        expired: String::new(),
        scheduled: String::new(),
        oldest: String::new(),
        oldest_pending: String::new(),
        dlq: String::new(),
        rate: format!("{:.1}", stats.rate()),
        dispatched: number(stats.done, false),
        retried: stats.retried.map_or_else(|| "–".to_owned(), |count| number(count, false)),
        failed: number(stats.failed, false),
        latency: format!("{p50} / {p95} / {p99}"),
        total: format!("{} / {}", millis(stats.total_p50_ms), millis(stats.total_p95_ms)),
    }
}
