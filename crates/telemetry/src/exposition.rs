//! The Prometheus text format 0.0.4, and OpenMetrics 1.0 with exemplars.

use std::fmt::{self, Display, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use weir_core::instant::unix_millis;
use weir_core::telemetry::{Exemplar, InstrumentKind, unix_seconds};

use crate::metric_families::{HistogramValue, LabelValue, MetricFamily, MetricPoint, MetricValue};
use crate::metric_names::{exposed, label};

/// The two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// The Prometheus text format.
    Plain,
    /// OpenMetrics.
    Open,
}

impl ExpositionFormat {
    /// Returns the format that an `Accept` header prefers; the plain one by default.
    pub fn accepted(accept: &str) -> Self {
        let weight = |wanted: &[&str]| {
            let entries = accept
                .split(',')
                .map(|entry| entry.split(';').map(str::trim));
            let fitting = entries.filter_map(|mut parts| {
                let media = parts.next()?.to_ascii_lowercase();
                let parts: Vec<&str> = parts.collect();
                // The draft before 1.0 is another format.
                let known = !parts.iter().any(|part| part.starts_with("version=0.0.1"));
                let q = parts
                    .iter()
                    .find_map(|part| part.strip_prefix("q=")?.parse::<f64>().ok())
                    .unwrap_or(1.0);
                (wanted.contains(&media.as_str()) && known).then_some(q)
            });
            fitting.fold(0.0, f64::max)
        };
        let (open, plain) = (
            weight(&["application/openmetrics-text"]),
            weight(&["text/plain", "text/*", "*/*"]),
        );
        if open > 0.0 && open >= plain {
            Self::Open
        } else {
            Self::Plain
        }
    }

    /// Returns the format's media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
            Self::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Writes all series as text. `resource` has the attributes of the process.
pub(super) fn write(
    families: &[MetricFamily],
    resource: &[(String, String)],
    format: ExpositionFormat,
) -> String {
    let mut page = ExpositionPage {
        out: String::with_capacity(64 << 10),
        format,
    };
    page.target(resource);
    for family in families {
        page.family(family);
    }
    if format == ExpositionFormat::Open {
        page.out.push_str("# EOF\n");
    }
    page.out
}

struct ExpositionPage {
    out: String,
    format: ExpositionFormat,
}

impl ExpositionPage {
    fn target(&mut self, resource: &[(String, String)]) {
        let (name, kind) = match self.format {
            ExpositionFormat::Plain => ("target_info", "gauge"),
            ExpositionFormat::Open => ("target", "info"),
        };
        self.head(name, kind, "", "What is known of the process");
        let labels: Vec<_> = resource
            .iter()
            .map(|(name, text)| (label(name), text.as_str()))
            .collect();
        self.out.push_str("target_info");
        self.labels(labels.iter().map(|(name, text)| (name.as_str(), *text)));
        self.out.push_str(" 1\n");
    }

    fn family(&mut self, family: &MetricFamily) {
        let full = exposed(&family.name, family.kind, &family.unit);
        let kind = match family.kind {
            InstrumentKind::Counter => "counter",
            InstrumentKind::UpDownCounter | InstrumentKind::Gauge => "gauge",
            InstrumentKind::Histogram => "histogram",
        };
        // OpenMetrics names a counter's family without the suffix of its samples.
        let stem = full
            .strip_suffix("_total")
            .filter(|_| kind == "counter" && self.format == ExpositionFormat::Open);
        self.head(stem.unwrap_or(&full), kind, &family.unit, &family.about);
        for point in &family.points {
            self.point(&full, point);
        }
    }

    fn head(&mut self, name: &str, kind: &str, unit: &str, about: &str) {
        // OpenMetrics escapes it like a label; in the plain format the backslash would show.
        let about = EscapedText {
            text: about,
            quotes: self.format == ExpositionFormat::Open,
        };
        self.put(format_args!(
            "# HELP {name} {about}\n# TYPE {name} {kind}\n"
        ));
        let unit = match unit {
            "s" => "seconds",
            "By" => "bytes",
            _ => return,
        };
        if self.format == ExpositionFormat::Open && name.ends_with(unit) {
            self.put(format_args!("# UNIT {name} {unit}\n"));
        }
    }

    fn point(&mut self, name: &str, point: &MetricPoint) {
        match &point.figure {
            MetricValue::Whole(number) => self.sample(name, "", point, number),
            MetricValue::Real(number) => self.sample(name, "", point, &ExpositionNumber(*number)),
            MetricValue::Histogram(histogram) => self.histogram(name, point, histogram),
        }
    }

    fn histogram(&mut self, name: &str, point: &MetricPoint, histogram: &HistogramValue) {
        let mut count = 0;
        let bounds = histogram.bounds.iter().copied().chain([f64::INFINITY]);
        for ((bound, bucket), exemplar) in bounds.zip(&histogram.buckets).zip(&histogram.exemplars)
        {
            count += bucket;
            self.begin(name, "_bucket", point, Some(bound));
            self.put(format_args!(" {count}"));
            if let Some(exemplar) = exemplar
                .as_ref()
                .filter(|_| self.format == ExpositionFormat::Open)
            {
                self.exemplar(exemplar);
            }
            self.out.push('\n');
        }
        self.sample(name, "_sum", point, &ExpositionNumber(histogram.sum));
        self.sample(name, "_count", point, &count);
    }

    fn exemplar(&mut self, Exemplar { span, seconds, at }: &Exemplar) {
        let (trace, span) = (HEXLOWER.encode(&span.trace), HEXLOWER.encode(&span.span));
        let (value, at) = (ExpositionNumber(*seconds), ExpositionNumber(millis(*at)));
        self.put(format_args!(
            " # {{trace_id=\"{trace}\",span_id=\"{span}\"}} {value} {at}"
        ));
    }

    /// Writes a line of a sample without a bound.
    fn sample(&mut self, name: &str, suffix: &str, point: &MetricPoint, value: &dyn Display) {
        self.begin(name, suffix, point, None);
        self.put(format_args!(" {value}\n"));
    }

    /// Writes a line's name and labels. A bucket has a bound.
    fn begin(&mut self, name: &str, suffix: &str, point: &MetricPoint, bound: Option<f64>) {
        self.put(format_args!("{name}{suffix}"));
        let own = point.labels.iter().map(|(name, text)| {
            let text = match text {
                LabelValue::Word(text) => text.clone(),
                LabelValue::Number(number) => number.to_string(),
            };
            (label(name), text)
        });
        let bound = bound.map(|bound| ("le".to_owned(), ExpositionNumber(bound).to_string()));
        let all: Vec<_> = own.chain(bound).collect();
        self.labels(
            all.iter()
                .map(|(name, text)| (name.as_str(), text.as_str())),
        );
    }

    fn labels<'a>(&mut self, labels: impl Iterator<Item = (&'a str, &'a str)>) {
        let mut opened = false;
        for (name, text) in labels {
            self.out.push(if std::mem::replace(&mut opened, true) {
                ','
            } else {
                '{'
            });
            self.put(format_args!(
                "{name}=\"{}\"",
                EscapedText { text, quotes: true }
            ));
        }
        if opened {
            self.out.push('}');
        }
    }

    fn put(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
    }
}

/// Returns an exemplar's time as seconds, in whole milliseconds.
fn millis(at: SystemTime) -> f64 {
    unix_seconds(UNIX_EPOCH + std::time::Duration::from_millis(unix_millis(at)))
}

/// A number as both formats write it: whole numbers with a decimal point, so that a bucket is the
/// same series in both.
struct ExpositionNumber(f64);

impl Display for ExpositionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_infinite() {
            f.write_str(if self.0 > 0.0 { "+Inf" } else { "-Inf" })
        } else {
            write!(f, "{:?}", self.0)
        }
    }
}

/// An escaped label value, or help text.
struct EscapedText<'a> {
    text: &'a str,
    quotes: bool,
}

impl Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.text.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '"' if self.quotes => f.write_str("\\\"")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use weir_core::trace::SpanContext;

    use super::*;

    fn family(kind: InstrumentKind, unit: &'static str, figure: MetricValue) -> MetricFamily {
        let labels = vec![(
            "mcp.method.name".into(),
            LabelValue::Word("a\"b\\c\nd".to_owned()),
        )];
        let points = vec![MetricPoint {
            labels,
            since: None,
            figure,
        }];
        MetricFamily {
            name: "weir.x".into(),
            about: "What\n\"it\" is".into(),
            unit: unit.into(),
            kind,
            points,
        }
    }

    // Proves F14.
    #[test]
    fn label_values_are_escaped() {
        let page = write(
            &[family(InstrumentKind::Gauge, "", MetricValue::Whole(3))],
            &[],
            ExpositionFormat::Plain,
        );
        assert!(
            page.ends_with(
                "# HELP weir_x What\\n\"it\" is\n# TYPE weir_x gauge\nweir_x{mcp_method_name=\"a\\\"b\\\\c\\nd\"} 3\n"
            ),
            "{page}"
        );
    }

    #[test]
    fn a_histogram_names_a_trace_in_openmetrics_and_a_counter_is_named_by_its_family() {
        let span = SpanContext {
            trace: [10; 16],
            span: [11; 8],
        };
        let exemplar = Exemplar {
            span,
            seconds: 0.25,
            at: UNIX_EPOCH + std::time::Duration::from_millis(1500),
        };
        let histogram = HistogramValue {
            bounds: vec![0.2, 1.0],
            buckets: vec![1, 2, 0],
            sum: 0.75,
            exemplars: vec![None, Some(exemplar), None],
        };
        let all = [
            family(InstrumentKind::Counter, "By", MetricValue::Whole(7)),
            family(
                InstrumentKind::Histogram,
                "s",
                MetricValue::Histogram(Box::new(histogram)),
            ),
        ];
        let open = write(
            &all,
            &[("service.name".to_owned(), "weir".to_owned())],
            ExpositionFormat::Open,
        );
        let (trace, span) = ("0a".repeat(16), "0b".repeat(8));
        for line in [
            "# TYPE target info".to_owned(),
            "target_info{service_name=\"weir\"} 1".to_owned(),
            "# HELP weir_x_bytes What\\n\\\"it\\\" is".to_owned(),
            "# TYPE weir_x_bytes counter".to_owned(),
            "# UNIT weir_x_bytes bytes".to_owned(),
            format!("le=\"1.0\"}} 3 # {{trace_id=\"{trace}\",span_id=\"{span}\"}} 0.25 1.5"),
            "le=\"+Inf\"} 3".to_owned(),
        ] {
            assert!(
                open.lines().any(|own| own.ends_with(&line)),
                "{line} in {open}"
            );
        }
        assert!(
            open.contains("weir_x_bytes_total{") && open.ends_with("# EOF\n"),
            "{open}"
        );
        let plain = write(&all, &[], ExpositionFormat::Plain);
        assert!(
            plain.contains("# TYPE weir_x_bytes_total counter\n") && !plain.contains("trace_id"),
            "{plain}"
        );
        assert!(
            plain.contains("weir_x_seconds_sum{mcp_method_name=") && !plain.contains("EOF"),
            "{plain}"
        );
    }

    #[test]
    fn format_follows_the_accept_header() {
        for (accept, format) in [
            ("", ExpositionFormat::Plain),
            ("*/*", ExpositionFormat::Plain),
            ("text/plain;version=0.0.4", ExpositionFormat::Plain),
            (
                "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                ExpositionFormat::Open,
            ),
            (
                "application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5",
                ExpositionFormat::Plain,
            ),
            (
                "application/openmetrics-text; version=1.0.0; q=0.2, text/plain",
                ExpositionFormat::Plain,
            ),
            ("application/openmetrics-text;q=0", ExpositionFormat::Plain),
        ] {
            assert_eq!(ExpositionFormat::accepted(accept), format, "{accept}");
        }
    }
}
