//! The messages between weir and the keeper.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

/// The byte that carries a child's descriptors over the pipe: the version of this protocol. After
/// an upgrade by hand-over a process may have the keeper of another version, which does not take
/// its children.
pub(super) const PROTOCOL_VERSION: u8 = 2;

/// The number of descriptors with that byte: the child's line, its input, its output, its error
/// stream.
pub(super) const DESCRIPTORS: usize = 4;

/// The byte before the keeper's first message about a child. It carries a descriptor of the process
/// on systems that have such descriptors.
pub(super) const PROCESS_BYTE: u8 = b'p';

/// The child to start, as a line of JSON. It holds secrets in `env`, which `Debug` leaves out.
#[derive(Serialize, Deserialize)]
pub struct ChildSpec {
    /// The program, looked up in `PATH` of the environment below.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Its working directory. Default: weir's own.
    pub cwd: Option<PathBuf>,
}

impl fmt::Debug for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec")
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

/// A message of the keeper about one child, as a line of text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeeperMessage {
    /// The program runs.
    Started,
    /// The program cannot be started: the system's error number, or 0, and the error's text.
    Failed(i32, String),
    /// The child is to end and its descendants are noted: its input may be closed now.
    Ending,
    /// The process has ended with this status, in the form of `wait(2)`.
    Ended(i32),
}

impl KeeperMessage {
    pub(super) fn failed(error: &io::Error) -> Self {
        Self::Failed(
            error.raw_os_error().unwrap_or_default(),
            error.to_string().replace(['\n', '\r'], " "),
        )
    }

    pub(super) fn to_line(&self) -> String {
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

/// Returns the keeper's error as if this process had met it.
pub(super) fn error(number: i32, text: &str) -> io::Error {
    if number > 0 {
        io::Error::from_raw_os_error(number)
    } else {
        io::Error::other(text.to_owned())
    }
}

/// Returns the status of `wait(2)`.
pub(super) fn status(raw: i32) -> ExitStatus {
    ExitStatus::from_raw(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        let missing = KeeperMessage::failed(&io::Error::from_raw_os_error(2));
        for word in [
            KeeperMessage::Started,
            KeeperMessage::Ending,
            missing,
            KeeperMessage::failed(&io::Error::other("a\nb")),
            KeeperMessage::Ended(9),
            KeeperMessage::Ended(-1),
        ] {
            assert_eq!(KeeperMessage::parse(word.to_line().trim_end()), Some(word));
        }
        assert_eq!(KeeperMessage::parse("ended"), None);
        assert_eq!(KeeperMessage::parse("begun"), None);
        assert_eq!(
            error(2, "").to_string(),
            io::Error::from_raw_os_error(2).to_string()
        );
        assert_eq!(status(3 << 8).to_string(), "exit status: 3");
    }
}
