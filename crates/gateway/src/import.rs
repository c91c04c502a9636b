//! Converts servers in the files of MCP clients to upstreams of weir. It neither starts a server
//! nor connects to one.

mod credentials;
mod server_converter;
mod server_summary;
mod upstream_entry;

use std::path::{Path, PathBuf};

pub(crate) use credentials::{MASK, has_credential, looks_secret, split_credential};
pub(crate) use server_converter::{ConvertedServer, ServerConverter, SkippedServer};
pub(crate) use upstream_entry::{UpstreamEntry, flow, scalar};

use crate::config::{ConfigProblem, FoundFile, find};
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
) -> Vec<Result<ClientFile, ConfigProblem>> {
    let read = |(client, file): (Option<McpClient>, PathBuf)| {
        find(&file, Some(home)).map(|found| ClientFile {
            client,
            file,
            found,
        })
    };
    files.into_iter().map(read).collect()
}
