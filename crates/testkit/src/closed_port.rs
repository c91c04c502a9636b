//! A port that refuses every connection.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};

/// The pause between attempts to listen.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(1);
const MAX_ATTEMPTS: usize = 20_000;
/// The connections that may wait for a listener.
const BACKLOG: u32 = 1024;

/// A bound port of 127.0.0.1 without a listener. Connections to it are refused, and no program that
/// binds any free port gets it, until this is dropped.
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
        // A listener binds the port once more.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Self(socket))
    }

    /// Accepts connections from now on, until the listener is dropped. Waits until an earlier one is
    /// closed.
    ///
    /// # Panics
    /// The earlier listener stays open, or the system refuses another one.
    pub(crate) async fn listen(&self) -> TcpListener {
        for _ in 0..MAX_ATTEMPTS {
            let beside = Self::bound(self.address()).and_then(|beside| beside.0.listen(BACKLOG));
            match beside {
                Ok(listener) => return listener,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    tokio::time::sleep(ATTEMPT_PAUSE).await;
                }
                Err(error) => panic!("{}: {error}", self.address()),
            }
        }
        panic!("{} has another listener", self.address());
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
