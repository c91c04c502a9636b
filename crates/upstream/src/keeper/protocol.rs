//! The messages between weir and the keeper.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The byte that carries a child's descriptors over the pipe: the version of this protocol. After an upgrade by hand-over a
/// process may have the keeper of another version, which does not take its children.
pub(super) const VERSION: u8 = 2;

/// The descriptors with that byte: the child's line, its input, its output, its error stream.
pub(super) const DESCRIPTORS: usize = 4;

/// The byte before the keeper's first word about a child, with a descriptor of its process where there is one.
pub(super) const PROCESS: u8 = b'p';

/// Sends one byte, and these descriptors with it: at most [`DESCRIPTORS`].
pub(super) async fn send(socket: &UnixStream, byte: u8, given: &[BorrowedFd<'_>]) -> io::Result<()> {
    let send = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !given.is_empty() && !control.push(SendAncillaryMessage::ScmRights(given)) {
            return Err(io::Error::other("no room for so many descriptors"));
        }
        rustix::net::sendmsg(socket, &[IoSlice::new(&[byte])], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    };
    socket.async_io(Interest::WRITABLE, send).await
}

/// Receives one byte, and the descriptors that came with it; `None` where nobody has the other end any more.
pub(super) async fn receive(socket: &UnixStream) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    socket.async_io(Interest::READABLE, || receive_now(socket)).await
}

fn receive_now(socket: &UnixStream) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, FLAGS)?;
    let mut given = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            given.extend(descriptors);
        }
    }
    #[cfg(not(target_os = "linux"))]
    for descriptor in &given {
        // Only the keeper is sent some here, and nothing is started in between: this is its only thread.
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok((got.bytes > 0).then_some((byte[0], given)))
}

/// No process that is started meanwhile inherits what is received.
#[cfg(target_os = "linux")]
const FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const FLAGS: RecvFlags = RecvFlags::empty();

/// The child to start, a line of JSON. It holds secrets in `env`, so it cannot be printed.
#[derive(Serialize, Deserialize)]
pub(crate) struct ChildSpec {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    /// The whole environment.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: Option<PathBuf>,
}

/// A word of the keeper about one child, a line of text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The program runs.
    Started,
    /// The program cannot be started: the system's number of the error, and a text where there is none.
    Failed(i32, String),
    /// The child is to end, and what descends from it is noted: its input may be closed now.
    Ending,
    /// The process has ended with this status, as `wait(2)` has it.
    Ended(i32),
}

impl Word {
    pub(super) fn failed(error: &io::Error) -> Self {
        Self::Failed(error.raw_os_error().unwrap_or_default(), error.to_string().replace(['\n', '\r'], " "))
    }

    pub(super) fn line(&self) -> String {
        match self {
            Self::Started => "started\n".to_owned(),
            Self::Ending => "ending\n".to_owned(),
            Self::Failed(number, text) => format!("failed {number} {text}\n"),
            Self::Ended(status) => format!("ended {status}\n"),
        }
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "started" => Some(Self::Started),
            "ending" => Some(Self::Ending),
            "failed" => {
                let (number, text) = rest.split_once(' ').unwrap_or((rest, ""));
                Some(Self::Failed(number.parse().ok()?, text.to_owned()))
            }
            "ended" => rest.parse().ok().map(Self::Ended),
            _ => None,
        }
    }
}

/// The error that the keeper met, as if this process had met it.
pub(super) fn error(number: i32, text: &str) -> io::Error {
    if number > 0 { io::Error::from_raw_os_error(number) } else { io::Error::other(text.to_owned()) }
}

/// The status of `wait(2)`.
pub(super) fn status(raw: i32) -> ExitStatus {
    ExitStatus::from_raw(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_written() {
        let missing = Word::failed(&io::Error::from_raw_os_error(2));
        for word in [
            Word::Started,
            Word::Ending,
            missing,
            Word::failed(&io::Error::other("a\nb")),
            Word::Ended(9),
            Word::Ended(-1),
        ] {
            assert_eq!(Word::parse(word.line().trim_end()), Some(word));
        }
        assert_eq!(Word::parse("ended"), None);
        assert_eq!(Word::parse("begun"), None);
        assert_eq!(error(2, "").to_string(), io::Error::from_raw_os_error(2).to_string());
        assert_eq!(status(3 << 8).to_string(), "exit status: 3");
    }
}
