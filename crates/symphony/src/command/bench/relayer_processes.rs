//! The relayer processes of a measurement, with a null destination or a real one.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use symphony_testkit::bench_database::resource_usage;
use symphony_testkit::process::{Launch, Program};
use tempfile::TempDir;

use super::clock;
use super::plan::Plan;
use super::relayer::RelayerReport;
use super::server::BenchDatabase;
use crate::failure::Failure;

/// How long a relayer may take to be ready, to end, or to make progress, on a slow machine.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The running relayers.
pub(super) struct RelayerProcesses {
    relayers: Vec<Program>,
    folder: TempDir,
    recording: Recording,
    /// When each was started, by the shared clock.
    launched: Vec<u64>,
}

/// What the relayers record besides their progress.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Recording {
    Nothing,
    /// The time of each dispatch.
    Dispatches,
    /// The duration of each claim.
    Claims,
    /// The duration of each dispatch.
    Latencies,
}

/// What all relayers together did and used.
#[derive(Default)]
pub(super) struct RelayerUsage {
    /// From the first dispatch to the last recorded result.
    pub(super) length: Duration,
    pub(super) cpu_seconds: f64,
    /// Peak memory of the largest process, where it is known.
    pub(super) peak_memory_bytes: Option<u64>,
    /// From the start of a process until it listened or dispatched; the longest. None if no relayer did.
    pub(super) start: Option<Duration>,
    /// The time of each row's first dispatch, if recorded.
    pub(super) times: HashMap<String, u64>,
    /// The end and the duration of each claim or dispatch, if recorded.
    pub(super) durations: Vec<(u64, Duration)>,
}

impl RelayerProcesses {
    /// Starts the planned number of relayers with a null destination.
    pub(super) fn start(database: &BenchDatabase, plan: &Plan, recording: Recording) -> Result<Self, Failure> {
        Self::launch(database, plan, recording, None)
    }

    /// Starts the planned number of relayers with these settings of `symphony run`.
    pub(super) fn start_with_settings(
        database: &BenchDatabase,
        plan: &Plan,
        recording: Recording,
        settings: &str,
    ) -> Result<Self, Failure> {
        Self::launch(database, plan, recording, Some(settings))
    }

    fn launch(
        database: &BenchDatabase,
        plan: &Plan,
        recording: Recording,
        settings: Option<&str>,
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::because("cannot find the path of this program", error))?;
        let folder = TempDir::with_prefix("symphony-bench-")
            .map_err(|error| Failure::because("cannot create a temporary folder", error))?;
        let config = folder.path().join("symphony.toml");
        if let Some(settings) = settings {
            fs::write(&config, settings)
                .map_err(|error| Failure::because("cannot write the relayers' settings", error))?;
        }
        let (mut relayers, mut launched) = (Vec::new(), Vec::new());
        for number in 0..plan.relayers {
            let launch = Launch::new(&program).args(["bench", "relayer", "--lane", plan.lane.name()]);
            let launch = match settings {
                Some(_) => launch.args([Path::new("--config"), &config]),
                None => sized(launch, plan),
            };
            let launch = match recording.option() {
                Some(option) => launch.args([Path::new(option), &file(&folder, number)]),
                None => launch,
            };
            // Not as an argument: other users see arguments in the process list.
            let launch = launch.env("DATABASE_URL", database.target().url());
            launched.push(clock::now());
            relayers.push(launch.start().map_err(|error| Failure::because("a relayer did not start", error))?);
        }
        Ok(Self { relayers, folder, recording, launched })
    }

    /// Waits until all of them listen for notifications.
    pub(super) async fn wait_listening(&self) -> Result<(), Failure> {
        for relayer in &self.relayers {
            let listening = |line: &str| report(line).is_some_and(|report| report.listening);
            let ready = relayer.wait_for_line(listening, PROGRESS_TIMEOUT).await;
            ready.map_err(|error| Failure::because("a relayer did not start", error))?;
        }
        Ok(())
    }

    /// Their CPU time so far, where their processes are visible.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.relayers.iter().filter_map(|relayer| resource_usage::cpu_seconds(relayer.id().unsigned_abs())).sum()
    }

    /// Successful results that they have recorded so far.
    pub(super) fn recorded(&self) -> Result<u64, Failure> {
        let mut recorded = 0;
        for relayer in &self.relayers {
            let tail = relayer.tail();
            if !relayer.is_running() {
                return Err(Failure::new(format!("a relayer ended by itself; the end of its output:\n{tail}")));
            }
            let last = tail.lines().rev().find_map(report).unwrap_or_default();
            if last.unsuccessful > 0 {
                return Err(Failure::new(format!(
                    "{} dispatches were not successful:\n{tail}",
                    last.unsuccessful
                )));
            }
            recorded += last.recorded;
        }
        Ok(recorded)
    }

    /// Waits until they have recorded `count` results, and reports progress.
    pub(super) async fn wait_recorded(&self, count: u64, on_progress: impl Fn(u64)) -> Result<(), Failure> {
        let (mut best, mut since) = (0, Instant::now());
        loop {
            let recorded = self.recorded()?;
            if recorded >= count {
                return Ok(());
            }
            if recorded > best {
                (best, since) = (recorded, Instant::now());
                on_progress(recorded);
            }
            if since.elapsed() > PROGRESS_TIMEOUT {
                return Err(Failure::new(format!(
                    "no progress for {PROGRESS_TIMEOUT:?}: the relayers have recorded {recorded} of {count}"
                )));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Sends SIGTERM to all, waits, and sums up what they did.
    pub(super) async fn stop(self) -> Result<RelayerUsage, Failure> {
        for relayer in &self.relayers {
            relayer.term();
        }
        let mut work = RelayerUsage::default();
        let (mut first, mut last) = (u64::MAX, 0);
        for (number, (relayer, launched)) in self.relayers.iter().zip(&self.launched).enumerate() {
            let ended = relayer.exit(PROGRESS_TIMEOUT).await;
            ended.map_err(|error| Failure::because("a relayer did not end", error))?;
            let tail = relayer.tail();
            let Some(last_report) = tail.lines().rev().find_map(report).filter(|report| report.ended) else {
                return Err(Failure::new(format!("a relayer ended without its final report:\n{tail}")));
            };
            if last_report.first > 0 {
                (first, last) = (first.min(last_report.first), last.max(last_report.last));
            }
            work.cpu_seconds += last_report.cpu_seconds;
            work.peak_memory_bytes = work.peak_memory_bytes.max(last_report.peak_memory_bytes);
            // A relayer starts to listen when it is idle for the first time.
            let ready = [last_report.ready, last_report.first].into_iter().filter(|at| *at > 0).min();
            work.start = work.start.max(ready.map(|at| Duration::from_nanos(at.saturating_sub(*launched))));
            let written = fs::read_to_string(file(&self.folder, number)).unwrap_or_default();
            for (time, note) in written.lines().filter_map(|line| line.split_once(' ')) {
                let time = time.parse().unwrap_or(u64::MAX);
                if matches!(self.recording, Recording::Claims | Recording::Latencies) {
                    work.durations.push((time, Duration::from_nanos(note.parse().unwrap_or(u64::MAX))));
                } else {
                    let first = work.times.entry(note.to_owned()).or_insert(time);
                    *first = time.min(*first);
                }
            }
        }
        work.length = Duration::from_nanos(last.saturating_sub(first));
        Ok(work)
    }
}

impl Recording {
    /// The option of the relayer that names the file for it.
    fn option(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Dispatches => Some("--times"),
            Self::Claims => Some("--claims"),
            Self::Latencies => Some("--latencies"),
        }
    }
}

/// Adds the plan's order and sizes, which a settings file would hold.
fn sized(mut launch: Launch, plan: &Plan) -> Launch {
    if plan.ordered {
        launch = launch.args(["--ordered"]);
    }
    for (option, value) in [("--slots", plan.slots), ("--batch-size", plan.batch_size)] {
        if let Some(value) = value {
            launch = launch.args([option, &value.to_string()]);
        }
    }
    launch
}

fn file(folder: &TempDir, number: usize) -> PathBuf {
    folder.path().join(number.to_string())
}

fn report(line: &str) -> Option<RelayerReport> {
    serde_json::from_str(line).ok()
}
