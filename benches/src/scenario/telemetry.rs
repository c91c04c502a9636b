//! The cost of telemetry. One weir has none; the other has all metrics, traces one request in a
//! hundred, and pushes both to a collector on loopback. They are called in turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::weir_pair::{PairHalf, PairMeasurement, WeirPair};
use crate::report::ReportTable;
use crate::settings::{RunSettings, TargetKind};
use anyhow::{Result, ensure};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::TcpListener;

const COLUMNS: &[(&str, &str)] = &[
    ("era", "client, upstream"),
    ("concurrency", "in flight"),
    ("telemetry", "telemetry"),
    ("per_second", "calls/s"),
    ("of_silent", "of silent"),
    ("p50_us", "p50 us"),
    ("p99_us", "p99 us"),
    ("cpu_us", "cpu us"),
    ("calls", "calls"),
    ("errors", "errors"),
];

#[derive(Serialize)]
struct TelemetryRow {
    telemetry: &'static str,
    #[serde(flatten)]
    measured: PairMeasurement,
    /// Throughput over that without telemetry in the same round, the median of these.
    of_silent: Option<f64>,
}

/// The most time until the first push: several times its interval.
const FIRST_PUSH: Duration = Duration::from_secs(10);

/// The config without metrics and traces.
const SILENT_CONFIG: &str = "telemetry: { metrics: { enabled: false } }\n";

/// Measures both eras at every concurrency.
///
/// # Errors
/// A process or a connection that does not start, or ends.
pub(crate) async fn run(settings: &RunSettings) -> Result<ReportTable> {
    let title = format!(
        "tools/call without and with metrics, traces of 1 % and OTLP, medians of {} rounds of {} ms",
        settings.rounds, settings.round_ms
    );
    let mut table = ReportTable::new("telemetry", title, COLUMNS);
    if !settings.has(TargetKind::Weir) {
        table.note("weir is not measured");
        return Ok(table);
    }
    let sink = CollectorSink::start().await?;
    let told = format!(
        "telemetry: {{ traces: {{ sample: 0.01 }}, otlp: {{ endpoint: \"{}\", interval: 1s }} }}\n",
        sink.url
    );
    let halves = [SILENT_CONFIG, &told].map(|config| PairHalf {
        credential: None,
        config,
    });
    let mut weirs = WeirPair::start(settings, halves).await?;
    weirs
        .measure(settings, |[off, on], of_silent| {
            table.row(&TelemetryRow {
                telemetry: "off",
                measured: off,
                of_silent: None,
            })?;
            table.row(&TelemetryRow {
                telemetry: "on",
                measured: on,
                of_silent,
            })
        })
        .await?;
    // A short run is over before the first push is due.
    let first = async {
        while sink.requests.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // The requests are counted and checked below.
    let _ = tokio::time::timeout(FIRST_PUSH, first).await;
    // The last metrics and spans are sent at the end.
    weirs.stop().await;
    let requests = sink.requests.load(Ordering::Relaxed);
    ensure!(requests > 0, "nothing was pushed");
    table.note(format!(
        "{requests} requests to the collector; aim: 0.95 of the throughput without telemetry"
    ));
    Ok(table)
}

/// A collector that accepts all data and parses none.
struct CollectorSink {
    url: String,
    requests: Arc<AtomicU64>,
}

impl CollectorSink {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let requests = Arc::<AtomicU64>::default();
        let count = requests.clone();
        // The task ends with the process.
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let count = count.clone();
                let take = service_fn(move |request: Request<Incoming>| {
                    let count = count.clone();
                    async move {
                        request.into_body().collect().await?;
                        count.fetch_add(1, Ordering::Relaxed);
                        Ok::<_, hyper::Error>(Response::new(Empty::<Bytes>::new()))
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), take));
            }
        });
        Ok(Self { url, requests })
    }
}
