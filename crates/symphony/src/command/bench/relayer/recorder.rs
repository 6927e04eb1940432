//! Records what a benchmark's relayer has done, and when.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use symphony_relay::lane::RouteSignal;
use symphony_relay::metrics::{ClaimFill, Meter};
use symphony_testkit::bench_database::resource_usage;
use tokio::sync::Notify;

use super::super::clock;

/// The states of a successful result.
const SUCCESS_STATES: [&str; 3] = ["DISPATCHED", "DELIVERED", "PUBLISHED"];

/// A relayer's progress report, one JSON line per change. Times are of the shared clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in super::super) struct RelayerReport {
    /// Whether it listens for notifications.
    pub(in super::super) listening: bool,
    /// Successful results that are recorded in the database.
    pub(in super::super) recorded: u64,
    /// Other results that are recorded.
    pub(in super::super) unsuccessful: u64,
    /// When the first dispatch began; 0 if there was none.
    pub(in super::super) first: u64,
    /// When the last result was recorded.
    pub(in super::super) last: u64,
    /// Its CPU time, in the final report.
    pub(in super::super) cpu_seconds: f64,
    /// When it first listened; 0 if never.
    pub(in super::super) ready: u64,
    /// Its peak memory, in the final report where it is known.
    pub(in super::super) peak_memory_bytes: Option<u64>,
    /// Set in the final report.
    pub(in super::super) ended: bool,
}

/// The recorder, which the engine calls as its meter.
pub(super) struct Recorder {
    listening: AtomicBool,
    ready: AtomicU64,
    recorded: AtomicU64,
    unsuccessful: AtomicU64,
    first: AtomicU64,
    last: AtomicU64,
    /// Notified of every change.
    changed: Notify,
    /// The time of each dispatch, if wanted.
    times: Option<Mutex<Vec<(String, u64)>>>,
    /// The end and the duration of each claim, if wanted.
    claims: Option<Mutex<Vec<(u64, u64)>>>,
    /// The end and the duration of each dispatch, if wanted.
    latencies: Option<Mutex<Vec<(u64, u64)>>>,
}

impl Recorder {
    pub(super) fn new(dispatches: bool, claims: bool, latencies: bool) -> Self {
        Self {
            listening: AtomicBool::new(false),
            ready: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            unsuccessful: AtomicU64::new(0),
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
            changed: Notify::new(),
            times: dispatches.then(Mutex::default),
            claims: claims.then(Mutex::default),
            latencies: latencies.then(Mutex::default),
        }
    }

    /// Records a dispatch.
    pub(super) fn dispatched(&self, name: &str) {
        if let Some(times) = &self.times {
            let now = clock::now();
            times.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), now));
        }
    }

    /// Waits for a change since the last call.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn report(&self) -> RelayerReport {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        RelayerReport {
            listening: self.listening.load(Ordering::Relaxed),
            recorded: read(&self.recorded),
            unsuccessful: read(&self.unsuccessful),
            first: read(&self.first),
            last: read(&self.last),
            ready: read(&self.ready),
            ..RelayerReport::default()
        }
    }

    /// The report at the end.
    pub(super) fn final_report(&self) -> RelayerReport {
        let cpu_seconds = resource_usage::cpu_seconds(std::process::id()).unwrap_or_default();
        RelayerReport {
            cpu_seconds,
            peak_memory_bytes: resource_usage::peak_memory_bytes(),
            ended: true,
            ..self.report()
        }
    }

    /// Writes a line per dispatch: time and id.
    pub(super) fn write_times(&self, file: &Path) -> io::Result<()> {
        write(file, self.times.as_ref(), |(name, time)| format!("{time} {name}"))
    }

    /// Writes a line per claim: its end and its duration.
    pub(super) fn write_claims(&self, file: &Path) -> io::Result<()> {
        write(file, self.claims.as_ref(), |(time, took)| format!("{time} {took}"))
    }

    /// Writes a line per dispatch that returned: its end and its duration.
    pub(super) fn write_latencies(&self, file: &Path) -> io::Result<()> {
        write(file, self.latencies.as_ref(), |(time, took)| format!("{time} {took}"))
    }
}

fn write<T>(file: &Path, notes: Option<&Mutex<Vec<T>>>, line: impl Fn(&T) -> String) -> io::Result<()> {
    let mut text = String::new();
    if let Some(notes) = notes {
        for note in notes.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            text.push_str(&line(note));
            text.push('\n');
        }
    }
    fs::write(file, text)
}

/// Records the end of a call, which is now, and its duration.
fn record(durations: Option<&Mutex<Vec<(u64, u64)>>>, took: Duration) {
    if let Some(durations) = durations {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        durations.lock().unwrap_or_else(PoisonError::into_inner).push((clock::now(), took));
    }
}

impl Meter for Recorder {
    fn claim(&self, _fill: ClaimFill, _rows: usize, took: Duration) {
        record(self.claims.as_ref(), took);
    }

    fn dispatch_started(&self, _route: &str) {
        if self.first.load(Ordering::Relaxed) == 0 {
            self.first.store(clock::now(), Ordering::Relaxed);
            self.changed.notify_one();
        }
    }

    fn dispatch_finished(&self, _route: &str, latency: Duration, _signal: RouteSignal) {
        record(self.latencies.as_ref(), latency);
    }

    fn attempt(&self, _route: &str, state: &'static str) {
        let kind = if SUCCESS_STATES.contains(&state) { &self.recorded } else { &self.unsuccessful };
        kind.fetch_add(1, Ordering::Relaxed);
        self.last.store(clock::now(), Ordering::Relaxed);
        self.changed.notify_one();
    }

    fn listener_connected(&self, connected: bool) {
        self.listening.store(connected, Ordering::Relaxed);
        if connected {
            // Only the first connection counts.
            let _ = self.ready.compare_exchange(0, clock::now(), Ordering::Relaxed, Ordering::Relaxed);
        }
        self.changed.notify_one();
    }
}
