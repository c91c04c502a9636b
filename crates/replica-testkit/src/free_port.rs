//! Ports for servers that tests start, kill and start again.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// The ports that servers are started on. The system gives none of them to a connection or to a
/// listener on any port, so a killed server gets its own port back.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Returns a port without a listener. Tests of other processes begin at other ports.
///
/// # Panics
/// No port is free.
#[must_use]
pub fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    let first = u16::try_from(std::process::id() * 7 % u32::from(count)).unwrap_or_default();
    for _ in 0..count {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed) % count;
        let port = PORTS.start + (first + tried) % count;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port of {PORTS:?} is free");
}
