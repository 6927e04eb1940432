//! What a worker's handler has seen, and the lines that tell the runner.

use std::{
    io::Write,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::{
    io::AsyncReadExt,
    time::{MissedTickBehavior, interval},
};

use crate::{Payload, Result, payload::micros};

/// The interval at which the number of handled jobs is reported to the runner.
const REPORT_EVERY: Duration = Duration::from_millis(20);

/// What the handlers of one worker process have seen. Cheap to clone: all clones count together.
#[derive(Clone, Debug, Default)]
pub struct Seen(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    first: AtomicI64,
    /// When the call was made that enqueued each job, and when its handler was called.
    times: Mutex<Vec<(i64, i64)>>,
}

impl Seen {
    /// What a handler does, and all it does.
    pub fn saw(&self, payload: &Payload) {
        let now = micros();
        let _ = self.0.first.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        self.times().push((payload.at, now));
    }

    fn times(&self) -> MutexGuard<'_, Vec<(i64, i64)>> {
        self.0.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that it is ready, then how many were handled whenever that has changed, and at the end of the input when
    /// each was.
    pub(crate) async fn report_until_end_of_input(&self) -> Result<()> {
        say(&json!({ "ready": true }))?;
        let mut stdin = tokio::io::stdin();
        let mut byte = [0];
        let mut ticks = interval(REPORT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reported = 0;
        loop {
            tokio::select! {
                read = stdin.read(&mut byte) => {
                    if read? == 0 {
                        let times = self.times();
                        return say(&json!({ "handled": times.len(), "seen": *times }));
                    }
                }
                _ = ticks.tick() => {
                    let handled = self.times().len();
                    if handled != reported {
                        reported = handled;
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
