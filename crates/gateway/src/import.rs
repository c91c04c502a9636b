//! Converts servers in the files of MCP clients to upstreams of weir. It neither starts a server
//! nor connects to one.

mod convert;
mod entry;
mod secrets;
mod shown;

use std::path::{Path, PathBuf};

pub(crate) use convert::{ConvertedServer, ServerConverter, SkippedServer};
pub(crate) use entry::{UpstreamEntry, flow, scalar};
pub(crate) use secrets::{MASK, has_credential, looks_secret, split_credential};

use crate::config::{FoundFile, Problem, find};
use crate::mcp_clients::McpClient;

/// A file that was read.
pub(crate) struct ClientFile {
    /// The client that it belongs to, if known.
    pub(crate) client: Option<McpClient>,
    pub(crate) file: PathBuf,
    pub(crate) found: FoundFile,
}

/// Reads these files.
///
/// # Errors
/// A file cannot be read or parsed.
pub(crate) fn read(
    files: Vec<(Option<McpClient>, PathBuf)>,
    home: &Path,
) -> Vec<Result<ClientFile, Problem>> {
    let read = |(client, file): (Option<McpClient>, PathBuf)| {
        find(&file, Some(home)).map(|found| ClientFile {
            client,
            file,
            found,
        })
    };
    files.into_iter().map(read).collect()
}
