//! The OpenTelemetry SDK behind core's instruments, and its Prometheus text.
//!
//! Instruments are process-wide, so this is too: however many gateways run in one process (tests do that), they share
//! one set of series.

use std::fmt;
use std::sync::OnceLock;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{Aggregation, Instrument, InstrumentKind, SdkMeterProvider, Stream};
use prometheus::{Registry, TextEncoder};

/// Series of one instrument. Attribute values come from fixed sets and the config, but for the names of tools, which
/// upstreams choose; what is beyond is counted together under `otel_metric_overflow` (fault F16).
const SERIES: usize = 2_000;

/// Seconds. From what a call costs in weir alone to a tool that takes its hour.
const SECONDS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0, 3600.0];

/// The process's metrics.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
}

static METRICS: OnceLock<Result<Metrics, String>> = OnceLock::new();

impl Metrics {
    /// Installs the SDK, the first time it is called; must come before anything is recorded.
    ///
    /// # Errors
    /// The exporter cannot be made; the text says why.
    pub fn install() -> Result<Self, String> {
        METRICS.get_or_init(Self::make).clone()
    }

    fn make() -> Result<Self, String> {
        let registry = Registry::new();
        // One scope only: its name on every series would say nothing.
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .build()
            .map_err(|error| error.to_string())?;
        let resource = Resource::builder().with_service_name("weir").build();
        let provider =
            SdkMeterProvider::builder().with_reader(exporter).with_resource(resource).with_view(view).build();
        opentelemetry::global::set_meter_provider(provider);
        Ok(Self { registry })
    }

    /// All series, in Prometheus' text format.
    ///
    /// # Errors
    /// The text cannot be written; a bug of the exporter's.
    pub fn text(&self) -> Result<String, String> {
        TextEncoder::new().encode_to_string(&self.registry.gather()).map_err(|error| error.to_string())
    }
}

fn view(instrument: &Instrument) -> Option<Stream> {
    let stream = Stream::builder().with_cardinality_limit(SERIES);
    let stream = match instrument.kind() {
        InstrumentKind::Histogram => stream.with_aggregation(Aggregation::ExplicitBucketHistogram {
            boundaries: SECONDS.to_vec(),
            record_min_max: false,
        }),
        _ => stream,
    };
    stream.build().ok()
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::KeyValue;
    use weir_core::telemetry::instruments;

    use super::*;

    #[test]
    fn every_instrument_is_scraped_under_its_name() {
        let metrics = Metrics::install().expect("the exporter can be made");
        let all = instruments();
        all.refusals.add(1, &[KeyValue::new("reason", "host")]);
        all.client_duration.record(0.2, &[KeyValue::new("upstream", "a")]);
        all.upstream_up.record(1, &[KeyValue::new("upstream", "a")]);
        let text = metrics.text().expect("metrics can be written");
        assert!(text.contains("weir_refusals_total{reason=\"host\"} "), "{text}");
        assert!(text.contains("mcp_client_operation_duration_seconds_bucket{upstream=\"a\",le=\"0.25\"} "), "{text}");
        assert!(text.contains("weir_upstream_up{upstream=\"a\"} 1"), "{text}");
        assert!(text.contains("target_info{service_name=\"weir\","), "{text}");
    }

    #[test]
    fn f16_an_upstream_that_makes_up_names_fills_its_instrument_and_no_more() {
        let metrics = Metrics::install().expect("the exporter can be made");
        for number in 0..100_000 {
            let labels = [KeyValue::new("upstream", "liar"), KeyValue::new("reason", format!("made-up-{number}"))];
            instruments().upstream_protocol_errors.add(1, &labels);
        }
        let text = metrics.text().expect("metrics can be written");
        let own: Vec<&str> =
            text.lines().filter(|line| line.starts_with("weir_upstream_protocol_errors_total{")).collect();
        // And the one for the rest.
        assert!((1000..=SERIES + 1).contains(&own.len()), "{}", own.len());
        let rest = own.iter().find(|line| line.contains("otel_metric_overflow")).expect("the rest is counted together");
        assert!(
            rest.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok()).is_some_and(|count| count > 90_000.0)
        );
        assert!(text.len() < 1 << 20, "{} bytes", text.len());
    }
}
