//! The rules of the architecture: the allowed dependencies between crates, the files that may spawn
//! tasks, and the uses of clocks, randomness and tokio. ARCHITECTURE.md has the table of crates,
//! docs/decisions the reasons.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Each workspace crate, and the workspace crates that it may use.
const MAY_USE: [(&str, &[&str]); 11] = [
    ("weir-wire", &[]),
    ("weir-clean", &["weir-wire"]),
    ("weir-core", &["weir-clean", "weir-wire"]),
    ("weir-era", &["weir-core", "weir-wire"]),
    ("weir-policy", &["weir-core"]),
    ("weir-store", &["weir-core"]),
    ("weir-front", &["weir-core", "weir-era", "weir-wire"]),
    ("weir-upstream", &["weir-core", "weir-era", "weir-wire"]),
    ("weir-demo", &["weir-wire"]),
    (
        "weir-gateway",
        &[
            "weir-core",
            "weir-demo",
            "weir-era",
            "weir-front",
            "weir-policy",
            "weir-store",
            "weir-upstream",
            "weir-wire",
        ],
    ),
    ("weir-testkit", &["weir-core", "weir-wire"]),
];

/// The packages that a crate must never use.
const MUST_NOT_USE: [(&str, &[&str]); 9] = [
    (
        "weir-wire",
        &[
            "tokio",
            "tower",
            "hyper",
            "axum",
            "http",
            "getrandom",
            "rand",
            "serde-saphyr",
        ],
    ),
    (
        "weir-clean",
        &[
            "tokio",
            "hyper",
            "axum",
            "http",
            "getrandom",
            "rand",
            "serde",
            "serde_json",
        ],
    ),
    (
        "weir-core",
        &[
            "hyper",
            "axum",
            "http",
            "tower",
            "getrandom",
            "rand",
            "serde-saphyr",
            "clap",
            "opentelemetry_sdk",
        ],
    ),
    ("weir-era", &["tokio", "hyper", "axum", "getrandom", "rand"]),
    ("weir-policy", &["hyper", "axum", "http"]),
    ("weir-store", &["hyper", "axum", "http"]),
    (
        "weir-front",
        &["hyper-rustls", "reqwest", "serde-saphyr", "clap", "notify"],
    ),
    ("weir-upstream", &["axum", "serde-saphyr", "clap", "notify"]),
    ("weir-demo", &["weir-core", "weir-front", "weir-upstream"]),
];

/// The files that may start a task, and the way each task ends.
const SPAWNS: [(&str, &str); 11] = [
    (
        "demo/src/host.rs",
        "`RunningServer` aborts it when it is dropped",
    ),
    (
        "front/src/in_flight.rs",
        "gives permits in rounds, and ends with the queue of waiting requests",
    ),
    (
        "gateway/src/audit/audit_thread.rs",
        "`AuditService` tells it to stop and waits; one that hangs in the system goes with the process",
    ),
    (
        "gateway/src/cli/terminal_respondent/keyboard.rs",
        "waits for a line that a person types; a command that ends does not wait for it",
    ),
    (
        "gateway/src/handover/protocol.rs",
        "`DrainingPredecessor` waits for it; it ends with the predecessor",
    ),
    (
        "gateway/src/handover/link.rs",
        "sends until its link is dropped, or the other process is gone",
    ),
    (
        "gateway/src/handover/state_transfer.rs",
        "receives until the other process is gone, and answers its requests",
    ),
    (
        "gateway/src/stdio_server/streams.rs",
        "reads standard input, which cannot be interrupted; writes standard output, for which the end waits at most 2 s",
    ),
    (
        "gateway/src/telemetry/logs.rs",
        "writes the log until its queue closes; an exit waits for it, at most a second",
    ),
    (
        "upstream/src/http/http2_connection.rs",
        "ends with the last share of its connection, or with the connection",
    ),
    (
        "upstream/src/http/mod.rs",
        "closes unused connections for some seconds, and ends when the pool has none",
    ),
];

/// The files of `core` that read the clocks of `std::time`, and the reasons. All other files take
/// the time from the port `Clock`, or from `tokio::time`, which tests can advance.
const STD_CLOCKS: [(&str, &str); 5] = [
    (
        "core/src/schema/prove.rs",
        "a measurement that is built for tests alone",
    ),
    (
        "core/src/telemetry/duration_histogram.rs",
        "metrics have the wall time of a series and of an exemplar",
    ),
    (
        "core/src/telemetry/store_operation.rs",
        "operations of a store are measured outside of a tokio runtime, too",
    ),
    (
        "core/src/trace.rs",
        "spans have wall times, and no decision depends on them",
    ),
    (
        "core/src/trace/own_span.rs",
        "spans have wall times, and no decision depends on them",
    ),
];

/// The parts of tokio that `core` may use: those without input, output and runtime.
const CORE_MAY_USE_OF_TOKIO: [&str; 5] = ["join!", "select!", "sync", "task", "time"];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

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
        .current_dir(crates())
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
    let ours = crates();
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
        let used = found[name]
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
            .filter(|dependency| found[name].contains(**dependency))
            .collect();
        assert!(used.is_empty(), "{name} must not use {used:?}");
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "tests") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && path.file_name().is_some_and(|name| name != "tests.rs")
        {
            found.push(path);
        }
    }
}

/// Returns the code before a file's tests.
fn code(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    text.split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn tasks_are_spawned_in_listed_files_only() {
    let crates = crates();
    let mut spawning = BTreeSet::new();
    for name in MAY_USE.map(|(name, _)| name.trim_start_matches("weir-")) {
        if name == "testkit" {
            continue;
        }
        let mut files = Vec::new();
        sources(&crates.join(name).join("src"), &mut files);
        assert!(!files.is_empty(), "{name}");
        for file in files {
            let bare = [
                "tokio::spawn(",
                "task::spawn(",
                "runtime.spawn(",
                "thread::spawn(",
                "thread::Builder",
            ];
            if bare.iter().any(|call| code(&file).contains(call)) {
                spawning.insert(file.strip_prefix(&crates).unwrap().display().to_string());
            }
        }
    }
    let listed: BTreeSet<String> = SPAWNS.iter().map(|(file, _)| (*file).to_owned()).collect();
    assert_eq!(
        spawning, listed,
        "spawn on a TaskTracker or JoinSet with an owner, or list the file with its reason"
    );
}

#[test]
fn policy_opens_no_socket_and_no_file() {
    let mut files = Vec::new();
    sources(&crates().join("policy").join("src"), &mut files);
    assert!(!files.is_empty());
    for file in files {
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
        assert!(used.is_empty(), "{} uses {used:?}", file.display());
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
    for name in ["wire", "clean", "era"] {
        let mut files = Vec::new();
        sources(&crates().join(name).join("src"), &mut files);
        assert!(!files.is_empty(), "{name}");
        for file in files {
            let text = code(&file);
            let used: Vec<_> = forbidden
                .iter()
                .filter(|word| text.contains(**word))
                .collect();
            assert!(used.is_empty(), "{} uses {used:?}", file.display());
        }
    }
}

/// Returns the sources of `core`, by their paths below `crates/`.
fn core_sources() -> Vec<(String, String)> {
    let crates = crates();
    let mut files = Vec::new();
    sources(&crates.join("core").join("src"), &mut files);
    assert!(!files.is_empty());
    let of = |file: PathBuf| {
        let path = file.strip_prefix(&crates).unwrap().display().to_string();
        (path, code(&file))
    };
    files.into_iter().map(of).collect()
}

/// Returns the text up to the end of the statement that follows each `start`.
fn statements<'a>(code: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    let rests = code.split(start).skip(1);
    rests.map(|rest| rest.split(';').next().unwrap_or_default())
}

#[test]
fn core_reads_std_clocks_in_listed_files_only() {
    let reading: BTreeSet<String> = core_sources()
        .into_iter()
        .filter(|(_, code)| {
            let has_instant = statements(code, "use std::time::")
                .any(|import| import.contains("Instant"))
                || code.contains("std::time::Instant");
            code.contains("SystemTime::now")
                || code.contains("UNIX_EPOCH.elapsed")
                || (has_instant && code.contains("Instant::now"))
        })
        .map(|(path, _)| path)
        .collect();
    let listed: BTreeSet<String> = STD_CLOCKS
        .iter()
        .map(|(file, _)| (*file).to_owned())
        .collect();
    assert_eq!(
        reading, listed,
        "take the time from the port `Clock` or from `tokio::time`, or list the file with its reason"
    );
}

#[test]
fn core_uses_tokio_without_io_and_runtime() {
    for (path, code) in core_sources() {
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
                CORE_MAY_USE_OF_TOKIO.contains(&part),
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
fn pages_with_references() -> Vec<PathBuf> {
    let root = crates().parent().unwrap().to_owned();
    let mut pages: Vec<PathBuf> = ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/glossary.md"]
        .iter()
        .map(|page| root.join(page))
        .collect();
    for entry in std::fs::read_dir(root.join("docs/decisions")).unwrap() {
        pages.push(entry.unwrap().path());
    }
    pages
}

#[test]
fn pages_name_files_and_functions_that_exist() {
    let root = crates().parent().unwrap().to_owned();
    let mut count = 0;
    for page in pages_with_references() {
        let text = std::fs::read_to_string(&page).unwrap();
        for (file, function) in named_in(&text) {
            // `crates/NAME` and `crates/.../<name>` stand for any.
            if file.contains(['<', '*', ' ']) || file.contains("NAME") {
                continue;
            }
            count += 1;
            let path = root.join(file);
            assert!(path.exists(), "{} names {file}", page.display());
            let Some(function) = function else { continue };
            let code = std::fs::read_to_string(&path).unwrap();
            assert!(
                code.contains(&format!("fn {function}")),
                "{} names {function} in {file}",
                page.display()
            );
        }
    }
    assert!(count > 200, "{count}");
}

#[test]
fn coverage_page_references_exist() {
    let root = crates().parent().unwrap().to_owned();
    let page = std::fs::read_to_string(root.join("docs/coverage.md")).unwrap();
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
        let text = std::fs::read_to_string(root.join(file))
            .unwrap_or_else(|error| panic!("{file}: {error}"));
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

/// Returns the last text in each `error!(...)` and `warn!(...)` of a file, unless it is only a
/// placeholder.
fn said_in(code: &str) -> Vec<String> {
    let calls = ["error!(", "warn!("]
        .into_iter()
        .flat_map(|call| code.split(call).skip(1));
    calls
        .filter_map(|rest| {
            let texts: Vec<&str> = arguments(rest).split('"').skip(1).step_by(2).collect();
            texts
                .last()
                .filter(|text| text.contains(' '))
                .map(|text| (*text).to_owned())
        })
        .collect()
}

/// Returns the text up to the parenthesis that closes a call, without counting those in quotes.
fn arguments(rest: &str) -> &str {
    let (mut depth, mut quoted) = (1, false);
    let end = rest.bytes().position(|byte| {
        match byte {
            b'"' => quoted = !quoted,
            b'(' if !quoted => depth += 1,
            b')' if !quoted => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    &rest[..end.unwrap_or(rest.len())]
}

#[test]
fn every_warning_and_error_of_the_log_is_in_the_page_of_troubleshooting() {
    let page = std::fs::read_to_string(crates().join("../docs/troubleshooting.md")).unwrap();
    let mut files = Vec::new();
    for of in [
        "clean", "core", "era", "front", "gateway", "policy", "store", "upstream", "wire",
    ] {
        sources(&crates().join(of).join("src"), &mut files);
    }
    let said: BTreeSet<String> = files.iter().flat_map(|file| said_in(&code(file))).collect();
    assert!(said.len() > 50, "they are found: {said:?}");
    let missing: Vec<_> = said
        .iter()
        .filter(|text| !page.contains(&format!("| `{text}` |")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/troubleshooting.md lacks {missing:#?}"
    );
    let (_, log) = page.split_once("## What the log says").unwrap();
    let told = log.lines().filter_map(|line| {
        line.strip_prefix("| `")?
            .split_once("` |")
            .map(|(text, _)| text)
    });
    let gone: Vec<_> = told.filter(|text| !said.contains(*text)).collect();
    assert!(gone.is_empty(), "nothing says {gone:#?} any more");
}

/// Regression: `weir call` once printed an upstream's error with its escape sequences.
#[test]
fn commands_print_through_the_terminal_module_alone() {
    let folder = crates().join("gateway/src/cli");
    let mut files = Vec::new();
    sources(&folder, &mut files);
    files.push(crates().join("gateway/src/cli.rs"));
    assert!(files.len() > 10, "{files:?}");
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        for printer in ["print!(", "println!(", "io::stdout()", "io::stderr()"] {
            assert!(
                !text.contains(printer),
                "{} prints by {printer}",
                file.display()
            );
        }
    }
}
