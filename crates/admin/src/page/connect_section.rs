//! The section of the status page on connecting clients: the entries of all clients for one
//! endpoint, with its URL.

use maud::{Markup, html};
use weir_client_configs::mcp_clients::client_entry::EntryCredential;
use weir_client_configs::mcp_clients::client_sections::client_sections;

use crate::page::page_text::text;
use crate::state::AdminState;

/// Returns the URL of an endpoint.
pub(super) fn url(state: &AdminState, path: &str) -> String {
    format!(
        "{}{path}",
        state.config_history.config().public_base(state.clients)
    )
}

/// Returns the section about the endpoint of this path, or about the first one.
pub(super) fn section(state: &AdminState, wanted: Option<&str>) -> Markup {
    let config = state.config_history.config();
    let mut paths = config.endpoints.iter().map(|endpoint| endpoint.id.as_str());
    let chosen = wanted.and_then(|wanted| paths.clone().find(|path| *path == wanted));
    html! {
        @if let Some(path) = chosen.or_else(|| paths.next()) {
            section id="connect" {
                h2 { "Connect a client to " (text(path)) }
                (client_sections(&url(state, path), &EntryCredential::usual(config.requires_api_keys())))
            }
        }
    }
}
