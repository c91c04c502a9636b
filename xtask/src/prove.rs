//! `cargo xtask prove`: the tests that are ignored by default because they take minutes or measure
//! time, all pairings in front of replicas, then the benchmarks. Each prints its figures and
//! compares two measurements within its own run, so that the result means the same on any machine.

use std::path::PathBuf;

use clap::Args;

use crate::{
    bench,
    peers::{self, ForeignPeers},
    run::{PROOF_PROFILE, build_weir, cargo, has_cargo_command},
    test::{all_replicated_pairings, environment},
    test_report::{all_of, checked_tests},
};

/// The packages with ignored tests. Optimizing and linking the tests of all others would take
/// longer than the proofs.
const PACKAGES: [&str; 5] = [
    "weir-schema",
    "weir-policy",
    "weir-upstream",
    "weir-simulation",
    "weir-tests",
];

/// The test programs of those packages.
const TEST_PROGRAMS: [&str; 2] = ["it", "simulated"];

/// Options of the command.
#[derive(Args)]
pub(crate) struct ProveOptions {
    /// An earlier weir, which replicas of this one must work beside
    #[arg(long, value_name = "BINARY")]
    before: Option<PathBuf>,
    /// Filters and further arguments of the test runner; the benchmarks are then left out
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Builds weir in the profile of proofs, runs every ignored test against it, and measures it. What
/// comes after a failed proof also runs, so that one run shows all failures.
pub(crate) fn run(options: &ProveOptions) -> anyhow::Result<()> {
    let peers: ForeignPeers = peers::install()?;
    peers::install_clients()?;
    let weir = build_weir(&["--profile", PROOF_PROFILE])?;
    let mut prove = cargo()?;
    let has_nextest = has_cargo_command("nextest")?;
    // nextest has profiles of its own.
    let scope = scope(if has_nextest {
        "--cargo-profile"
    } else {
        "--profile"
    });
    if has_nextest {
        prove
            .args([
                "nextest",
                "run",
                "--profile",
                "prove",
                "--run-ignored",
                "only",
            ])
            .args(&scope);
        prove.args(&options.args);
    } else {
        prove.arg("test").args(&scope);
        prove
            .args(["--", "--ignored", "--test-threads", "1"])
            .args(&options.args);
    }
    environment(&mut prove, &weir, Some(&peers))?;
    if let Some(before) = &options.before {
        prove.env("WEIR_BEFORE", before.canonicalize()?);
    }
    let proofs = checked_tests(prove.env("WEIR_PROVE", "1"), "prove");
    if !options.args.is_empty() {
        return proofs;
    }
    let pairings = all_replicated_pairings(&weir, &peers, &scope);
    all_of([proofs, pairings, bench::measure()])
}

/// The arguments that select the profile of proofs, the packages and their test programs.
/// `profile_option` is the runner's option for a profile of cargo's.
fn scope(profile_option: &'static str) -> Vec<&'static str> {
    let programs = TEST_PROGRAMS
        .into_iter()
        .flat_map(|program| ["--test", program]);
    let packages = PACKAGES.into_iter().flat_map(|package| ["-p", package]);
    ["--locked", profile_option, PROOF_PROFILE, "--lib"]
        .into_iter()
        .chain(programs)
        .chain(packages)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::path::Path;

    use super::*;
    use crate::run::root;

    /// Finds the files below `folder` that hold an ignored test.
    fn ignoring(folder: &Path, found: &mut Vec<String>) {
        for entry in folder.read_dir().unwrap().map(Result::unwrap) {
            let path = entry.path();
            let skipped = ["node_modules", "target"]
                .iter()
                .any(|name| path.ends_with(name));
            if path.is_dir() && !path.is_symlink() && !skipped {
                ignoring(&path, found);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                if text
                    .lines()
                    .any(|line| line.starts_with("#[ignore") || line.starts_with("    #[ignore"))
                {
                    found.push(
                        path.strip_prefix(root().unwrap())
                            .unwrap()
                            .display()
                            .to_string(),
                    );
                }
            }
        }
    }

    #[test]
    fn every_ignored_test_is_in_a_package_that_is_proved() {
        let mut found = Vec::new();
        for folder in ["crates", "tests/it", "xtask", "benches"] {
            ignoring(&root().unwrap().join(folder), &mut found);
        }
        assert!(!found.is_empty(), "there are none at all");
        let places = PACKAGES.map(|package| match package {
            "weir-tests" => vec!["tests/it/".to_owned()],
            other => ["src", "tests/it"]
                .map(|part| format!("crates/{}/{part}/", other.trim_start_matches("weir-")))
                .into(),
        });
        let places = places.concat();
        let left: Vec<_> = found
            .iter()
            .filter(|file| !places.iter().any(|place| file.starts_with(place)))
            .collect();
        assert!(
            left.is_empty(),
            "`cargo xtask prove` would not run those of {left:?}"
        );
        for place in places.iter().filter(|place| place.ends_with("tests/it/")) {
            let folder = root().unwrap().join(place.replace("tests/it/", ""));
            let manifest = ["", "tests"].map(|part| folder.join(part).join("Cargo.toml"));
            let manifest = manifest.iter().find(|file| file.is_file()).unwrap();
            let text = std::fs::read_to_string(manifest).unwrap();
            // A package that does not name its program has one named after its folder, `it`.
            let named = text
                .split("[[test]]\nname = \"")
                .nth(1)
                .and_then(|rest| rest.split('"').next());
            assert!(
                named.is_none_or(|name| TEST_PROGRAMS.contains(&name)),
                "`cargo xtask prove` would not run the tests of {place}"
            );
        }
    }
}
