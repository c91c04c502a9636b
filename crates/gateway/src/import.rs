//! Converts servers in the files of MCP clients to upstreams of weir. It neither starts a server
//! nor connects to one.

pub(crate) mod credentials;
pub(crate) mod server_converter;
mod server_summary;
pub(crate) mod upstream_entry;

use std::path::{Path, PathBuf};

pub(crate) use server_converter::SkippedServer;

use crate::config::config_report::ConfigProblem;
use crate::config::foreign::found_servers::{FoundFile, find};
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
