//! Descriptors that go from one process to another, over a socket (`SCM_RIGHTS`, `unix(7)`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use weir_core::upstream::ExportedSession;

/// The most descriptors that go with a byte.
pub const MOST: usize = ExportedSession::MOST_DESCRIPTORS;

/// Sends one byte, and these descriptors with it: at most [`MOST`].
///
/// # Errors
/// Nobody has the other end any more, or there are more descriptors.
pub async fn send(socket: &UnixStream, byte: u8, given: &[BorrowedFd<'_>]) -> io::Result<()> {
    let send = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !given.is_empty() && !control.push(SendAncillaryMessage::ScmRights(given)) {
            return Err(io::Error::other("no room for so many descriptors"));
        }
        rustix::net::sendmsg(
            socket,
            &[IoSlice::new(&[byte])],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    };
    socket.async_io(Interest::WRITABLE, send).await
}

/// Receives one byte, and the descriptors that came with it; `None` where nobody has the other end
/// any more.
///
/// # Errors
/// As the system reports them.
pub async fn receive(socket: &UnixStream) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    socket
        .async_io(Interest::READABLE, || receive_now(socket))
        .await
}

fn receive_now(socket: &UnixStream) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        FLAGS,
    )?;
    let mut given = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            given.extend(descriptors);
        }
    }
    #[cfg(not(target_os = "linux"))]
    for descriptor in &given {
        // There is no flag for it. What another thread starts in between has them, too.
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok((got.bytes > 0).then_some((byte[0], given)))
}

/// No process that is started meanwhile inherits what is received.
#[cfg(target_os = "linux")]
const FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const FLAGS: RecvFlags = RecvFlags::empty();
