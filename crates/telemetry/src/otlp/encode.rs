//! The OTLP encoding of spans and metrics (opentelemetry-proto, trace/v1 and metrics/v1).

use std::time::{SystemTime, UNIX_EPOCH};

use weir_core::telemetry::{Exemplar, InstrumentKind};
use weir_core::trace::{AttributeValue, FinishedSpan, SpanKind};

use super::proto::ProtoMessage;
use crate::metric_families::{HistogramValue, LabelValue, MetricFamily, MetricPoint, MetricValue};

/// The attributes of the process.
pub(super) type ResourceAttributes = [(String, String)];

/// The temporality of sums: they count from their beginning.
const CUMULATIVE: u64 = 2;
const ERROR: u64 = 2;
/// Flags of a span: sampled; the next flag is valid; the parent is remote.
const SAMPLED: u32 = 1;
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Returns an `ExportTraceServiceRequest`.
pub(super) fn traces(resource: &ResourceAttributes, spans: &[FinishedSpan]) -> Vec<u8> {
    document(resource, |scope| {
        for own in spans {
            scope.message(2, |out| span(out, own));
        }
    })
}

/// Returns an `ExportMetricsServiceRequest`.
pub(super) fn metrics(
    resource: &ResourceAttributes,
    families: &[MetricFamily],
    now: SystemTime,
) -> Vec<u8> {
    document(resource, |scope| {
        for own in families {
            scope.message(2, |out| family(out, own, now));
        }
    })
}

/// Writes the common frame: the resource, the scope, and the contents by `write`.
fn document(resource: &ResourceAttributes, write: impl FnOnce(&mut ProtoMessage)) -> Vec<u8> {
    let mut out = ProtoMessage::default();
    out.message(1, |of_resource| {
        of_resource.message(1, |out| {
            for (name, text) in resource {
                attribute(out, 1, name, &LabelValue::Word(text.clone()));
            }
        });
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.string(1, "weir").string(2, env!("CARGO_PKG_VERSION"));
            });
            write(of_scope);
        });
    });
    out.into_bytes()
}

fn span(out: &mut ProtoMessage, span: &FinishedSpan) {
    out.bytes(1, &span.context.trace)
        .bytes(2, &span.context.span);
    if let Some(state) = &span.state {
        out.string(3, state);
    }
    let mut flags = SAMPLED | HAS_IS_REMOTE;
    if let Some(parent) = &span.parent {
        out.bytes(4, parent);
        flags |= if span.kind == SpanKind::Server {
            IS_REMOTE
        } else {
            0
        };
    }
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
    };
    out.string(5, &span.name)
        .varint(6, kind)
        .fixed64(7, nanos(span.began))
        .fixed64(8, nanos(span.ended));
    for (name, value) in &span.attributes {
        let text = match value {
            AttributeValue::Word(word) => LabelValue::Word((*word).to_owned()),
            AttributeValue::Text(text) => LabelValue::Word(text.to_string()),
            AttributeValue::Number(number) => LabelValue::Number(*number),
        };
        attribute(out, 9, name, &text);
    }
    if span.failed {
        out.message(15, |status| {
            status.varint(3, ERROR);
        });
    }
    out.fixed32(16, flags);
}

fn family(out: &mut ProtoMessage, family: &MetricFamily, now: SystemTime) {
    out.string(1, &family.name)
        .string(2, &family.about)
        .string(3, &family.unit);
    let field = match family.kind {
        InstrumentKind::Gauge => 5,
        InstrumentKind::Counter | InstrumentKind::UpDownCounter => 7,
        InstrumentKind::Histogram => 9,
    };
    out.message(field, |data| {
        for own in &family.points {
            data.message(1, |out| point(out, own, now));
        }
        if family.kind != InstrumentKind::Gauge {
            data.varint(2, CUMULATIVE);
        }
        if family.kind == InstrumentKind::Counter {
            data.varint(3, 1);
        }
    });
}

fn point(out: &mut ProtoMessage, point: &MetricPoint, now: SystemTime) {
    if let Some(since) = point.since {
        out.fixed64(2, nanos(since));
    }
    out.fixed64(3, nanos(now));
    let labels = match &point.figure {
        MetricValue::Real(number) => out.double(4, *number),
        MetricValue::Whole(number) => out.fixed64(6, number.cast_unsigned()),
        MetricValue::Histogram(histogram) => {
            self::histogram(out, histogram);
            for (name, text) in &point.labels {
                attribute(out, 9, name, text);
            }
            return;
        }
    };
    for (name, text) in &point.labels {
        attribute(labels, 7, name, text);
    }
}

fn histogram(out: &mut ProtoMessage, histogram: &HistogramValue) {
    out.fixed64(4, histogram.buckets.iter().sum())
        .double(5, histogram.sum);
    out.packed(6, histogram.buckets.iter().copied());
    out.packed(7, histogram.bounds.iter().map(|bound| bound.to_bits()));
    for Exemplar { span, seconds, at } in histogram.exemplars.iter().flatten() {
        out.message(8, |out| {
            out.fixed64(2, nanos(*at))
                .double(3, *seconds)
                .bytes(4, &span.span)
                .bytes(5, &span.trace);
        });
    }
}

fn attribute(out: &mut ProtoMessage, field: u64, name: &str, value: &LabelValue) {
    out.message(field, |pair| {
        pair.string(1, name).message(2, |any| match value {
            LabelValue::Word(text) => {
                any.string(1, text);
            }
            LabelValue::Number(number) => {
                any.varint(3, number.cast_unsigned());
            }
        });
    });
}

fn nanos(time: SystemTime) -> u64 {
    u64::try_from(
        time.duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos(),
    )
    .unwrap_or(u64::MAX)
}
