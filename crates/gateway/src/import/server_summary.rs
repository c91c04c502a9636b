//! One-line descriptions of other programs' servers, without credentials.

use super::credentials::{masked_command, masked_url};
use crate::config::foreign::found_servers::FoundServer;

impl FoundServer {
    /// Returns all texts that may have references.
    pub(super) fn texts(&self) -> impl Iterator<Item = &String> {
        let maps = self.env.iter().chain(&self.headers).map(|(_, text)| text);
        let single = [&self.url, &self.command, &self.cwd].into_iter().flatten();
        single.chain(&self.args).chain(maps)
    }

    /// Returns the transport and address of the server in one line, without credentials.
    pub(super) fn summary(&self) -> String {
        match (&self.url, &self.command) {
            (Some(url), _) if self.is_sse => format!("sse    {}", masked_url(url)),
            (Some(url), _) => format!("http   {}", masked_url(url)),
            (None, command) => {
                format!(
                    "stdio  {}",
                    masked_command(command.as_deref().unwrap_or_default(), &self.args)
                )
            }
        }
    }
}
