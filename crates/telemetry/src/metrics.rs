//! The OpenTelemetry SDK behind core's instruments, and the values that are observed at each
//! scrape.
//!
//! Instruments are process-wide, so this is too: all gateways in one process (as in tests) share
//! one set of series.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime};

use opentelemetry::KeyValue;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{
    Aggregation, Instrument, InstrumentKind, ManualReader, Pipeline, SdkMeterProvider, Stream,
    Temporality,
};
use parking_lot::Mutex;
use weir_catalog::Catalog;
use weir_catalog::{UpstreamReach, UpstreamStatus};
use weir_core::names::UpstreamId;
use weir_core::port::Random;
use weir_core::telemetry::{
    disable_histograms, instruments, process_resource, record_leases, set_process_resource,
    start_at_zero, unix_seconds,
};
use weir_core::upstream::InstanceBreakerState;

use crate::exposition::{self, ExpositionFormat};
use crate::held_series::HeldSeries;
use crate::metric_families::{self, MetricFamily};
use crate::resource;

/// The most series of one instrument; further ones are counted together under
/// `otel_metric_overflow` (fault F16). Attribute values come from fixed sets and the config, but the
/// SDK keeps the series of removed upstreams: some hundreds of upstream ids in the life of a process
/// fill an instrument.
const MAX_SERIES: usize = 1000;
/// The most series of a histogram, with some twenty lines each.
const MAX_HISTOGRAM_SERIES: usize = 200;

/// Bucket bounds in seconds: from the time of a disk write to a session of a day.
const SECONDS: [f64; 16] = [
    0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 10.0, 60.0,
    3600.0, 86400.0,
];
/// Bucket bounds in bytes of a body.
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
    shared: Arc<MetricsState>,
}

struct MetricsState {
    reader: SharedMetricReader,
    measured: bool,
    /// The upstreams that had several URLs at the last scrape: the SDK keeps their series.
    with_urls: Mutex<HashSet<UpstreamId>>,
    /// The catalogs with the upstreams to observe.
    catalogs: Mutex<Vec<Weak<Catalog>>>,
    /// The readiness check of the gateway that set it last.
    ready: Mutex<Option<Box<dyn Fn() -> bool + Send>>>,
}

static METRICS: OnceLock<Metrics> = OnceLock::new();

impl Metrics {
    /// Installs the SDK at the first call, before any value is recorded. If metrics are off it
    /// installs no SDK, and a scrape has no series.
    pub fn install(measured: bool, random: &dyn Random) -> Self {
        METRICS.get_or_init(|| Self::make(measured, random)).clone()
    }

    fn make(measured: bool, random: &dyn Random) -> Self {
        let resource = resource::of_environment(random);
        let known = resource
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()));
        set_process_resource(known.collect());
        let reader = SharedMetricReader(Arc::new(ManualReader::builder().build()));
        let provider = SdkMeterProvider::builder()
            .with_reader(reader.clone())
            .with_resource(resource)
            .with_view(view)
            .build();
        if measured {
            opentelemetry::global::set_meter_provider(provider);
        } else {
            disable_histograms();
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
            shared: Arc::new(MetricsState {
                reader,
                with_urls: Mutex::default(),
                measured,
                catalogs,
                ready,
            }),
        }
    }

    /// Observes this catalog's upstreams at each scrape, as long as the catalog lives.
    pub fn observe_catalog(&self, catalog: &Arc<Catalog>) {
        let mut catalogs = self.shared.catalogs.lock();
        catalogs.retain(|catalog| catalog.strong_count() > 0);
        catalogs.push(Arc::downgrade(catalog));
    }

    /// Sets the readiness check that each scrape calls, in place of the former one.
    pub fn set_ready_check(&self, ready: impl Fn() -> bool + Send + 'static) {
        *self.shared.ready.lock() = Some(Box::new(ready));
    }

    /// Returns all series, in Prometheus' text format.
    #[must_use]
    pub fn text(&self) -> String {
        self.page(ExpositionFormat::Plain)
    }

    /// Returns all series, in this format.
    pub fn page(&self, format: ExpositionFormat) -> String {
        exposition::write(&self.families(), process_resource(), format)
    }

    /// Holds the series of the upstreams, with their values of now, until the last export.
    pub(super) fn hold_series(&self) -> HeldSeries {
        self.observe();
        HeldSeries::of_present()
    }

    /// Collects all series.
    pub(super) fn families(&self) -> Vec<MetricFamily> {
        self.observe();
        let leased = record_leases();
        let mut collected = ResourceMetrics::default();
        if self.shared.measured
            && let Err(error) = self.shared.reader.collect(&mut collected)
        {
            tracing::error!(%error, "metrics collection failed");
        }
        metric_families::families(&collected, &leased)
    }

    /// Records the values that are observed at each scrape.
    fn observe(&self) {
        let catalogs = self.shared.catalogs.lock().clone();
        catalogs
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|catalog| self.record_upstreams(&catalog));
        if let Some(ready) = &*self.shared.ready.lock() {
            instruments().ready.record(u64::from(ready()), &[]);
        }
    }

    /// Records the state of the upstreams. It runs at a scrape, so that calls do not pay for it.
    fn record_upstreams(&self, catalog: &Catalog) {
        for upstream in catalog.status() {
            let own = || KeyValue::new("upstream", upstream.id.to_string());
            instruments()
                .upstream_in_flight
                .record(upstream.health.in_flight as u64, &[own()]);
            instruments()
                .upstream_disabled
                .record(u64::from(upstream.closed.is_some()), &[own()]);
            let reach = upstream.reach();
            if reach != UpstreamReach::Unknown {
                instruments()
                    .upstream_up
                    .record(u64::from(reach == UpstreamReach::Up), &[own()]);
            }
            for (one, word) in [
                (UpstreamReach::Unknown, "unknown"),
                (UpstreamReach::Up, "up"),
                (UpstreamReach::Down, "down"),
            ] {
                let labels = [own(), KeyValue::new("state", word)];
                instruments()
                    .upstream_state
                    .record(u64::from(one == reach), &labels);
            }
            self.record_urls(&upstream);
        }
    }

    /// Records the URLs of an upstream that has several, or had several at an earlier scrape.
    fn record_urls(&self, upstream: &UpstreamStatus) {
        let urls = &upstream.health.instances;
        let mut with_urls = self.shared.with_urls.lock();
        let had_urls = if urls.is_empty() {
            with_urls.remove(&upstream.id)
        } else {
            !with_urls.insert(upstream.id.clone())
        };
        drop(with_urls);
        if urls.is_empty() && !had_urls {
            return;
        }
        for state in InstanceBreakerState::ALL {
            let count = urls.iter().filter(|one| one.breaker == state).count();
            let labels = [
                KeyValue::new("upstream", upstream.id.to_string()),
                KeyValue::new("state", state.as_str()),
            ];
            instruments().upstream_urls.record(count as u64, &labels);
        }
    }
}

/// The SDK's reader, shared by the scrape and the exporter.
#[derive(Clone, Debug)]
struct SharedMetricReader(Arc<ManualReader>);

impl MetricReader for SharedMetricReader {
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
    let stream = if instrument.kind() == InstrumentKind::Histogram {
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
            .with_cardinality_limit(MAX_HISTOGRAM_SERIES)
            .with_aggregation(buckets)
    } else {
        Stream::builder().with_cardinality_limit(MAX_SERIES)
    };
    stream.build().ok()
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
