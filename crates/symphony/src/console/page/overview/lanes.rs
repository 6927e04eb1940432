//! The lanes that are installed, side by side.

use symphony_outbox::LanePulse;
use symphony_outbox::payment::reading::RailBacklog;

use super::super::time::{millis, number, seconds};
use crate::console::api;

/// A lane as a line of a table.
pub(super) struct Lane {
    pub(super) name: &'static str,
    /// Where there is more about it.
    pub(super) path: &'static str,
    pub(super) due: String,
    /// Claimed, and not heard of for too long among it.
    pub(super) working: String,
    pub(super) stuck: String,
    pub(super) scheduled: String,
    pub(super) oldest: String,
    pub(super) oldest_pending: String,
    pub(super) dead: String,
    pub(super) rate: String,
    pub(super) done: String,
    pub(super) again: String,
    pub(super) failed: String,
    pub(super) took: String,
    pub(super) total: String,
}

/// Those that there are.
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
            working: sum(|rail| rail.leased, |_| false),
            stuck: sum(|rail| rail.expired, |_| false),
            scheduled: sum(|rail| rail.scheduled, |rail| rail.more_scheduled),
            oldest: seconds(oldest(rails)),
            oldest_pending: seconds(oldest_pending(rails)),
            dead: number(dead.known + dead.unknown, dead.more),
            ..lately(&lane.pulse.lane)
        }
    });
    let events = overview.events.as_ref().map(|lane| {
        let backlog = &lane.backlog;
        Lane {
            name: "Events",
            path: "/events",
            due: number(backlog.due, backlog.more),
            working: number(backlog.claimed, backlog.more),
            stuck: number(backlog.stuck, backlog.more),
            scheduled: number(backlog.scheduled, backlog.more),
            oldest: seconds(backlog.oldest_due_age_seconds),
            oldest_pending: seconds(backlog.oldest_pending_age_seconds),
            dead: "–".to_owned(),
            failed: "–".to_owned(),
            ..lately(&lane.pulse)
        }
    });
    let metadata = overview.metadata.as_ref().map(|lane| {
        let backlog = &lane.backlog;
        Lane {
            name: "Metadata",
            path: "/metadata",
            due: number(backlog.due, backlog.more),
            working: number(backlog.processing, backlog.more),
            stuck: number(backlog.stuck, backlog.more),
            scheduled: number(backlog.scheduled, backlog.more),
            oldest: seconds(backlog.oldest_due_age_seconds),
            oldest_pending: seconds(backlog.oldest_pending_age_seconds),
            dead: number(backlog.dlq, backlog.more),
            ..lately(&lane.pulse)
        }
    });
    [payments, events, metadata].into_iter().flatten().collect()
}

/// How long the oldest due payment has waited, on any rail.
pub(super) fn oldest(rails: &[RailBacklog]) -> f64 {
    rails.iter().map(|rail| rail.oldest_due_age_seconds).fold(0.0, f64::max)
}

/// How long ago the oldest pending payment was enqueued, on any rail, scheduled or not.
fn oldest_pending(rails: &[RailBacklog]) -> f64 {
    rails.iter().map(|rail| rail.oldest_pending_age_seconds).fold(0.0, f64::max)
}

/// What a lane did lately; what it has to do is for whoever knows.
fn lately(pulse: &LanePulse) -> Lane {
    let [p50, p95, p99] = [pulse.took_p50_ms, pulse.took_p95_ms, pulse.took_p99_ms].map(millis);
    Lane {
        name: "",
        path: "",
        due: String::new(),
        working: String::new(),
        stuck: String::new(),
        scheduled: String::new(),
        oldest: String::new(),
        oldest_pending: String::new(),
        dead: String::new(),
        rate: format!("{:.1}", pulse.rate()),
        done: number(pulse.done, false),
        again: pulse.again.map_or_else(|| "–".to_owned(), |again| number(again, false)),
        failed: number(pulse.failed, false),
        took: format!("{p50} / {p95} / {p99}"),
        total: format!("{} / {}", millis(pulse.total_p50_ms), millis(pulse.total_p95_ms)),
    }
}
