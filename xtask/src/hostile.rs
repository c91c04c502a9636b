//! `cargo xtask hostile`: clients, upstreams and files that were written to do harm, against an
//! optimized build of weir.

use std::{collections::BTreeMap, fmt::Write as _, fs};

use anyhow::Context;
use clap::Args;
use serde::Deserialize;

use crate::{
    peers,
    run::{PROOF_PROFILE, build_weir, cargo, empty_folder, has_cargo_command},
    test::environment,
    test_report::checked_tests,
};

/// The attacks of one package: names of modules (`name::`) and beginnings of names of tests.
struct AttackScope {
    package: &'static str,
    names: &'static [&'static str],
}

/// Every attack: those over the binary, and those that need one of its crates alone (frames and
/// window of HTTP/2, interim answers).
const ATTACKS: [AttackScope; 4] = [
    AttackScope {
        package: "weir-tests",
        names: &[
            "hostile::",
            "hostile_input::",
            "flood::",
            "stalled_client_uses_bounded",
        ],
    },
    AttackScope {
        package: "weir-front",
        names: &["http2_limits::"],
    },
    AttackScope {
        package: "weir-http2-client",
        names: &["bounded_frames::"],
    },
    AttackScope {
        package: "weir-http-client",
        names: &["bounded_connection::", "endless_interim"],
    },
];

/// Options of the command.
#[derive(Args)]
pub(crate) struct HostileOptions {
    /// Only tests whose name contains one of these
    names: Vec<String>,
}

/// Builds weir in the profile of proofs, runs every attack, the ignored ones included, and prints
/// their cost. They run one at a time, because each watches the memory, the descriptors or the
/// processor time of its target.
pub(crate) fn run(options: &HostileOptions) -> anyhow::Result<()> {
    let peers = peers::install()?;
    let weir = build_weir(&["--profile", PROOF_PROFILE])?;
    let figures = empty_folder("hostile")?.join("figures.jsonl");
    let mut suite = cargo()?;
    let packages = ATTACKS
        .iter()
        .flat_map(|scope| ["--package", scope.package]);
    if has_cargo_command("nextest")? {
        let wanted: Vec<_> = options
            .names
            .iter()
            .map(|name| format!("test(/{name}/)"))
            .collect();
        let only = if wanted.is_empty() {
            String::new()
        } else {
            format!(" & ({})", wanted.join(" | "))
        };
        suite.args([
            "nextest",
            "run",
            "--profile",
            "prove",
            "--run-ignored",
            "all",
            "--no-fail-fast",
        ]);
        suite
            .args([
                "-E",
                &format!("({}){only}", expression()),
                "--locked",
                "--lib",
                "--test",
                "it",
            ])
            .args(packages);
    } else {
        suite
            .args([
                "test",
                "--locked",
                "--no-fail-fast",
                "--lib",
                "--test",
                "it",
            ])
            .args(packages);
        suite.args(["--", "--include-ignored", "--test-threads", "1"]);
        let all = ATTACKS.iter().flat_map(|scope| scope.names);
        let named: Vec<&str> = options.names.iter().map(String::as_str).collect();
        suite.args(if named.is_empty() {
            all.copied().collect()
        } else {
            named
        });
    }
    environment(&mut suite, &weir, Some(&peers))?;
    let ran = checked_tests(
        suite.env("WEIR_PROVE", "1").env("WEIR_FIGURES", &figures),
        "prove",
    );
    println!(
        "{}",
        table(&fs::read_to_string(&figures).unwrap_or_default())?
    );
    ran
}

/// Returns the filter of all attacks, for the runner that takes expressions.
fn expression() -> String {
    let scope = |scope: &AttackScope| {
        let names = scope.names.join("|");
        format!("package({}) & test(/(^|::)({names})/)", scope.package)
    };
    ATTACKS.iter().map(scope).collect::<Vec<_>>().join(" | ")
}

/// The cost of one attack for other clients, as a test writes it.
#[derive(Deserialize)]
struct AttackFigures {
    attack: String,
    calls: u64,
    refused: u64,
    p99_ms: f64,
    memory: u64,
    descriptors: u64,
    log: f64,
    audit: f64,
    processor: f64,
}

/// Renders the figures of all attacks, one JSON object a line, as a table in Markdown, by name.
fn table(lines: &str) -> anyhow::Result<String> {
    let mut rows = BTreeMap::new();
    for line in lines.lines() {
        let figures: AttackFigures =
            serde_json::from_str(line).with_context(|| format!("these are no figures: {line}"))?;
        rows.insert(figures.attack.clone(), figures);
    }
    let mut out = String::from(
        "| attack | calls beside it | refused | p99 | memory at most | descriptors at most | log | audit | processors |\n\
         |---|---|---|---|---|---|---|---|---|",
    );
    for (attack, row) in rows {
        let AttackFigures {
            calls,
            refused,
            p99_ms,
            memory,
            descriptors,
            log,
            audit,
            processor,
            ..
        } = row;
        let memory = memory >> 20;
        write!(
            out,
            "\n| {attack} | {calls} | {refused} | {p99_ms:.1} ms | {memory} MiB | {descriptors} | {log:.0} B/s | {audit:.0} B/s \
             | {processor:.2} |"
        )?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::path::Path;

    use super::*;
    use crate::run::root;

    /// Reports if a file below `folder` declares this module or test.
    fn declares(folder: &Path, declaration: &str) -> bool {
        folder.read_dir().unwrap().map(Result::unwrap).any(|entry| {
            let path = entry.path();
            if path.is_dir() {
                return !path.ends_with("peers") && declares(&path, declaration);
            }
            path.extension().is_some_and(|kind| kind == "rs")
                && fs::read_to_string(&path).unwrap().contains(declaration)
        })
    }

    #[test]
    fn every_attack_that_is_named_exists() {
        for scope in &ATTACKS {
            let folder = match scope.package {
                "weir-tests" => "tests/it".to_owned(),
                other => format!("crates/{}", other.trim_start_matches("weir-")),
            };
            for name in scope.names {
                let declaration = match name.strip_suffix("::") {
                    Some(module) => format!("mod {module};"),
                    None => format!("fn {name}"),
                };
                assert!(
                    declares(&root().unwrap().join(&folder), &declaration),
                    "{} has no {declaration}",
                    scope.package
                );
            }
        }
    }

    #[test]
    fn figures_are_a_table_with_a_row_for_each_attack() {
        let row = |attack: &str, p99: f64| {
            serde_json::json!({
                "attack": attack, "calls": 100, "refused": 0, "p99_ms": p99, "memory": 47 << 20, "grown": 0,
                "descriptors": 24, "log": 1234.0, "audit": 0.0, "processor": 0.25,
            })
        };
        let table = table(&format!(
            "{}\n{}\n{}\n",
            row("b", 1.0),
            row("a", 2.5),
            row("b", 3.0)
        ))
        .unwrap();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4, "{table}");
        assert_eq!(
            lines[2],
            "| a | 100 | 0 | 2.5 ms | 47 MiB | 24 | 1234 B/s | 0 B/s | 0.25 |"
        );
        assert!(
            lines[3].starts_with("| b | 100 | 0 | 3.0 ms |"),
            "the last run counts: {table}"
        );
        assert!(super::table("nonsense").is_err());
    }
}
