//! `cargo xtask test`: the tests of the workspace with everything they need around them, then the conformance suite.

use std::{env, path::Path, process::Command};

use clap::Args;

use crate::{
    conformance,
    peers::{self, Peers},
    run::{build_weir, cargo, checked, has_cargo_command, root},
};

/// What to test.
#[derive(Args)]
pub(crate) struct Options {
    /// Leave out what needs npm or Python: the foreign peers and the conformance suite
    #[arg(long)]
    quick: bool,
    /// Filters and further arguments of the test runner; the conformance suite is then left out
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Installs the peers unless `--quick`, builds weir, runs the tests and then the conformance suite.
///
/// The suite also runs after a failed test, so that one run tells everything.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let peers = if options.quick { None } else { Some(peers::install()?) };
    let weir = build_weir(&[])?;
    let tests = tests(options, &weir, peers.as_ref());
    match &peers {
        Some(peers) if options.args.is_empty() => {
            let suite = conformance::through(&weir, peers);
            tests.and(suite)
        }
        _ => tests,
    }
}

fn tests(options: &Options, weir: &Path, peers: Option<&Peers>) -> anyhow::Result<()> {
    let mut tests = cargo()?;
    if has_cargo_command("nextest")? {
        tests.args(["nextest", "run", "--workspace", "--locked"]);
    } else {
        tests.args(["test", "--workspace", "--locked"]);
    }
    tests.args(&options.args);
    environment(&mut tests, weir, peers)?;
    checked(&mut tests)
}

/// Tells the tests where things are: `WEIR_BIN`; `WEIR_PEERS` and `WEIR_NODE22`, or else `WEIR_QUICK`; `MCP_SCHEMAS`.
pub(crate) fn environment(tests: &mut Command, weir: &Path, peers: Option<&Peers>) -> anyhow::Result<()> {
    tests.env("WEIR_BIN", weir);
    match peers {
        Some(peers) => {
            tests.env_remove("WEIR_QUICK").env("WEIR_PEERS", &peers.dir).env("WEIR_NODE22", &peers.node);
        }
        None => {
            tests.env("WEIR_QUICK", "1").env_remove("WEIR_PEERS").env_remove("WEIR_NODE22");
        }
    }
    // Tests run in the folder of their package, so a relative path would mean another place there.
    if let Some(schemas) = env::var_os("MCP_SCHEMAS") {
        tests.env("MCP_SCHEMAS", root()?.join(schemas));
    }
    Ok(())
}
