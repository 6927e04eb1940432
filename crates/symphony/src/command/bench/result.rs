//! The benchmark's result, as JSON and as a table.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use symphony_testkit::bench_database::resource_usage::ResourceUsage;

use super::destination::{DestinationKind, Unavailable};
use super::histogram::{LatencyHistogram, Percentiles};
use super::machine::Machine;
use super::plan::{Plan, Scenario};
use super::relayer_processes::RelayerUsage;
use crate::table::Table;

/// The result of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) postgres: Postgres,
    pub(super) measurements: Vec<Measurement>,
    /// Destinations that could not be measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unavailable: Vec<Unavailable>,
}

/// The PostgreSQL server.
#[derive(Debug, Serialize)]
pub(super) struct Postgres {
    pub(super) version: String,
    /// Whether the benchmark started it.
    pub(super) private: bool,
    pub(super) settings: BTreeMap<String, String>,
}

/// What the server used, per message.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct PostgresUsage {
    /// Total CPU time; none if the server is on another machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_seconds: Option<f64>,
    pub(super) wal_bytes_per_message: f64,
    pub(super) wal_syncs_per_message: f64,
    pub(super) buffers_hit_per_message: f64,
    pub(super) buffers_read_per_message: f64,
}

impl PostgresUsage {
    #[expect(clippy::cast_precision_loss, reason = "row counts fit into 53 bits")]
    pub(super) fn of(spent: &ResourceUsage, messages: u64) -> Self {
        let each = |sum: f64| rounded(sum / messages.max(1) as f64);
        Self {
            cpu_seconds: spent.cpu_seconds.map(rounded),
            wal_bytes_per_message: each(spent.wal_bytes),
            wal_syncs_per_message: each(spent.wal_syncs),
            buffers_hit_per_message: each(spent.buffers_hit),
            buffers_read_per_message: each(spent.buffers_read),
        }
    }
}

/// An interval of a mixed run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Interval {
    pub(super) until_seconds: f64,
    pub(super) claims: u64,
    pub(super) claim_p50_ms: f64,
    pub(super) claim_p99_ms: f64,
    /// Rows enqueued but not yet recorded at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) backlog: Option<u64>,
}

/// One measurement. Fields that do not apply to its scenario are left out.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measurement {
    pub(super) scenario: &'static str,
    pub(super) lane: &'static str,
    pub(super) ordered: bool,
    /// The value of `--to`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<&'static str>,
    /// The server at the other end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) destination: Option<&'static str>,
    /// What the destination has received, by its own count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) received: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clients: Option<usize>,
    /// Rows per transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) batch: Option<u64>,
    /// The requested rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<u32>,
    pub(super) count: u64,
    pub(super) seconds: f64,
    pub(super) per_second: f64,
    /// What the percentiles measure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency_of: Option<&'static str>,
    #[serde(flatten)]
    pub(super) percentiles: Option<Percentiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) call_to_dispatch: Option<Percentiles>,
    /// How many payments the ledger had before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ledger: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) enqueued: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) enqueued_per_second: Option<f64>,
    /// Rows enqueued but not yet recorded at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) backlog: Option<u64>,
    /// Of all idle relayers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) transactions_per_second: Option<f64>,
    /// Claim latency over time. The JSON name is `stretches`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "stretches")]
    pub(super) intervals: Vec<Interval>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) hold_snapshot: bool,
    pub(super) relayers: usize,
    /// If it differs from the default of `symphony run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slots: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) batch_size: Option<usize>,
    pub(super) payload_bytes: usize,
    pub(super) participants: u64,
    pub(super) relayer_cpu_seconds: f64,
    /// Of the destination's server, if the benchmark started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) destination_cpu_seconds: Option<f64>,
    /// Peak memory of the largest relayer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) relayer_peak_memory_bytes: Option<u64>,
    /// From the start of a relayer's process until it listened or dispatched; the longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) relayer_start_seconds: Option<f64>,
    /// Of this process, which runs the producers.
    pub(super) client_cpu_seconds: f64,
    pub(super) postgres: PostgresUsage,
    /// For the plot.
    #[serde(skip)]
    pub(super) curve: Vec<(f64, f64)>,
}

impl Measurement {
    /// A measurement of `count` messages in `length`.
    pub(super) fn new(plan: &Plan, count: u64, length: Duration, share: (PostgresUsage, f64)) -> Self {
        let (postgres, client_cpu_seconds) = share;
        Self {
            scenario: plan.scenario.name(),
            lane: plan.lane.name(),
            ordered: plan.ordered,
            round: plan.round,
            to: plan.to.map(DestinationKind::name),
            destination: None,
            received: None,
            clients: (!matches!(plan.scenario, Scenario::Drain | Scenario::Deliver | Scenario::Idle))
                .then_some(plan.clients),
            batch: matches!(plan.scenario, Scenario::Batch).then_some(plan.batch),
            rate: plan.rate,
            count,
            seconds: rounded(length.as_secs_f64()),
            per_second: rate(count, length),
            latency_of: None,
            percentiles: None,
            call_to_dispatch: None,
            enqueued: None,
            enqueued_per_second: None,
            ledger: (plan.ledger > 0).then_some(plan.ledger),
            backlog: None,
            transactions_per_second: None,
            intervals: Vec::new(),
            hold_snapshot: plan.hold_snapshot,
            relayers: plan.relayers,
            slots: plan.slots,
            batch_size: plan.batch_size,
            payload_bytes: plan.payload_bytes,
            participants: plan.participants,
            relayer_cpu_seconds: 0.0,
            destination_cpu_seconds: None,
            relayer_peak_memory_bytes: None,
            relayer_start_seconds: None,
            client_cpu_seconds: rounded(client_cpu_seconds),
            postgres,
            curve: Vec::new(),
        }
    }

    /// Adds latencies.
    pub(super) fn with_times(mut self, of: &'static str, times: &LatencyHistogram) -> Self {
        self.latency_of = Some(of);
        self.percentiles = times.percentiles();
        self.curve = times.curve();
        self
    }

    /// Adds what the relayers used.
    pub(super) fn with_relayers(mut self, work: &RelayerUsage) -> Self {
        self.relayer_cpu_seconds = rounded(work.cpu_seconds);
        self.relayer_peak_memory_bytes = work.peak_memory_bytes;
        self.relayer_start_seconds = work.start.map(|start| rounded(start.as_secs_f64()));
        self
    }
}

impl Report {
    /// The result as text.
    pub(super) fn text(&self) -> String {
        let mut table = Table::new([
            "scenario",
            "lane",
            "clients",
            "relayers",
            "messages",
            "per second",
            "p50 ms",
            "p95 ms",
            "p99 ms",
            "max ms",
            "PostgreSQL CPU",
            "WAL bytes",
            "WAL syncs",
            "buffers",
        ]);
        for one in &self.measurements {
            let ordered = if one.ordered { " ordered" } else { "" };
            let snapshot = if one.hold_snapshot { ", held snapshot" } else { "" };
            let ledger = one.ledger.map(|rows| format!(", ledger {rows}")).unwrap_or_default();
            let percentile =
                |of: fn(&Percentiles) -> f64| one.percentiles.as_ref().map(|all| format!("{:.2}", of(all)));
            let share = &one.postgres;
            table.push([
                one.to.map_or_else(|| one.scenario.to_owned(), |to| format!("{} to {to}", one.scenario)),
                format!("{}{ordered}{snapshot}{ledger}", one.lane),
                one.clients.map(|clients| clients.to_string()).unwrap_or_default(),
                one.relayers.to_string(),
                one.count.to_string(),
                format!("{:.0}", one.per_second),
                percentile(|all| all.p50_ms).unwrap_or_default(),
                percentile(|all| all.p95_ms).unwrap_or_default(),
                percentile(|all| all.p99_ms).unwrap_or_default(),
                percentile(|all| all.max_ms).unwrap_or_default(),
                share
                    .cpu_seconds
                    .map(|seconds| format!("{:.0} %", 100.0 * seconds / one.seconds))
                    .unwrap_or_default(),
                format!("{:.0}", share.wal_bytes_per_message),
                format!("{:.3}", share.wal_syncs_per_message),
                format!("{:.1}", share.buffers_hit_per_message + share.buffers_read_per_message),
            ]);
        }
        let more: Vec<_> = self.measurements.iter().filter_map(|one| one.more(self.machine.cpus)).collect();
        let settings: Vec<_> =
            self.postgres.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        format!(
            "{}{}\nWAL bytes, WAL syncs and buffers are per message. {}\nPostgreSQL {}: {}",
            table.render(),
            more.join(""),
            self.machine.describe(),
            self.postgres.version,
            settings.join(", ")
        )
    }
}

impl Measurement {
    /// A line for values that the table has no column for.
    fn more(&self, cpus: usize) -> Option<String> {
        if let (Some(to), Some(destination), Some(received)) = (self.to, self.destination, self.received) {
            return Some(format!(
                "deliver to {to}: {destination} received {received}; CPU of one core: {}\n",
                self.cpu_shares(cpus)
            ));
        }
        if let (Some(enqueued), Some(backlog)) = (self.enqueued_per_second, self.backlog) {
            let claims: Vec<_> =
                self.intervals.iter().map(|interval| format!("{:.2}", interval.claim_p99_ms)).collect();
            let claims = match &claims[..] {
                [] => String::new(),
                claims => format!("; claim p99 in ms per tenth of the run: {}", claims.join(" ")),
            };
            return Some(format!(
                "mixed, {}: {enqueued:.0} enqueued per second, backlog at the end {backlog}{claims}\n",
                self.lane
            ));
        }
        if let Some(transactions) = self.transactions_per_second {
            let percent = |seconds: f64| format!("{:.1} %", 100.0 * seconds / self.seconds.max(1e-9));
            let server = self.postgres.cpu_seconds.map(|seconds| format!(", PostgreSQL {}", percent(seconds)));
            return Some(format!(
                "idle, {}: {transactions:.1} transactions per second; CPU of one core: relayers {}{}; peak memory {}; ready after {:.0} ms\n",
                self.lane,
                percent(self.relayer_cpu_seconds),
                server.unwrap_or_default(),
                self.relayer_peak_memory_bytes.map(mebibytes).unwrap_or_default(),
                self.relayer_start_seconds.unwrap_or_default() * 1000.0,
            ));
        }
        let call = self.call_to_dispatch.as_ref()?;
        Some(format!(
            "latency, {}: the table has commit to dispatch; call to dispatch p50 {:.2} ms, p99 {:.2} ms\n",
            self.lane, call.p50_ms, call.p99_ms
        ))
    }

    /// The CPU of each part in percent of one core, where it is known, and of all parts with the machine's limit.
    fn cpu_shares(&self, cpus: usize) -> String {
        let percent = |seconds: f64| 100.0 * seconds / self.seconds.max(1e-9);
        let parts = [
            ("PostgreSQL", self.postgres.cpu_seconds),
            ("relayers", Some(self.relayer_cpu_seconds)),
            ("destination", self.destination_cpu_seconds),
        ];
        let known = || parts.iter().filter_map(|(name, seconds)| seconds.map(|seconds| (name, percent(seconds))));
        let each: Vec<_> = known().map(|(name, share)| format!("{name} {share:.0} %")).collect();
        let all: f64 = known().map(|(_, share)| share).sum();
        format!("{}; all of them {all:.0} % of {} %", each.join(", "), 100 * cpus)
    }
}

#[expect(clippy::cast_precision_loss, reason = "memory sizes fit into 53 bits")]
fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1_048_576.0)
}

#[expect(clippy::cast_precision_loss, reason = "row counts fit into 53 bits")]
pub(super) fn rate(count: u64, length: Duration) -> f64 {
    rounded(count as f64 / length.as_secs_f64().max(1e-9))
}

/// Rounds to three decimals.
pub(super) fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
