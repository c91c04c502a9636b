//! `cargo xtask bench`: the load generator and weir, both built with the measured profile.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use clap::Args;

use crate::{
    curves, dist,
    run::{build_with_tests, cargo, checked, target_dir},
};

/// Arguments of the load generator, passed on unchanged.
#[derive(Args)]
pub(crate) struct BenchOptions {
    /// Measure no load: draw the curves in docs/benchmarks from this result, or from the newest one
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pictures: Option<Option<PathBuf>>,
    /// Arguments of the load generator, `run` if there are none; `-- --help` shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Builds weir as it is deployed, with the names of functions, and runs the load generator with it.
pub(crate) fn run(options: &BenchOptions) -> anyhow::Result<()> {
    if let Some(file) = &options.pictures {
        return curves::draw(file.as_deref());
    }
    if options.args.is_empty() {
        return measure();
    }
    generate(&options.args)
}

/// Runs the whole measurement with the defaults of the load generator.
pub(crate) fn measure() -> anyhow::Result<()> {
    generate(&["run".to_owned()])
}

/// Measures the weir that `args` name, or one built as it is deployed.
fn generate(args: &[String]) -> anyhow::Result<()> {
    let is_measured = ["run", "smoke"].contains(&args[0].as_str());
    let is_named = args
        .iter()
        .any(|arg| arg == "--weir" || arg.starts_with("--weir="));
    let guided = (is_measured && !is_named)
        .then(|| dist::build_as_deployed("bench"))
        .transpose()?;
    let mut bench = cargo()?;
    bench
        .args(["run", "--locked", "--package", "weir-benches"])
        .args(["--profile", "bench", "--"])
        .args(args);
    if let Some(weir) = guided {
        bench.arg("--weir").arg(weir);
    }
    checked(&mut bench)
}

/// Runs every part with tiny numbers and without optimization, so that the benchmarks work when
/// they are needed.
pub(crate) fn smoke(weir: &Path) -> anyhow::Result<()> {
    let mut smoke = Command::new(build_with_tests("weir-bench")?);
    checked(
        smoke
            .args(["smoke", "--weir"])
            .arg(weir)
            .arg("--out")
            .arg(target_dir()?.join("bench-smoke.json")),
    )
}
