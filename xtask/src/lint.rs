//! `cargo xtask lint`: the static checks of the code.

use crate::run::{cargo, checked, has_cargo_command};

/// Checks format, the language of names and comments, import cycles, clippy with warnings as errors, weir with the features that it ships with, links of the
/// documentation, and the dependency policy.
pub(crate) fn run() -> anyhow::Result<()> {
    checked(cargo()?.args(["fmt", "--all", "--check"]))?;
    crate::words::check()?;
    crate::cycles::check()?;
    checked(cargo()?.args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))?;
    // The tests build weir with the features that they need themselves. This is weir as it is
    // shipped: a feature that only a test asks for is missing here.
    checked(cargo()?.args([
        "check",
        "--locked",
        "--package",
        "weir-gateway",
        "--bin",
        "weir",
    ]))?;
    // A rename leaves its old name in links of comments, which no other check reads. With
    // `--examples`, the dependencies have the features of clippy's run, which has compiled them.
    checked(
        cargo()?
            .args([
                "doc",
                "--workspace",
                "--lib",
                "--bins",
                "--examples",
                "--locked",
                "--no-deps",
                "--document-private-items",
            ])
            .env(
                "RUSTDOCFLAGS",
                "-D rustdoc::broken_intra_doc_links -A rustdoc::private_intra_doc_links",
            ),
    )?;
    if has_cargo_command("deny")? {
        checked(cargo()?.args(["deny", "--offline", "check", "bans", "licenses", "sources"]))?;
    } else {
        eprintln!(
            "cargo-deny is not installed: deny.toml was not checked (`cargo install cargo-deny`)"
        );
    }
    Ok(())
}
