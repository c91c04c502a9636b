//! `cargo xtask lint`: the static checks of the code.

use crate::run::{cargo, checked, has_cargo_command};

/// Checks format, clippy with warnings as errors, the language of names and comments, and the
/// dependency policy.
pub(crate) fn run() -> anyhow::Result<()> {
    checked(cargo()?.args(["fmt", "--all", "--check"]))?;
    crate::words::check()?;
    checked(cargo()?.args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))?;
    if has_cargo_command("deny")? {
        checked(cargo()?.args(["deny", "--offline", "check", "bans", "licenses", "sources"]))?;
    } else {
        eprintln!(
            "cargo-deny is not installed: deny.toml was not checked (`cargo install cargo-deny`)"
        );
    }
    Ok(())
}
