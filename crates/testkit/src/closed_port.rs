//! A port that refuses every connection.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};

/// The pause between attempts to take a port.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(1);
/// The connections that may wait for a listener.
const BACKLOG: u32 = 1024;

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
        Self::bound((Ipv4Addr::LOCALHOST, 0).into()).expect("the system gives a port")
    }

    fn bound(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        // Connections of an earlier listener may still be known to the system.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Self(socket))
    }

    /// Takes the port of a listener that is being closed: waits until it is. No other program can
    /// get the port afterwards, so a server that stops keeps its address.
    ///
    /// # Panics
    /// The port cannot be taken for another reason.
    pub(crate) async fn after_listener(address: SocketAddr) -> Self {
        loop {
            match Self::bound(address) {
                Ok(port) => return port,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    tokio::time::sleep(ATTEMPT_PAUSE).await;
                }
                Err(error) => panic!("{address}: {error}"),
            }
        }
    }

    /// Accepts connections from now on.
    ///
    /// # Panics
    /// The system refuses a listener.
    pub(crate) fn into_listener(self) -> TcpListener {
        self.0
            .listen(BACKLOG)
            .unwrap_or_else(|error| panic!("no listener: {error}"))
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
