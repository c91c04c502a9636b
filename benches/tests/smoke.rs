//! The bench itself works: a smoke run without weir ends well and its result file is whole.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

fn smoke(name: &str, args: &[&str]) -> (Output, PathBuf) {
    let out = std::env::temp_dir().join(format!(
        "weir-bench-smoke-{}-{name}.json",
        std::process::id()
    ));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-bench"));
    let output = command
        .arg("smoke")
        .args(args)
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    (output, out)
}

#[test]
fn a_smoke_run_measures_pipe_and_upstream_without_an_error() {
    let (output, out) = smoke("good", &["--target", "pipe,direct", "--pairs", "mm,ll"]);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let result: Value = serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    std::fs::remove_file(out).unwrap();
    assert_eq!(result["errors"], 0);
    let names: Vec<&str> = result["tables"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "calls",
            "lists",
            "fanout",
            "sessions",
            "dual",
            "gates",
            "telemetry",
            "store",
            "transports",
            "hang",
            "body",
            "overload"
        ]
    );
    let calls = result["tables"][0]["rows"].as_array().unwrap();
    // Two pairs of eras, two concurrencies, two targets; each was really called.
    assert_eq!(calls.len(), 8);
    assert!(calls.iter().all(|row| row["calls"].as_u64().unwrap() > 0));
    let fanout = result["tables"][2]["rows"].as_array().unwrap();
    assert!(
        fanout
            .iter()
            .all(|row| row["listeners"] == 20 && row["missing"] == 0 && row["extra"] == 0)
    );
    for key in ["cores", "commit", "open_files", "build"] {
        assert!(!result["machine"][key].is_null(), "{key}");
    }
}

#[test]
fn wrong_weir_binary_is_an_error_in_table_and_exit_code() {
    let (output, out) = smoke(
        "bad",
        &[
            "--target",
            "weir",
            "--weir",
            "/bin/false",
            "--only",
            "calls",
        ],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("weir ended"));
    let result: Value = serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    std::fs::remove_file(out).unwrap();
    assert_eq!(result["errors"], 1);
}

#[test]
fn missing_weir_is_reported_before_start() {
    let (output, out) = smoke("none", &["--weir", "/nonexistent/weir"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no weir at /nonexistent/weir"));
    assert!(!out.exists());
}
