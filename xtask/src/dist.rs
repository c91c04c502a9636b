//! `cargo xtask dist`: weir as it is deployed, laid out by the paths that a load takes through it.
//!
//! A call passes some two hundred kilobytes of code, more than the fastest cache of a processor
//! holds. A compiler that knows which branches are taken puts their code together and the rest out
//! of the way. There are three steps: a build that counts its branches, a load that it serves, and
//! the build that uses the counts.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use clap::Args;

use crate::{
    peers,
    run::{build_alone, built, cargo, checked, empty_folder, output_of, target_dir},
};

/// The versions of Debian's packages with the tool that merges counts, the newest first. The format
/// of counts has not changed since 19, and the compiler reads what an older tool has merged.
const LLVM_VERSIONS: [u32; 6] = [24, 23, 22, 21, 20, 19];

/// The separator of flags in `CARGO_ENCODED_RUSTFLAGS`.
const FLAG_SEPARATOR: &str = "\x1f";

/// The loads that the counting build serves: every part of the benchmarks, then calls, lists and all
/// transports with queues.
const LOADS: [&[&str]; 2] = [
    &["smoke"],
    &[
        "run",
        "--only=calls,lists,gates,telemetry,transports",
        "--target=weir",
        "--rounds=1",
        "--concurrency=1,32",
        "--upstreams=20",
    ],
];

/// Options of the command.
#[derive(Args)]
pub(crate) struct DistOptions {
    /// The profile of both builds
    #[arg(long, default_value = "dist", value_name = "NAME")]
    profile: String,
}

/// Builds weir in a profile, and prints its path.
pub(crate) fn run(options: &DistOptions) -> anyhow::Result<()> {
    let weir = build_guided(&options.profile)?;
    eprintln!("built {}", weir.display());
    Ok(())
}

/// Builds weir in a profile, guided by the counts of a load, and returns its path.
///
/// # Errors
/// A step fails, or the tool that merges counts is missing.
pub(crate) fn build_guided(profile: &str) -> anyhow::Result<PathBuf> {
    let merger = merger()?;
    let counts = empty_folder("counts")?;
    let mut unlinked = build_with(profile, "-Cprofile-generate=", &counts)?;
    // Branches are counted in each crate before a link optimizes across crates.
    unlinked.env(
        format!("CARGO_PROFILE_{}_LTO", profile.to_ascii_uppercase()),
        "off",
    );
    let counting = built(&mut unlinked, "weir")?;
    serve_loads(&counting, &counts)?;
    let merged = counts.join("merged.profdata");
    checked(
        Command::new(merger)
            .arg("merge")
            .arg("--output")
            .arg(&merged)
            .arg(&counts),
    )?;
    let guided = built(&mut build_with(profile, "-Cprofile-use=", &merged)?, "weir")?;
    // The place of a build without a target, where scripts look for it.
    let place = target_dir()?.join(profile).join("weir");
    fs::create_dir_all(place.parent().context("the place has no folder")?)?;
    fs::copy(&guided, &place).with_context(|| format!("cannot write {}", place.display()))?;
    Ok(place)
}

/// Returns the command that builds weir with a flag of the compiler that names a file or folder.
fn build_with(profile: &str, flag: &str, path: &Path) -> anyhow::Result<Command> {
    let mut flag = OsString::from(flag);
    flag.push(path);
    let flag = flag.to_str().context("the path of the tree is not UTF-8")?;
    let flags = match env::var("CARGO_ENCODED_RUSTFLAGS") {
        Ok(given) if !given.is_empty() => format!("{given}{FLAG_SEPARATOR}{flag}"),
        _ => flag.to_owned(),
    };
    let mut build = cargo()?;
    build
        .args(["build", "--locked", "--package", "weir-gateway", "--bin"])
        .args(["weir", "--profile", profile])
        // With a target, scripts of builds and macros are compiled without the flag.
        .args(["--target", &host()?])
        .env("CARGO_ENCODED_RUSTFLAGS", flags);
    Ok(build)
}

/// Has the counting build serve the loads. It writes its counts when it ends.
fn serve_loads(weir: &Path, counts: &Path) -> anyhow::Result<()> {
    let bench = build_alone("weir-benches", "weir-bench", &[])?;
    for load in LOADS {
        checked(
            Command::new(&bench)
                .args(load)
                .arg("--graceful")
                .arg("--weir")
                .arg(weir)
                .arg("--out")
                .arg(counts.join("load.json")),
        )?;
    }
    fs::remove_file(counts.join("load.json"))?;
    let written = fs::read_dir(counts)?.count();
    if written == 0 {
        bail!("weir wrote no counts to {}", counts.display());
    }
    Ok(())
}

/// Finds `llvm-profdata`: the one that `LLVM_PROFDATA` names, of the toolchain, or of the system, or
/// installs it on Debian and as root.
fn merger() -> anyhow::Result<PathBuf> {
    let oldest = LLVM_VERSIONS[LLVM_VERSIONS.len() - 1];
    installed_merger()
        .or_else(|| {
            peers::install_llvm(&format!("llvm-{oldest}"))
                .then(installed_merger)
                .flatten()
        })
        .context(
            "there is no llvm-profdata: run `rustup component add llvm-tools`, install a package such as llvm-19, or name the program in LLVM_PROFDATA",
        )
}

fn installed_merger() -> Option<PathBuf> {
    if let Some(named) = env::var_os("LLVM_PROFDATA") {
        return Some(named.into());
    }
    let of_toolchain = output_of(Command::new("rustc").args(["--print", "target-libdir"]))
        .map(|libraries| Path::new(&libraries).join("../bin/llvm-profdata"));
    let of_system = LLVM_VERSIONS.map(|version| PathBuf::from(format!("llvm-profdata-{version}")));
    of_toolchain
        .into_iter()
        .chain(of_system)
        .chain([PathBuf::from("llvm-profdata")])
        .find(|tool| output_of(Command::new(tool).arg("--version")).is_some())
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
