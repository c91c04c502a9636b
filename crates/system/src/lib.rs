//! The machine: its clock and randomness behind core's ports, its own addresses, files that are
//! written whole, and reads of regular files.

pub mod atomic_file;
pub mod regular_file;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

use weir_core::port::{Clock, Random};

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    began: Instant,
}

impl SystemClock {
    /// Begins its monotonic time at zero.
    #[must_use]
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.began.elapsed()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// The operating system's randomness.
#[derive(Clone, Copy, Debug)]
pub struct SystemRandom;

impl Random for SystemRandom {
    /// # Panics
    ///
    /// If the operating system has no randomness: every id and key would be guessable, so weir must
    /// not continue.
    fn fill(&self, buffer: &mut [u8]) {
        if let Err(error) = getrandom::fill(buffer) {
            panic!("the operating system gives no random bytes: {error}");
        }
    }
}

/// Returns the address by which a program on this machine reaches a listener: loopback, if it
/// listens on all addresses.
pub fn on_this_machine(mut listener: SocketAddr) -> SocketAddr {
    if listener.ip().is_unspecified() {
        let loopback = if listener.is_ipv4() {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        } else {
            IpAddr::V6(Ipv6Addr::LOCALHOST)
        };
        listener.set_ip(loopback);
    }
    listener
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_listener_is_reached_on_loopback() {
        for (listener, asked) in [
            ("0.0.0.0:8081", "127.0.0.1:8081"),
            ("[::]:8081", "[::1]:8081"),
            ("10.0.0.7:9", "10.0.0.7:9"),
            ("127.0.0.1:8081", "127.0.0.1:8081"),
        ] {
            let parsed: SocketAddr = listener.parse().expect("an address");
            assert_eq!(on_this_machine(parsed).to_string(), asked);
        }
    }
}
