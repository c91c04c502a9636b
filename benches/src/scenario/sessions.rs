//! The cost of an idle legacy session.

use super::settle;
use crate::client::LoadClient;
use crate::protocol::Era;
use crate::report::ReportTable;
use crate::settings::{RunSettings, TargetKind};
use crate::stats::as_float;
use crate::test_bed::{BenchUpstream, TestBed};
use crate::upstream::upstream_shape::UpstreamShape;
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::time::Instant;

/// Connections over which the sessions are opened, closed before memory is read.
const CONNECTIONS: usize = 8;

const COLUMNS: &[(&str, &str)] = &[
    ("target", "target"),
    ("sessions", "sessions"),
    ("opened_per_second", "opened/s"),
    ("session_kib", "KiB/session"),
    ("resident_mib", "resident MiB"),
    ("errors", "errors"),
];

#[derive(Serialize)]
struct SessionsRow {
    target: TargetKind,
    sessions: usize,
    opened_per_second: f64,
    session_kib: f64,
    resident_mib: f64,
    errors: u64,
    error: Option<String>,
}

/// Opens sessions and reads weir's memory before and after.
///
/// # Errors
/// A process that does not start, or ends.
pub(crate) async fn run(settings: &RunSettings) -> Result<ReportTable> {
    let mut table = ReportTable::new(
        "sessions",
        "idle legacy sessions, without a stream".to_owned(),
        COLUMNS,
    );
    if !settings.has(TargetKind::Weir) {
        table.note("only weir keeps sessions: not measured");
        return Ok(table);
    }
    let shape = UpstreamShape {
        servers: 1,
        tools: 50,
        page: 50,
    };
    let mut stage = TestBed::start(
        settings,
        &[TargetKind::Weir],
        shape,
        &BenchUpstream::many(Era::Modern, 1),
    )
    .await?;
    // Tables and pools grow to their working size first.
    let warm = open(&stage, settings.sessions / 20).await;
    settle(settings).await;
    let before = stage.process(TargetKind::Weir)?.resident()?;
    let start = Instant::now();
    let opened = match warm {
        Ok(()) => open(&stage, settings.sessions).await,
        failed => failed,
    };
    let elapsed = start.elapsed();
    settle(settings).await;
    let after = stage.process(TargetKind::Weir)?.resident()?;
    let sessions = as_float(settings.sessions as u64);
    table.row(&SessionsRow {
        target: TargetKind::Weir,
        sessions: settings.sessions,
        opened_per_second: sessions / elapsed.as_secs_f64(),
        session_kib: as_float(after.saturating_sub(before)) / 1024.0 / sessions,
        resident_mib: as_float(after) / 1_048_576.0,
        errors: u64::from(opened.is_err()),
        error: opened.err().map(|error| format!("{error:#}")),
    })?;
    stage.check()?;
    stage.stop().await;
    table.note("aim: at most 2 KiB a session");
    Ok(table)
}

async fn open(stage: &TestBed, count: usize) -> Result<()> {
    let (addr, path) =
        stage.list_address(TargetKind::Weir, &BenchUpstream::many(Era::Modern, 1)[0])?;
    let path = &path;
    let connection = |number: usize| async move {
        let share = count / CONNECTIONS + usize::from(number < count % CONNECTIONS);
        if share == 0 {
            return Ok(());
        }
        // The first session of a connection comes with it.
        let mut client = LoadClient::connect(addr, path, Era::Legacy).await?;
        for opened in 1..share {
            client
                .initialize()
                .await
                .with_context(|| format!("session {opened} of a connection"))?;
        }
        anyhow::Ok(())
    };
    futures_util::future::try_join_all((0..CONNECTIONS).map(connection)).await?;
    Ok(())
}
