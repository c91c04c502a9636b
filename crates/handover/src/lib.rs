//! Graceful restart: one process takes over the listening sockets of another, and no connection is
//! refused in between.
//!
//! A process can inherit its listening sockets instead of binding them: from systemd
//! (`weir.socket`), or from the previous process. On SIGUSR2 weir starts its own program again with
//! the sockets, and drains once the successor serves. Both use systemd's protocol
//! (`sd_listen_fds(3)`). Between two weirs a third socket, the hand-over socket, reports the
//! progress of each. A successor that cannot start leaves the predecessor serving.
//!
//! The operators' changes move, and the audit's chain continues. Legacy sessions move with their
//! log levels, subscriptions and replay logs, with their sessions at Streamable HTTP upstreams, and
//! with child processes. Running calls end in the process that began them: cancellations, and
//! answers to their elicitations, reach them over the link between both processes, and child
//! processes are relayed. Parked calls stay there too, and the requests that continue them are
//! forwarded. So are the last requests of the predecessor's clients about what is in the successor
//! alone. Sealed values that clients hold (cursors, states) open in the successor.
//! Not moved: HTTP+SSE connections on either side, and counters of limits.

mod generated_seal_key;
mod link;
mod message;
mod movable_tasks;
mod moved_override;
mod process_streams;
mod protocol;
mod resources;
mod session_imports;
mod state_transfer;
mod stores;
mod successor;
#[cfg(test)]
mod tests;

use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use listenfd::ListenFd;

pub use generated_seal_key::GeneratedSealKey;
pub use movable_tasks::MovableTasks;
pub use moved_override::{MovedOverride, MovedOverrideTarget};
pub use process_streams::ProcessStreams;
pub use protocol::{DrainingPredecessor, HandoverState, Predecessor};
pub use resources::HandoverResources;
pub use state_transfer::MovableState;
pub use stores::{MovableRecords, MovableReplays};
pub use successor::{RunningGateway, Successor, start_successor};

use resources::{CLIENTS, CLUSTER, HANDOVER, KEEPER, OPERATORS};

/// The sockets that this process was started with.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    clients: Option<TcpListener>,
    operators: Option<TcpListener>,
    cluster: Option<TcpListener>,
    predecessor: Option<UnixStream>,
    keeper: Option<UnixStream>,
}

impl InheritedSockets {
    /// Takes the sockets named by the environment. Call it once, before any file is opened or
    /// thread started. Sockets without a name of weir's are first the clients' and then the
    /// operators'.
    ///
    /// # Errors
    ///
    /// For people: a socket is no listening socket, or there are more than weir can use.
    pub fn take() -> Result<Self, String> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut given = ListenFd::from_env();
        let mut own = Self::default();
        let (family, kind) = (socket2::Domain::UNIX.into(), socket2::Type::STREAM.into());
        for at in 0..given.len() {
            let wrong =
                |error: std::io::Error| format!("socket {at} that weir was started with: {error}");
            let listener = match names.next().unwrap_or_default() {
                HANDOVER => {
                    own.predecessor = given
                        .take_custom(at, family, kind, "link to the previous process")
                        .map_err(wrong)?;
                    continue;
                }
                KEEPER => {
                    own.keeper = given
                        .take_custom(at, family, kind, "pipe to the keeper")
                        .map_err(wrong)?;
                    continue;
                }
                OPERATORS => &mut own.operators,
                CLUSTER => &mut own.cluster,
                CLIENTS => &mut own.clients,
                _ if own.clients.is_none() => &mut own.clients,
                _ => &mut own.operators,
            };
            if listener.is_some() {
                return Err(format!(
                    "weir was started with {} sockets, and cannot use number {at}",
                    given.len()
                ));
            }
            *listener = given.take_tcp_listener(at).map_err(wrong)?;
        }
        Ok(own)
    }

    /// Returns the sockets, and the previous process if it is a weir that waits.
    ///
    /// # Errors
    ///
    /// The previous process sends no greeting, or one of another version.
    pub fn open(self) -> Result<(HandoverResources, Option<Predecessor>), String> {
        let Self {
            clients,
            operators,
            cluster,
            predecessor,
            keeper,
        } = self;
        let (sealing, predecessor) = match predecessor {
            None => (None, None),
            Some(socket) => {
                let (sealing, predecessor) =
                    Predecessor::read_greeting(socket).map_err(|error| {
                        format!("the previous process sent no valid greeting: {error}")
                    })?;
                (Some(sealing), Some(predecessor))
            }
        };
        Ok((
            HandoverResources {
                clients,
                operators,
                cluster,
                sealing,
                state: None,
                keeper,
            },
            predecessor,
        ))
    }
}
