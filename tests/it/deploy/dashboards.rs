//! The dashboards: one style (units, legends, links, variables), and queries of existing metrics
//! only.

use std::collections::BTreeSet;

use serde_json::Value;

use super::alert_rules::alerts;
use super::{entries, read};

/// The dashboards of a single weir, by their file's name.
pub const BOARDS: [&str; 4] = ["overview", "upstream", "tool", "client"];
/// The dashboard of replicas.
pub const REPLICAS_BOARD: &str = "replicas";

fn all_boards() -> impl Iterator<Item = &'static str> {
    BOARDS.into_iter().chain([REPLICAS_BOARD])
}

/// Returns a dashboard.
pub fn board(name: &str) -> Value {
    serde_json::from_str(&read(&format!("deploy/grafana/{name}.json")))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the panels of a dashboard, without the headings.
pub fn panels(board: &Value) -> impl Iterator<Item = &Value> {
    entries(&board["panels"])
        .iter()
        .filter(|panel| panel["type"] != "row")
}

/// Returns the queries of a panel as Grafana would send them with every variable at "all": the
/// query, and its legend.
pub fn queries(panel: &Value) -> Vec<(String, String)> {
    let filled = |text: &str| {
        let mut text = text.replace("$__rate_interval", "10s");
        for variable in ["job", "instance", "upstream", "tool", "endpoint"] {
            text = text.replace(&format!("\"${variable}\""), "\".*\"");
        }
        text
    };
    let targets = entries(&panel["targets"]).iter();
    targets
        .map(|target| {
            (
                filled(target["expr"].as_str().unwrap()),
                target["legendFormat"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

/// Returns the Prometheus names in `docs/metrics.md`.
fn metrics() -> BTreeSet<String> {
    let page = read("docs/metrics.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let names = rows.filter_map(|row| {
        row.split('|')
            .nth(2)
            .map(|name| name.trim().trim_matches('`').to_owned())
    });
    names
        .flat_map(|name| ["", "_bucket", "_count", "_sum"].map(|end| format!("{name}{end}")))
        .collect()
}

/// Returns the names in a query that can only be metrics of weir: its own, and those of the
/// conventions.
fn asked(query: &str) -> BTreeSet<String> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    let ours = |word: &&str| {
        let own = ["weir_", "mcp_server_", "mcp_client_", "http_server_"]
            .iter()
            .any(|begin| word.starts_with(begin));
        own && !word.contains(':')
    };
    words.filter(ours).map(str::to_owned).collect()
}

#[test]
fn every_metric_in_a_dashboard_or_a_rule_is_one_of_weirs() {
    let known = metrics();
    assert!(known.len() > 100, "{}", known.len());
    let mut seen = BTreeSet::new();
    for name in all_boards() {
        let board = board(name);
        seen.extend(
            panels(&board)
                .flat_map(queries)
                .flat_map(|(query, _)| asked(&query)),
        );
    }
    for file in ["recording", "alerts"] {
        let rules: Value =
            serde_saphyr::from_str(&read(&format!("deploy/prometheus/{file}.yml"))).unwrap();
        let all = entries(&rules["groups"])
            .iter()
            .flat_map(|group| entries(&group["rules"]));
        seen.extend(all.flat_map(|rule| asked(rule["expr"].as_str().unwrap())));
    }
    let unknown: Vec<_> = seen.difference(&known).collect();
    assert!(
        seen.len() > 40 && unknown.is_empty(),
        "{unknown:?} are not in docs/metrics.md"
    );
}

/// Returns the titles of the panels and headings of a dashboard.
fn titles(name: &str) -> BTreeSet<String> {
    let board = board(name);
    let all = entries(&board["panels"]).iter();
    all.map(|panel| panel["title"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn runbooks_quote_the_titles_of_panels() {
    let boards: Vec<(String, BTreeSet<String>)> = all_boards()
        .map(|name| (format!("*{name}*"), titles(name)))
        .collect();
    let mut quotes = 0;
    for alert in alerts() {
        let page = read(&format!("docs/runbooks/{alert}.md"));
        for item in page.split("\n- ").skip(1) {
            let item = item.split("\n## ").next().unwrap().replace("\n  ", " ");
            let named: Vec<&BTreeSet<String>> = boards
                .iter()
                .filter(|(name, _)| item.contains(name.as_str()))
                .map(|(_, titles)| titles)
                .collect();
            // Only an item that names a dashboard quotes its panels.
            for quoted in item.split('"').skip(1).step_by(2) {
                let is_title = named.iter().any(|titles| titles.contains(quoted));
                assert!(
                    named.is_empty() || is_title,
                    "{alert}: no panel is called {quoted}"
                );
                quotes += usize::from(is_title);
            }
        }
    }
    assert!(quotes > 15, "{quotes}");
}

#[test]
fn dashboards_share_one_style() {
    let uids: BTreeSet<String> = all_boards().map(|name| format!("weir-{name}")).collect();
    for name in all_boards() {
        let board = board(name);
        assert_eq!(board["uid"], format!("weir-{name}"));
        assert!(!board["description"].as_str().unwrap().is_empty());
        let linked: BTreeSet<String> = entries(&board["links"])
            .iter()
            .map(|link| {
                assert_eq!(
                    (&link["keepTime"], &link["includeVars"]),
                    (&true.into(), &true.into())
                );
                link["url"]
                    .as_str()
                    .unwrap()
                    .trim_start_matches("/d/")
                    .to_owned()
            })
            .collect();
        let others: BTreeSet<String> = uids
            .iter()
            .filter(|uid| board["uid"] != **uid)
            .cloned()
            .collect();
        assert_eq!(linked, others, "{name} leads to the others");
        let variables: Vec<&str> = entries(&board["templating"]["list"])
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert_eq!(variables[..3], ["datasource", "job", "instance"], "{name}");
        let mut ids = BTreeSet::new();
        for panel in entries(&board["panels"]) {
            assert!(
                ids.insert(panel["id"].as_u64()),
                "{name}: two panels of one id"
            );
            let place = &panel["gridPos"];
            assert!(
                place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24,
                "{name}: {place}"
            );
        }
        for panel in panels(&board) {
            of_one_house(name, panel, &variables);
        }
    }
}

fn of_one_house(board: &str, panel: &Value, variables: &[&str]) {
    let title = format!("{board}: {}", panel["title"].as_str().unwrap());
    assert!(
        panel["description"]
            .as_str()
            .is_some_and(|text| text.ends_with('.')),
        "{title}: what does it show?"
    );
    assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
    let unit = panel["fieldConfig"]["defaults"]["unit"]
        .as_str()
        .unwrap_or_default();
    assert!(!unit.is_empty(), "{title}: no unit");
    assert!(
        ["stat", "timeseries", "table"].contains(&panel["type"].as_str().unwrap()),
        "{title}"
    );
    for target in entries(&panel["targets"]) {
        let query = target["expr"].as_str().unwrap();
        let named = query.split('$').skip(1).map(|rest| {
            rest.split(|c: char| !(c.is_alphanumeric() || c == '_'))
                .next()
                .unwrap()
        });
        for variable in named.filter(|name| *name != "__rate_interval") {
            assert!(variables.contains(&variable), "{title}: ${variable}");
        }
        if query.contains("{job=~") {
            assert!(
                query.contains(r#"instance=~"$instance""#),
                "{title} does not follow the chosen instance"
            );
        }
        assert!(
            panel["type"] == "table" || !target["legendFormat"].as_str().unwrap().is_empty(),
            "{title}: no legend"
        );
    }
    // A rate has a unit that shows it, and a time is in seconds.
    let first = panel["targets"][0]["expr"].as_str().unwrap();
    if panel["type"] != "table"
        && (first.starts_with("histogram_quantile") || first.starts_with("time()"))
    {
        assert!(["s", "bytes"].contains(&unit), "{title}: {unit}");
    }
    if panel["type"] != "table"
        && (first.starts_with("sum(rate(")
            || first.starts_with("sum by") && first.contains("(rate("))
    {
        assert!(["reqps", "cps", "Bps"].contains(&unit), "{title}: {unit}");
    }
}
