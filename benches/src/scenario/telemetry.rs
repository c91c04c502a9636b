//! What telemetry costs: one weir that measures nothing, and one that measures everything, tells of one request in a hundred and
//! pushes both to a collector on loopback, called in turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::load::{Crew, Lane, Work, in_turns};
use crate::protocol::Era;
use crate::report::Table;
use crate::settings::{Kind, Settings};
use crate::stage::{Stage, Upstream};
use crate::stats::Round;
use crate::upstream::Shape;
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
struct Row {
    era: Era,
    concurrency: usize,
    telemetry: &'static str,
    #[serde(flatten)]
    medians: Round,
    /// Throughput over that without telemetry in the same round, the median of these.
    of_silent: Option<f64>,
    error: Option<String>,
    rounds: Vec<Round>,
}

/// One of the two weirs.
struct Telling {
    telemetry: &'static str,
    stage: Stage,
}

/// How long the first push may take: several times its interval.
const FIRST_PUSH: Duration = Duration::from_secs(10);

/// Nothing is measured and nothing told.
const SILENT: &str = "telemetry: { metrics: { enabled: false } }\n";

/// Measures both eras at every concurrency.
///
/// # Errors
/// A process or a connection that does not start, or ends.
pub(crate) async fn run(settings: &Settings) -> Result<Table> {
    let title = format!(
        "tools/call without and with metrics, traces of 1 % and OTLP, medians of {} rounds of {} ms",
        settings.rounds, settings.round_ms
    );
    let mut table = Table::new("telemetry", title, COLUMNS);
    if !settings.has(Kind::Weir) {
        table.note("weir is not measured");
        return Ok(table);
    }
    let sink = Sink::start().await?;
    let told =
        format!("telemetry: {{ traces: {{ sample: 0.01 }}, otlp: {{ endpoint: \"{}\", interval: 1s }} }}\n", sink.url);
    let mut weirs = [
        Telling { telemetry: "off", stage: stage(settings, SILENT).await? },
        Telling { telemetry: "on", stage: stage(settings, &told).await? },
    ];
    for era in [Era::Modern, Era::Legacy] {
        for concurrency in &settings.concurrency {
            for row in cell(settings, &weirs, era, *concurrency).await? {
                table.row(&row)?;
            }
            for weir in &mut weirs {
                weir.stage.check()?;
            }
        }
    }
    // A short run is over before the first push is due.
    let first = async {
        while sink.requests.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // What there is, is said below.
    let _ = tokio::time::timeout(FIRST_PUSH, first).await;
    for weir in weirs {
        // The last metrics and spans are sent at the end.
        weir.stage.stop().await;
    }
    let requests = sink.requests.load(Ordering::Relaxed);
    ensure!(requests > 0, "nothing was pushed");
    table.note(format!("{requests} requests to the collector; aim: 0.95 of the throughput without telemetry"));
    Ok(table)
}

/// A collector that takes everything and looks at nothing.
struct Sink {
    url: String,
    requests: Arc<AtomicU64>,
}

impl Sink {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let requests = Arc::<AtomicU64>::default();
        let count = requests.clone();
        // It ends with the process.
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

async fn stage(settings: &Settings, extra: &str) -> Result<Stage> {
    let upstreams = upstreams();
    let mut settings = settings.clone();
    settings.weir_config_extra.push_str(extra);
    let shape = Shape { servers: 1, tools: 50, page: 50 };
    Stage::start_for(None, &settings, &[Kind::Weir], shape, &upstreams).await
}

fn upstreams() -> [Upstream; 2] {
    [("m", Era::Modern), ("l", Era::Legacy)].map(|(id, era)| Upstream { id: id.to_owned(), era, index: 0 })
}

async fn cell(settings: &Settings, weirs: &[Telling; 2], era: Era, concurrency: usize) -> Result<[Row; 2]> {
    let upstream = &upstreams()[usize::from(era == Era::Legacy)];
    let mut lanes = Vec::new();
    for weir in weirs {
        let sites = [weir.stage.site(Kind::Weir, upstream, "echo")?].into();
        let crew = Crew::open(Work { sites, era, payload: settings.payload }, concurrency).await?;
        lanes.push(Lane::new(crew, weir.stage.process(Kind::Weir)?));
    }
    in_turns(&mut lanes, settings).await?;
    let of_silent = lanes[1].against(&lanes[0], |on, off| on.per_second / off.per_second);
    let row = |at: usize, of_silent| {
        let (lane, telemetry): (&Lane<'_>, _) = (&lanes[at], weirs[at].telemetry);
        let (medians, error, rounds) = (lane.medians(), lane.error.clone(), lane.rounds.clone());
        Row { era, concurrency, telemetry, medians, of_silent, error, rounds }
    };
    let rows = [row(0, None), row(1, of_silent)];
    for lane in lanes {
        lane.close().await?;
    }
    Ok(rows)
}
