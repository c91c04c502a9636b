//! Spans and metrics as messages of OTLP, and the number of rejected items in a collector's
//! response.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, Gauge, Histogram, HistogramDataPoint, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, exemplar, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{
    ResourceSpans, ScopeSpans, Span, SpanFlags, Status, span, status,
};
use prost::Message;
use weir_core::telemetry::InstrumentKind;
use weir_core::trace::{AttributeValue, FinishedSpan, SpanKind};

use crate::metric_families::{HistogramValue, LabelValue, MetricFamily, MetricPoint, MetricValue};

/// The attributes of the process.
pub(super) type ResourceAttributes = [(String, String)];

/// The flag of a sampled span (W3C Trace Context, trace flags).
const SAMPLED: u32 = 1;
/// Sums count from their beginning.
const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// Returns the request that exports spans.
pub(super) fn trace_request(
    attributes: &ResourceAttributes,
    spans: impl Iterator<Item = FinishedSpan>,
) -> ExportTraceServiceRequest {
    let of_scope = ScopeSpans {
        scope: Some(scope()),
        spans: spans.map(span).collect(),
        ..ScopeSpans::default()
    };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource(attributes)),
            scope_spans: vec![of_scope],
            ..ResourceSpans::default()
        }],
    }
}

/// Returns the request that exports metrics.
pub(super) fn metrics_request(
    attributes: &ResourceAttributes,
    families: Vec<MetricFamily>,
    now: SystemTime,
) -> ExportMetricsServiceRequest {
    let of_scope = ScopeMetrics {
        scope: Some(scope()),
        metrics: families
            .into_iter()
            .map(|family| metric(family, nanos(now)))
            .collect(),
        ..ScopeMetrics::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource(attributes)),
            scope_metrics: vec![of_scope],
            ..ResourceMetrics::default()
        }],
    }
}

/// Returns the number of rejected spans in a response.
pub(super) fn rejected_spans(response: &[u8]) -> u64 {
    let response: ExportTraceServiceResponse = decode_start(response);
    let partial = response.partial_success.unwrap_or_default();
    partial.rejected_spans.try_into().unwrap_or(0)
}

/// Returns the number of rejected data points in a response.
pub(super) fn rejected_points(response: &[u8]) -> u64 {
    let response: ExportMetricsServiceResponse = decode_start(response);
    let partial = response.partial_success.unwrap_or_default();
    partial.rejected_data_points.try_into().unwrap_or(0)
}

/// Decodes a message up to its first malformed field.
fn decode_start<M: Message + Default>(bytes: &[u8]) -> M {
    let mut message = M::default();
    // A collector that accepts the data and writes a malformed response has accepted the data.
    let _ = message.merge(bytes);
    message
}

fn resource(attributes: &ResourceAttributes) -> Resource {
    let attribute =
        |(name, text): &(String, String)| attribute(name.clone(), Value::StringValue(text.clone()));
    Resource {
        attributes: attributes.iter().map(attribute).collect(),
        ..Resource::default()
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "weir".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn span(own: FinishedSpan) -> Span {
    let has_remote_parent = own.parent.is_some() && own.kind == SpanKind::Server;
    let remote = if has_remote_parent {
        SpanFlags::ContextIsRemoteMask as u32
    } else {
        0
    };
    let kind = match own.kind {
        SpanKind::Internal => span::SpanKind::Internal,
        SpanKind::Server => span::SpanKind::Server,
        SpanKind::Client => span::SpanKind::Client,
    };
    let value = |value| match value {
        AttributeValue::Word(word) => Value::StringValue(word.to_owned()),
        AttributeValue::Text(text) => Value::StringValue(text.to_string()),
        AttributeValue::Number(number) => Value::IntValue(number),
    };
    Span {
        trace_id: own.context.trace.to_vec(),
        span_id: own.context.span.to_vec(),
        trace_state: own.state.as_deref().unwrap_or_default().to_owned(),
        parent_span_id: own.parent.map(Vec::from).unwrap_or_default(),
        flags: SAMPLED | SpanFlags::ContextHasIsRemoteMask as u32 | remote,
        name: own.name,
        kind: kind.into(),
        start_time_unix_nano: nanos(own.began),
        end_time_unix_nano: nanos(own.ended),
        attributes: own
            .attributes
            .into_iter()
            .map(|(name, own)| attribute(name.to_owned(), value(own)))
            .collect(),
        status: own.failed.then(|| Status {
            code: status::StatusCode::Error.into(),
            ..Status::default()
        }),
        ..Span::default()
    }
}

fn metric(family: MetricFamily, now: u64) -> Metric {
    let (kind, points) = (family.kind, family.points.into_iter());
    let data = match kind {
        InstrumentKind::Gauge => metric::Data::Gauge(Gauge {
            data_points: points.filter_map(|own| number_point(own, now)).collect(),
        }),
        InstrumentKind::Counter | InstrumentKind::UpDownCounter => metric::Data::Sum(Sum {
            data_points: points.filter_map(|own| number_point(own, now)).collect(),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: kind == InstrumentKind::Counter,
        }),
        InstrumentKind::Histogram => metric::Data::Histogram(Histogram {
            data_points: points.filter_map(|own| histogram_point(own, now)).collect(),
            aggregation_temporality: CUMULATIVE,
        }),
    };
    Metric {
        name: family.name.into_owned(),
        description: family.about.into_owned(),
        unit: family.unit.into_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// Returns the data point of a gauge or a sum.
fn number_point(own: MetricPoint, now: u64) -> Option<NumberDataPoint> {
    let value = match own.figure {
        MetricValue::Real(number) => number_data_point::Value::AsDouble(number),
        MetricValue::Whole(number) => number_data_point::Value::AsInt(number),
        MetricValue::Histogram(_) => return None,
    };
    Some(NumberDataPoint {
        attributes: labels(own.labels),
        start_time_unix_nano: own.since.map_or(0, nanos),
        time_unix_nano: now,
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

fn histogram_point(own: MetricPoint, now: u64) -> Option<HistogramDataPoint> {
    let histogram = match own.figure {
        MetricValue::Histogram(histogram) => *histogram,
        MetricValue::Real(_) | MetricValue::Whole(_) => return None,
    };
    let HistogramValue {
        bounds,
        buckets,
        sum,
        exemplars,
    } = histogram;
    Some(HistogramDataPoint {
        attributes: labels(own.labels),
        start_time_unix_nano: own.since.map_or(0, nanos),
        time_unix_nano: now,
        count: buckets.iter().sum(),
        sum: Some(sum),
        bucket_counts: buckets,
        explicit_bounds: bounds,
        exemplars: exemplars.into_iter().flatten().map(exemplar).collect(),
        ..HistogramDataPoint::default()
    })
}

fn exemplar(own: weir_core::telemetry::Exemplar) -> Exemplar {
    Exemplar {
        time_unix_nano: nanos(own.at),
        span_id: own.span.span.to_vec(),
        trace_id: own.span.trace.to_vec(),
        value: Some(exemplar::Value::AsDouble(own.seconds)),
        ..Exemplar::default()
    }
}

fn labels(labels: Vec<(Cow<'static, str>, LabelValue)>) -> Vec<KeyValue> {
    let label = |(name, value): (Cow<'static, str>, LabelValue)| {
        let value = match value {
            LabelValue::Word(text) => Value::StringValue(text),
            LabelValue::Number(number) => Value::IntValue(number),
        };
        attribute(name.into_owned(), value)
    };
    labels.into_iter().map(label).collect()
}

fn attribute(key: String, value: Value) -> KeyValue {
    KeyValue {
        key,
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_core::trace::SpanContext;

    use super::*;

    const CONTEXT: SpanContext = SpanContext {
        trace: [0xab; 16],
        span: [0xcd; 8],
    };

    fn at(nanos: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(nanos)
    }

    fn process() -> Vec<(String, String)> {
        vec![("service.name".to_owned(), "weir".to_owned())]
    }

    fn finished(kind: SpanKind, parent: Option<[u8; 8]>) -> FinishedSpan {
        FinishedSpan {
            context: CONTEXT,
            parent,
            state: Some("vendor=1".into()),
            name: "tools/call".to_owned(),
            kind,
            began: at(1_000),
            ended: at(3_000),
            attributes: vec![
                ("era", AttributeValue::Word("modern")),
                ("tool", AttributeValue::Text("read_file".into())),
                ("size", AttributeValue::Number(-5)),
            ],
            failed: parent.is_some(),
        }
    }

    fn family(kind: InstrumentKind, figures: Vec<MetricValue>) -> MetricFamily {
        let point = |figure| MetricPoint {
            labels: vec![
                ("upstream".into(), LabelValue::Word("files".to_owned())),
                ("status".into(), LabelValue::Number(200)),
            ],
            since: Some(at(1_000)),
            figure,
        };
        MetricFamily {
            name: "weir.calls".into(),
            about: "Calls.".into(),
            unit: "1".into(),
            kind,
            points: figures.into_iter().map(point).collect(),
        }
    }

    fn histogram() -> MetricValue {
        let exemplar = weir_core::telemetry::Exemplar {
            span: CONTEXT,
            seconds: 0.75,
            at: at(2_000),
        };
        MetricValue::Histogram(Box::new(HistogramValue {
            bounds: vec![0.5, 1.0],
            buckets: vec![3, 1, 2],
            sum: 7.25,
            exemplars: vec![None, Some(exemplar), None],
        }))
    }

    #[test]
    fn spans_have_ids_times_flags_and_attributes() {
        let spans = [
            finished(SpanKind::Server, Some([7; 8])),
            finished(SpanKind::Client, Some([7; 8])),
            finished(SpanKind::Internal, None),
        ];
        let request = trace_request(&process(), spans.into_iter());
        let of_resource = &request.resource_spans[0];
        let service = attribute(
            "service.name".to_owned(),
            Value::StringValue("weir".to_owned()),
        );
        let attributes = of_resource.resource.as_ref().map(|own| &own.attributes);
        assert_eq!(attributes, Some(&vec![service]));
        let [server, client, internal] = of_resource.scope_spans[0].spans.as_slice() else {
            panic!("{request:?}")
        };
        assert_eq!(
            (&server.trace_id[..], &server.span_id[..]),
            (&[0xab; 16][..], &[0xcd; 8][..])
        );
        assert_eq!(server.trace_state, "vendor=1");
        assert_eq!(
            (server.start_time_unix_nano, server.end_time_unix_nano),
            (1_000, 3_000)
        );
        let values: Vec<_> = server
            .attributes
            .iter()
            .map(|own| {
                (
                    own.key.as_str(),
                    own.value.clone().and_then(|any| any.value),
                )
            })
            .collect();
        assert_eq!(
            values,
            [
                ("era", Some(Value::StringValue("modern".to_owned()))),
                ("tool", Some(Value::StringValue("read_file".to_owned()))),
                ("size", Some(Value::IntValue(-5))),
            ]
        );
        assert_eq!((server.kind, client.kind, internal.kind), (2, 3, 1));
        assert_eq!(
            (server.flags, client.flags, internal.flags),
            (0x301, 0x101, 0x101),
            "the parent of a server's span alone is remote"
        );
        assert_eq!(
            (server.parent_span_id.len(), internal.parent_span_id.len()),
            (8, 0)
        );
        assert_eq!(server.status.as_ref().map(|status| status.code), Some(2));
        assert_eq!(internal.status, None);
    }

    #[test]
    fn metrics_are_gauges_sums_and_histograms() {
        let whole = || vec![MetricValue::Whole(-3)];
        let families = vec![
            family(InstrumentKind::Gauge, vec![MetricValue::Real(1.5)]),
            family(InstrumentKind::Counter, whole()),
            family(InstrumentKind::UpDownCounter, whole()),
            family(InstrumentKind::Histogram, vec![histogram()]),
        ];
        let request = metrics_request(&process(), families, at(5_000));
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let data: Vec<_> = metrics.iter().filter_map(|own| own.data.clone()).collect();
        let [
            metric::Data::Gauge(gauge),
            metric::Data::Sum(counter),
            metric::Data::Sum(up_down),
            metric::Data::Histogram(histogram),
        ] = data.as_slice()
        else {
            panic!("{data:?}")
        };
        assert_eq!(
            (
                &*metrics[0].name,
                &*metrics[0].description,
                &*metrics[0].unit
            ),
            ("weir.calls", "Calls.", "1")
        );
        assert_eq!(
            gauge.data_points[0].value,
            Some(number_data_point::Value::AsDouble(1.5))
        );
        assert_eq!(
            counter.data_points[0].value,
            Some(number_data_point::Value::AsInt(-3))
        );
        assert!(counter.is_monotonic && !up_down.is_monotonic);
        let point = &histogram.data_points[0];
        let times = (point.start_time_unix_nano, point.time_unix_nano);
        assert_eq!(
            (times, point.count, point.sum),
            ((1_000, 5_000), 6, Some(7.25))
        );
        assert_eq!(
            (&point.bucket_counts[..], &point.explicit_bounds[..]),
            (&[3, 1, 2][..], &[0.5, 1.0][..])
        );
        assert_eq!(point.attributes.len(), 2);
        let [exemplar] = point.exemplars.as_slice() else {
            panic!("{point:?}")
        };
        assert_eq!(exemplar.value, Some(exemplar::Value::AsDouble(0.75)));
        assert_eq!(
            (exemplar.time_unix_nano, exemplar.trace_id.len()),
            (2_000, 16)
        );
        for temporality in [
            counter.aggregation_temporality,
            up_down.aggregation_temporality,
            histogram.aggregation_temporality,
        ] {
            assert_eq!(temporality, 2, "cumulative");
        }
    }

    #[test]
    fn rejected_items_are_read_from_a_response() {
        // The fields 1 (300) and 2 ("no room") of the field 1.
        let response = b"\x0a\x0c\x08\xac\x02\x12\x07no room";
        assert_eq!(
            (rejected_spans(response), rejected_points(response)),
            (300, 300)
        );
        assert_eq!(
            (rejected_spans(b""), rejected_points(b"\x0a\x00")),
            (0, 0),
            "all was taken"
        );
        for end in 0..response.len() {
            assert!(
                rejected_points(&response[..end]) <= 300,
                "whatever is cut off"
            );
        }
        assert_eq!(
            rejected_spans(b"\x0a\x05\x08\x07\x12\x01\xff"),
            7,
            "a text that is not UTF-8 follows"
        );
        assert_eq!(
            (
                rejected_spans(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
                rejected_points(b"{}")
            ),
            (0, 0)
        );
    }
}
