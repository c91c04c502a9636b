//! Calls in thousands of legacy sessions on a server that speaks both eras.
//!
//! weir speaks to such a server in the era of its client, so a legacy session has a session of its
//! own on the server. This part measures its cost: the first call of each session, later calls,
//! descriptors and memory.

use super::settle;
use crate::load_clients::{ClientGroup, LoadWork, TargetLane, run_in_turns};
use crate::protocol::Era;
use crate::report::ReportTable;
use crate::settings::{RunSettings, TargetKind};
use crate::stats::{RoundFigures, as_float};
use crate::test_bed::{BenchUpstream, TestBed};
use crate::upstream::upstream_shape::UpstreamShape;
use anyhow::Result;
use serde::Serialize;
use std::time::Instant;

/// Connections that share the sessions, each with one call in flight.
const CONNECTIONS: usize = 40;

const COLUMNS: &[(&str, &str)] = &[
    ("target", "target"),
    ("sessions", "sessions"),
    ("opened_per_second", "opened/s"),
    ("first_per_second", "first calls/s"),
    ("per_second", "calls/s"),
    ("of_before", "of before"),
    ("p50_us", "p50 us"),
    ("p99_us", "p99 us"),
    ("cpu_us", "cpu us"),
    ("descriptors", "descriptors"),
    ("session_kib", "KiB/session"),
    ("errors", "errors"),
];

#[derive(Serialize)]
struct DualRow {
    target: TargetKind,
    #[serde(flatten)]
    opening: DualSessionOpening,
    #[serde(flatten)]
    medians: RoundFigures,
    /// Throughput over that of the earlier weir in the same round, the median of these.
    of_before: Option<f64>,
    /// Descriptors of the target, after the last round.
    descriptors: usize,
    error: Option<String>,
}

/// The cost until each session had made a call.
#[derive(Serialize)]
struct DualSessionOpening {
    sessions: usize,
    opened_per_second: f64,
    /// The rate of first calls of sessions.
    first_per_second: f64,
    /// Resident memory of the target for a session that made a call.
    session_kib: f64,
}

/// Opens the sessions on each target, calls once in each, and then in turns.
///
/// # Errors
/// A process, a connection or a session that does not start, or ends.
pub(crate) async fn run(settings: &RunSettings) -> Result<ReportTable> {
    let title = format!(
        "tools/call in legacy sessions of a server of both eras ({CONNECTIONS} in flight), medians of {} rounds of {} ms",
        settings.rounds, settings.round_ms
    );
    let mut table = ReportTable::new("dual", title, COLUMNS);
    let upstream = BenchUpstream {
        both: true,
        ..BenchUpstream::one("u", Era::Legacy)
    };
    let shape = UpstreamShape {
        servers: 1,
        tools: 50,
        page: 50,
    };
    let upstreams = std::slice::from_ref(&upstream);
    let mut stage = TestBed::start(
        settings,
        &[TargetKind::Weir, TargetKind::Before, TargetKind::Direct],
        shape,
        upstreams,
    )
    .await?;
    let kinds = stage.kinds(settings);
    let (mut lanes, mut openings) = (Vec::new(), Vec::new());
    for kind in &kinds {
        let (crew, opening) = open(settings, &stage, &upstream, *kind).await?;
        lanes.push(TargetLane::new(crew, stage.process(*kind)?));
        openings.push(opening);
    }
    run_in_turns(&mut lanes, settings).await?;
    let before = kinds.iter().position(|kind| *kind == TargetKind::Before);
    for ((target, lane), opening) in kinds.iter().zip(&lanes).zip(openings) {
        let before = before.filter(|_| *target == TargetKind::Weir);
        table.row(&DualRow {
            target: *target,
            opening,
            medians: lane.medians(),
            of_before: before.and_then(|at| {
                lane.against(&lanes[at], |ours, theirs| {
                    ours.per_second / theirs.per_second
                })
            }),
            descriptors: stage.process(*target)?.descriptors()?,
            error: lane.error.clone(),
        })?;
    }
    drop(lanes);
    stage.check()?;
    stage.stop().await;
    table.note("direct: the upstream itself, whose one process serves the other targets too");
    Ok(table)
}

async fn open(
    settings: &RunSettings,
    stage: &TestBed,
    upstream: &BenchUpstream,
    kind: TargetKind,
) -> Result<(ClientGroup, DualSessionOpening)> {
    let process = stage.process(kind)?;
    let connections = CONNECTIONS.min(settings.dual_sessions);
    let each = settings.dual_sessions / connections;
    let sites = [stage.tool_address(kind, upstream, "echo")?].into();
    let work = LoadWork {
        sites,
        era: Era::Legacy,
        sessions: each,
        payload: settings.payload,
    };
    let before = process.resident()?;
    let start = Instant::now();
    let mut crew = ClientGroup::open(work, connections).await?;
    let opened = start.elapsed();
    crew.call_in_each_session().await?;
    let called = start.elapsed() - opened;
    settle(settings).await;
    let sessions = connections * each;
    let count = as_float(sessions as u64);
    let opening = DualSessionOpening {
        sessions,
        opened_per_second: count / opened.as_secs_f64(),
        first_per_second: count / called.as_secs_f64(),
        session_kib: as_float(process.resident()?.saturating_sub(before)) / 1024.0 / count,
    };
    Ok((crew, opening))
}
