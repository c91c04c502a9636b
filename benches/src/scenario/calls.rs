//! Throughput and latency of `tools/call`: weir, the raw pipe, nginx and the upstream in turns.
//!
//! If client and upstream differ in era, all but weir are called in the upstream's era, as by a
//! client that needs no weir.

use crate::load_clients::{ClientGroup, LoadWork, TargetLane, run_in_turns};
use crate::protocol::Era;
use crate::report::ReportTable;
use crate::settings::{RunSettings, TargetKind};
use crate::stats::RoundFigures;
use crate::test_bed::{BenchUpstream, TestBed};
use crate::upstream::upstream_shape::UpstreamShape;
use anyhow::Result;
use serde::Serialize;
use serde_json::json;

const COLUMNS: &[(&str, &str)] = &[
    ("client", "client"),
    ("upstream", "upstream"),
    ("concurrency", "in flight"),
    ("target", "target"),
    ("per_second", "calls/s"),
    ("of_before", "of before"),
    ("of_pipe", "of pipe"),
    ("p50_us", "p50 us"),
    ("added_p50_us", "added"),
    ("p99_us", "p99 us"),
    ("added_p99_us", "added"),
    ("cpu_us", "cpu us"),
    ("cpu_of_before", "of before"),
    ("calls", "calls"),
    ("errors", "errors"),
];

#[derive(Serialize)]
struct CallsRow {
    client: Era,
    upstream: Era,
    concurrency: usize,
    target: TargetKind,
    #[serde(flatten)]
    medians: RoundFigures,
    /// Throughput over that of the earlier weir in the same round, the median of these.
    of_before: Option<f64>,
    /// CPU time for one call over that of the earlier weir, likewise.
    cpu_of_before: Option<f64>,
    /// Throughput over that of the pipe in the same round, the median of these.
    of_pipe: Option<f64>,
    /// Latency above that of the upstream itself in the same round, the median of these.
    added_p50_us: Option<f64>,
    added_p99_us: Option<f64>,
    error: Option<String>,
    rounds: Vec<RoundFigures>,
}

/// Measures every pair of eras at every concurrency.
///
/// # Errors
/// A process or a connection that does not start, or ends.
pub(crate) async fn run(settings: &RunSettings) -> Result<ReportTable> {
    let title = format!(
        "tools/call ({:?} endpoint, {} bytes), medians of {} rounds of {} ms, targets in turns",
        settings.endpoint, settings.payload, settings.rounds, settings.round_ms
    );
    let mut table = ReportTable::new("calls", title, COLUMNS);
    let upstreams = BenchUpstream::of_each_era();
    let shape = UpstreamShape {
        servers: 1,
        tools: 50,
        page: 50,
    };
    let mut stage = TestBed::start(
        settings,
        &[
            TargetKind::Weir,
            TargetKind::Before,
            TargetKind::Pipe,
            TargetKind::Nginx,
            TargetKind::Direct,
        ],
        shape,
        &upstreams,
    )
    .await?;
    for (client, era) in &settings.pairs {
        for concurrency in &settings.concurrency {
            let upstream = &upstreams[usize::from(*era == Era::Legacy)];
            for row in cell(settings, &stage, *client, upstream, *concurrency).await? {
                table.row(&row)?;
            }
            if let Some(reason) = stage.missing_nginx() {
                let cell = reason.split(':').next();
                table.row(&json!({
                    "client": client, "upstream": era, "concurrency": concurrency,
                    "target": TargetKind::Nginx, "per_second": cell,
                }))?;
            }
            stage.check()?;
        }
    }
    if let Some(reason) = stage.missing_nginx() {
        table.note(format!("nginx: {reason}"));
    }
    stage.stop().await;
    table.note("added: above the upstream itself in the same round; cpu: of the target's process, for one call");
    table.note(
        "aims: weir at 0.80 of the pipe or more, added p50 under 100 us at one call in flight",
    );
    Ok(table)
}

async fn cell(
    settings: &RunSettings,
    stage: &TestBed,
    client: Era,
    upstream: &BenchUpstream,
    size: usize,
) -> Result<Vec<CallsRow>> {
    let kinds = stage.kinds(settings);
    let mut lanes = Vec::new();
    for kind in &kinds {
        let era = if matches!(kind, TargetKind::Weir | TargetKind::Before) {
            client
        } else {
            upstream.era
        };
        let sites = [stage.tool_address(*kind, upstream, "echo")?].into();
        let crew = ClientGroup::open(
            LoadWork {
                sites,
                era,
                sessions: 1,
                payload: settings.payload,
            },
            size,
        )
        .await?;
        lanes.push(TargetLane::new(crew, stage.process(*kind)?));
    }
    run_in_turns(&mut lanes, settings).await?;
    let named: Vec<_> = kinds.into_iter().zip(&lanes).collect();
    let rows = named
        .iter()
        .map(|lane| row(*lane, &named, client, upstream.era, size))
        .collect();
    for lane in lanes {
        lane.close().await?;
    }
    Ok(rows)
}

/// A target and its lane.
type NamedLane<'a> = (TargetKind, &'a TargetLane<'a>);

fn row(
    (target, lane): NamedLane<'_>,
    lanes: &[NamedLane<'_>],
    client: Era,
    upstream: Era,
    concurrency: usize,
) -> CallsRow {
    let against = |kind: TargetKind, compare: fn(&RoundFigures, &RoundFigures) -> f64| {
        let (_, other) = lanes
            .iter()
            .find(|(other, _)| *other == kind && target != kind)?;
        lane.against(other, compare)
    };
    CallsRow {
        client,
        upstream,
        concurrency,
        target,
        medians: lane.medians(),
        of_before: against(TargetKind::Before, |ours, theirs| {
            ours.per_second / theirs.per_second
        }),
        cpu_of_before: against(TargetKind::Before, |ours, theirs| {
            ours.cpu_us / theirs.cpu_us
        }),
        of_pipe: against(TargetKind::Pipe, |ours, theirs| {
            ours.per_second / theirs.per_second
        }),
        added_p50_us: against(TargetKind::Direct, |ours, theirs| {
            ours.p50_us - theirs.p50_us
        }),
        added_p99_us: against(TargetKind::Direct, |ours, theirs| {
            ours.p99_us - theirs.p99_us
        }),
        error: lane.error.clone(),
        rounds: lane.rounds.clone(),
    }
}
