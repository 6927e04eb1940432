//! A histogram of durations with three significant digits, and its percentiles.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::failure::Failure;

/// Longer durations are counted as this one.
const MAX_DURATION: Duration = Duration::from_secs(3600);
/// Precision of each duration.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Points of a plot's curve per halving of the remaining quantile.
const POINTS_PER_HALVING: u32 = 4;

/// A histogram of durations.
#[derive(Clone)]
pub(super) struct LatencyHistogram(Histogram<u64>);

/// Percentiles in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Percentiles {
    pub(super) p50_ms: f64,
    pub(super) p90_ms: f64,
    pub(super) p95_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) p999_ms: f64,
    pub(super) max_ms: f64,
}

impl LatencyHistogram {
    pub(super) fn new() -> Result<Self, Failure> {
        let most = u64::try_from(MAX_DURATION.as_nanos()).unwrap_or(u64::MAX);
        let histogram = Histogram::new_with_max(most, SIGNIFICANT_DIGITS);
        histogram.map(Self).map_err(|error| Failure::because("cannot create a histogram", error))
    }

    /// Adds a duration.
    pub(super) fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds all durations of another histogram.
    pub(super) fn merge(&mut self, other: &Self) -> Result<(), Failure> {
        self.0.add(&other.0).map_err(|error| Failure::because("cannot merge histograms", error))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// None if the histogram is empty.
    pub(super) fn percentiles(&self) -> Option<Percentiles> {
        let at = |quantile| millis(self.0.value_at_quantile(quantile));
        (!self.0.is_empty()).then(|| Percentiles {
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: millis(self.0.max()),
        })
    }

    /// The curve of a plot: quantiles with their milliseconds. It ends at the maximum, half a sample before 1.
    #[expect(clippy::cast_precision_loss, reason = "it is for a picture")]
    pub(super) fn curve(&self) -> Vec<(f64, f64)> {
        let last = 1.0 - 0.5 / (self.0.len().max(1) as f64);
        let points = self.0.iter_quantiles(POINTS_PER_HALVING);
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
        let mut times = LatencyHistogram::new().unwrap();
        assert!(times.percentiles().is_none());
        for millis in 1..=1000 {
            times.record(Duration::from_millis(millis));
        }
        times.record(Duration::from_secs(100_000));
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
