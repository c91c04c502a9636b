//! The settings of the client side that depend on the upstreams and on the memory.

use std::net::SocketAddr;

use weir_config::Config;

use crate::help_page::help_page;

/// Returns the settings of the client side at its bound address. Callers' tokens are kept only if
/// some upstream exchanges them; list pages are cached within the memory.
pub(crate) fn of_config(config: &Config, listener: SocketAddr) -> weir_front::FrontSettings {
    let help = Some(help_page(config, listener));
    let unserved = config
        .team_files
        .iter()
        .flat_map(|file| file.unserved.clone())
        .collect();
    let mut settings = weir_front::FrontSettings {
        keep_tokens: config.exchanges_tokens(),
        help,
        unserved,
        ..config.front.clone()
    };
    settings.limits.page_cache_bytes = weir_memory::pages(config);
    settings
}
