//! The place of the servers in another program's file, and the origin of that file.

use super::super::document::FileFormat;
use super::super::env::Environment;
use super::file_place::FilePlace;

/// The keys that MCP clients keep their servers under. The first one is weir's as well.
pub(super) const CONTAINERS: [&str; 4] =
    ["mcpServers", "servers", "context_servers", "mcp_servers"];

/// The origin of servers.
pub(crate) struct ServerOrigin<'a> {
    /// The format of the file.
    pub(crate) format: FileFormat,
    /// The folder of the file, and the project that it belongs to.
    pub(crate) place: &'a FilePlace,
    /// The environment variables.
    pub(crate) environment: Environment<'a>,
}
