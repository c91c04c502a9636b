//! Latencies of one round, and the median over rounds.
//!
//! Values are in nanoseconds inside and in microseconds in tables.

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// A histogram that many workers of one round write to.
#[derive(Clone, Debug)]
pub(crate) struct LatencyHistogram(Arc<Mutex<Histogram<u64>>>);

/// The numbers of one round of load.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct RoundFigures {
    /// Right answers.
    pub(crate) calls: u64,
    /// Right answers a second.
    pub(crate) per_second: f64,
    /// Median latency in microseconds.
    pub(crate) p50_us: f64,
    /// 99th percentile in microseconds.
    pub(crate) p99_us: f64,
    /// CPU time of the measured process for one right answer, in microseconds.
    pub(crate) cpu_us: f64,
    /// Wrong or missing answers.
    pub(crate) errors: u64,
}

impl LatencyHistogram {
    /// An empty histogram with three significant digits, up to two minutes; a longer latency counts
    /// as two minutes.
    pub(crate) fn new() -> Self {
        #[expect(
            clippy::unwrap_used,
            reason = "the bounds are constants that satisfy the constructor: low >= 1, high >= 2 * low"
        )]
        let histogram = Histogram::new_with_bounds(100, 120_000_000_000, 3).unwrap();
        Self(Arc::new(Mutex::new(histogram)))
    }

    /// Counts one latency.
    pub(crate) fn record(&self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.lock().saturating_record(nanos);
    }

    /// The count of latencies.
    pub(crate) fn count(&self) -> u64 {
        self.0.lock().len()
    }

    /// The quantile in microseconds; 0 without latencies.
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        micros(self.0.lock().value_at_quantile(quantile))
    }

    /// These latencies as a round that took `elapsed`, with `cpu_nanos` spent by the measured
    /// process.
    pub(crate) fn round(&self, elapsed: Duration, cpu_nanos: u64, errors: u64) -> RoundFigures {
        let calls = self.count();
        RoundFigures {
            calls,
            per_second: as_float(calls) / elapsed.as_secs_f64(),
            p50_us: self.quantile_us(0.5),
            p99_us: self.quantile_us(0.99),
            cpu_us: micros(cpu_nanos) / as_float(calls.max(1)),
            errors,
        }
    }
}

impl RoundFigures {
    /// The median of each number over `rounds`; calls and errors are summed.
    pub(crate) fn medians(rounds: &[Self]) -> Self {
        let over = |pick: fn(&Self) -> f64| median(rounds.iter().map(pick).collect());
        Self {
            calls: rounds.iter().map(|round| round.calls).sum(),
            per_second: over(|round| round.per_second),
            p50_us: over(|round| round.p50_us),
            p99_us: over(|round| round.p99_us),
            cpu_us: over(|round| round.cpu_us),
            errors: rounds.iter().map(|round| round.errors).sum(),
        }
    }
}

/// The middle value, the mean of the two middle ones for an even count, 0 for an empty list.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.as_slice() {
        [] => 0.0,
        sorted if sorted.len() % 2 == 1 => sorted[middle],
        sorted => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Nanoseconds as microseconds.
pub(crate) fn micros(nanos: u64) -> f64 {
    as_float(nanos) / 1_000.0
}

/// A count as a number to divide by. Exact up to 2^53, far above any count here.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts and nanoseconds of one run stay below 2^53"
)]
pub(crate) const fn as_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_is_the_mean_of_the_middle_two() {
        assert!((median(vec![4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < f64::EPSILON);
        assert!((median(vec![9.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!(median(Vec::new()).abs() < f64::EPSILON);
    }

    #[test]
    fn a_round_counts_what_was_recorded() {
        let latencies = LatencyHistogram::new();
        for millis in 1..=100 {
            latencies.record(Duration::from_millis(millis));
        }
        let round = latencies.round(Duration::from_secs(2), 100_000, 3);
        assert_eq!(round.calls, 100);
        assert_eq!(round.errors, 3);
        assert!((round.per_second - 50.0).abs() < f64::EPSILON);
        assert!((round.p50_us / 50_000.0 - 1.0).abs() < 0.01);
        assert!((round.cpu_us - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn medians_sum_the_errors_of_all_rounds() {
        let rounds = [1, 0, 4].map(|errors| RoundFigures {
            errors,
            ..RoundFigures::default()
        });
        assert_eq!(RoundFigures::medians(&rounds).errors, 5);
    }
}
