//! The section of the status page on connecting clients: the entries of all clients for one
//! endpoint, with its URL.

use std::fmt::Write as _;

use weir_client_configs::mcp_clients::client_entry::EntryCredential;
use weir_client_configs::mcp_clients::client_sections::client_sections;

use super::super::state::AdminState;
use super::html::text;

/// Returns the URL of an endpoint.
pub(super) fn url(desk: &AdminState, path: &str) -> String {
    format!(
        "{}{path}",
        desk.config_history.config().public_base(desk.clients)
    )
}

/// Writes the section about the endpoint of this path, or about the first one.
pub(super) fn section(out: &mut String, desk: &AdminState, wanted: Option<&str>) {
    let config = desk.config_history.config();
    let mut paths = config.endpoints.iter().map(|endpoint| endpoint.id.as_str());
    let chosen = wanted.and_then(|wanted| paths.clone().find(|path| *path == wanted));
    let Some(path) = chosen.or_else(|| paths.next()) else {
        return;
    };
    let url = url(desk, path);
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<section id=\"connect\"><h2>Connect a client to {}</h2>{}</section>",
        text(path),
        client_sections(&url, &EntryCredential::usual(config.requires_api_keys())),
    );
}
