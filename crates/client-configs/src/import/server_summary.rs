//! One-line descriptions of other programs' servers, without credentials.

use weir_config_file::foreign::found_servers::FoundServer;

use crate::import::credentials::{masked_command, masked_url};

/// Returns the transport and address of a server in one line, without credentials.
pub(crate) fn summary(server: &FoundServer) -> String {
    match (&server.url, &server.command) {
        (Some(url), _) if server.is_sse => format!("sse    {}", masked_url(url)),
        (Some(url), _) => format!("http   {}", masked_url(url)),
        (None, command) => {
            format!(
                "stdio  {}",
                masked_command(command.as_deref().unwrap_or_default(), &server.args)
            )
        }
    }
}
