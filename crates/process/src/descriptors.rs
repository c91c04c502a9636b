//! File descriptors that are passed from one process to another over a socket (`SCM_RIGHTS`,
//! `unix(7)`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use weir_core::upstream::HandoverSession;

/// The most descriptors that go with one byte.
pub const MAX_DESCRIPTORS: usize = HandoverSession::MAX_DESCRIPTORS;

/// Sends one byte with these descriptors: at most [`MAX_DESCRIPTORS`].
///
/// # Errors
/// The other end is closed, or there are too many descriptors.
pub async fn send(socket: &UnixStream, byte: u8, given: &[BorrowedFd<'_>]) -> io::Result<()> {
    let send = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
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

/// Receives one byte and the descriptors that came with it. Absent once the other end is closed.
///
/// # Errors
/// The error of the system call.
pub async fn receive(socket: &UnixStream) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    socket
        .async_io(Interest::READABLE, || receive_now(socket))
        .await
}

fn receive_now(socket: &UnixStream) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
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
        // Without such a flag, a process that another thread starts in between inherits them, too.
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok((got.bytes > 0).then_some((byte[0], given)))
}

/// Keeps processes that are started meanwhile from inheriting the descriptors.
#[cfg(target_os = "linux")]
const FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const FLAGS: RecvFlags = RecvFlags::empty();
