//! `cargo xtask compat`: runs the pairing matrix and writes the tables of its results.

use clap::Args;

use crate::{compat_tables, test};

/// Options of the command.
#[derive(Args)]
pub(crate) struct CompatOptions {
    /// Take the results of the last run of the tests instead of running the matrix
    #[arg(long)]
    last: bool,
}

/// Runs the matrix and writes the tables.
///
/// # Errors
/// A scenario of the matrix fails; the tables are written and show it all the same.
pub(crate) fn run(options: &CompatOptions) -> anyhow::Result<()> {
    let outcome = if options.last {
        Ok(())
    } else {
        test::run(&test::TestOptions::only("matrix::"))
    };
    compat_tables::write()?;
    outcome
}
