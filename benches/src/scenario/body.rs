//! Peak memory against the size of a request body, one request at a time on a fresh process.
//!
//! The answer is small (a length and a sum), so that only the request is measured. A refused body
//! is measured all the same: refusing must not cost more than serving.

use super::settle;
use crate::client::LoadClient;
use crate::load_clients::message;
use crate::protocol::{self, Era};
use crate::report::ReportTable;
use crate::settings::{RunSettings, TargetKind};
use crate::stats::as_float;
use crate::test_bed::{BenchUpstream, TestBed};
use crate::upstream::answers::measure;
use crate::upstream::upstream_shape::UpstreamShape;
use anyhow::Result;
use serde::Serialize;

/// weir's default limit of a body; beyond it, and for arrays, which have another limit, a refusal
/// is a right answer.
const DEFAULT_BODY_LIMIT: usize = 1 << 20;
/// Small calls before the baseline is read.
const WARM: u64 = 50;

const COLUMNS: &[(&str, &str)] = &[
    ("target", "target"),
    ("client", "client"),
    ("shape", "arguments"),
    ("body_kib", "body KiB"),
    ("peak_kib", "peak grew KiB"),
    ("times", "times body"),
    ("outcome", "outcome"),
    ("errors", "errors"),
];

/// The content of the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum ArgumentsFilling {
    /// One long string.
    Text,
    /// An array of zeros: the worst case of a parser into values.
    Array,
}

#[derive(Serialize)]
struct BodyRow {
    target: TargetKind,
    client: Era,
    shape: ArgumentsFilling,
    body_kib: f64,
    peak_kib: f64,
    times: f64,
    outcome: &'static str,
    errors: u64,
    error: Option<String>,
    /// The text of a refusal.
    refusal: Option<String>,
}

/// Sends each size and filling, in both eras, to weir and to the pipe.
///
/// # Errors
/// A process or a connection that does not start, or ends.
pub(crate) async fn run(settings: &RunSettings) -> Result<ReportTable> {
    let mut table = ReportTable::new(
        "body",
        "peak of resident memory while one request is served".to_owned(),
        COLUMNS,
    );
    for kind in [TargetKind::Weir, TargetKind::Pipe] {
        if !settings.has(kind) {
            continue;
        }
        for size in &settings.bodies {
            for filling in [ArgumentsFilling::Text, ArgumentsFilling::Array] {
                for era in [Era::Modern, Era::Legacy] {
                    table.row(&one(settings, kind, era, filling, *size).await?)?;
                }
            }
        }
    }
    table.note("a fresh process each, warmed by small calls; RSS is counted in steps of some 100 KiB by the kernel");
    table.note(
        "with transparent huge pages the allocator's memory grows by 2 MiB at a time: MIMALLOC_ALLOW_THP=0 shows less",
    );
    table.note("aim: at most 4 times the body");
    Ok(table)
}

async fn one(
    settings: &RunSettings,
    kind: TargetKind,
    era: Era,
    filling: ArgumentsFilling,
    size: usize,
) -> Result<BodyRow> {
    let upstreams = BenchUpstream::many(era, 1);
    let shape = UpstreamShape {
        servers: 1,
        tools: 50,
        page: 50,
    };
    let mut stage = TestBed::start(settings, &[kind], shape, &upstreams).await?;
    let site = stage.tool_address(kind, &upstreams[0], "measure")?;
    let mut client = LoadClient::connect(site.addr, &site.path, era).await?;
    for number in 0..WARM {
        let arguments = format!(r#"{{"message":"{}"}}"#, message(0, number, 0));
        client.call(&site, &arguments, &measure(&arguments)).await?;
    }
    settle(settings).await;
    let overhead = protocol::call(era, WARM + 10, &site.tool, "").len();
    let arguments = filling.arguments(size.saturating_sub(overhead));
    let process = stage.process(kind)?;
    process.reset_peak()?;
    let before = process.resident()?;
    let called = client.call(&site, &arguments, &measure(&arguments)).await;
    let grew = process.peak()?.saturating_sub(before);
    let may_refuse = kind == TargetKind::Weir
        && (size > DEFAULT_BODY_LIMIT || filling == ArgumentsFilling::Array);
    let (outcome, error, refusal) = match called {
        Ok(()) => ("served", None, None),
        Err(error) if may_refuse => ("refused", None, Some(format!("{error:#}"))),
        Err(error) => ("failed", Some(format!("{error:#}")), None),
    };
    stage.check()?;
    stage.stop().await;
    Ok(BodyRow {
        target: kind,
        client: era,
        shape: filling,
        body_kib: as_float(size as u64) / 1024.0,
        peak_kib: as_float(grew) / 1024.0,
        times: as_float(grew) / as_float(size as u64),
        outcome,
        errors: u64::from(error.is_some()),
        error,
        refusal,
    })
}

impl ArgumentsFilling {
    /// Returns a JSON object of about `size` bytes, never more.
    fn arguments(self, size: usize) -> String {
        match self {
            Self::Text => format!(r#"{{"text":"{}"}}"#, "x".repeat(size.saturating_sub(11))),
            Self::Array => format!(
                r#"{{"items":[{}0]}}"#,
                "0,".repeat(size.saturating_sub(13) / 2)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn arguments_are_json_of_the_size_asked_for() {
        for filling in [ArgumentsFilling::Text, ArgumentsFilling::Array] {
            let arguments = filling.arguments(5_000);
            serde_json::from_str::<serde_json::Value>(&arguments).unwrap();
            assert!(
                (4_990..=5_000).contains(&arguments.len()),
                "{}",
                arguments.len()
            );
        }
    }
}
