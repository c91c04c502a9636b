//! The files under `deploy/`, and the Dockerfile. They are checked by the programs that read them
//! (Helm, Kustomize, hadolint, systemd, Prometheus), and by weir, because they name its ports,
//! paths, configs and metrics.
//!
//! These tests run no container engine and no cluster.

mod alert_rules;
mod alerts_fire;
mod company_scene;
mod compose;
mod compose_replicas;
mod dashboards;
mod dockerfile;
mod fault_drill;
mod manifests;
pub mod prometheus;
mod replicas_board;
mod systemd_units;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use weir_testkit::TestFolder;

use crate::harness::weir_binary;

/// The value of a config's `${WEIR_KEY}` in these tests.
const KEY: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA";

/// Returns the root of the work tree.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns a program of the environment that checks `deploy/`.
fn deploy_tool(program: &str) -> Command {
    Command::new(
        crate::harness::peers()
            .join("python/.venv-deploy/bin")
            .join(program),
    )
}

/// Runs a command that must succeed; returns its output.
fn run_checked(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        whole_output(&output)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the whole output of a command.
fn whole_output(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Returns a config of `deploy/compose/weir` with its secrets in a folder of this machine.
fn compose_config(file: &str) -> (TestFolder, String) {
    let secrets = TestFolder::new("secrets");
    for secret in ["key", "admin-token"] {
        secrets.write(secret, KEY);
    }
    let text = read(&format!("deploy/compose/weir/{file}"));
    let here = text.replace("/run/weir/", &format!("{}/", secrets.path().display()));
    (secrets, here)
}

/// Runs `weir check` on a config: no error and no warning.
fn check(name: &str, config: &str) {
    let folder = TestFolder::new("check");
    let file = folder.write("weir.yaml", config);
    let said = run_checked(
        Command::new(weir_binary())
            .arg("check")
            .arg(&file)
            .env("WEIR_KEY", KEY)
            .env("WEIR_ADMIN_TOKEN", KEY)
            .env("WEIR_POD_IP", "10.1.2.3")
            .env("HOSTNAME", "8ad4c5e1f2b3")
            .env("REDIS_PASSWORD", KEY),
    );
    assert!(
        said.starts_with(&format!("{}: good, ", file.display())),
        "{name}: {said}"
    );
}

/// Returns the port in a config's `listen`.
fn port(address: &Value) -> u64 {
    address
        .as_str()
        .and_then(|address| address.rsplit(':').next()?.parse().ok())
        .unwrap_or_else(|| panic!("{address}"))
}

/// Returns the entries of a list.
fn entries(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}
