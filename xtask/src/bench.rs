//! `cargo xtask bench`: the load generator, built as it is measured.

use clap::Args;

use crate::run::{cargo, checked};

/// Arguments of the load generator, handed on untouched.
#[derive(Args)]
pub(crate) struct Options {
    /// What to measure and how; `-- --help` shows it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Builds the benchmarks with the bench profile and runs them.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut bench = cargo()?;
    bench.args(["run", "--locked", "--package", "weir-benches", "--profile", "bench", "--"]).args(&options.args);
    checked(&mut bench)
}
