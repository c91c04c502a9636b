//! Socket options: of the listening socket, and of each accepted one.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};

use crate::listener_settings::ListenerLimits;

/// Returns the inherited socket, or else binds and listens. Must be called inside a tokio runtime.
///
/// # Errors
/// The address is taken or not allowed.
pub fn bind(
    inherited: Option<std::net::TcpListener>,
    address: SocketAddr,
    backlog: u32,
) -> io::Result<TcpListener> {
    if let Some(listener) = inherited {
        listener.set_nonblocking(true)?;
        return TcpListener::from_std(listener);
    }
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // A restart must not wait for the old process's connections to leave TIME_WAIT.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    TcpListener::from_std(socket.into())
}

/// Sets the options that detect a vanished client (A23). A socket that refuses an option is served
/// all the same.
pub(crate) fn set_options(stream: &TcpStream, limits: &ListenerLimits) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(limits.tcp_keepalive)
        .with_interval(limits.tcp_keepalive / 3)
        .with_retries(3);
    for (option, result) in [
        ("nodelay", stream.set_nodelay(true)),
        ("keepalive", socket.set_tcp_keepalive(&keepalive)),
        (
            "user_timeout",
            user_timeout(&socket, limits.tcp_user_timeout),
        ),
    ] {
        if let Err(error) = result {
            tracing::debug!(option, %error, "socket option not set");
        }
    }
}

#[cfg(target_os = "linux")]
fn user_timeout(socket: &SockRef<'_>, time: Duration) -> io::Result<()> {
    socket.set_tcp_user_timeout(Some(time))
}

#[cfg(not(target_os = "linux"))]
fn user_timeout(_socket: &SockRef<'_>, _time: Duration) -> io::Result<()> {
    Ok(())
}
