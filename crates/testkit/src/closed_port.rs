//! A port that refuses every connection.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A bound port of 127.0.0.1 without a listener. Connections to it are refused, and no other
/// program gets it, until this is dropped.
#[derive(Debug)]
pub struct ClosedPort(TcpSocket);

impl ClosedPort {
    /// Takes any free port.
    ///
    /// # Panics
    /// The system has no free port.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "it takes something from the system"
    )]
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("the system gives a socket");
        socket
            .bind((Ipv4Addr::LOCALHOST, 0).into())
            .expect("the system gives a port");
        Self(socket)
    }

    /// The port's address.
    ///
    /// # Panics
    /// The system does not know the address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("a bound socket has an address")
    }
}
