//! The settings of the client side that depend on the upstreams and on the memory.

use std::net::SocketAddr;

use weir_upstream::TransportSettings;

use crate::config::checked_config::Config;
use crate::mcp_clients::help_page;

/// Returns the settings of the client side at its bound address. Callers' tokens are kept only if
/// some upstream exchanges them; list pages are cached within the memory.
pub(crate) fn of_config(config: &Config, listener: SocketAddr) -> weir_front::FrontSettings {
    let exchanges = |transport: &TransportSettings| match transport {
        TransportSettings::Http(http) => http
            .auth
            .as_ref()
            .is_some_and(|auth| auth.exchange.is_some()),
        TransportSettings::Stdio(_) => false,
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
    let mut settings = weir_front::FrontSettings {
        keep_tokens,
        help,
        unserved,
        ..config.front.clone()
    };
    settings.limits.page_cache_bytes = crate::memory::pages(config);
    settings
}
