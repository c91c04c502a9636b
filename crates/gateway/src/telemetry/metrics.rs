//! The OpenTelemetry SDK behind core's instruments, and what is looked up when somebody reads them.
//!
//! Instruments are process-wide, so this is too: however many gateways run in one process (tests do
//! that), they share one set of series.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{
    Aggregation, Instrument, InstrumentKind, ManualReader, Pipeline, SdkMeterProvider, Stream,
    Temporality,
};
use weir_core::Catalog;
use weir_core::catalog::Reach;
use weir_core::telemetry::{instruments, measure_nothing, start_at_zero, unix_seconds};

use super::exposition::{self, Format};
use super::gather::{self, Family};

/// Series of one instrument; what is beyond is counted together under `otel_metric_overflow` (fault
/// F16). Attribute values come from fixed sets and the config, so only a config of hundreds of
/// upstreams comes near.
const SERIES: usize = 1000;
/// The same of a histogram, which is some twenty lines a series.
const HISTOGRAMS: usize = 200;

/// Seconds. From what a disk or the store takes to a session of a day.
const SECONDS: [f64; 16] = [
    0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 10.0, 60.0,
    3600.0, 86400.0,
];
/// Bytes of a body.
const BYTES: [f64; 8] = [
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

/// The process's metrics.
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Shared>,
}

struct Shared {
    reader: Reader,
    measured: bool,
    resource: Vec<(String, String)>,
    /// Whose upstreams are looked at.
    catalogs: Mutex<Vec<Weak<Catalog>>>,
    /// Whether the process wants traffic, of the gateway that said so last.
    ready: Mutex<Option<Box<dyn Fn() -> bool + Send>>>,
}

static METRICS: OnceLock<Metrics> = OnceLock::new();

impl Metrics {
    /// Installs the SDK, the first time it is called; must come before anything is recorded. Where
    /// nothing is to be measured it installs none, and there is nothing to read.
    pub fn install(measured: bool) -> Self {
        METRICS.get_or_init(|| Self::make(measured)).clone()
    }

    fn make(measured: bool) -> Self {
        // What the environment says of the service goes before.
        let named = std::env::var_os("OTEL_SERVICE_NAME").is_some();
        let resource = Resource::builder()
            .with_attributes([KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))]);
        let resource = if named {
            resource
        } else {
            resource.with_service_name("weir")
        }
        .build();
        let known = resource
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        let reader = Reader(Arc::new(ManualReader::builder().build()));
        let provider = SdkMeterProvider::builder()
            .with_reader(reader.clone())
            .with_resource(resource)
            .with_view(view)
            .build();
        if measured {
            opentelemetry::global::set_meter_provider(provider);
        } else {
            measure_nothing();
        }
        instruments()
            .build_info
            .record(1, &[KeyValue::new("version", env!("CARGO_PKG_VERSION"))]);
        start_at_zero();
        instruments()
            .start_time
            .record(unix_seconds(SystemTime::now()), &[]);
        let (catalogs, ready) = (Mutex::default(), Mutex::default());
        Self {
            shared: Arc::new(Shared {
                reader,
                measured,
                resource: known,
                catalogs,
                ready,
            }),
        }
    }

    /// Looks at these upstreams too, whenever somebody reads, as long as the catalog is there.
    pub fn watch(&self, catalog: &Arc<Catalog>) {
        let mut catalogs = self
            .shared
            .catalogs
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        catalogs.retain(|catalog| catalog.strong_count() > 0);
        catalogs.push(Arc::downgrade(catalog));
    }

    /// Asks this whenever somebody reads, and no longer what was given before: whether the process
    /// wants traffic.
    pub(crate) fn ask_ready(&self, ready: impl Fn() -> bool + Send + 'static) {
        *self
            .shared
            .ready
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(Box::new(ready));
    }

    /// All series, in Prometheus' text format.
    #[must_use]
    pub fn text(&self) -> String {
        self.page(Format::Plain)
    }

    /// All series, in this format.
    pub(crate) fn page(&self, format: Format) -> String {
        exposition::write(&self.families(), &self.shared.resource, format)
    }

    /// What is known of the process.
    pub(super) fn resource(&self) -> &[(String, String)] {
        &self.shared.resource
    }

    /// All series.
    pub(super) fn families(&self) -> Vec<Family> {
        let catalogs = self
            .shared
            .catalogs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        catalogs
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|catalog| look_at(&catalog));
        if let Some(ready) = &*self
            .shared
            .ready
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
        {
            instruments().ready.record(u64::from(ready()), &[]);
        }
        let mut collected = ResourceMetrics::default();
        if self.shared.measured
            && let Err(error) = self.shared.reader.collect(&mut collected)
        {
            tracing::error!(%error, "metrics cannot be collected");
        }
        gather::families(&collected)
    }
}

/// Notes how the upstreams stand. Here and not where it happens, so that no call pays for it.
fn look_at(catalog: &Catalog) {
    for upstream in catalog.status() {
        let own = || KeyValue::new("upstream", upstream.id.to_string());
        instruments()
            .upstream_in_flight
            .record(upstream.health.in_flight as u64, &[own()]);
        let reach = upstream.reach();
        if reach != Reach::Unknown {
            instruments()
                .upstream_up
                .record(u64::from(reach == Reach::Up), &[own()]);
        }
        for (one, word) in [
            (Reach::Unknown, "unknown"),
            (Reach::Up, "up"),
            (Reach::Down, "down"),
        ] {
            let labels = [own(), KeyValue::new("state", word)];
            instruments()
                .upstream_state
                .record(u64::from(one == reach), &labels);
        }
    }
}

/// The SDK's reader, shared with who reads.
#[derive(Clone, Debug)]
struct Reader(Arc<ManualReader>);

impl MetricReader for Reader {
    fn register_pipeline(&self, pipeline: Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }

    fn collect(&self, metrics: &mut ResourceMetrics) -> OTelSdkResult {
        self.0.collect(metrics)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn temporality(&self, kind: InstrumentKind) -> Temporality {
        self.0.temporality(kind)
    }
}

fn view(instrument: &Instrument) -> Option<Stream> {
    let stream = match instrument.kind() {
        InstrumentKind::Histogram => {
            let boundaries = if instrument.unit() == "By" {
                BYTES.to_vec()
            } else {
                SECONDS.to_vec()
            };
            let buckets = Aggregation::ExplicitBucketHistogram {
                boundaries,
                record_min_max: false,
            };
            Stream::builder()
                .with_cardinality_limit(HISTOGRAMS)
                .with_aggregation(buckets)
        }
        _ => Stream::builder().with_cardinality_limit(SERIES),
    };
    stream.build().ok()
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}
