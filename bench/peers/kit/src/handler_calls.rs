//! Records the handler calls of a worker, and reports them to the runner.

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

/// The handler calls of one worker process. Clones share the same record.
#[derive(Clone, Debug, Default)]
pub struct HandlerCalls(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    first: AtomicI64,
    /// For each job when its enqueue was due, and when its handler was called.
    times: Mutex<Vec<(i64, i64)>>,
}

impl HandlerCalls {
    /// Records a handler call. A handler does nothing else.
    pub fn record(&self, payload: &Payload) {
        let now = micros();
        let _ = self.0.first.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        self.times().push((payload.at, now));
    }

    fn times(&self) -> MutexGuard<'_, Vec<(i64, i64)>> {
        self.0.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints `ready`, then the number of handled jobs when it changes, and at the end of stdin all handler calls.
    pub(crate) async fn report_until_end_of_input(&self) -> Result<()> {
        print_line(&json!({ "ready": true }))?;
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
                        return print_line(&json!({ "handled": times.len(), "handler_calls": *times }));
                    }
                }
                _ = ticks.tick() => {
                    let handled = self.times().len();
                    if handled != reported {
                        reported = handled;
                        print_line(&json!({ "first": self.0.first.load(Ordering::Relaxed), "handled": handled }))?;
                    }
                }
            }
        }
    }
}

fn print_line(line: &serde_json::Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}
