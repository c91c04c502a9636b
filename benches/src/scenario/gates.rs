//! The cost of the access checks. One weir has none; the other has OAuth tokens, 1,000 rules,
//! limits, schema checks and an audit file. They are called in turns.
//!
//! The tokens are signed by a provider on loopback, and weir verifies each once: the measurement is
//! of calls after the first.

use super::weir_pair::{PairHalf, PairMeasurement, WeirPair};
use crate::report::ReportTable;
use crate::settings::{RunSettings, TargetKind};
use anyhow::{Result, ensure};
use http::HeaderValue;
use serde::Serialize;
use serde_json::json;
use std::fmt::Write as _;
use weir_testkit::IdentityProvider;

/// Rules of the policy.
const RULES: usize = 1_000;
/// The audience of the tokens. The port in an endpoint's own URL is not known beforehand.
const AUDIENCE: &str = "https://weir.example/mcp";

const COLUMNS: &[(&str, &str)] = &[
    ("era", "client, upstream"),
    ("concurrency", "in flight"),
    ("gates", "gates"),
    ("per_second", "calls/s"),
    ("of_open", "of open"),
    ("p50_us", "p50 us"),
    ("p99_us", "p99 us"),
    ("cpu_us", "cpu us"),
    ("calls", "calls"),
    ("errors", "errors"),
];

#[derive(Serialize)]
struct GatesRow {
    gates: &'static str,
    #[serde(flatten)]
    measured: PairMeasurement,
    /// Throughput over that without checks in the same round, the median of these.
    of_open: Option<f64>,
}

/// Measures both eras at every concurrency.
///
/// # Errors
/// A process or a connection that does not start, or ends.
pub(crate) async fn run(settings: &RunSettings) -> Result<ReportTable> {
    let title = format!(
        "tools/call without and with tokens, {RULES} rules, limits, schema checks and audit, medians of {} rounds of {} ms",
        settings.rounds, settings.round_ms
    );
    let mut table = ReportTable::new("gates", title, COLUMNS);
    if !settings.has(TargetKind::Weir) {
        table.note("weir is not measured");
        return Ok(table);
    }
    let idp = IdentityProvider::start().await;
    let halves = [
        PairHalf {
            credential: None,
            config: OPEN_CONFIG,
        },
        PairHalf {
            credential: Some(credential(&idp)?),
            config: &guarded(&idp),
        },
    ];
    let mut weirs = WeirPair::start(settings, halves).await?;
    weirs
        .measure(settings, |[open, all], of_open| {
            table.row(&GatesRow {
                gates: "open",
                measured: open,
                of_open: None,
            })?;
            table.row(&GatesRow {
                gates: "all",
                measured: all,
                of_open,
            })
        })
        .await?;
    let records = weirs.with().file("audit.jsonl");
    ensure!(
        std::fs::metadata(&records).is_ok_and(|file| file.len() > 0),
        "nothing was recorded"
    );
    weirs.stop().await;
    table.note("aim: 0.75 of the throughput without gates");
    Ok(table)
}

/// The config without authentication and validation.
const OPEN_CONFIG: &str = "validation: { input: off, output: off }\n";

/// The config with all checks. The limits are so high that no call of a run reaches them.
fn guarded(idp: &IdentityProvider) -> String {
    let mut rules = String::new();
    for team in 0..RULES - 2 {
        // Writing into a String cannot fail.
        let _ = writeln!(
            rules,
            "    permit(principal in Group::\"team-{team}\", action, resource in Upstream::\"m\");"
        );
    }
    format!(
        "auth: {{ mode: oauth, issuers: [{{ issuer: \"{}\", audience: [\"{AUDIENCE}\"] }}] }}\n\
         validation: {{ input: enforce, output: enforce }}\n\
         rates:\n  \
           principal: {{ rate: 1000000/s, burst: 1000000 }}\n  \
           tools: {{ \"*/echo\": {{ rate: 1000000/s, burst: 1000000, cost: 1 }} }}\n  \
           upstreams: {{ m: {{ rate: 1000000/s }}, l: {{ rate: 1000000/s }} }}\n  \
           concurrency: {{ principal: 1000 }}\n\
         limits: {{ sessions_per_principal: 1000 }}\n\
         audit: {{ file: {{ path: audit.jsonl, rotate: {{ size: 64MiB, keep: 2 }} }} }}\n\
         policy:\n  inline: |\n{rules}    \
           permit(principal in Group::\"load\", action, resource);\n    \
           forbid(principal, action == Action::\"call\", resource == Tool::\"m/echo\") when {{\n      \
             context.arguments.hasTag(\"/message\") && context.arguments.getTag(\"/message\") like \"never*\" }};\n",
        idp.issuer()
    )
}

/// A token that outlives the run.
fn credential(idp: &IdentityProvider) -> Result<HeaderValue> {
    let mut claims = idp.claims("load", AUDIENCE);
    claims["groups"] = json!(["load", "team-1", "team-2"]);
    claims["exp"] = json!(claims["iat"].as_u64().unwrap_or_default() + 6 * 3600);
    Ok(format!("Bearer {}", idp.signer().token(&claims)).try_into()?)
}
