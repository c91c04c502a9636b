//! What stands under `deploy/`, and the Dockerfile: judged by the programs they are for (Helm,
//! Kustomize, hadolint, systemd, Prometheus), and by weir, whose ports, paths, configs and metrics
//! they name.
//!
//! What these cannot show: that a container engine or a cluster runs it. None does here.

mod boards;
mod compose;
mod drill;
mod image;
mod manifests;
pub mod prometheus;
mod rules;
mod scene;
mod units;
mod watched;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::{binary, fresh_path};

/// What a config's `${WEIR_KEY}` stands for here.
const KEY: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA";

/// The root of the work tree.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A folder that is gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = fresh_path(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program of what judges `deploy/`.
fn judge(program: &str) -> Command {
    Command::new(
        crate::harness::peers()
            .join("python/.venv-deploy/bin")
            .join(program),
    )
}

/// Runs a command that has to succeed, and gives what it printed.
fn printed(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Everything a command said.
fn told(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Holds a config against `weir check`: no error, and nothing to warn of.
fn check(name: &str, config: &str) {
    let folder = Folder::new("check");
    let file = folder.0.join("weir.yaml");
    std::fs::write(&file, config).unwrap();
    let said = printed(
        Command::new(binary())
            .arg("check")
            .arg(&file)
            .env("WEIR_KEY", KEY)
            .env("WEIR_ADMIN_TOKEN", KEY),
    );
    assert!(
        said.starts_with(&format!("{}: good, ", file.display())),
        "{name}: {said}"
    );
}

/// The port in a config's `listen`.
fn port(address: &Value) -> u64 {
    address
        .as_str()
        .and_then(|address| address.rsplit(':').next()?.parse().ok())
        .unwrap_or_else(|| panic!("{address}"))
}

/// The entries of a list.
fn entries(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}
