//! `cargo xtask dist`: weir as it is deployed, laid out by the paths that a load takes through it.
//!
//! A call passes some two hundred kilobytes of code, more than the fastest cache of a processor
//! holds. The compiler gets the count of each branch under a load, and optimizes the paths of
//! calls. The linked program is then rewritten: code that a second load executes lies together, in
//! the order of its execution, and all other code lies elsewhere.

mod guided_build;
mod llvm_tool;
mod program_layout;
mod training_load;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;

use self::{
    llvm_tool::{LlvmTool, PROFDATA},
    program_layout::{LINK_FLAGS, LayoutTools},
    training_load::TrainingLoad,
};
use crate::run::target_dir;

/// Options of the command.
#[derive(Args)]
pub(crate) struct DistOptions {
    /// The profile of both builds
    #[arg(long, default_value = "dist", value_name = "NAME")]
    profile: String,
    /// Leave the linked program as it is: for a machine without `llvm-bolt`
    #[arg(long)]
    without_layout: bool,
}

/// Builds weir in a profile, and prints its path.
pub(crate) fn run(options: &DistOptions) -> anyhow::Result<()> {
    let weir = if options.without_layout {
        build(&options.profile, None)?
    } else {
        build_as_deployed(&options.profile)?
    };
    eprintln!("built {}", weir.display());
    Ok(())
}

/// Builds weir in a profile, guided by a load and laid out by it, and returns its path.
///
/// # Errors
/// A step fails, or a program of LLVM is missing.
pub(crate) fn build_as_deployed(profile: &str) -> anyhow::Result<PathBuf> {
    build(profile, Some(&LayoutTools::find()?))
}

/// Builds weir in a profile, guided by a load, and has the tools lay it out.
fn build(profile: &str, layout: Option<&LayoutTools>) -> anyhow::Result<PathBuf> {
    // First, so that a missing program is reported before the long builds.
    let merger = LlvmTool::find_or_install(&PROFDATA)?;
    let load = TrainingLoad::build()?;
    let flags = layout.map_or(&[][..], |_| &LINK_FLAGS[..]);
    let linked = guided_build::build(profile, flags, &merger, &load)?;
    let weir = match layout {
        Some(tools) => tools.lay_out(&linked, &load)?,
        None => linked,
    };
    put_in_place(&weir, profile)
}

/// Copies a program to the place of a build without a target, where scripts look for it.
fn put_in_place(weir: &Path, profile: &str) -> anyhow::Result<PathBuf> {
    let place = target_dir()?.join(profile).join("weir");
    fs::create_dir_all(place.parent().context("the place has no folder")?)?;
    fs::copy(weir, &place).with_context(|| format!("cannot write {}", place.display()))?;
    Ok(place)
}
