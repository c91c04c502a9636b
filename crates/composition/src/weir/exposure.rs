//! The rules about the address that a listener is bound to, as the system gives it (`getsockname`).
//!
//! The config's check uses its own `listen`, the address that a start would bind. A socket
//! inherited from systemd or from the previous process, and the listener of a process that reloads,
//! may be bound elsewhere. So the bound address decides.

use std::net::SocketAddr;

use weir_config::{AdminPlan, Config};
use weir_config_file::config_report::ConfigPath;
use weir_config_file::local_host::is_local;

/// A listener that would serve other machines without asking for credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exposure {
    /// The clients' listener.
    #[error(
        "auth.mode: with `none`, every client that reaches {0} could call every tool, and the listener for clients is \
         bound to that address (write `auth` with credentials, or write auth: {{ mode: none, allow_anyone: true }})"
    )]
    Clients(SocketAddr),
    /// The operators' listener.
    #[error(
        "admin.auth: is missing: every client that reaches {0} could read everything and disable upstreams, and the \
         listener for operators is bound to that address (write admin: {{ auth: {{ token: \"${{WEIR_ADMIN_TOKEN}}\" }} }})"
    )]
    Operators(SocketAddr),
}

/// Checks the config against the bound address of the clients' listener.
///
/// # Errors
/// It asks for no credentials, and other machines can reach the address.
pub(super) fn check_clients(bound: SocketAddr, config: &Config) -> Result<(), Exposure> {
    let is_open = !config.auth.required && !config.waivers.gives_up(&ConfigPath::at("auth.mode"));
    if is_open && !is_local(bound) {
        Err(Exposure::Clients(bound))
    } else {
        Ok(())
    }
}

/// Checks the plan against the bound address of the operators' listener.
///
/// # Errors
/// It names no operators, and other machines can reach the address.
pub(super) fn check_operators(bound: SocketAddr, plan: &AdminPlan) -> Result<(), Exposure> {
    if !plan.is_guarded() && !is_local(bound) {
        Err(Exposure::Operators(bound))
    } else {
        Ok(())
    }
}
