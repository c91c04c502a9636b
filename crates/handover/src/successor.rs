//! The start of the process that takes over from this one.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use command_fds::{CommandFdExt as _, FdMapping};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;
use weir_audit::ChainHeads;
use weir_program::OwnProgram;

use crate::protocol::{GO, GREETING, HandoverState, PREPARED, SERVING, write_line};
use crate::resources::{CLIENTS, CLUSTER, HANDOVER, HandoverResources, KEEPER, OPERATORS};
use crate::state_transfer::{LinkToSuccessor, MovableState, move_state};

/// The first descriptor in systemd's protocol.
const FIRST_DESCRIPTOR: i32 = 3;
/// The time that the successor has to read the config and to open listeners, files and keys: longer
/// than a start takes. The move of sessions is not part of it, because the end of a successor that
/// has got sessions would lose them.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The time that a failed successor has to log the reason: its log waits for at most a second
/// itself.
const EXIT_GRACE: Duration = Duration::from_secs(3);

/// The running gateway, as the start of its successor needs it.
pub trait RunningGateway: Sync {
    /// Returns the resources that another process needs to take over, without those that it can
    /// read from the config.
    ///
    /// # Errors
    ///
    /// The system has no file descriptor left, or weir is stopping.
    fn handover_resources(&self) -> io::Result<HandoverResources>;

    /// Leaves the audit's chain and path, and the operators' changes, to the successor. It may
    /// begin after that. Operators' changes are refused here from now on.
    fn prepare_handover(&self) -> impl Future<Output = HandoverState> + Send;

    /// Returns the session state, for the previous or the next process.
    fn session_state(&self) -> MovableState;
}

/// Starts the program again beside `weir`, and returns once it serves. `weir` serves meanwhile,
/// and continues if this fails. The end of `stop` ends a program that does not serve by then.
///
/// # Errors
///
/// For people: the reason. The other process is gone then.
pub async fn start_successor(
    program: &OwnProgram,
    weir: &impl RunningGateway,
    stop: impl Future<Output = ()>,
) -> Result<Successor, String> {
    let resources = weir
        .handover_resources()
        .map_err(|error| format!("the sockets cannot be handed over: {error}"))?;
    let (socket, mut child) =
        spawn(program, resources).map_err(|error| format!("{}: {error}", program))?;
    let (handshake, id) = (SuccessorHandshake::new(socket), child.id());
    let mut hangs = false;
    let outcome = match (handshake, id) {
        (Ok(handshake), Some(id)) => {
            let late = async {
                tokio::select! {
                    () = stop => "before weir was to stop".to_owned(),
                    () = tokio::time::sleep(START_TIMEOUT) => {
                        format!("within {} s", START_TIMEOUT.as_secs())
                    }
                }
            };
            let begun = tokio::select! {
                begun = handshake.run(weir) => Ok(begun),
                late = late => Err(late),
            };
            match begun {
                Ok(Ok(serving)) => move_state(weir.session_state(), serving.writer, serving.lines)
                    .await
                    .map(|link| Successor { id, link })
                    .map_err(|error| {
                        format!("the new process ended before it took the sessions ({error})")
                    }),
                Ok(Err(error)) => Err(format!(
                    "the new process did not start: see its own messages ({error})"
                )),
                Err(late) => {
                    hangs = true;
                    Err(format!("the new process did not serve {late}"))
                }
            }
        }
        (Err(error), _) => Err(error.to_string()),
        (_, None) => Err("the new process ended at once".to_owned()),
    };
    if outcome.is_err() {
        // A successor that gave up closes the socket before it has logged the reason. One that
        // hangs must not come to serve later.
        let gave_up = !hangs && tokio::time::timeout(EXIT_GRACE, child.wait()).await.is_ok();
        if !gave_up {
            let _ = child.kill().await;
        }
    }
    outcome
}

/// Spawns the process with the sockets. Returns this end of the hand-over socket.
fn spawn(program: &OwnProgram, resources: HandoverResources) -> io::Result<(StdStream, Child)> {
    let HandoverResources {
        clients,
        operators,
        cluster,
        sealing,
        state: _,
        keeper,
    } = resources;
    let (own, other) = StdStream::pair()?;
    let key = sealing.map(|sealing| sealing.text()).unwrap_or_default();
    write_line(&own, &format!("{GREETING} {key}"))?;
    let sockets = [
        (CLIENTS, clients.map(OwnedFd::from)),
        (OPERATORS, operators.map(OwnedFd::from)),
        (CLUSTER, cluster.map(OwnedFd::from)),
    ];
    let sockets = sockets.into_iter().chain([
        (HANDOVER, Some(other.into())),
        (KEEPER, keeper.map(OwnedFd::from)),
    ]);
    let (names, sockets): (Vec<&str>, Vec<OwnedFd>) = sockets
        .filter_map(|(name, socket)| Some((name, socket?)))
        .unzip();
    let mut command = Command::new(program.path());
    command
        .args(program.arguments())
        .env("LISTEN_FDS", sockets.len().to_string())
        .env("LISTEN_FDNAMES", names.join(":"))
        // The pid is unknown before the spawn. Without it the sockets belong to the process
        // that was started with them.
        .env_remove("LISTEN_PID")
        .stdin(Stdio::null());
    let mappings = (FIRST_DESCRIPTOR..)
        .zip(sockets)
        .map(|(child_fd, parent_fd)| FdMapping {
            parent_fd,
            child_fd,
        })
        .collect();
    command.fd_mappings(mappings).map_err(io::Error::other)?;
    // The command holds the other end of the socket: once it is dropped, the socket closes when
    // that process ends.
    let mut command = tokio::process::Command::from(command);
    Ok((own, command.spawn()?))
}

/// The process that serves now.
#[derive(Debug)]
pub struct Successor {
    /// Its process id.
    pub id: u32,
    link: LinkToSuccessor,
}

impl Successor {
    /// Returns a future that sends all messages that wait at its first poll, for a bounded time:
    /// for a process that ends before it has drained. It does not need this value any longer.
    pub fn flush(&self) -> impl Future<Output = ()> + Send + use<> {
        self.link.flush()
    }

    /// Sends all that waits to be sent, then the end of this process with its last audit records.
    /// Without this, sessions and events of streams that were not sent yet are lost.
    pub async fn send_end(self, last: &ChainHeads) {
        self.link.send_end(last).await;
    }
}

/// The protocol with a successor that starts.
struct SuccessorHandshake {
    writer: OwnedWriteHalf,
    lines: Lines<BufReader<OwnedReadHalf>>,
}

impl SuccessorHandshake {
    fn new(socket: StdStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let (reader, writer) = UnixStream::from_std(socket)?.into_split();
        Ok(Self {
            writer,
            lines: BufReader::new(reader).lines(),
        })
    }

    /// Returns once the successor serves, and waits for the state.
    async fn run(mut self, weir: &impl RunningGateway) -> io::Result<Self> {
        self.expect(PREPARED).await?;
        let state = serde_json::to_string(&weir.prepare_handover().await)?;
        self.writer
            .write_all(format!("{GO}{state}\n").as_bytes())
            .await?;
        self.expect(SERVING).await?;
        Ok(self)
    }

    /// Reads the next line, which has to be this one.
    async fn expect(&mut self, expected: &str) -> io::Result<()> {
        match self.lines.next_line().await? {
            Some(line) if line == expected => Ok(()),
            Some(line) => Err(io::Error::other(format!(
                "unexpected message `{line:.40}`, expected `{expected}`"
            ))),
            None => Err(io::Error::other("it ended")),
        }
    }
}
