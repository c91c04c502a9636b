//! The time from a change of an upstream to the last of thousands of listening clients, and the
//! cost of an open stream.
//!
//! It is measured on weir and on the upstream itself. The upstream notifies its own listeners
//! without any catalog: the lower bound.

use super::settle;
use crate::client::LoadClient;
use crate::listener_fleet::FleetReport;
use crate::machine::MachineFacts;
use crate::process::ChildProcess;
use crate::protocol::Era;
use crate::report::ReportTable;
use crate::settings::{RunSettings, TargetKind};
use crate::stats::{as_float, median};
use crate::test_bed::{BenchUpstream, TestBed};
use crate::upstream::upstream_shape::UpstreamShape;
use anyhow::{Result, ensure};
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Streams opened before memory is first read, so that pools and tables have grown.
const WARM: usize = 100;
/// The most time until the last listener is notified.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(20);

/// Connections that weir allows by default.
const DEFAULT_CONNECTION_LIMIT: usize = 18_000;
/// Connections beside those of the listeners: for metrics, changes and lists.
const OTHER_CONNECTIONS: usize = 500;

const COLUMNS: &[(&str, &str)] = &[
    ("target", "target"),
    ("client", "client"),
    ("listeners", "listeners"),
    ("open_s", "opened in s"),
    ("stream_kib", "KiB/stream"),
    ("p50_ms", "told p50 ms"),
    ("p99_ms", "p99 ms"),
    ("last_ms", "last ms"),
    ("worst_ms", "worst ms"),
    ("extra", "extra"),
    ("missing", "missing"),
    ("errors", "errors"),
];

#[derive(Serialize)]
struct FanoutRow {
    target: TargetKind,
    client: Era,
    listeners: usize,
    open_s: f64,
    /// Resident memory of the target for one more stream; for a legacy one with its session.
    stream_kib: f64,
    /// Medians over the changes.
    p50_ms: f64,
    p99_ms: f64,
    last_ms: f64,
    /// The last listener of the slowest change.
    worst_ms: f64,
    /// Notifications beyond one a change and stream.
    extra: usize,
    /// Listeners that were not notified of a change.
    missing: usize,
    errors: usize,
    error: Option<String>,
}

/// Measures every number of listeners in both eras.
///
/// # Errors
/// A process that does not start, or ends.
pub(crate) async fn run(given: &RunSettings, machine: &MachineFacts) -> Result<ReportTable> {
    let title = format!(
        "from an upstream's change to its listeners, medians of {} changes",
        given.changes
    );
    let mut table = ReportTable::new("fanout", title, COLUMNS);
    let most = machine.connections();
    for wanted in &given.listeners {
        let listeners = (*wanted).min(most);
        if listeners < *wanted {
            table.note(format!(
                "SCALED DOWN: {wanted} listeners to {listeners}, a process may open {} files",
                machine.open_files
            ));
        }
        let settings = roomy(given, listeners);
        if settings.weir_config_extra != given.weir_config_extra {
            table.note(format!(
                "weir ran with limits.connections raised to {} for {listeners}",
                listeners + OTHER_CONNECTIONS
            ));
        }
        for era in [Era::Modern, Era::Legacy] {
            for kind in [TargetKind::Weir, TargetKind::Direct] {
                if settings.has(kind) {
                    table.row(&one(&settings, kind, era, listeners).await?)?;
                }
            }
        }
    }
    table.note("direct: the upstream tells its listeners itself, without a catalog to refresh");
    table.note(
        "kernel memory of sockets is not in KiB/stream; a legacy stream includes its session",
    );
    table.note("aims: 19,000 told in under 500 ms at p99, at most 24 KiB a stream");
    Ok(table)
}

/// Returns the settings, with weir's limit of connections raised if the listeners need it and the
/// run did not set limits itself.
fn roomy(given: &RunSettings, listeners: usize) -> RunSettings {
    let mut settings = given.clone();
    if listeners + OTHER_CONNECTIONS > DEFAULT_CONNECTION_LIMIT
        && !settings.weir_config_extra.contains("limits:")
    {
        settings.weir_config_extra += &format!(
            "limits: {{ connections: {} }}\n",
            listeners + OTHER_CONNECTIONS
        );
    }
    settings
}

async fn one(
    settings: &RunSettings,
    kind: TargetKind,
    era: Era,
    listeners: usize,
) -> Result<FanoutRow> {
    let upstreams = BenchUpstream::many(era, 1);
    let shape = UpstreamShape {
        servers: 1,
        tools: 50,
        page: 100,
    };
    let mut stage = TestBed::start(settings, &[kind], shape, &upstreams).await?;
    let (addr, path) = stage.list_address(kind, &upstreams[0])?;
    let args = [
        "fleet".to_owned(),
        format!("--addr={addr}"),
        format!("--path={path}"),
        format!("--era={}", era.word()),
    ];
    let mut fleet = ChildProcess::this("fleet", args, &stage.file("fleet.log"))?;
    let warm = WARM.min(listeners / 2);
    ask(&mut fleet, &format!("open {warm}")).await?;
    settle(settings).await;
    let before = stage.process(kind)?.resident()?;
    let opened = open(&mut fleet, listeners - warm).await?;
    settle(settings).await;
    let after = stage.process(kind)?.resident()?;
    let mut row = FanoutRow {
        target: kind,
        client: era,
        listeners,
        open_s: opened.as_secs_f64(),
        stream_kib: as_float(after.saturating_sub(before))
            / 1024.0
            / as_float((listeners - warm) as u64),
        p50_ms: 0.0,
        p99_ms: 0.0,
        last_ms: 0.0,
        worst_ms: 0.0,
        extra: 0,
        missing: 0,
        errors: 0,
        error: None,
    };
    changes(settings, &stage, &mut fleet, &mut row).await?;
    check_listed(&stage, kind, &upstreams[0], settings.changes, &mut row).await?;
    stage.check()?;
    fleet.stop().await;
    stage.stop().await;
    Ok(row)
}

/// Opens streams by the thousand, because one answer of the fleet may take only so long.
async fn open(fleet: &mut ChildProcess, mut count: usize) -> Result<Duration> {
    let start = Instant::now();
    while count > 0 {
        let some = count.min(1_000);
        ask(fleet, &format!("open {some}")).await?;
        count -= some;
    }
    Ok(start.elapsed())
}

async fn changes(
    settings: &RunSettings,
    stage: &TestBed,
    fleet: &mut ChildProcess,
    row: &mut FanoutRow,
) -> Result<()> {
    let mut told = Vec::new();
    for _ in 0..settings.changes {
        sleep(Duration::from_millis(settings.change_gap_ms)).await;
        ask(fleet, "arm").await?;
        let at = stage.control("change", 0).await?;
        ask(fleet, &format!("wait {}", NOTIFY_TIMEOUT.as_millis())).await?;
        // A second notification arrives within the gap.
        sleep(Duration::from_millis(settings.change_gap_ms / 2)).await;
        let now = ask(fleet, "wait 0").await?;
        row.extra += now.extra;
        row.missing += row.listeners - now.told;
        row.errors = row.missing + now.broken;
        row.error.clone_from(&now.error);
        told.push((at, now));
    }
    let millis = |pick: fn(&FleetReport) -> u64| -> Vec<f64> {
        told.iter()
            .map(|(at, told)| as_float(pick(told).saturating_sub(*at)) / 1_000.0)
            .collect()
    };
    row.p50_ms = median(millis(|told| told.p50_at));
    row.p99_ms = median(millis(|told| told.p99_at));
    row.last_ms = median(millis(|told| told.last_at));
    row.worst_ms = millis(|told| told.last_at).into_iter().fold(0.0, f64::max);
    if row.missing > 0 {
        row.error.get_or_insert_with(|| {
            format!(
                "{} listeners were not told within {NOTIFY_TIMEOUT:?}",
                row.missing
            )
        });
    }
    Ok(())
}

/// Checks that the new tool is listed after the notification.
async fn check_listed(
    stage: &TestBed,
    kind: TargetKind,
    upstream: &BenchUpstream,
    changes: usize,
    row: &mut FanoutRow,
) -> Result<()> {
    let (addr, path) = stage.list_address(kind, upstream)?;
    let mut client = LoadClient::connect(addr, &path, row.client).await?;
    let fresh = format!("fresh_{changes}");
    if !client
        .names()
        .await?
        .iter()
        .any(|name| name.ends_with(&fresh))
    {
        row.errors += 1;
        row.error
            .get_or_insert_with(|| format!("{fresh} is not listed after the change was told"));
    }
    client.close().await
}

async fn ask(fleet: &mut ChildProcess, command: &str) -> Result<FleetReport> {
    let told: FleetReport = serde_json::from_str(&fleet.ask(command).await?)?;
    ensure!(
        told.open > 0,
        "no stream is open: {}",
        told.error.as_deref().unwrap_or("no reason given")
    );
    Ok(told)
}
