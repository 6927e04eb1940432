//! The relayers of a measurement: processes of their own, which carry what was sent to nowhere.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use symphony_proof::kit::process::{Launch, Program};
use symphony_proof::track::spending;
use tempfile::TempDir;

use super::clock;
use super::ground::Course;
use super::plan::Plan;
use super::relayer::Sighting;
use crate::failure::Failure;

/// How long a relayer may take to be ready, to end, or to get on with its work. For slow machines.
const PATIENCE: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(10);

/// The relayers that run.
pub(super) struct Fleet {
    relayers: Vec<Program>,
    folder: TempDir,
    notes: Notes,
    /// When each was started, by the clock that processes share.
    launched: Vec<u64>,
}

/// What the relayers write down besides how far they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Notes {
    Nothing,
    /// When each was dispatched.
    Dispatches,
    /// How long claims took.
    Claims,
}

/// What they did, all together.
#[derive(Default)]
pub(super) struct Work {
    /// From the first dispatch to the last record.
    pub(super) length: Duration,
    pub(super) cpu_seconds: f64,
    /// The most memory that one of them ever had, where that is known.
    pub(super) peak_memory_bytes: Option<u64>,
    /// From the start of a process until it listened or dispatched, whichever came first; the longest. None where nobody did.
    pub(super) start: Option<Duration>,
    /// When each was dispatched first, where that was written down.
    pub(super) times: HashMap<String, u64>,
    /// When claims were answered and how long they took, where that was written down.
    pub(super) claims: Vec<(u64, Duration)>,
}

impl Fleet {
    /// Starts as many as planned.
    pub(super) fn start(course: &Course, plan: &Plan, notes: Notes) -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::because("this program does not find itself, to start it again", error))?;
        let folder = TempDir::with_prefix("symphony-bench-")
            .map_err(|error| Failure::because("a folder for the times cannot be made", error))?;
        let (mut relayers, mut launched) = (Vec::new(), Vec::new());
        for number in 0..plan.relayers {
            let mut launch = Launch::new(&program).args(["bench", "relayer", "--lane", plan.lane.name()]);
            if plan.ordered {
                launch = launch.args(["--ordered"]);
            }
            for (option, value) in [("--slots", plan.slots), ("--batch-size", plan.batch_size)] {
                if let Some(value) = value {
                    launch = launch.args([option, &value.to_string()]);
                }
            }
            launch = match notes {
                Notes::Nothing => launch,
                Notes::Dispatches => launch.args([Path::new("--times"), &file(&folder, number)]),
                Notes::Claims => launch.args([Path::new("--claims"), &file(&folder, number)]),
            };
            // Not as an argument, which others can read in the list of processes.
            let launch = launch.env("DATABASE_URL", course.target().url());
            launched.push(clock::now());
            relayers.push(launch.start().map_err(|error| Failure::because("a relayer did not start", error))?);
        }
        Ok(Self { relayers, folder, notes, launched })
    }

    /// Waits until all of them would hear of what is committed.
    pub(super) async fn listen(&self) -> Result<(), Failure> {
        for relayer in &self.relayers {
            let listening = |line: &str| sighting(line).is_some_and(|sighting| sighting.listening);
            let ready = relayer.wait_for_line(listening, PATIENCE).await;
            ready.map_err(|error| Failure::because("a relayer did not start", error))?;
        }
        Ok(())
    }

    /// The time of the processor that they have had so far, where their processes can be seen.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.relayers.iter().filter_map(|relayer| spending::cpu_seconds(relayer.id().unsigned_abs())).sum()
    }

    /// How many good ends they have recorded so far.
    pub(super) fn recorded(&self) -> Result<u64, Failure> {
        let mut recorded = 0;
        for relayer in &self.relayers {
            let tail = relayer.tail();
            if !relayer.is_running() {
                return Err(Failure::no(format!("a relayer ended by itself; the end of its output:\n{tail}")));
            }
            let last = tail.lines().rev().find_map(sighting).unwrap_or_default();
            if last.otherwise > 0 {
                return Err(Failure::no(format!("{} dispatches did not end well:\n{tail}", last.otherwise)));
            }
            recorded += last.recorded;
        }
        Ok(recorded)
    }

    /// Waits until they have recorded so many, and tells how far they are.
    pub(super) async fn record(&self, count: u64, tell: impl Fn(u64)) -> Result<(), Failure> {
        let (mut best, mut since) = (0, Instant::now());
        loop {
            let recorded = self.recorded()?;
            if recorded >= count {
                return Ok(());
            }
            if recorded > best {
                (best, since) = (recorded, Instant::now());
                tell(recorded);
            }
            if since.elapsed() > PATIENCE {
                return Err(Failure::no(format!(
                    "the relayers stopped at {recorded} of {count} for {PATIENCE:?}"
                )));
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// Asks all of them to end, waits for it, and says what they did.
    pub(super) async fn stop(self) -> Result<Work, Failure> {
        for relayer in &self.relayers {
            relayer.term();
        }
        let mut work = Work::default();
        let (mut first, mut last) = (u64::MAX, 0);
        for (number, (relayer, launched)) in self.relayers.iter().zip(&self.launched).enumerate() {
            let ended = relayer.exit(PATIENCE).await;
            ended.map_err(|error| Failure::because("a relayer did not end", error))?;
            let tail = relayer.tail();
            let Some(said) = tail.lines().rev().find_map(sighting).filter(|sighting| sighting.ended) else {
                return Err(Failure::no(format!("a relayer did not end in good order:\n{tail}")));
            };
            if said.first > 0 {
                (first, last) = (first.min(said.first), last.max(said.last));
            }
            work.cpu_seconds += said.cpu_seconds;
            work.peak_memory_bytes = work.peak_memory_bytes.max(said.peak_memory_bytes);
            // It listens when it has nothing to do for the first time.
            let ready = [said.ready, said.first].into_iter().filter(|at| *at > 0).min();
            work.start = work.start.max(ready.map(|at| Duration::from_nanos(at.saturating_sub(*launched))));
            let written = fs::read_to_string(file(&self.folder, number)).unwrap_or_default();
            for (time, note) in written.lines().filter_map(|line| line.split_once(' ')) {
                let time = time.parse().unwrap_or(u64::MAX);
                if self.notes == Notes::Claims {
                    work.claims.push((time, Duration::from_nanos(note.parse().unwrap_or(u64::MAX))));
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

fn file(folder: &TempDir, number: usize) -> PathBuf {
    folder.path().join(number.to_string())
}

fn sighting(line: &str) -> Option<Sighting> {
    serde_json::from_str(line).ok()
}
