//! What a worker's handler has seen, and the lines that tell the runner.

use std::{
    io::Write,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::{
    io::AsyncReadExt,
    time::{MissedTickBehavior, interval},
};

use crate::{Payload, Result, payload::micros};

/// How often the runner is told how many there were.
const REPORT_EVERY: Duration = Duration::from_millis(20);

/// What the handlers of one worker process have seen. Cheap to clone: all clones count together.
#[derive(Clone, Debug, Default)]
pub struct Seen(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    first: AtomicI64,
    handled: AtomicU64,
    /// When the call was made that enqueued each job, and when its handler was called.
    times: Mutex<Vec<(i64, i64)>>,
}

impl Seen {
    /// What a handler does, and all it does.
    pub fn saw(&self, payload: &Payload) {
        let now = micros();
        let _ = self.0.first.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        self.0.times.lock().unwrap_or_else(PoisonError::into_inner).push((payload.at, now));
        self.0.handled.fetch_add(1, Ordering::Relaxed);
    }

    /// Says that it is ready, then how many were handled whenever that has changed, and at the end of the input when
    /// each was.
    pub(crate) async fn report_until_end_of_input(&self) -> Result<()> {
        say(&json!({ "ready": true }))?;
        let mut stdin = tokio::io::stdin();
        let mut byte = [0];
        let mut ticks = interval(REPORT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = 0;
        loop {
            tokio::select! {
                read = stdin.read(&mut byte) => {
                    if read? == 0 {
                        let times = self.0.times.lock().unwrap_or_else(PoisonError::into_inner);
                        return say(&json!({ "handled": times.len(), "seen": *times }));
                    }
                }
                _ = ticks.tick() => {
                    let handled = self.0.handled.load(Ordering::Relaxed);
                    if handled != told {
                        told = handled;
                        say(&json!({ "first": self.0.first.load(Ordering::Relaxed), "handled": handled }))?;
                    }
                }
            }
        }
    }
}

fn say(line: &serde_json::Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}
