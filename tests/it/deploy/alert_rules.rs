//! The rules: accepted by promtool, proven by its unit tests, and each alert with its runbook page.

use std::collections::BTreeSet;

use serde_json::Value;

use super::prometheus::promtool;
use super::{entries, read, root};

/// The folder of the runbooks in the public repository.
const RUNBOOKS: &str = "https://github.com/weir-mcp/weir/blob/main/docs/runbooks";

/// Returns the rules of a file.
pub fn rules(file: &str) -> Vec<Value> {
    let parsed: Value =
        serde_saphyr::from_str(&read(&format!("deploy/prometheus/{file}.yml"))).unwrap();
    entries(&parsed["groups"])
        .iter()
        .flat_map(|group| entries(&group["rules"]).to_vec())
        .collect()
}

/// Returns the names of all alerts.
pub fn alerts() -> BTreeSet<String> {
    rules("alerts")
        .iter()
        .map(|rule| rule["alert"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn promtool_takes_the_rules_and_the_scrape_configs() {
    for file in ["recording", "alerts"] {
        promtool(
            &["check", "rules", "--lint=all", "--lint-fatal"],
            &[&root().join(format!("deploy/prometheus/{file}.yml"))],
        );
    }
    promtool(
        &["check", "config"],
        &[&root().join("deploy/prometheus/prometheus.yml")],
    );
    promtool(
        &["check", "config", "--syntax-only"],
        &[&root().join("deploy/compose/prometheus.yml")],
    );
}

/// The unit tests of the rules. Those of `slow` evaluate days of samples.
const FILES: [&str; 4] = ["alerts", "gaps", "releases", "slow"];

fn unit_tests(name: &str) -> String {
    format!("deploy/prometheus/tests/{name}.test.yml")
}

fn run_unit_tests(name: &str) {
    promtool(&["test", "rules"], &[&root().join(unit_tests(name))]);
}

// Proves R286.
#[test]
fn each_alert_fires_on_its_fault_and_is_silent_otherwise() {
    run_unit_tests("alerts");
}

#[test]
fn gaps_of_prometheus_raise_no_alert_and_young_processes_do() {
    run_unit_tests("gaps");
}

#[test]
fn healthy_release_masks_no_fault_of_another_one() {
    run_unit_tests("releases");
}

// Proves R286.
#[test]
#[ignore = "takes a minute of processor time"]
fn slow_alerts_fire_on_their_faults_and_are_silent_otherwise() {
    run_unit_tests("slow");
}

#[test]
fn each_alert_has_a_unit_test_in_which_it_fires() {
    let tests =
        FILES.map(|name| serde_saphyr::from_str::<Value>(&read(&unit_tests(name))).unwrap());
    let fires: BTreeSet<String> = tests
        .iter()
        .flat_map(|tests| entries(&tests["tests"]))
        .flat_map(|test| entries(&test["promql_expr_test"]))
        .flat_map(|expectation| entries(&expectation["exp_samples"]))
        .filter_map(|sample| {
            sample["labels"]
                .as_str()?
                .split("alertname=\"")
                .nth(1)?
                .split('"')
                .next()
                .map(str::to_owned)
        })
        .collect();
    assert_eq!(fires, alerts(), "an alert without a test that it fires");
}

#[test]
fn each_alert_names_its_culprit_and_links_an_indexed_runbook() {
    let mut pages = BTreeSet::new();
    for rule in rules("alerts") {
        let name = rule["alert"].as_str().unwrap();
        assert!(
            ["page", "ticket"].contains(&rule["labels"]["severity"].as_str().unwrap()),
            "{name}"
        );
        let annotations = &rule["annotations"];
        let culprit = [
            "upstream", "endpoint", "limit", "issuer", "reason", "file", "instance",
        ];
        let summary = annotations["summary"].as_str().unwrap();
        assert!(
            culprit
                .iter()
                .any(|label| summary.contains(&format!("$labels.{label}"))),
            "{name} names nobody"
        );
        assert!(
            annotations["description"].as_str().unwrap().ends_with('.'),
            "{name}"
        );
        // The page of this repository, or the same one below the base URL that Prometheus has as an
        // external label.
        let url = format!(
            "{{{{ with $externalLabels.weir_runbooks }}}}{{{{ . }}}}{{{{ else }}}}{RUNBOOKS}{{{{ end }}}}/{name}.md"
        );
        assert_eq!(annotations["runbook_url"], url);
        let page = read(&format!("docs/runbooks/{name}.md"));
        assert!(page.starts_with(&format!("# {name}\n")), "{name}");
        for part in ["## What it means", "## First look", "## What to do"] {
            let text = page
                .split(part)
                .nth(1)
                .unwrap_or_else(|| panic!("{name}: no {part}"));
            assert!(
                text.split("\n## ").next().unwrap().trim().len() > 80,
                "{name}: {part}"
            );
        }
        pages.insert(format!("{name}.md"));
    }
    let found: BTreeSet<String> = std::fs::read_dir(root().join("docs/runbooks"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    assert_eq!(found, pages, "a page for each alert, and no more");
    let index = read("docs/runbooks/README.md");
    for page in pages {
        assert!(
            index.contains(&format!("({page})")),
            "{page} is not in the index"
        );
    }
}
