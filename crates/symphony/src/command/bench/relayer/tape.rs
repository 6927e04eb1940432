//! What a relayer has done so far, and when.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use symphony_proof::track::spending;
use symphony_relay::metrics::{Catch, Meter};
use tokio::sync::Notify;

use super::super::clock;

/// The states that are a good end.
const GOOD: [&str; 3] = ["DISPATCHED", "DELIVERED", "PUBLISHED"];

/// What a relayer says about itself: a line each time that it has changed. Times are of the clock that processes share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in super::super) struct Sighting {
    /// It would hear if something were committed.
    pub(in super::super) listening: bool,
    /// Good ends that are recorded in the database.
    pub(in super::super) recorded: u64,
    /// Anything else that is.
    pub(in super::super) otherwise: u64,
    /// When the first dispatch began; 0 if there was none.
    pub(in super::super) first: u64,
    /// When it learnt of the last that was recorded.
    pub(in super::super) last: u64,
    /// The time of the processor that it has had, said at the end.
    pub(in super::super) cpu_seconds: f64,
    /// When it first would have heard; 0 if never.
    pub(in super::super) ready: u64,
    /// The most memory that it ever had, said at the end where it is known.
    pub(in super::super) peak_memory_bytes: Option<u64>,
    /// It has ended.
    pub(in super::super) ended: bool,
}

/// Writes down.
pub(super) struct Tape {
    listening: AtomicBool,
    ready: AtomicU64,
    recorded: AtomicU64,
    otherwise: AtomicU64,
    first: AtomicU64,
    last: AtomicU64,
    /// That anything of this has changed.
    news: Notify,
    /// When each was dispatched, where that is wanted.
    times: Option<Mutex<Vec<(String, u64)>>>,
    /// When each claim was answered and how long it took, where that is wanted.
    claims: Option<Mutex<Vec<(u64, u64)>>>,
}

impl Tape {
    pub(super) fn new(dispatches: bool, claims: bool) -> Self {
        Self {
            listening: AtomicBool::new(false),
            ready: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            otherwise: AtomicU64::new(0),
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
            news: Notify::new(),
            times: dispatches.then(Mutex::default),
            claims: claims.then(Mutex::default),
        }
    }

    /// This one is sent just now.
    pub(super) fn dispatched(&self, name: &str) {
        if let Some(times) = &self.times {
            let now = clock::now();
            times.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), now));
        }
    }

    /// Waits until there is something new since the last time.
    pub(super) async fn changed(&self) {
        self.news.notified().await;
    }

    pub(super) fn sighting(&self) -> Sighting {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Sighting {
            listening: self.listening.load(Ordering::Relaxed),
            recorded: read(&self.recorded),
            otherwise: read(&self.otherwise),
            first: read(&self.first),
            last: read(&self.last),
            ready: read(&self.ready),
            ..Sighting::default()
        }
    }

    /// The same at the end.
    pub(super) fn last_sighting(&self) -> Sighting {
        let cpu_seconds = spending::cpu_seconds(std::process::id()).unwrap_or_default();
        Sighting { cpu_seconds, peak_memory_bytes: spending::peak_memory_bytes(), ended: true, ..self.sighting() }
    }

    /// Writes a line for each dispatch: when, and what.
    pub(super) fn write_times(&self, file: &Path) -> io::Result<()> {
        write(file, self.times.as_ref(), |(name, time)| format!("{time} {name}"))
    }

    /// Writes a line for each claim: when it was answered, and after how long.
    pub(super) fn write_claims(&self, file: &Path) -> io::Result<()> {
        write(file, self.claims.as_ref(), |(time, took)| format!("{time} {took}"))
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

impl Meter for Tape {
    fn claim(&self, _size: Catch, _rows: usize, took: Duration) {
        if let Some(claims) = &self.claims {
            let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            claims.lock().unwrap_or_else(PoisonError::into_inner).push((clock::now(), took));
        }
    }

    fn dispatch_started(&self, _route: &str) {
        if self.first.load(Ordering::Relaxed) == 0 {
            self.first.store(clock::now(), Ordering::Relaxed);
            self.news.notify_one();
        }
    }

    fn attempt(&self, _route: &str, state: &'static str) {
        let kind = if GOOD.contains(&state) { &self.recorded } else { &self.otherwise };
        kind.fetch_add(1, Ordering::Relaxed);
        self.last.store(clock::now(), Ordering::Relaxed);
        self.news.notify_one();
    }

    fn listener_connected(&self, connected: bool) {
        self.listening.store(connected, Ordering::Relaxed);
        if connected {
            // Only the first time counts.
            let _ = self.ready.compare_exchange(0, clock::now(), Ordering::Relaxed, Ordering::Relaxed);
        }
        self.news.notify_one();
    }
}
