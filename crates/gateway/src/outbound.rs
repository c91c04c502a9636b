//! What the client side has to do for the server side's sake.

use std::net::SocketAddr;

use weir_upstream::Transport;

use crate::config::Config;
use crate::mcp_clients::help_page;

/// The settings of the client side at its bound address: callers' tokens are kept only where some
/// upstream is called in their names, and no more pages of lists than there is memory for.
pub(crate) fn front(config: &Config, listener: SocketAddr) -> weir_front::Settings {
    let exchanges = |transport: &Transport| match transport {
        Transport::Http(http) => http
            .auth
            .as_ref()
            .is_some_and(|auth| auth.exchange.is_some()),
        Transport::Stdio(_) => false,
    };
    let keep_tokens = config
        .upstreams
        .iter()
        .any(|plan| exchanges(&plan.settings.transport));
    let help = Some(help_page(config, listener));
    let unserved = config
        .team_files
        .iter()
        .flat_map(|file| file.unserved.clone())
        .collect();
    let mut settings = weir_front::Settings {
        keep_tokens,
        help,
        unserved,
        ..config.front.clone()
    };
    settings.limits.page_cache_bytes = crate::memory::pages(config);
    settings
}
