//! The resources that a process leaves to its successor, and the names of its sockets.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use crate::generated_seal_key::GeneratedSealKey;
use crate::protocol::HandoverState;

/// The names of the sockets, in `LISTEN_FDNAMES` and in `FileDescriptorName=`.
pub(super) const CLIENTS: &str = "clients";
pub(super) const OPERATORS: &str = "operators";
pub(super) const CLUSTER: &str = "cluster";
pub(super) const HANDOVER: &str = "handover";
pub(super) const KEEPER: &str = "keeper";

/// The resources that a process leaves to its successor.
#[derive(Debug, Default)]
pub struct HandoverResources {
    /// The listening socket for clients.
    pub clients: Option<TcpListener>,
    /// The listening socket for operators.
    pub operators: Option<TcpListener>,
    /// The listening socket for other replicas.
    pub cluster: Option<TcpListener>,
    /// The generated sealing key, absent if the config has `keys`.
    pub sealing: Option<GeneratedSealKey>,
    /// The predecessor's last state; absent without a predecessor.
    pub state: Option<HandoverState>,
    /// The pipe to the keeper of the child processes.
    pub keeper: Option<UnixStream>,
}
