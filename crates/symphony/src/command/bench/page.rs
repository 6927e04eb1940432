//! The HTML report: one file without scripts or external resources.

use std::fs;
use std::path::Path;

use askama::Template;

use super::plan::Scenario;
use super::plot;
use super::result::{Measurement, Report};
use crate::failure::Failure;

/// The kinds of latency that a scenario measures, and their headings.
const KINDS: [(&str, &str); 4] = [
    ("commit_to_dispatch", "From commit to dispatch"),
    ("dispatch", "One dispatch to a real destination, with its answer"),
    ("call", "One enqueue call, with its commit"),
    ("transaction", "One batch transaction"),
];

#[derive(Template)]
#[template(path = "bench.html")]
struct Page<'a> {
    style: &'static str,
    machine: String,
    version: &'a str,
    settings: Vec<(&'a String, &'a String)>,
    throughput: Vec<(&'static str, String)>,
    latency: Vec<Curves>,
    rows: Vec<Row<'a>>,
}

/// Latency curves in one plot, with their legend.
struct Curves {
    of: &'static str,
    plot: String,
    names: Vec<(usize, String)>,
}

/// A row of the table.
struct Row<'a> {
    name: String,
    one: &'a Measurement,
}

impl Row<'_> {
    fn percentile(&self, place: usize) -> String {
        let all = self
            .one
            .percentiles
            .map(|all| [all.p50_ms, all.p90_ms, all.p95_ms, all.p99_ms, all.p999_ms, all.max_ms]);
        all.and_then(|all| all.get(place).copied()).map(|millis| format!("{millis:.2}")).unwrap_or_default()
    }

    /// A share of one core during the measurement.
    fn share(&self, seconds: f64) -> String {
        format!("{:.0} %", 100.0 * seconds / self.one.seconds.max(1e-9))
    }

    fn server(&self) -> String {
        self.one.postgres.cpu_seconds.map(|seconds| self.share(seconds)).unwrap_or_default()
    }

    fn relayers(&self) -> String {
        self.share(self.one.relayer_cpu_seconds)
    }

    fn destination(&self) -> String {
        self.one.destination_cpu_seconds.map(|seconds| self.share(seconds)).unwrap_or_default()
    }

    fn clients(&self) -> String {
        self.share(self.one.client_cpu_seconds)
    }

    fn buffers(&self) -> f64 {
        self.one.postgres.buffers_hit_per_message + self.one.postgres.buffers_read_per_message
    }
}

/// Writes the page.
pub(super) fn write(report: &Report, file: &Path) -> Result<(), Failure> {
    let page = Page {
        style: symphony_console::STYLE,
        machine: report.machine.describe(),
        version: &report.postgres.version,
        settings: report.postgres.settings.iter().collect(),
        // The throughput of the latency scenario is the requested rate, so it is left out.
        throughput: Scenario::ALL
            .iter()
            .filter(|scenario| !matches!(scenario, Scenario::Latency | Scenario::Idle))
            .filter_map(|scenario| throughput(report, *scenario))
            .collect(),
        latency: KINDS.iter().filter_map(|(kind, words)| latency(report, kind, words)).collect(),
        rows: report.measurements.iter().map(|one| Row { name: name(one), one }).collect(),
    };
    let text = page.render().map_err(|error| Failure::because("cannot render the report", error))?;
    fs::write(file, text).map_err(|error| {
        Failure::because(format!("cannot write the report to {}", file.display()), error)
            .hint("name a file in a folder that you may write to")
    })
}

fn throughput(report: &Report, scenario: Scenario) -> Option<(&'static str, String)> {
    let of = report.measurements.iter().filter(|one| one.scenario == scenario.name());
    let bars: Vec<_> = of.map(|one| (name(one), one.per_second)).collect();
    (!bars.is_empty())
        .then(|| (scenario.name(), plot::bars(&format!("{}, messages per second", scenario.name()), &bars)))
}

fn latency(report: &Report, kind: &str, of: &'static str) -> Option<Curves> {
    let all: Vec<_> = report.measurements.iter().filter(|one| one.latency_of == Some(kind)).collect();
    let curves: Vec<_> = all.iter().map(|one| one.curve.as_slice()).collect();
    let names = all
        .iter()
        .enumerate()
        .map(|(number, one)| (number % plot::KINDS, format!("{}, {}", one.scenario, name(one))));
    (!all.is_empty()).then(|| Curves { of, plot: plot::curves(of, &curves), names: names.collect() })
}

/// What distinguishes a measurement from others of its scenario.
fn name(one: &Measurement) -> String {
    let mut parts = vec![one.lane.to_owned()];
    if let Some(to) = one.to {
        parts.push(format!("to {to}"));
    }
    if one.ordered {
        parts.push("ordered".to_owned());
    }
    if let Some(clients) = one.clients {
        parts.push(format!("clients: {clients}"));
    }
    if one.relayers != 1 {
        parts.push(format!("relayers: {}", one.relayers));
    }
    if let Some(round) = one.round {
        parts.push(format!("round {round}"));
    }
    parts.join(", ")
}
