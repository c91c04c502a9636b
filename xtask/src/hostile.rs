//! `cargo xtask hostile`: clients, upstreams and files that were written to do harm, against weir as it is released.

use clap::Args;

use crate::{
    peers,
    run::{build_weir, cargo, checked, has_cargo_command},
    test::environment,
};

/// Which attacks to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Only tests whose name contains one of these
    names: Vec<String>,
}

/// Builds weir as it is released and runs every test of `tests/it/hostile`, the ignored ones included, one at a time:
/// each watches the memory, the descriptors or the processor time of the one that it attacks.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let peers = peers::install()?;
    let weir = build_weir(&["--release"])?;
    let mut suite = cargo()?;
    let names = if options.names.is_empty() { vec![String::new()] } else { options.names.clone() };
    if has_cargo_command("nextest")? {
        let wanted: Vec<_> = names.iter().map(|name| format!("test(/^hostile::.*{name}/)")).collect();
        suite.args(["nextest", "run", "--profile", "prove", "--run-ignored", "all", "-E", &wanted.join(" or ")]);
        suite.args(["--locked", "--package", "weir-tests", "--test", "it"]);
    } else {
        suite.args(["test", "--locked", "--package", "weir-tests", "--test", "it", "--"]);
        suite.args(["--include-ignored", "--test-threads", "1"]);
        suite.args(names.iter().map(|name| format!("hostile::{name}")));
    }
    environment(&mut suite, &weir, Some(&peers))?;
    checked(suite.env("WEIR_PROVE", "1"))
}
