//! Times, counted in a histogram whose error is a thousandth of each, however far apart they are.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::failure::Failure;

/// The longest time that is told from longer ones.
const LONGEST: Duration = Duration::from_secs(3600);
/// Three digits of each time are right.
const DIGITS: u8 = 3;
/// Where the curve of a plot has its points: so many between two halvings of what is left.
const POINTS: u32 = 4;

/// Times, however many.
#[derive(Clone)]
pub(super) struct Times(Histogram<u64>);

/// The times below which so many of a hundred are.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Percentiles {
    pub(super) p50_ms: f64,
    pub(super) p90_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) p999_ms: f64,
    pub(super) max_ms: f64,
}

impl Times {
    pub(super) fn new() -> Result<Self, Failure> {
        let most = u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX);
        let histogram = Histogram::new_with_max(most, DIGITS);
        histogram.map(Self).map_err(|error| Failure::because("times cannot be counted", error))
    }

    /// One more. What is longer than the longest is the longest.
    pub(super) fn note(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// All of somebody else's.
    pub(super) fn join(&mut self, other: &Self) -> Result<(), Failure> {
        self.0.add(&other.0).map_err(|error| Failure::because("times cannot be added up", error))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// None where there are no times.
    pub(super) fn percentiles(&self) -> Option<Percentiles> {
        let at = |quantile| millis(self.0.value_at_quantile(quantile));
        (!self.0.is_empty()).then(|| Percentiles {
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: millis(self.0.max()),
        })
    }

    /// The curve of a plot: quantiles, and the milliseconds below which so many are. It ends at the longest of them, which of so few as there are
    /// stands for no more than the last half of one.
    #[expect(clippy::cast_precision_loss, reason = "it is for a picture")]
    pub(super) fn curve(&self) -> Vec<(f64, f64)> {
        let last = 1.0 - 0.5 / (self.0.len().max(1) as f64);
        let points = self.0.iter_quantiles(POINTS);
        points.map(|point| (point.quantile_iterated_to().min(last), millis(point.value_iterated_to()))).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "three digits are right, a double holds fifteen")]
fn millis(nanos: u64) -> f64 {
    (nanos as f64 / 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_times() {
        let mut times = Times::new().unwrap();
        assert!(times.percentiles().is_none());
        for millis in 1..=1000 {
            times.note(Duration::from_millis(millis));
        }
        times.note(Duration::from_secs(100_000));
        let of = times.percentiles().unwrap();
        for (found, right) in
            [(of.p50_ms, 501.0), (of.p90_ms, 901.0), (of.p99_ms, 991.0), (of.max_ms, 3_600_000.0)]
        {
            assert!((found / right - 1.0).abs() < 0.002, "{found} is not {right}");
        }
        let curve = times.curve();
        assert!(curve.iter().all(|(quantile, _)| *quantile < 0.9996), "{curve:?}");
        assert!(curve.len() > 10 && curve.iter().is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1), "{curve:?}");
    }
}
