//! The overview page: lanes, rails and relayers.

mod lanes;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use symphony_db::payment::reader::RailBacklog;

use super::time::{Moment, millis, number, seconds, span};
use super::{Layout, PageError, render};
use crate::session::Visitor;
use crate::{ConsoleState, api, chart};
use lanes::Lane;

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    layout: Layout,
    /// None if the payment lane is not installed.
    payments: Option<Payments>,
    lanes: Vec<Lane>,
    rails: Vec<Rail>,
    relayers: Vec<Relayer>,
    worker: String,
}

struct Payments {
    pending: String,
    pending_note: &'static str,
    oldest: String,
    rate: String,
    span: String,
    unknown: String,
    has_unknown: bool,
    known: String,
    orphans: String,
    has_orphans: bool,
    chart: String,
    max_counted_per_rail: String,
}

struct Rail {
    name: String,
    state: &'static str,
    tone: &'static str,
    due: String,
    leased: String,
    expired: String,
    scheduled: String,
    parked: String,
    oldest: String,
    oldest_pending: String,
    rate: String,
    dispatched: String,
    retried: String,
    failed: String,
    latency: String,
    total: String,
    dlq: String,
}

struct Relayer {
    name: String,
    state: &'static str,
    tone: &'static str,
    leases: String,
    expired: String,
    attempts: String,
    last: String,
}

pub(super) async fn page(State(console): State<ConsoleState>, visitor: Visitor) -> Result<Response, PageError> {
    let overview = api::overview(&console).await?;
    Ok(render(&Page {
        layout: Layout::new(&console, &visitor, "/"),
        lanes: lanes::of(&overview),
        rails: overview.payments.as_ref().map(rails).unwrap_or_default(),
        payments: overview.payments.as_ref().map(payments),
        relayers: overview.relayers.iter().map(relayer).collect(),
        worker: overview.worker,
    }))
}

fn payments(lane: &api::Payments) -> Payments {
    let api::Payments { backlog, recent, dead_letters, open_orphans } = lane;
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown to one digit")]
    let rate = recent.attempts as f64 / recent.span_seconds.max(1.0);
    Payments {
        pending: number(backlog.estimate, false),
        pending_note: if backlog.more { "PostgreSQL's estimate" } else { "exact" },
        oldest: seconds(lanes::oldest(&backlog.rails)),
        rate: format!("{rate:.1}"),
        span: span(jiff::SignedDuration::from_secs_f64(recent.span_seconds.clamp(1.0, 1e6))),
        unknown: number(dead_letters.unknown, dead_letters.more),
        has_unknown: dead_letters.unknown > 0,
        known: number(dead_letters.known, dead_letters.more),
        orphans: number(*open_orphans, false),
        has_orphans: *open_orphans > 0,
        chart: chart::bars(&recent.buckets, "Attempts"),
        max_counted_per_rail: number(i64::from(backlog.max_rows), false),
    }
}

fn rails(lane: &api::Payments) -> Vec<Rail> {
    let rail = |rail: &RailBacklog| {
        let done = lane.recent.rails.iter().find(|done| done.rail_type == rail.rail_type);
        let dead = lane.dead_letters.rails.iter().find(|dead| dead.rail_type == rail.rail_type);
        let count = |count: Option<i64>| number(count.unwrap_or(0), false);
        let wide = |length: Option<i32>| millis(length.map(i64::from));
        #[expect(clippy::cast_precision_loss, reason = "a rate is shown to one digit")]
        let rate = done.map_or(0, |done| done.attempts) as f64 / lane.recent.span_seconds.max(1.0);
        Rail {
            name: rail.rail_type.clone(),
            state: super::rails::state(rail.paused, rail.held_since_epoch).0,
            tone: super::rails::state(rail.paused, rail.held_since_epoch).1,
            due: number(rail.due, rail.more_due),
            leased: number(rail.leased, rail.more_due),
            expired: number(rail.expired, rail.more_due),
            scheduled: number(rail.scheduled, rail.more_scheduled),
            parked: if rail.ordered { number(rail.parked, rail.more_parked) } else { "–".to_owned() },
            oldest: seconds(rail.oldest_due_age_seconds),
            oldest_pending: seconds(rail.oldest_pending_age_seconds),
            rate: format!("{rate:.1}"),
            dispatched: count(done.map(|done| done.dispatched)),
            retried: count(done.map(|done| done.retryable + done.zombies)),
            failed: count(done.map(|done| done.failed)),
            latency: done.map_or_else(
                || "–".to_owned(),
                |done| {
                    let [p50, p95, p99] =
                        [done.latency_p50_ms, done.latency_p95_ms, done.latency_p99_ms].map(wide);
                    format!("{p50} / {p95} / {p99}")
                },
            ),
            total: done.map_or_else(
                || "–".to_owned(),
                |done| format!("{} / {}", millis(done.total_p50_ms), millis(done.total_p95_ms)),
            ),
            dlq: dead.map_or_else(|| "0, 0".to_owned(), |dead| format!("{}, {}", dead.unknown, dead.known)),
        }
    };
    lane.backlog.rails.iter().map(rail).collect()
}

/// The state of a relayer. One that holds leases and has no session has most likely died.
fn relayer(one: &api::Relayer) -> Relayer {
    let (state, tone) = match (one.sessions, one.leases) {
        (0, 0) => ("GONE", "wait"),
        (0, _) => ("NOT CONNECTED", "bad"),
        (_, 0) => ("IDLE", "ok"),
        (_, _) => ("WORKING", "ok"),
    };
    Relayer {
        name: one.worker_id.clone(),
        state,
        tone,
        leases: number(one.leases, false),
        expired: number(one.expired, false),
        attempts: number(one.attempts, false),
        last: one.last_completed_at.map(|at| Moment::of(at).ago).unwrap_or_default(),
    }
}
