//! One process after another at the same sockets, and nobody finds the door closed in between.
//!
//! A process may come to its listening sockets in two ways beside binding them: systemd gives them
//! (`weir.socket`), or the process before does. On SIGUSR2 weir starts its own program again with
//! the sockets, and drains once that one serves. Both go by the same protocol, systemd's
//! (`sd_listen_fds(3)`); between two weirs a third socket, the line, says how far the other is. A
//! successor that cannot start changes nothing.
//!
//! What operators changed moves, and the audit's chain goes on. Sessions of older revisions move
//! with their log levels, subscriptions and replay logs, with their sessions at upstreams of
//! Streamable HTTP, and with child processes. Running calls end where they began: cancels of them,
//! and answers to their questions, reach them over the link between both processes, and child
//! processes are relayed. What clients hold sealed (cursors, states) opens in the successor. What
//! does not move: connections of HTTP+SSE on either side, parked calls, the book of tasks, and
//! counters of limits.

mod line;
mod link;
mod message;
mod moving;
mod stores;
mod successor;

use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use data_encoding::BASE64URL_NOPAD;
use listenfd::ListenFd;
use weir_core::port::Random;
use weir_core::seal::{Key, Sealer};

pub(crate) use line::{Parting, Predecessor, Will};
pub(crate) use moving::SessionState;
pub(crate) use stores::{MovableRecords, MovableReplays};
pub(crate) use successor::{Program, Successor};

/// Names of the sockets, in `LISTEN_FDNAMES` and in `FileDescriptorName=`.
const CLIENTS: &str = "clients";
const OPERATORS: &str = "operators";
const LINE: &str = "handover";
const KEEPER: &str = "keeper";

/// What a process leaves to the next one.
#[derive(Debug, Default)]
pub(crate) struct Estate {
    /// The listening socket for clients.
    pub(crate) clients: Option<TcpListener>,
    /// The listening socket for operators.
    pub(crate) operators: Option<TcpListener>,
    /// The key that nobody configured.
    pub(crate) sealing: Option<Sealing>,
    /// What it said last.
    pub(crate) will: Will,
    /// The pipe to the keeper of its child processes.
    pub(crate) keeper: Option<UnixStream>,
}

/// The key of a weir without `keys` in its config: what it sealed opens in this process and its
/// successors.
#[derive(Clone)]
pub(crate) struct Sealing([u8; 32]);

impl Sealing {
    pub(crate) fn fresh(random: &dyn Random) -> Self {
        let mut secret = [0; 32];
        random.fill(&mut secret);
        Self(secret)
    }

    pub(crate) fn sealer(&self) -> Sealer {
        Sealer::new(vec![Key::new(0, &self.0)])
    }

    fn text(&self) -> String {
        BASE64URL_NOPAD.encode(&self.0)
    }

    fn read(text: &str) -> Option<Self> {
        BASE64URL_NOPAD
            .decode(text.as_bytes())
            .ok()?
            .try_into()
            .ok()
            .map(Self)
    }
}

impl std::fmt::Debug for Sealing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealing(<secret>)")
    }
}

/// The sockets this process was started with.
#[derive(Debug, Default)]
pub struct Inherited {
    clients: Option<TcpListener>,
    operators: Option<TcpListener>,
    line: Option<UnixStream>,
    keeper: Option<UnixStream>,
}

impl Inherited {
    /// Takes them by the environment. To be called once, before anything else opens files or starts
    /// threads. Sockets without a name of weir's are the clients' and then the operators', in their
    /// order.
    ///
    /// # Errors
    /// For people: one of them is no listening socket, or there are more than weir has a use for.
    pub fn take() -> Result<Self, String> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut given = ListenFd::from_env();
        let mut own = Self::default();
        let (family, kind) = (socket2::Domain::UNIX.into(), socket2::Type::STREAM.into());
        for at in 0..given.len() {
            let wrong =
                |error: std::io::Error| format!("socket {at} that weir was started with: {error}");
            let place = match names.next().unwrap_or_default() {
                LINE => {
                    own.line = given
                        .take_custom(at, family, kind, "line to the process before")
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
                CLIENTS => &mut own.clients,
                _ if own.clients.is_none() => &mut own.clients,
                _ => &mut own.operators,
            };
            if place.is_some() {
                return Err(format!(
                    "weir was started with {} sockets, and has no use for number {at}",
                    given.len()
                ));
            }
            *place = given.take_tcp_listener(at).map_err(wrong)?;
        }
        Ok(own)
    }

    /// The sockets, and the process that left them, if one did and waits.
    ///
    /// # Errors
    /// It says what this one does not understand, or nothing.
    pub(crate) fn open(self) -> Result<(Estate, Option<Predecessor>), String> {
        let Self {
            clients,
            operators,
            line,
            keeper,
        } = self;
        let (sealing, predecessor) = match line {
            None => (None, None),
            Some(line) => {
                let (sealing, predecessor) = Predecessor::hear(line).map_err(|error| {
                    format!("the process before does not say what it leaves: {error}")
                })?;
                (Some(sealing), Some(predecessor))
            }
        };
        Ok((
            Estate {
                clients,
                operators,
                sealing,
                will: Will::default(),
                keeper,
            },
            predecessor,
        ))
    }
}
