//! Everything at a glance.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use symphony_outbox::payment::reading::{self, Backlog, DeadLetterCount, Pulse, RailBacklog, WorkerLeases};

use super::time::{millis, number, seconds, span};
use super::{Frame, Refusal, shown};
use crate::console::session::Visitor;
use crate::console::{Desk, api, chart};

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    frame: Frame,
    pending: String,
    pending_note: String,
    oldest: String,
    rate: String,
    span: String,
    unknown: String,
    unknown_open: bool,
    known: String,
    chart: String,
    rails: Vec<Rail>,
    workers: Vec<Worker>,
    worker: String,
    total_most: String,
    rail_most: String,
}

struct Rail {
    name: String,
    now: &'static str,
    tone: &'static str,
    due: String,
    leased: String,
    expired: String,
    scheduled: String,
    oldest: String,
    dispatched: String,
    again: String,
    failed: String,
    latency: String,
    total: String,
    dead: String,
}

struct Worker {
    name: String,
    leases: String,
    expired: String,
    attempts: String,
    last: String,
}

pub(super) async fn page(State(desk): State<Desk>, visitor: Visitor) -> Result<Response, Refusal> {
    let api::Overview { worker, backlog, pulse, dead_letters } = api::overview(&desk).await?;
    let leases = desk.database.read(async |client| reading::leases(client).await).await?;
    let (total, most) = (backlog.total, i64::from(backlog.total_most));
    let oldest = backlog.rails.iter().map(|rail| rail.oldest_due_age_seconds).fold(0.0, f64::max);
    let lately = span(jiff::SignedDuration::from_secs_f64(pulse.span_seconds.clamp(1.0, 1e6)));
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = pulse.attempts as f64 / pulse.span_seconds.max(1.0);
    Ok(shown(&Page {
        frame: Frame::new(&desk, &visitor, "/"),
        pending: if total < most { number(total, false) } else { number(backlog.estimate.max(most), false) },
        pending_note: if total < most { "counted".to_owned() } else { "about: the server's estimate".to_owned() },
        oldest: seconds(oldest),
        rate: format!("{rate:.1}"),
        unknown: number(dead_letters.unknown, dead_letters.more),
        unknown_open: dead_letters.unknown > 0,
        known: number(dead_letters.known, dead_letters.more),
        chart: chart::bars(&pulse.parts, "Attempts"),
        rails: rails(&backlog, &pulse, &dead_letters),
        workers: workers(&pulse, &leases),
        worker,
        span: lately,
        total_most: number(most, false),
        rail_most: number(i64::from(backlog.rail_most), false),
    }))
}

fn rails(backlog: &Backlog, pulse: &Pulse, dead: &DeadLetterCount) -> Vec<Rail> {
    let rail = |rail: &RailBacklog| {
        let done = pulse.rails.iter().find(|done| done.rail_type == rail.rail_type);
        let dead = dead.rails.iter().find(|dead| dead.rail_type == rail.rail_type);
        let count = |count: Option<i64>| number(count.unwrap_or(0), false);
        let wide = |length: Option<i32>| millis(length.map(i64::from));
        Rail {
            name: rail.rail_type.clone(),
            now: if rail.paused { "PAUSED" } else { "RUNNING" },
            tone: if rail.paused { "again" } else { "ok" },
            due: number(rail.due, rail.more_due),
            leased: number(rail.leased, false),
            expired: number(rail.expired, false),
            scheduled: number(rail.scheduled, rail.more_scheduled),
            oldest: seconds(rail.oldest_due_age_seconds),
            dispatched: count(done.map(|done| done.dispatched)),
            again: count(done.map(|done| done.retryable + done.zombies)),
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
            dead: dead.map_or_else(|| "0, 0".to_owned(), |dead| format!("{}, {}", dead.unknown, dead.known)),
        }
    };
    backlog.rails.iter().map(rail).collect()
}

/// Who holds leases or has recorded something lately, by name.
fn workers(pulse: &Pulse, leases: &[WorkerLeases]) -> Vec<Worker> {
    let mut all: BTreeMap<&str, (i64, i64, i64, Option<jiff::Timestamp>)> = BTreeMap::new();
    for done in &pulse.workers {
        let one = all.entry(&done.worker_id).or_default();
        (one.2, one.3) = (done.attempts, Some(done.last_completed_at));
    }
    for held in leases {
        let one = all.entry(&held.worker_id).or_default();
        (one.0, one.1) = (one.0 + held.leases, one.1 + held.expired);
    }
    let worker =
        |(name, (leases, expired, attempts, last)): (&str, (i64, i64, i64, Option<jiff::Timestamp>))| Worker {
            name: name.to_owned(),
            leases: number(leases, false),
            expired: number(expired, false),
            attempts: number(attempts, false),
            last: last.map(|at| super::time::Moment::of(at).ago).unwrap_or_default(),
        };
    all.into_iter().map(worker).collect()
}
