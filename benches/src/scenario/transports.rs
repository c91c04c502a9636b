//! `tools/call` over each transport towards an upstream: HTTP/1.1, HTTP/2, TLS, and standard
//! streams of a child process.
//!
//! Beyond HTTP/1.1 the server is weir itself, which forwards to the upstream: a second weir without
//! and with TLS, and `weir stdio`. So a row counts what both ends of a transport take.

use crate::load_clients::{ClientGroup, LoadWork, TargetLane, run_in_turns};
use crate::process::ChildProcess;
use crate::protocol::Era;
use crate::report::ReportTable;
use crate::settings::{RunSettings, TargetKind};
use crate::stats::RoundFigures;
use crate::test_bed::{BenchUpstream, TestBed, free_ports};
use crate::upstream::upstream_shape::UpstreamShape;
use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// The most time until the server with TLS listens.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of attempts to connect.
const LISTEN_POLL_INTERVAL: Duration = Duration::from_millis(20);

const COLUMNS: &[(&str, &str)] = &[
    ("era", "client, upstream"),
    ("concurrency", "in flight"),
    ("transport", "transport"),
    ("per_second", "calls/s"),
    ("of_http1", "of http1"),
    ("p50_us", "p50 us"),
    ("p99_us", "p99 us"),
    ("cpu_us", "cpu us"),
    ("calls", "calls"),
    ("errors", "errors"),
];

/// A transport between weir and its upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Transport {
    /// HTTP/1.1 to the upstream itself.
    Http1,
    /// HTTP/2 without TLS to a second weir.
    Http2,
    /// HTTP/2 with TLS to a second weir.
    Tls,
    /// Standard streams of `weir stdio`.
    Stdio,
}

const TRANSPORTS: [Transport; 4] = [
    Transport::Http1,
    Transport::Http2,
    Transport::Tls,
    Transport::Stdio,
];

#[derive(Serialize)]
struct TransportRow {
    era: Era,
    concurrency: usize,
    transport: Transport,
    #[serde(flatten)]
    medians: RoundFigures,
    /// Throughput over that of HTTP/1.1 in the same round, the median of these.
    of_http1: Option<f64>,
    error: Option<String>,
    rounds: Vec<RoundFigures>,
}

/// The servers that the measured weirs call.
struct TransportServers {
    /// The upstream, with a weir in front of it.
    behind: TestBed,
    /// A weir with TLS in front of the same upstream.
    tls: (ChildProcess, SocketAddr),
}

/// Measures both eras at every concurrency.
///
/// # Errors
/// A process or a connection that does not start, or ends.
pub(crate) async fn run(settings: &RunSettings) -> Result<ReportTable> {
    let title = format!(
        "tools/call by the transport to the upstream, medians of {} rounds of {} ms",
        settings.rounds, settings.round_ms
    );
    let mut table = ReportTable::new("transports", title, COLUMNS);
    if !settings.has(TargetKind::Weir) {
        table.note("weir is not measured");
        return Ok(table);
    }
    let servers = TransportServers::start(settings).await?;
    let mut stages = Vec::new();
    for transport in TRANSPORTS {
        stages.push(servers.stage(settings, transport).await?);
    }
    for era in [Era::Modern, Era::Legacy] {
        for concurrency in &settings.concurrency {
            for row in cell(settings, &stages, era, *concurrency).await? {
                table.row(&row)?;
            }
            for stage in &mut stages {
                stage.check()?;
            }
        }
    }
    for stage in stages {
        stage.stop().await;
    }
    servers.stop().await;
    table.note("http2, tls and stdio pass through a second weir; cpu: of the first one");
    Ok(table)
}

async fn cell(
    settings: &RunSettings,
    stages: &[TestBed],
    era: Era,
    concurrency: usize,
) -> Result<Vec<TransportRow>> {
    let upstream = &BenchUpstream::of_each_era()[usize::from(era == Era::Legacy)];
    let mut lanes = Vec::new();
    for stage in stages {
        let sites = [stage.tool_address(TargetKind::Weir, upstream, "echo")?].into();
        let work = LoadWork {
            sites,
            era,
            sessions: 1,
            payload: settings.payload,
        };
        let crew = ClientGroup::open(work, concurrency).await?;
        lanes.push(TargetLane::new(crew, stage.process(TargetKind::Weir)?));
    }
    run_in_turns(&mut lanes, settings).await?;
    let rows = TRANSPORTS
        .into_iter()
        .zip(&lanes)
        .map(|(transport, lane)| TransportRow {
            era,
            concurrency,
            transport,
            medians: lane.medians(),
            of_http1: (transport != Transport::Http1)
                .then(|| lane.against(&lanes[0], |ours, http1| ours.per_second / http1.per_second))
                .flatten(),
            error: lane.error.clone(),
            rounds: lane.rounds.clone(),
        })
        .collect();
    for lane in lanes {
        lane.close().await?;
    }
    Ok(rows)
}

impl TransportServers {
    async fn start(settings: &RunSettings) -> Result<Self> {
        let behind = TestBed::start(
            settings,
            &[TargetKind::Weir],
            shape(),
            &BenchUpstream::of_each_era(),
        )
        .await?;
        let tls = start_with_tls(settings, &behind).await?;
        Ok(Self { behind, tls })
    }

    /// Starts a weir that reaches its upstreams by this transport.
    async fn stage(&self, settings: &RunSettings, transport: Transport) -> Result<TestBed> {
        let mut upstreams = BenchUpstream::of_each_era();
        for upstream in &mut upstreams {
            upstream.connection = self.connection(settings, transport, upstream)?;
        }
        TestBed::start(settings, &[TargetKind::Weir], shape(), &upstreams).await
    }

    /// The config keys of an upstream that is reached by this transport; none for its own URL.
    fn connection(
        &self,
        settings: &RunSettings,
        transport: Transport,
        upstream: &BenchUpstream,
    ) -> Result<Option<String>> {
        let plain = self.behind.tool_address(TargetKind::Weir, upstream, "")?;
        Ok(match transport {
            Transport::Http1 => None,
            Transport::Http2 => Some(format!(
                "url: \"http://{}/mcp/{}\", h2c: true",
                plain.addr, upstream.id
            )),
            Transport::Tls => Some(format!(
                "url: \"https://localhost:{}/mcp/{}\", ca_file: {}",
                self.tls.1.port(),
                upstream.id,
                json!(self.behind.file("cert.pem"))
            )),
            Transport::Stdio => Some(format!(
                "command: {}, args: [stdio, \"{}\"]",
                json!(settings.weir),
                self.behind.upstream_url(upstream)
            )),
        })
    }

    async fn stop(self) {
        self.tls.0.stop().await;
        self.behind.stop().await;
    }
}

const fn shape() -> UpstreamShape {
    UpstreamShape {
        servers: 1,
        tools: 50,
        page: 50,
    }
}

/// Starts a weir with TLS in front of the upstream of `behind`, and waits until it listens.
async fn start_with_tls(
    settings: &RunSettings,
    behind: &TestBed,
) -> Result<(ChildProcess, SocketAddr)> {
    let [listen, admin] = free_ports()?;
    let (cert, key) = certificate(behind)?;
    let mut config = format!(
        "listen: \"{listen}\"\nadmin: {{ listen: \"{admin}\" }}\ntls: {{ cert: {}, key: {} }}\nupstreams:\n",
        json!(cert),
        json!(key)
    );
    for upstream in &BenchUpstream::of_each_era() {
        config += &format!(
            "  {}: {{ url: \"{}\" }}\n",
            upstream.id,
            behind.upstream_url(upstream)
        );
    }
    let file = behind.file("tls.yaml");
    fs::write(&file, config)?;
    let args = [Path::new("serve"), Path::new("--config"), &file];
    let log = behind.file("tls.log");
    let mut process = ChildProcess::spawn("weir with TLS", &settings.weir, args, &log)?
        .graceful(settings.graceful);
    let deadline = Instant::now() + LISTEN_TIMEOUT;
    while TcpStream::connect(listen).await.is_err() {
        let read_log = || fs::read_to_string(&log).unwrap_or_default();
        process.check().with_context(read_log)?;
        ensure!(Instant::now() < deadline, "weir with TLS does not listen");
        sleep(LISTEN_POLL_INTERVAL).await;
    }
    Ok((process, listen))
}

/// Writes a certificate of localhost and its key; returns their files.
fn certificate(stage: &TestBed) -> Result<(std::path::PathBuf, std::path::PathBuf)> {
    let names = ["localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
    let (cert, key) = (stage.file("cert.pem"), stage.file("key.pem"));
    fs::write(&cert, made.cert.pem())?;
    fs::write(&key, made.signing_key.serialize_pem())?;
    Ok((cert, key))
}
