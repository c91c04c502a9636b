//! A port that refuses every connection.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port of 127.0.0.1 that is taken, and at which nothing listens: connections to it are refused,
/// and no other program is given it, until this is dropped.
#[derive(Debug)]
pub struct ClosedPort(TcpSocket);

impl ClosedPort {
    /// Takes any free port.
    ///
    /// # Panics
    /// Where the system gives none.
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

    /// Its address.
    ///
    /// # Panics
    /// Where the system does not know it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("a bound socket has an address")
    }
}
