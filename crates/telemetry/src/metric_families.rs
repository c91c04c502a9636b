//! The collected series of one moment, from the SDK and from core's timings, for both exporters.
//!
//! Series of removed upstreams are left out, because the SDK keeps a series for ever.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::SystemTime;

use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData, ResourceMetrics};
use weir_core::telemetry::{
    BOUNDS, DurationHistogram, Exemplar, HISTOGRAMS, InstrumentKind, upstreams,
};

/// One instrument with its series.
#[derive(Debug)]
pub(super) struct MetricFamily {
    pub(super) name: Cow<'static, str>,
    pub(super) about: Cow<'static, str>,
    pub(super) unit: Cow<'static, str>,
    pub(super) kind: InstrumentKind,
    pub(super) points: Vec<MetricPoint>,
}

/// One series.
#[derive(Debug)]
pub(super) struct MetricPoint {
    pub(super) labels: Vec<(Cow<'static, str>, LabelValue)>,
    /// The time since which it counts.
    pub(super) since: Option<SystemTime>,
    pub(super) figure: MetricValue,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LabelValue {
    Word(String),
    Number(i64),
}

/// The value of a series.
#[derive(Clone, Debug)]
pub(super) enum MetricValue {
    Whole(i64),
    Real(f64),
    Histogram(Box<HistogramValue>),
}

/// A histogram: a count for each bound, and one for the values above the last.
#[derive(Clone, Debug)]
pub(super) struct HistogramValue {
    pub(super) bounds: Vec<f64>,
    pub(super) buckets: Vec<u64>,
    pub(super) sum: f64,
    /// One for each of `buckets`.
    pub(super) exemplars: Vec<Option<Exemplar>>,
}

/// The gauge of the leases of upstreams. An upstream may be present without one.
const LEASE_HELD: &str = "weir.upstream.lease.held";

/// Joins the series that the SDK has collected with those of core. The upstreams of `leased` have a
/// lease now.
pub(super) fn families(collected: &ResourceMetrics, leased: &HashSet<String>) -> Vec<MetricFamily> {
    let alive = upstreams();
    let metrics = collected.scope_metrics().flat_map(|scope| scope.metrics());
    let own = HISTOGRAMS.iter().map(|timing| of_timing(timing));
    let mut all: Vec<MetricFamily> = metrics.filter_map(of_metric).chain(own).collect();
    for family in &mut all {
        let present = if family.name == LEASE_HELD {
            leased
        } else {
            &alive
        };
        family.points.retain(|point| is_shown(point, present));
    }
    all.retain(|family| !family.points.is_empty());
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

fn is_shown(point: &MetricPoint, present: &HashSet<String>) -> bool {
    let upstream = point.labels.iter().find(|(name, _)| name == "upstream");
    upstream.is_none_or(|(_, text)| matches!(text, LabelValue::Word(id) if present.contains(id)))
}

fn of_timing(timing: &DurationHistogram) -> MetricFamily {
    let point = |series: std::sync::Arc<weir_core::telemetry::DurationSeries>| {
        let counted = series.counts();
        let label = |(name, text): &(&'static str, std::sync::Arc<str>)| {
            ((*name).into(), LabelValue::Word(text.to_string()))
        };
        MetricPoint {
            labels: series.labels().iter().map(label).collect(),
            since: Some(series.since()),
            figure: MetricValue::Histogram(Box::new(HistogramValue {
                bounds: BOUNDS.to_vec(),
                buckets: counted.buckets.to_vec(),
                sum: counted.sum,
                exemplars: counted.exemplars.to_vec(),
            })),
        }
    };
    MetricFamily {
        name: timing.row.name.into(),
        about: timing.row.about.into(),
        unit: timing.row.unit.into(),
        kind: InstrumentKind::Histogram,
        points: timing.live_series().into_iter().map(point).collect(),
    }
}

fn of_metric(metric: &Metric) -> Option<MetricFamily> {
    let (kind, points) = match metric.data() {
        AggregatedMetrics::F64(data) => of_data(data, MetricValue::Real, |sum| sum)?,
        // weir's counts stay far below half of the range.
        AggregatedMetrics::U64(data) => of_data(
            data,
            |n| MetricValue::Whole(n.cast_signed()),
            |sum| sum as f64,
        )?,
        AggregatedMetrics::I64(data) => of_data(data, MetricValue::Whole, |sum| sum as f64)?,
    };
    let (name, about, unit) = (metric.name(), metric.description(), metric.unit());
    let own = |text: &str| Cow::Owned(text.to_owned());
    Some(MetricFamily {
        name: own(name),
        about: own(about),
        unit: own(unit),
        kind,
        points,
    })
}

fn of_data<T: Copy>(
    data: &MetricData<T>,
    figure: impl Fn(T) -> MetricValue,
    real: impl Fn(T) -> f64,
) -> Option<(InstrumentKind, Vec<MetricPoint>)> {
    Some(match data {
        MetricData::Gauge(gauge) => {
            let point = |(labels, value): (Vec<_>, T)| MetricPoint {
                labels,
                since: gauge.start_time(),
                figure: figure(value),
            };
            let points = gauge
                .data_points()
                .map(|point| (labels(point.attributes()), point.value()));
            (InstrumentKind::Gauge, points.map(point).collect())
        }
        MetricData::Sum(sum) => {
            let point = |(labels, value): (Vec<_>, T)| MetricPoint {
                labels,
                since: Some(sum.start_time()),
                figure: figure(value),
            };
            let points = sum
                .data_points()
                .map(|point| (labels(point.attributes()), point.value()));
            let kind = if sum.is_monotonic() {
                InstrumentKind::Counter
            } else {
                InstrumentKind::UpDownCounter
            };
            (kind, points.map(point).collect())
        }
        MetricData::Histogram(histogram) => {
            let points = histogram.data_points().map(|point| {
                let buckets: Vec<u64> = point.bucket_counts().collect();
                let figure = HistogramValue {
                    bounds: point.bounds().collect(),
                    exemplars: vec![None; buckets.len()],
                    buckets,
                    sum: real(point.sum()),
                };
                let figure = MetricValue::Histogram(Box::new(figure));
                MetricPoint {
                    labels: labels(point.attributes()),
                    since: Some(histogram.start_time()),
                    figure,
                }
            });
            (InstrumentKind::Histogram, points.collect())
        }
        // The views configure no such histogram.
        MetricData::ExponentialHistogram(_) => return None,
    })
}

fn labels<'a>(
    attributes: impl Iterator<Item = &'a KeyValue>,
) -> Vec<(Cow<'static, str>, LabelValue)> {
    let text = |value: &Value| {
        if let Value::I64(number) = value {
            LabelValue::Number(*number)
        } else {
            LabelValue::Word(value.to_string())
        }
    };
    let mut all: Vec<_> = attributes
        .map(|pair| (Cow::Owned(pair.key.to_string()), text(&pair.value)))
        .collect();
    // The first recorder of a series determines the order of its attributes.
    all.sort_by(|(one, _): &(Cow<'static, str>, LabelValue), (other, _)| one.cmp(other));
    all
}
