//! Starting programs: the root of the work tree, and commands that must succeed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};
use serde::Deserialize;

/// The root of the work tree.
pub(crate) fn root() -> anyhow::Result<PathBuf> {
    // Cargo reports the folder of xtask at run time, so that a binary built in another tree never
    // works on that one.
    let own = env::var_os("CARGO_MANIFEST_DIR").context("start this with `cargo xtask`")?;
    let parent = Path::new(&own)
        .parent()
        .context("xtask has no parent folder")?;
    Ok(parent.to_owned())
}

/// The folder that build output goes to.
pub(crate) fn target_dir() -> anyhow::Result<PathBuf> {
    let root = root()?;
    Ok(env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir)))
}

/// Returns a folder below the build output, emptied of an earlier run's files.
pub(crate) fn empty_folder(name: &str) -> anyhow::Result<PathBuf> {
    let folder = target_dir()?.join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Returns the command of Cargo, working in the root of the tree.
pub(crate) fn cargo() -> anyhow::Result<Command> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()?);
    Ok(command)
}

/// Returns an option of a program, `name` followed by a file or folder.
pub(crate) fn path_option(name: &str, path: &Path) -> anyhow::Result<String> {
    let path = path.to_str().context("the path of the tree is not UTF-8")?;
    Ok(format!("{name}{path}"))
}

/// Shows `command`, runs it without standard input and fails unless it succeeds.
pub(crate) fn checked(command: &mut Command) -> anyhow::Result<()> {
    let shown = shown(command);
    eprintln!("$ {shown}");
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}

/// Returns the output of `command`, or no text if the program is missing or fails.
pub(crate) fn output_of(command: &mut Command) -> Option<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Reports if `cargo NAME` exists on this machine.
pub(crate) fn has_cargo_command(name: &str) -> anyhow::Result<bool> {
    Ok(output_of(cargo()?.args([name, "--version"])).is_some())
}

/// Cargo's profile of proofs, in which all packages are optimized.
pub(crate) const PROOF_PROFILE: &str = "prove";

/// Builds the binary `weir` alone, as it is shipped, and returns its path. `flags` choose the
/// profile.
pub(crate) fn build_weir(flags: &[&str]) -> anyhow::Result<PathBuf> {
    build_alone("weir-gateway", "weir", flags)
}

/// Builds a program of one package, and returns its path. `flags` choose the profile.
pub(crate) fn build_alone(package: &str, program: &str, flags: &[&str]) -> anyhow::Result<PathBuf> {
    let mut build = cargo()?;
    build
        .args(["build", "--locked", "--package", package, "--bin", program])
        .args(flags);
    built(&mut build, program)
}

/// Builds a program of the workspace with the features of the tests, and returns its path.
///
/// Built for its package alone, with the features that only this package asks for, many of its
/// dependencies would be compiled once more.
pub(crate) fn build_with_tests(program: &str) -> anyhow::Result<PathBuf> {
    let mut build = cargo()?;
    // A test among the targets makes cargo choose the features of the tests.
    build.args([
        "build",
        "--workspace",
        "--locked",
        "--test",
        "it",
        "--bin",
        program,
    ]);
    built(&mut build, program)
}

/// Runs a command of cargo's that builds, and returns the path of `binary`.
pub(crate) fn built(build: &mut Command, binary: &str) -> anyhow::Result<PathBuf> {
    build.arg("--message-format=json-render-diagnostics");
    eprintln!("$ {}", shown(build));
    let output = build
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("{binary} does not build");
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<CargoArtifact>(line).ok())
        .filter_map(|artifact| artifact.executable)
        .find(|executable| executable.file_stem().is_some_and(|name| name == binary))
        .with_context(|| format!("cargo built no binary `{binary}`"))
}

/// The part of a cargo message that names a finished program.
#[derive(Deserialize)]
struct CargoArtifact {
    executable: Option<PathBuf>,
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
