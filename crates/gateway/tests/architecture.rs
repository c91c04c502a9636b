//! The rules of the architecture: the allowed dependencies between crates, the files that may spawn
//! tasks, and the uses of clocks, randomness and tokio. ARCHITECTURE.md has the table of crates,
//! docs/decisions the reasons.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod architecture_rules;
mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use architecture_rules::{
    ASKS_ERA, MAY_USE, MODEL, MODEL_MAY_USE_OF_TOKIO, MUST_NOT_USE, REPLY_SOURCES, SPAWNS,
    STD_CLOCKS,
};
use serde_json::Value;
use workspace::{code, crates, read, root, source_files};

/// Returns the normal dependencies of every crate under `crates/`, by name.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--offline",
            "--locked",
            "--no-deps",
            "--format-version",
            "1",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let normal = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|dependency| dependency["kind"].is_null())
            .map(|dependency| dependency["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let ours = root().join("crates");
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .filter(|package| Path::new(package["manifest_path"].as_str().unwrap()).starts_with(&ours))
        .map(|package| {
            (
                package["name"].as_str().unwrap().to_owned(),
                normal(package),
            )
        })
        .collect()
}

#[test]
fn crates_use_only_allowed_dependencies() {
    let found = dependencies();
    let known: BTreeSet<&str> = MAY_USE.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        found.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        known,
        "a crate came or went"
    );
    for (name, allowed) in MAY_USE {
        let used = found[*name]
            .iter()
            .filter(|dependency| dependency.starts_with("weir-"));
        let forbidden: Vec<_> = used
            .filter(|dependency| !allowed.contains(&dependency.as_str()))
            .collect();
        assert!(forbidden.is_empty(), "{name} must not use {forbidden:?}");
    }
    for (name, forbidden) in MUST_NOT_USE {
        let used: Vec<_> = forbidden
            .iter()
            .filter(|dependency| found[*name].contains(**dependency))
            .collect();
        assert!(used.is_empty(), "{name} must not use {used:?}");
    }
}

/// The most lines of a crate without its tests. A larger one has parts that can be understood, and
/// compiled, by themselves.
const MAX_CRATE_LINES: usize = 9_000;

#[test]
fn crates_are_small_enough_to_be_read() {
    for name in crates() {
        let lines: usize = source_files(&format!("crates/{name}/src"))
            .iter()
            .map(|file| code(file).lines().count())
            .sum();
        assert!(
            lines <= MAX_CRATE_LINES,
            "{name} has {lines} lines: split it"
        );
    }
}

/// Returns the names of all crates that `is_checked`, as their folders have them.
fn checked_crates(is_checked: impl Fn(&str) -> bool) -> impl Iterator<Item = &'static str> {
    MAY_USE
        .iter()
        .map(|(name, _)| name.trim_start_matches("weir-"))
        .filter(move |name| is_checked(name))
}

/// Returns the sources of crates, by their paths below `crates/`.
fn sources<'a>(crates: impl Iterator<Item = &'a str>) -> impl Iterator<Item = (String, String)> {
    crates
        .flat_map(|name| source_files(&format!("crates/{name}/src")))
        .map(|file| (file.trim_start_matches("crates/").to_owned(), code(&file)))
}

/// Fails unless exactly the listed files have code that `is_meant`.
fn assert_listed_files_only(
    sources: impl Iterator<Item = (String, String)>,
    is_meant: impl Fn(&str) -> bool,
    listed: &[(&str, &str)],
    advice: &str,
) {
    let found: BTreeSet<String> = sources
        .filter(|(_, code)| is_meant(code))
        .map(|(path, _)| path)
        .collect();
    let listed: BTreeSet<String> = listed.iter().map(|(file, _)| (*file).to_owned()).collect();
    assert_eq!(found, listed, "{advice}, or list the file with its reason");
}

#[test]
fn tasks_are_spawned_in_listed_files_only() {
    let is_product =
        |name: &str| !name.ends_with("testkit") && !["simulation", "interleavings"].contains(&name);
    let bare = [
        "tokio::spawn(",
        "task::spawn(",
        "runtime.spawn(",
        "thread::spawn(",
        "thread::Builder",
    ];
    assert_listed_files_only(
        sources(checked_crates(is_product)),
        |code| bare.iter().any(|call| code.contains(call)),
        SPAWNS,
        "spawn on a TaskTracker or JoinSet with an owner",
    );
}

/// One search for an item's path finds all of its imports.
#[test]
fn imports_within_a_crate_begin_with_crate() {
    let crates = crates();
    let imports_from_parent = |code: &str| {
        let mut lines = code.lines().filter(|line| !line.ends_with("::*;"));
        lines.any(|line| !line.starts_with(' ') && line.contains("use super::"))
    };
    assert_listed_files_only(
        sources(crates.iter().map(String::as_str)).filter(|(file, _)| !file.ends_with("_tests.rs")),
        imports_from_parent,
        &[],
        "write `use crate::` and the path of the item",
    );
}

#[test]
fn replies_are_wrapped_in_listed_files_only() {
    assert_listed_files_only(
        sources(checked_crates(|_| true)),
        |code| code.contains("ReplySource for "),
        REPLY_SOURCES,
        "let the reply itself or the one wrapper of the router do it",
    );
}

#[test]
fn policy_opens_no_socket_and_no_file() {
    for file in source_files("crates/policy/src") {
        let text = code(&file);
        let forbidden = [
            "tokio::net",
            "TcpStream",
            "UdpSocket",
            "std::fs",
            "tokio::fs",
            "std::process",
            "tokio::process",
        ];
        let used: Vec<_> = forbidden
            .iter()
            .filter(|word| text.contains(**word))
            .collect();
        assert!(used.is_empty(), "{file} uses {used:?}");
    }
}

#[test]
fn pure_crates_use_no_clock_no_randomness_and_no_tokio() {
    let forbidden = [
        "Instant::now",
        "SystemTime::now",
        "std::net",
        "std::fs",
        "std::thread",
        "std::process",
        "UNIX_EPOCH.elapsed",
        "RandomState",
        "getrandom",
        "rand::",
        "tokio::",
        "tokio_util::",
    ];
    for name in ["wire", "clean", "era", "oauth"] {
        for file in source_files(&format!("crates/{name}/src")) {
            let text = code(&file);
            let used: Vec<_> = forbidden
                .iter()
                .filter(|word| text.contains(**word))
                .collect();
            assert!(used.is_empty(), "{file} uses {used:?}");
        }
    }
}

/// Returns the text up to the end of the statement that follows each `start`.
fn statements<'a>(code: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    let rests = code.split(start).skip(1);
    rests.map(|rest| rest.split(';').next().unwrap_or_default())
}

#[test]
fn model_reads_std_clocks_in_listed_files_only() {
    let reads_clock = |code: &str| {
        let has_instant = statements(code, "use std::time::")
            .any(|import| import.contains("Instant"))
            || code.contains("std::time::Instant");
        code.contains("SystemTime::now")
            || code.contains("UNIX_EPOCH.elapsed")
            || (has_instant && code.contains("Instant::now"))
    };
    assert_listed_files_only(
        sources(MODEL.into_iter()),
        reads_clock,
        &STD_CLOCKS,
        "take the time from the port `Clock` or from `tokio::time`",
    );
}

#[test]
fn model_uses_tokio_without_io_and_runtime() {
    for (path, code) in sources(MODEL.into_iter()) {
        assert!(
            !code.contains("use tokio::{") && !code.contains("use tokio_util::{"),
            "{path}: name one module of tokio in an import"
        );
        let used = code
            .split("tokio::")
            .skip(1)
            .chain(code.split("tokio_util::").skip(1));
        for rest in used {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '!');
            let part = &rest[..end.unwrap_or(rest.len())];
            assert!(
                MODEL_MAY_USE_OF_TOKIO.contains(&part),
                "{path} uses `tokio::{part}`"
            );
        }
    }
}

/// Returns the references of a page, such as `path` or `path::function`.
fn named_in(page: &str) -> BTreeSet<(&str, Option<&str>)> {
    let quoted = page.split('`').skip(1).step_by(2);
    let ours = quoted.filter(|name| name.starts_with("crates/") || name.starts_with("tests/"));
    ours.map(|name| {
        name.split_once("::")
            .map_or((name, None), |(file, function)| (file, Some(function)))
    })
    .collect()
}

/// The pages whose references to files and tests must be right.
fn pages_with_references() -> Vec<String> {
    let mut pages = ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/glossary.md"]
        .map(str::to_owned)
        .to_vec();
    for entry in std::fs::read_dir(root().join("docs/decisions")).unwrap() {
        let name = entry.unwrap().file_name();
        pages.push(format!("docs/decisions/{}", name.to_string_lossy()));
    }
    pages
}

#[test]
fn pages_name_files_and_functions_that_exist() {
    let mut count = 0;
    for page in pages_with_references() {
        for (file, function) in named_in(&read(&page)) {
            // `crates/NAME` and `crates/.../<name>` stand for any.
            if file.contains(['<', '*', ' ']) || file.contains("NAME") {
                continue;
            }
            count += 1;
            assert!(root().join(file).exists(), "{page} names {file}");
            let Some(function) = function else { continue };
            let text = read(file);
            let is_defined = ["(", "<"]
                .iter()
                .any(|end| text.contains(&format!("fn {function}{end}")));
            assert!(is_defined, "{page} names {function} in {file}");
        }
    }
    assert!(count > 200, "{count}");
}

#[test]
fn coverage_page_references_exist() {
    let page = read("docs/coverage.md");
    for row in page.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        assert_eq!(
            cells.len(),
            6,
            "a feature, three revisions, code, a test: {row}"
        );
        assert!(
            cells[4].contains("`crates/") && cells[5].contains("::"),
            "code and a test: {row}"
        );
    }
    for (file, function) in named_in(&page) {
        let text = read(file);
        let Some(function) = function else { continue };
        let at = text
            .find(&format!("fn {function}("))
            .unwrap_or_else(|| panic!("{file} has no {function}"));
        // A helper proves no behaviour: the function must have a test's attribute, or be called by
        // the matrix.
        let before = text[..at].rsplit("\n\n").next().unwrap();
        let is_test =
            before.contains("test]") || before.contains("::test(") || before.contains("proptest!");
        assert!(
            is_test || file.starts_with("tests/it/matrix/"),
            "{file}: {function} is no test"
        );
    }
}

/// Regression: `weir call` once printed an upstream's error with its escape sequences.
#[test]
fn commands_print_through_the_terminal_module_alone() {
    let mut files = source_files("crates/gateway/src/cli");
    files.push("crates/gateway/src/cli.rs".to_owned());
    // The question of an input switches the terminal's echo off, so it writes to the terminal itself.
    let own = "crates/commands/src/input_prompt.rs";
    files.extend(
        source_files("crates/commands/src")
            .into_iter()
            .filter(|file| file != own),
    );
    assert!(files.len() > 10, "{files:?}");
    for file in &files {
        let text = read(file);
        for printer in ["print!(", "println!(", "io::stdout()", "io::stderr()"] {
            assert!(!text.contains(printer), "{file} prints by {printer}");
        }
    }
}

/// The crates of the client side.
const CLIENT_SIDE: [&str; 4] = ["listen", "session", "layers", "front"];

#[test]
fn statuses_are_chosen_in_one_file_of_the_client_side() {
    let table = "crates/layers/src/failure/response_table.rs";
    let naming: Vec<String> = CLIENT_SIDE
        .iter()
        .flat_map(|name| source_files(&format!("crates/{name}/src")))
        .filter(|file| {
            code(file).split("StatusCode::").skip(1).any(|rest| {
                let end = rest.find(|c: char| !c.is_ascii_uppercase() && c != '_');
                let constant = &rest[..end.unwrap_or(rest.len())];
                // The interim response of HTTP/2 is no answer.
                constant.len() > 1 && constant != "CONTINUE"
            })
        })
        .collect();
    // `StatusCode as S` stands in the table alone.
    assert!(naming.iter().all(|file| file == table), "{naming:?}");
    assert!(code(table).contains("StatusCode as S"));
}

#[test]
fn era_is_asked_in_listed_files_only() {
    assert_listed_files_only(
        sources(checked_crates(|name| {
            !["wire", "era", "testkit"].contains(&name)
        })),
        |code| code.contains(".is_modern()") || code.contains("Revision::is_modern"),
        ASKS_ERA,
        "ask `RevisionDialect` or the revision for the feature",
    );
}
