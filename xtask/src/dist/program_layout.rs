//! The layout of a linked program by the load that it serves (LLVM's BOLT).

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{
    llvm_tool::{BOLT, LlvmTool, MERGE_FDATA},
    training_load::TrainingLoad,
};
use crate::run::{checked, empty_folder, path_option};

/// The flags of the link of a program that is laid out: functions can only be moved if the linker
/// leaves its relocations in the file.
pub(super) const LINK_FLAGS: [&str; 1] = ["-Clink-arg=-Wl,--emit-relocs"];

/// The changes of the program: the blocks of each function follow one another as they are executed,
/// functions that call each other lie together, and blocks that the load never reached lie apart,
/// with what unwinds them.
const LAYOUT: [&str; 6] = [
    "-reorder-blocks=ext-tsp",
    "-reorder-functions=cdsort",
    "-split-functions",
    "-split-all-cold",
    "-split-eh",
    "-icf=1",
];

const WITHOUT_BOLT: &str = "the layout of weir needs LLVM's BOLT: without it, `cargo xtask dist --without-layout` builds a weir whose calls take nearly a third more CPU time";

/// The programs that lay out another one.
pub(super) struct LayoutTools {
    bolt: LlvmTool,
    merger: LlvmTool,
}

impl LayoutTools {
    /// Finds the programs.
    ///
    /// # Errors
    /// One is missing and cannot be installed. The message names the option that needs none.
    pub(super) fn find() -> anyhow::Result<Self> {
        let find = |names| LlvmTool::find_or_install(names).context(WITHOUT_BOLT);
        Ok(Self {
            bolt: find(&BOLT)?,
            merger: find(&MERGE_FDATA)?,
        })
    }

    /// Rewrites `weir`, which was linked with [`LINK_FLAGS`], and returns the new program.
    pub(super) fn lay_out(&self, weir: &Path, load: &TrainingLoad) -> anyhow::Result<PathBuf> {
        let folder = empty_folder("layout")?;
        let counting = folder.join("counting-weir");
        let counts = empty_folder("layout/counts")?;
        checked(
            self.bolt
                .command()
                .arg(weir)
                .arg("-instrument")
                .arg(path_option("-instrumentation-file=", &counts.join("weir"))?)
                // Each process of the load has a file of its own.
                .arg("-instrumentation-file-append-pid")
                .arg("-o")
                .arg(&counting),
        )?;
        let written = load.serve(&counting, &counts)?;
        let merged = folder.join("merged.fdata");
        checked(self.merger.command().arg("-o").arg(&merged).args(written))?;
        let laid_out = folder.join("weir");
        checked(
            self.bolt
                .command()
                .arg(weir)
                .arg(path_option("-data=", &merged)?)
                .args(LAYOUT)
                .arg("-o")
                .arg(&laid_out),
        )?;
        Ok(laid_out)
    }
}
