//! The build that is guided by the counts of branches: a build that counts them, the load that it
//! serves, and the build that uses the counts.

use std::{env, path::PathBuf, process::Command};

use anyhow::Context as _;

use super::{llvm_tool::LlvmTool, training_load::TrainingLoad};
use crate::run::{built, cargo, checked, empty_folder, output_of, path_option};

/// The separator of flags in `CARGO_ENCODED_RUSTFLAGS`.
const FLAG_SEPARATOR: &str = "\x1f";

/// Builds weir in a profile, guided by the counts of the load, and returns the linked program.
/// `link_flags` are further flags of the last build, `merger` merges the counts.
pub(super) fn build(
    profile: &str,
    link_flags: &[&str],
    merger: &LlvmTool,
    load: &TrainingLoad,
) -> anyhow::Result<PathBuf> {
    let counts = empty_folder("counts")?;
    let mut unlinked = build_with(profile, &[path_option("-Cprofile-generate=", &counts)?])?;
    // Branches are counted in each crate before a link optimizes across crates.
    unlinked.env(
        format!("CARGO_PROFILE_{}_LTO", profile.to_ascii_uppercase()),
        "off",
    );
    let counting = built(&mut unlinked, "weir")?;
    let written = load.serve(&counting, &counts)?;
    let merged = counts.join("merged.profdata");
    checked(
        merger
            .command()
            .arg("merge")
            .arg("--output")
            .arg(&merged)
            .args(written),
    )?;
    let mut flags = vec![path_option("-Cprofile-use=", &merged)?];
    flags.extend(link_flags.iter().map(|&flag| flag.to_owned()));
    built(&mut build_with(profile, &flags)?, "weir")
}

/// Returns the command that builds weir with these flags of the compiler, after those of the
/// environment.
fn build_with(profile: &str, flags: &[String]) -> anyhow::Result<Command> {
    let given = env::var("CARGO_ENCODED_RUSTFLAGS").ok();
    let all: Vec<&str> = given
        .as_deref()
        .filter(|given| !given.is_empty())
        .into_iter()
        .chain(flags.iter().map(String::as_str))
        .collect();
    let mut build = cargo()?;
    build
        .args(["build", "--locked", "--package", "weir-gateway", "--bin"])
        .args(["weir", "--profile", profile])
        // With a target, scripts of builds and macros are compiled without the flags.
        .args(["--target", &host()?])
        .env("CARGO_ENCODED_RUSTFLAGS", all.join(FLAG_SEPARATOR));
    Ok(build)
}

/// The target of programs for this machine.
fn host() -> anyhow::Result<String> {
    let version = output_of(Command::new("rustc").arg("-vV")).context("rustc does not start")?;
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc names no host")?;
    Ok(host.to_owned())
}
