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
/// So many at the beginning, but no more than a quarter of all, are for warming up.
const WARMING_UP: usize = 100;

/// What the handlers of one worker process have seen. Cheap to clone: all clones count together.
#[derive(Clone, Debug, Default)]
pub struct Seen(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    first: AtomicI64,
    handled: AtomicU64,
    /// From the call that enqueued a job to its handler, in microseconds.
    delays: Mutex<Vec<i64>>,
}

impl Seen {
    /// What a handler does, and all it does.
    pub fn saw(&self, payload: &Payload) {
        let now = micros();
        let _ = self.0.first.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        self.0.delays.lock().unwrap_or_else(PoisonError::into_inner).push(now - payload.at);
        self.0.handled.fetch_add(1, Ordering::Relaxed);
    }

    /// Says that it is ready, then how many were handled whenever that has changed, and at the end of the input how long
    /// it took from call to handler.
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
                        return say(&self.summary());
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

    fn summary(&self) -> serde_json::Value {
        let delays = self.0.delays.lock().unwrap_or_else(PoisonError::into_inner);
        let mut delays = delays[WARMING_UP.min(delays.len() / 4)..].to_vec();
        delays.sort_unstable();
        json!({
            "handled": self.0.handled.load(Ordering::Relaxed),
            "p50_ms": quantile(&delays, 50),
            "p99_ms": quantile(&delays, 99),
        })
    }
}

/// The value below which so many percent lie, by the nearest rank.
fn quantile(sorted: &[i64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map(|micros| *micros as f64 / 1000.0)
}

fn say(line: &serde_json::Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn a_quantile_is_the_nearest_rank() {
        let hundred: Vec<i64> = (1..=100).map(|number| number * 1000).collect();
        assert_eq!(quantile(&hundred, 50), Some(50.0));
        assert_eq!(quantile(&hundred, 99), Some(99.0));
        assert_eq!(quantile(&[7000], 99), Some(7.0));
        assert_eq!(quantile(&[], 99), None);
    }
}
