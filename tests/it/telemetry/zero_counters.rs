//! Counters that are 0 before the first event, and the small number of their series.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use weir_testkit::{ClosedPort, MockServer};

use crate::audit::AuditFolder;
use crate::harness::{Weir, wait_until};

/// Counters with a label that the config does not determine, or of a feature that this config
/// lacks, each with its reason.
const FOUND_OUT: [(&str, &str); 23] = [
    ("weir.upstream.calls", "the revision is found out"),
    (
        "weir.outputs.cleaned",
        "a series for each kind of character and upstream",
    ),
    ("weir.secrets.found", "no upstream has patterns"),
    ("weir.results.oversized", "no upstream has a bound"),
    (
        "weir.catalog.session_walks",
        "a series for each of eight outcomes and upstream",
    ),
    ("weir.client.requests", "clients are found out"),
    ("weir.client.limited", "clients are found out"),
    ("weir.limit.decisions", "there are no rates"),
    ("weir.jwks.fetches", "there is no issuer"),
    ("weir.validation.unchecked", "schemas are found out"),
    ("weir.audit.records", "there is no audit"),
    ("weir.audit.dropped", "there is no audit"),
    ("weir.telemetry.exports", "there is no collector"),
    ("weir.telemetry.dropped", "there is no collector"),
    ("weir.list.waits", "there is no shared store"),
    ("weir.forwarded", "there is no shared store"),
    ("weir.store.commands", "there is no shared store"),
    ("weir.upstream.lease.changes", "there is no shared store"),
    ("weir.upstream.forwarded", "there is no shared store"),
    ("weir.store.fallbacks", "there is no shared store"),
    ("weir.store.dropped", "there is no shared store"),
    ("weir.store.missed", "there is no shared store"),
    ("weir.store.lost", "there is no shared store"),
];

/// Returns the samples of a scrape.
fn samples(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

#[test]
fn counters_with_config_known_labels_start_at_zero() {
    let weir = Weir::start_unready(
        json!({ "upstreams": { "one": { "command": "sleep", "args": ["1000"] } } }),
    );
    let text = weir.get_admin_page("/metrics");
    // The page is generated from the table of instruments.
    let page = include_str!("../../../docs/metrics.md");
    let cells = page.lines().map(|line| {
        line.split('|')
            .map(|cell| cell.trim().trim_matches('`'))
            .collect::<Vec<_>>()
    });
    let counters: Vec<_> = cells
        .filter(|cells| cells.get(3) == Some(&"counter"))
        .collect();
    assert!(counters.len() > FOUND_OUT.len(), "{page}");
    for counter in counters {
        let is_there = samples(&text)
            .iter()
            .any(|line| line.starts_with(counter[2]));
        let exempt = FOUND_OUT.iter().find(|(exempt, _)| *exempt == counter[1]);
        assert_eq!(
            is_there,
            exempt.is_none(),
            "{counter:?}: {exempt:?}\n{text}"
        );
    }
    for series in [
        "weir_panics_total 0",
        r#"weir_upstream_retries_total{reason="connection_lost",upstream="one"} 0"#,
    ] {
        assert!(text.lines().any(|line| line == series), "{series}\n{text}");
    }
}

/// The page of errors is generated from the table of refusals: its rows begin with status and
/// reason.
#[test]
fn refusals_of_every_reason_start_at_zero() {
    let page = include_str!("../../../docs/errors.md");
    let reasons = page.lines().filter_map(|line| {
        let (status, rest) = line.strip_prefix("| ")?.split_once(" | `")?;
        let reason = rest.split('`').next()?;
        status.parse::<u16>().is_ok().then_some(reason)
    });
    let expected: BTreeSet<String> = reasons
        .map(|reason| format!("weir_refusals_total{{reason=\"{reason}\"}} 0"))
        .collect();
    let upstreams = json!({ "one": { "command": "sleep", "args": ["1000"] } });
    let text = Weir::start_unready(json!({ "upstreams": upstreams })).get_admin_page("/metrics");
    let series = samples(&text).into_iter();
    let refusals = series.filter(|line| line.starts_with("weir_refusals_total{"));
    assert_eq!(
        refusals.map(str::to_owned).collect::<BTreeSet<_>>(),
        expected
    );
}

#[test]
fn limits_and_issuers_of_the_config_stand_at_zero_too() {
    let nowhere = ClosedPort::new();
    let issuer = format!("http://127.0.0.1:{}/", nowhere.address().port());
    let weir = Weir::start_unready(json!({
        "auth": { "mode": "oauth", "issuers": [{ "issuer": issuer, "audience": ["weir"] }] },
        "rates": { "principal": { "rate": "10/s", "daily": 100 } },
        "upstreams": { "one": { "command": "sleep", "args": ["1000"] } },
    }));
    let text = weir.get_admin_page("/metrics");
    for part in [
        r#"weir_limit_decisions_total{limit="principal",outcome="refused"} 0"#,
        r#"weir_limit_decisions_total{limit="principal",outcome="quota"} 0"#,
        r#"weir_limit_decisions_total{limit="principal",outcome="uncounted"} 0"#,
        r#"weir_limit_decisions_total{limit="principal",outcome="uncountable"} 0"#,
        r#",result="ok"} 0"#,
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn losses_of_each_audit_sink_start_at_zero() {
    let (folder, nowhere) = (AuditFolder::new("zero"), ClosedPort::new());
    let collector = format!("http://127.0.0.1:{}", nowhere.address().port());
    let weir = Weir::start_unready(json!({
        "audit": { "file": { "path": folder.file() }, "stdout": true, "otlp": { "url": collector } },
        "upstreams": {},
    }));
    let text = weir.get_admin_page("/metrics");
    for sink in ["queue", "refusals", "stdout", "otlp"] {
        let series = format!(r#"weir_audit_dropped_total{{sink="{sink}"}} 0"#);
        assert!(text.lines().any(|line| line == series), "{series}\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_upstreams_are_at_most_two_thousand_series() {
    let server = MockServer::modern().tools(1).start().await;
    let upstreams: serde_json::Map<String, Value> = (0..50)
        .map(|number| (format!("server-{number}"), json!({ "url": server.url() })))
        .collect();
    let weir = Weir::with_config(json!({ "upstreams": upstreams }));
    let is_up = |line: &&str| line.starts_with("weir_upstream_up{") && line.ends_with(" 1");
    let text = wait_until("all of them", || {
        let text = weir.get_admin_page("/metrics");
        (samples(&text).iter().filter(|line| is_up(line)).count() == 50).then_some(text)
    });
    let count = samples(&text).len();
    eprintln!("{count} series");
    assert!(count <= 2000, "{count} series");
}
