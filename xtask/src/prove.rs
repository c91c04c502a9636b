//! `cargo xtask prove`: what takes minutes or measures time: the tests that are ignored by default, then the benchmarks.
//! Each prints its figures and compares two things within its own run, so that it means the same on any machine.

use clap::Args;

use crate::{
    bench,
    peers::{self, Peers},
    run::{build_weir, cargo, checked, has_cargo_command},
    test::environment,
};

/// What to prove.
#[derive(Args)]
pub(crate) struct Options {
    /// Filters and further arguments of the test runner; the benchmarks are then left out
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Builds weir as it is released, runs every ignored test against it, and measures it.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let peers: Peers = peers::install()?;
    // A timing of an unoptimized build proves nothing.
    let weir = build_weir(&["--release"])?;
    let mut prove = cargo()?;
    if has_cargo_command("nextest")? {
        prove.args(["nextest", "run", "--profile", "prove", "--workspace", "--locked", "--release"]);
        prove.args(["--run-ignored", "only"]).args(&options.args);
    } else {
        prove.args(["test", "--workspace", "--locked", "--release", "--"]);
        prove.args(["--ignored", "--test-threads", "1"]).args(&options.args);
    }
    environment(&mut prove, &weir, Some(&peers))?;
    checked(prove.env("WEIR_PROVE", "1"))?;
    if options.args.is_empty() { bench::measure() } else { Ok(()) }
}
