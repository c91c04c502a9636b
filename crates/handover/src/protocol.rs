//! The text protocol between two processes while one takes over from the other: a few short lines.
//!
//! | sender | line | when |
//! |---|---|---|
//! | predecessor | `weir 3 KEY` | before the successor runs |
//! | successor | `prepared` | it has read its config, and will now open its files |
//! | predecessor | `go WILL` | it has put its audit file aside; the [`HandoverState`] is JSON |
//! | successor | `serving` | it accepts; the predecessor drains. From now on both send a [`HandoverMessage`](super::message::HandoverMessage) a line |

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use weir_audit::{ChainHead, ChainHeads};
use weir_core::port::ReplicaId;

use crate::generated_seal_key::GeneratedSealKey;
use crate::moved_override::MovedOverride;
use crate::state_transfer::{MovableState, receive_state};

/// The greeting with the version of this protocol. Different versions cannot take over from one
/// another.
pub(super) const GREETING: &str = "weir 3";
pub(super) const PREPARED: &str = "prepared";
pub(super) const GO: &str = "go ";
pub(super) const SERVING: &str = "serving";

/// The timeout of each message from the other process.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The state that is final only when the successor may begin.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct HandoverState {
    /// The last audit record, after which the chain continues; as [`ChainHead`] is written.
    pub audit: Option<String>,
    /// The last record of the chain of refusals.
    pub refusals: Option<String>,
    /// The operators' changes in force.
    pub changes: Vec<MovedOverride>,
    /// The name of the replica among others, in hexadecimal digits: the successor goes on under it.
    pub replica: Option<String>,
    /// The other replicas as this process last knew them, in the form of the shared store. The
    /// successor uses it until the store answers.
    pub other_replicas: Option<String>,
    /// The generation of the successor: the number of graceful restarts before it.
    pub generation: u32,
}

impl HandoverState {
    /// Returns the name of the replica, if there is one.
    pub fn replica_id(&self) -> Option<ReplicaId> {
        ReplicaId::from_text(self.replica.as_ref()?)
    }

    /// Returns this state with the name of the replica.
    #[must_use]
    pub fn with_replica(self, replica: &ReplicaId) -> Self {
        Self {
            replica: Some(replica.to_string()),
            ..self
        }
    }

    /// Returns the last audit records, if there are any.
    pub fn chain_heads(&self) -> ChainHeads {
        let read = |head: &Option<String>| head.as_deref().and_then(ChainHead::read);
        ChainHeads {
            calls: read(&self.audit),
            refusals: read(&self.refusals),
        }
    }
}

/// The previous process, while it drains.
#[derive(Debug)]
pub struct DrainingPredecessor(JoinHandle<ChainHeads>);

impl DrainingPredecessor {
    /// Waits for the end of the previous process and returns its last audit records, if it sent
    /// them. Cancel safe.
    pub async fn wait_for_end(&mut self) -> ChainHeads {
        (&mut self.0).await.unwrap_or_default()
    }
}

/// The previous process, as its successor sees it. Dropping it without
/// [`Predecessor::report_serving`] signals that the hand-over failed.
#[derive(Debug)]
pub struct Predecessor {
    socket: BufReader<UnixStream>,
}

impl Predecessor {
    /// Reads the greeting with the sealing key.
    ///
    /// # Errors
    ///
    /// The greeting is another one, or does not come in time.
    pub(super) fn read_greeting(socket: UnixStream) -> io::Result<(GeneratedSealKey, Self)> {
        socket.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
        let mut socket = BufReader::new(socket);
        let greeting = read_line(&mut socket)?;
        let key = greeting
            .strip_prefix(GREETING)
            .and_then(|rest| GeneratedSealKey::read(rest.trim()));
        let sealing = key.ok_or_else(|| io::Error::other("it is a weir of another version"))?;
        Ok((sealing, Self { socket }))
    }

    /// Reports that this process is about to open its files, and waits for permission. Returns the
    /// previous process's last state.
    ///
    /// # Errors
    ///
    /// The previous process is gone, or aborted the hand-over.
    pub fn wait_for_permission(&mut self) -> io::Result<HandoverState> {
        write_line(self.socket.get_ref(), PREPARED)?;
        let message = read_line(&mut self.socket)?;
        match message.strip_prefix(GO).map(serde_json::from_str) {
            Some(Ok(state)) => Ok(state),
            _ => Err(io::Error::other(format!(
                "unexpected message `{message:.40}`"
            ))),
        }
    }

    /// Reports that this process serves, and receives the previous process's sessions into `state`.
    /// Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// The previous process is gone.
    pub fn report_serving(self, state: MovableState) -> io::Result<DrainingPredecessor> {
        let socket = self.socket.into_inner();
        write_line(&socket, SERVING)?;
        socket.set_nonblocking(true)?;
        let socket = tokio::net::UnixStream::from_std(socket)?;
        state.set_predecessor_running(true);
        let receiving = tokio::spawn(receive_state(state, socket));
        Ok(DrainingPredecessor(receiving))
    }
}

/// Writes one line.
pub(super) fn write_line(mut socket: &UnixStream, text: &str) -> io::Result<()> {
    socket.write_all(format!("{text}\n").as_bytes())
}

/// Reads one line.
fn read_line(socket: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut line = String::new();
    socket.read_line(&mut line)?;
    match line.pop() {
        Some('\n') => Ok(line),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn greeting_of_another_version_is_refused() {
        let key = GeneratedSealKey::read(&"A".repeat(43)).unwrap().text();
        let read = |greeting: &str| {
            let (own, other) = UnixStream::pair().unwrap();
            write_line(&other, greeting).unwrap();
            Predecessor::read_greeting(own).map_err(|error| error.to_string())
        };
        assert!(read(&format!("{GREETING} {key}")).is_ok());
        let other = "it is a weir of another version";
        for greeting in [format!("weir 2 {key}"), GREETING.to_owned(), String::new()] {
            assert_eq!(read(&greeting).unwrap_err(), other, "{greeting}");
        }
    }
}
