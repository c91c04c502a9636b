//! The place of the servers in another program's file, and the origin of that file.

use crate::document::FileFormat;
use crate::env::Environment;
use crate::foreign::file_place::FilePlace;
use std::fmt;

/// The keys that MCP clients keep their servers under. The first one is weir's as well.
pub(crate) const CONTAINERS: [&str; 4] =
    ["mcpServers", "servers", "context_servers", "mcp_servers"];

/// The origin of servers.
pub struct ServerOrigin<'a> {
    /// The format of the file.
    pub format: FileFormat,
    /// The folder of the file, and the project that it belongs to.
    pub place: &'a FilePlace,
    /// The environment variables.
    pub environment: Environment<'a>,
}

impl fmt::Debug for ServerOrigin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOrigin")
            .field("format", &self.format)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}
