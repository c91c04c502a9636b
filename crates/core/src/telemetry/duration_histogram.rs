//! Durations of requests and calls: histograms with series that are dropped with their subject, and
//! with buckets that name a trace.
//!
//! They stand beside the SDK's because its series stay for ever and have no exemplars, and because
//! a request counts in two of them: here that is two additions, and no lock unless the request is
//! traced.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use crate::telemetry::instrument_row::{InstrumentKind, InstrumentRow};
use crate::trace::SpanContext;

/// Upper bounds of the buckets, in seconds: those that the semantic conventions for MCP advise, and
/// smaller ones for local servers.
pub const BOUNDS: [f64; 17] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0,
    300.0,
];
/// The last is for durations beyond all bounds.
const BUCKETS: usize = BOUNDS.len() + 1;

/// Name and value of an attribute.
pub type MetricLabel = (&'static str, Arc<str>);

/// A histogram of durations.
#[derive(Debug)]
pub struct DurationHistogram {
    /// Its row in the table of metrics.
    pub row: InstrumentRow,
    all: Mutex<Vec<Weak<DurationSeries>>>,
}

/// `mcp.server.operation.duration`.
pub static SERVER_DURATION: DurationHistogram = DurationHistogram::new(InstrumentRow {
    name: "mcp.server.operation.duration",
    kind: InstrumentKind::Histogram,
    unit: "s",
    attributes: &[
        "endpoint",
        "mcp.method.name",
        "era",
        "outcome",
        "error.type",
    ],
    about: "Time from a client's request to the end of its answer. `outcome` is `ok`, `tool_error`, `protocol_error`, `refused`, `failed` or `cancelled`; `error.type` repeats it unless it is `ok`. A client that exceeds a limit of its own is `refused`; one that finds no capacity, as with `concurrency:upstream`, is `failed`. A call that an operator stops, or that ends with its session, is `cancelled`, whatever its client gets. The method is `batch` for a batch, which counts once, `GET` for the stream of a session, `DELETE` for the end of a session, `other` if no revision defines it, and `none` if the request was refused by its head alone, or ended before its body was read",
});

/// `mcp.client.operation.duration`.
pub static CLIENT_DURATION: DurationHistogram = DurationHistogram::new(InstrumentRow {
    name: "mcp.client.operation.duration",
    kind: InstrumentKind::Histogram,
    unit: "s",
    attributes: &[
        "upstream",
        "mcp.method.name",
        "gen_ai.tool.name",
        "gen_ai.prompt.name",
        "outcome",
        "error.type",
    ],
    about: "Time of a call at an upstream, including questions to the client. Calls that weir refuses before it sends them are not included. `outcome` is `complete`, `tool_error`, `input_required`, `task`, `cancelled` or the reason of a failure (docs/errors.md). Tool and prompt names are the upstream's own; names beyond `telemetry.metrics.max_names` are `other`. A method that no revision defines is `other` until its first call completes",
});

static IS_DISABLED: AtomicBool = AtomicBool::new(false);

/// Switches the recording of durations off, for the whole process.
pub fn disable_histograms() {
    IS_DISABLED.store(true, Ordering::Relaxed);
}

/// Both, for the exporters.
pub static HISTOGRAMS: [&DurationHistogram; 2] = [&SERVER_DURATION, &CLIENT_DURATION];

impl DurationHistogram {
    const fn new(row: InstrumentRow) -> Self {
        Self {
            row,
            all: Mutex::new(Vec::new()),
        }
    }

    /// The series of these labels: the existing one, or a new one. It is shown as long as it is
    /// referenced.
    pub fn series(&self, labels: &[MetricLabel]) -> Arc<DurationSeries> {
        let mut all = self.all.lock();
        let mut found = None;
        all.retain(|weak| match weak.upgrade() {
            Some(series) if *series.labels == *labels => {
                found = Some(series);
                true
            }
            other => other.is_some(),
        });
        found.unwrap_or_else(|| {
            let series = Arc::new(DurationSeries::new(labels));
            all.push(Arc::downgrade(&series));
            series
        })
    }

    /// All series that are referenced.
    pub fn live_series(&self) -> Vec<Arc<DurationSeries>> {
        self.all.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// One series of a histogram.
pub struct DurationSeries {
    labels: Box<[MetricLabel]>,
    counts: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
    /// Made with the first request that was traced.
    exemplars: OnceLock<Mutex<BucketExemplars>>,
    since: SystemTime,
}

/// For each bucket the last one that was traced.
type BucketExemplars = [Option<Exemplar>; BUCKETS];

/// A trace to look at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// The trace, and the span that was measured.
    pub span: SpanContext,
    /// Its duration in seconds.
    pub seconds: f64,
    /// The time of its end.
    pub at: SystemTime,
}

/// The counts of a series.
#[derive(Clone, Debug)]
pub struct SeriesCounts {
    /// The count of each bucket; not cumulative.
    pub buckets: [u64; BUCKETS],
    /// All durations together, in seconds.
    pub sum: f64,
    /// For each bucket one that was traced.
    pub exemplars: [Option<Exemplar>; BUCKETS],
}

impl DurationSeries {
    fn new(labels: &[MetricLabel]) -> Self {
        Self {
            labels: labels.into(),
            counts: Default::default(),
            nanos: AtomicU64::new(0),
            exemplars: OnceLock::new(),
            since: SystemTime::now(),
        }
    }

    /// Its labels.
    pub fn labels(&self) -> &[MetricLabel] {
        &self.labels
    }

    /// The time at which it began to count.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// Counts a duration, and keeps its span if it has one.
    pub fn record(&self, took: Duration, span: Option<SpanContext>) {
        if IS_DISABLED.load(Ordering::Relaxed) {
            return;
        }
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.partition_point(|bound| *bound < seconds);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(
            u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
        if let Some(span) = span {
            let kept = self.exemplars.get_or_init(|| Mutex::new([None; BUCKETS]));
            kept.lock()[bucket] = Some(Exemplar {
                span,
                seconds,
                at: SystemTime::now(),
            });
        }
    }

    /// The counts so far. They may differ from the sum by durations that are being recorded.
    pub fn counts(&self) -> SeriesCounts {
        let buckets = std::array::from_fn(|at| self.counts[at].load(Ordering::Relaxed));
        let sum = Duration::from_nanos(self.nanos.load(Ordering::Relaxed)).as_secs_f64();
        let exemplars = self
            .exemplars
            .get()
            .map_or([None; BUCKETS], |kept| *kept.lock());
        SeriesCounts {
            buckets,
            sum,
            exemplars,
        }
    }
}

impl fmt::Debug for DurationSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DurationSeries").field(&self.labels).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static OWN: DurationHistogram = DurationHistogram::new(InstrumentRow {
        attributes: &[],
        ..SERVER_DURATION.row
    });

    #[test]
    fn series_is_shared_by_its_labels_and_dropped_with_its_last_holder() {
        let labels = |text: &str| [("endpoint", Arc::from(text))];
        let (first, same, other) = (
            OWN.series(&labels("a")),
            OWN.series(&labels("a")),
            OWN.series(&labels("b")),
        );
        assert!(Arc::ptr_eq(&first, &same) && !Arc::ptr_eq(&first, &other));
        assert_eq!(OWN.live_series().len(), 2);
        drop((first, same));
        assert_eq!(OWN.live_series().len(), 1);
        assert_eq!(
            OWN.series(&labels("a")).counts().buckets,
            [0; BUCKETS],
            "it begins anew"
        );
    }

    #[test]
    fn durations_fall_into_their_buckets_and_traced_ones_are_kept() {
        let series = DurationSeries::new(&[]);
        let span = SpanContext {
            trace: [7; 16],
            span: [1; 8],
        };
        series.record(Duration::from_millis(1), None);
        series.record(Duration::from_micros(1001), Some(span));
        series.record(Duration::from_secs(301), None);
        let counted = series.counts();
        assert_eq!(
            (
                counted.buckets[0],
                counted.buckets[1],
                counted.buckets[BUCKETS - 1]
            ),
            (1, 1, 1)
        );
        assert!((counted.sum - 301.002_001).abs() < 1e-9, "{}", counted.sum);
        assert_eq!(
            counted.exemplars[1].map(|exemplar| exemplar.span),
            Some(span)
        );
        assert_eq!(counted.exemplars.iter().flatten().count(), 1);
    }
}
