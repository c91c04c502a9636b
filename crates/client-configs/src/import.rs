//! Converts servers in the files of MCP clients to upstreams of weir. It neither starts a server
//! nor connects to one.

mod command_line;
pub mod credentials;
pub mod server_converter;
mod server_summary;
pub mod upstream_entry;

use std::path::{Path, PathBuf};

use weir_config_file::config_report::ConfigProblem;
use weir_config_file::foreign::found_servers::{FoundFile, find};

pub(crate) use server_converter::SkippedServer;

use crate::mcp_clients::McpClient;

/// A file that was read.
pub struct ClientFile {
    /// The client that it belongs to, if known.
    pub client: Option<McpClient>,
    /// The path of the file.
    pub file: PathBuf,
    /// The servers in the file, and its problems.
    pub found: FoundFile,
}

impl std::fmt::Debug for ClientFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientFile").finish_non_exhaustive()
    }
}

/// Reads these files.
///
/// # Errors
/// A file cannot be read or parsed.
pub fn read(
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
