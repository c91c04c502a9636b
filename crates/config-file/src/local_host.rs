//! Addresses and hosts that are this machine.

use std::net::{IpAddr, SocketAddr};

/// Reports if an address is reachable from this machine only.
pub fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Reports if the host of a URL is this machine, by its name or its address.
pub fn is_local_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_local = |address: IpAddr| is_local(SocketAddr::new(address, 0));
    host.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(is_local)
}
