//! Servers that MCP clients have in their files, converted to upstreams of weir's. Nothing here starts or reaches a server.

mod convert;
mod entry;
mod programs;
mod secrets;
mod shown;

use std::path::{Path, PathBuf};

pub(crate) use convert::{Converted, Converter, Left};
pub(crate) use entry::{Entry, flow, scalar};
pub(crate) use programs::{Home, Program};
pub(crate) use secrets::has_credential;

use crate::config::{FoundFile, Problem, find};

/// A file that was looked at.
pub(crate) struct Source {
    /// The program that it belongs to, where that is known.
    pub(crate) program: Option<Program>,
    pub(crate) file: PathBuf,
    pub(crate) found: FoundFile,
}

/// Reads the files that are there.
///
/// # Errors
/// A file cannot be read or parsed.
pub(crate) fn read(files: Vec<(Option<Program>, PathBuf)>, home: &Path) -> Vec<Result<Source, Problem>> {
    let read = |(program, file): (Option<Program>, PathBuf)| {
        find(&file, Some(home)).map(|found| Source { program, file, found })
    };
    files.into_iter().map(read).collect()
}
