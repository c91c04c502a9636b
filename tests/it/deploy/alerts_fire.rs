//! A real Prometheus watches a real weir. On an ordinary day every panel and rule has data and no
//! alert fires. Then faults are caused, and for each of them its alert names the culprit.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::alert_rules::{alerts, rules};
use super::company_scene::{CompanyScene, LIMITED, sick, sick_config, waiting};
use super::dashboards::{BOARDS, board, panels, queries};
use super::prometheus::{Prometheus, QuerySample};
use crate::harness::{TEST_TIMEOUT, Weir};

/// The faults that are not caused here: weir has no known bug to trigger, and the scene has no
/// replicas (`replicas_board.rs` has some).
const UNMADE: [&str; 10] = [
    "WeirPanics",
    "WeirStoreDown",
    "WeirStoreDropping",
    "WeirForwardingFailing",
    "WeirSessionsLost",
    "WeirReplicaConfigDrift",
    "WeirSealingKeyMissing",
    "WeirStoreRisky",
    "WeirUpstreamWithoutOwner",
    "WeirUpstreamOwnerChanging",
];

/// Upstreams without a fault. No alert may name them.
const WELL: [&str; 2] = ["files", "notes"];

/// Returns the expected alerts: the alert, the label that names the culprit, and the culprit.
fn expected(
    scene: &CompanyScene,
    [sick, waiting]: [&Weir; 2],
) -> Vec<(&'static str, &'static str, String)> {
    let (own, other) = (instance(&scene.weir), instance(sick));
    vec![
        ("WeirUpstreamSlow", "upstream", "search".to_owned()),
        ("WeirUpstreamErrors", "upstream", "tickets".to_owned()),
        ("WeirRequestsFailing", "endpoint", "/mcp/tickets".to_owned()),
        ("WeirUpstreamDown", "upstream", "wiki".to_owned()),
        ("WeirUpstreamUrlDown", "upstream", "shop".to_owned()),
        ("WeirCatalogStale", "upstream", "wiki".to_owned()),
        ("WeirCatalogIncomplete", "upstream", "mirror".to_owned()),
        (
            "WeirToolDefinitionsChanged",
            "upstream",
            "deploys".to_owned(),
        ),
        ("WeirCallsQueueing", "upstream", "batch".to_owned()),
        ("WeirProcessesExhausted", "upstream", "robots".to_owned()),
        ("WeirClientFlooding", "limit", format!("tool:{LIMITED}")),
        ("WeirAuthFailures", "reason", "signature".to_owned()),
        ("WeirIssuerKeysUnavailable", "issuer", scene.idp.issuer()),
        ("WeirConfigReloadFailed", "instance", own),
        ("WeirAuditFailing", "instance", other.clone()),
        ("WeirAuditLosing", "instance", other.clone()),
        ("WeirMemoryShort", "instance", other.clone()),
        ("WeirDown", "instance", other),
        ("WeirNotReady", "instance", instance(waiting)),
        ("WeirConfigWeaker", "instance", instance(waiting)),
        ("WeirTeamFileLeftOut", "file", "red.json".to_owned()),
        ("WeirTeamFileBroken", "file", "blue.json".to_owned()),
    ]
}

pub fn instance(weir: &Weir) -> String {
    weir.admin_url().trim_start_matches("http://").to_owned()
}

/// Returns the file for the data of the pictures, and the time that each part of the scene lasts
/// for them.
fn pictures() -> Option<(String, Duration)> {
    std::env::var("WEIR_DASHBOARDS")
        .ok()
        .map(|file| (file, Duration::from_secs(45)))
}

fn now() -> f64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs_f64()
}

/// Polls until `done` succeeds, and at least for this time.
pub async fn poll_until(what: &str, least: Duration, mut done: impl FnMut() -> Result<(), String>) {
    let begun = Instant::now();
    loop {
        let state = done();
        if state.is_ok() && begun.elapsed() >= least {
            return;
        }
        assert!(
            begun.elapsed() < TEST_TIMEOUT + least,
            "waited in vain for {what}: {state:?}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

// Proves R286.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_panel_shows_something_and_each_fault_has_an_alert_that_names_the_culprit() {
    let begun = now();
    let least = pictures().map_or(Duration::ZERO, |(_, least)| least);
    let mut scene = CompanyScene::start().await;
    let prometheus = Prometheus::over(&[instance(&scene.weir)]);
    tokio::select! {
        () = scene.run_ordinary_day() => unreachable!("it has no end"),
        () = poll_until("an ordinary day to be seen", least, || ordinary(&prometheus)) => {}
    }
    let broken = now();
    scene.cause_faults().await;
    let (sick, waiting) = (sick(&scene.files), waiting(&scene));
    // Its file loses its end, and `auth` with it.
    waiting.rewrite_config(json!({ "upstreams": { "later": { "url": scene.files.url() } } }));
    let (expected, mut seen) = (expected(&scene, [&sick, &waiting]), BTreeSet::new());
    prometheus.watch(&[&scene.weir, &sick, &waiting].map(instance));
    let beside = weir_testkit::RawClient::new(&sick.url("/mcp")).modern();
    let mut sick = Some(sick);
    let ill = async {
        loop {
            drop(beside.call("beside__read", json!({})).await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let alarm = poll_until("every fault's alert", least, || {
        for alert in prometheus.firing() {
            seen.extend(
                expected
                    .iter()
                    .position(|(name, label, culprit)| names(&alert, name, label, culprit)),
            );
            let upstream = alert.labels["upstream"].as_str().unwrap_or_default();
            assert!(
                !WELL.contains(&upstream),
                "{alert:?} blames one that is well"
            );
        }
        let has = |name: &str| {
            expected
                .iter()
                .enumerate()
                .any(|(at, one)| one.0 == name && seen.contains(&at))
        };
        // The faults of the second weir come one after another: a weir that cannot accept calls
        // loses no audit records of them.
        if let Some(weir) = sick
            .as_ref()
            .filter(|_| has("WeirAuditLosing") && has("WeirAuditFailing"))
        {
            weir.rewrite_config(sick_config(&scene.files, json!({ "memory": "16MiB" })));
        }
        if has("WeirMemoryShort") {
            sick = None;
        }
        let missing: Vec<_> = (0..expected.len())
            .filter(|at| !seen.contains(at))
            .map(|at| &expected[at])
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(format!("{missing:?}"))
        }
    });
    tokio::select! {
        ((), ()) = async { tokio::join!(scene.run_ordinary_day(), scene.run_faulty_clients()) } => unreachable!("it has no end"),
        () = ill => unreachable!("it has no end"),
        () = alarm => {}
    }
    let fired: BTreeSet<String> = expected
        .iter()
        .map(|one| one.0.to_owned())
        .chain(UNMADE.map(str::to_owned))
        .collect();
    assert_eq!(fired, alerts(), "an alert that nothing was done about here");
    everything_is_answered(&prometheus);
    // A stopped upstream stays down, however often it is called: an alert that has to wait two
    // minutes would never fire for an upstream that flickers.
    let flickers = prometheus.query(r#"changes(weir_upstream_up{upstream="wiki"}[5m])"#);
    assert_eq!(
        flickers.iter().map(|count| count.value).collect::<Vec<_>>(),
        [1.0],
        "up, then down"
    );
    if let Some((file, _)) = pictures() {
        std::fs::write(file, drawn(&prometheus, [begun, broken, now()]).to_string()).unwrap();
    }
}

fn names(alert: &QuerySample, name: &str, label: &str, culprit: &str) -> bool {
    alert.labels["alertname"] == name && alert.labels[label] == *culprit
}

/// Checks that the rules have seen calls at every upstream; asserts that no alert fires.
fn ordinary(prometheus: &Prometheus) -> Result<(), String> {
    let firing = prometheus.firing();
    assert!(firing.is_empty(), "on an ordinary day: {firing:?}");
    let known = prometheus.query("upstream:weir_calls:rate5m").len();
    let enough = prometheus
        .query("min(count_over_time(up[1m]))")
        .first()
        .is_some_and(|count| count.value >= 6.0);
    if known >= 6 && enough {
        Ok(())
    } else {
        Err(format!("{known} kinds of calls"))
    }
}

/// Asserts that every query of every panel and rule gives data, and no rule has an error.
fn everything_is_answered(prometheus: &Prometheus) {
    let mut silent = Vec::new();
    for name in BOARDS {
        let board = board(name);
        silent.extend(silent_queries(prometheus, &board));
    }
    for rule in rules("recording") {
        let record = rule["record"].as_str().unwrap();
        if prometheus.query(record).is_empty() {
            silent.push(record.to_owned());
        }
    }
    assert!(silent.is_empty(), "nothing to show:\n{}", silent.join("\n"));
    for group in prometheus.rules().as_array().unwrap() {
        for rule in group["rules"].as_array().unwrap() {
            assert_eq!(rule["health"], "ok", "{rule}");
        }
    }
}

/// Returns the queries of a dashboard that give no data.
pub fn silent_queries(prometheus: &Prometheus, board: &Value) -> Vec<String> {
    let of_panel = |panel: &Value| {
        let title = format!("{}: {}", board["title"], panel["title"]);
        let silent = queries(panel).into_iter().map(|(query, _)| query);
        let silent = silent.filter(|query| prometheus.query(query).is_empty());
        silent
            .map(|query| format!("{title}: {query}"))
            .collect::<Vec<_>>()
    };
    panels(board).flat_map(of_panel).collect()
}

/// Returns the data of each panel over the whole time, for drawing.
fn drawn(prometheus: &Prometheus, [begin, broken, end]: [f64; 3]) -> Value {
    let shown = |name: &str| {
        let board = board(name);
        let one = |panel: &Value| {
            let series = queries(panel)
                .into_iter()
                .map(|(query, legend)| json!({ "legend": legend, "series": prometheus.range(&query, begin, end) }));
            json!({ "panel": panel["id"], "targets": series.collect::<Vec<_>>() })
        };
        json!({ "board": name, "panels": panels(&board).map(one).collect::<Vec<_>>() })
    };
    json!({ "begin": begin, "broken": broken, "end": end, "boards": BOARDS.map(shown) })
}
