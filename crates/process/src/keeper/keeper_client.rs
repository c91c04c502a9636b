//! The client side of the keeper. The keeper is started with the first child, and again after it
//! was lost.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;
use weir_core::HandoverArrival;

use crate::descriptors;
use crate::keeper::keeper_process::INPUT_CLOSE_GRACE;
use crate::keeper::keeper_protocol::{
    self, ChildSpec, DESCRIPTORS, KeeperMessage, PROTOCOL_VERSION,
};
use crate::keeper::process_handle::ProcessHandle;

/// The program that is the keeper: it only calls [`super::run`].
#[derive(Clone, Debug)]
pub struct KeeperProgram {
    /// The program's file.
    pub path: PathBuf,
    /// The program's arguments.
    pub args: Vec<OsString>,
    /// The program's whole environment.
    pub env: Vec<(OsString, OsString)>,
}

/// The keeper of this process's children, started on demand.
#[derive(Debug)]
pub struct ChildKeeper {
    program: Option<KeeperProgram>,
    running: Mutex<Option<RunningKeeper>>,
    /// The hand-over of children by the previous process. Starts wait for it.
    arrival: OnceLock<HandoverArrival>,
}

#[derive(Debug)]
struct RunningKeeper {
    pipe: Arc<UnixStream>,
    /// Absent for the keeper that the previous process started.
    process: Option<Child>,
}

/// A running child, as weir holds it.
#[derive(Debug)]
pub struct KeptChild {
    /// The write end of its standard input.
    pub input: pipe::Sender,
    /// The read end of its standard output.
    pub output: pipe::Receiver,
    /// The read end of its error stream.
    pub errors: pipe::Receiver,
    /// The socket between weir and the keeper for it.
    pub control: ChildControlSocket,
}

/// The control socket of one child. Dropping it ends the child.
#[derive(Debug)]
pub struct ChildControlSocket {
    keeper: Arc<ChildKeeper>,
    pipe: Arc<UnixStream>,
    messages: Lines<BufReader<OwnedReadHalf>>,
    /// The write half. Closing it requests the child's end.
    open: Option<OwnedWriteHalf>,
    /// The child's process, for its end after the keeper was lost. Absent on systems without such
    /// descriptors.
    process: Option<ProcessHandle>,
}

/// The keeper is gone, or does not take children of this version.
struct KeeperLost;

impl ChildKeeper {
    /// Makes a keeper that runs `program`. Starts it with the first child.
    #[must_use]
    pub fn new(program: KeeperProgram) -> Arc<Self> {
        Arc::new(Self {
            program: Some(program),
            running: Mutex::default(),
            arrival: OnceLock::new(),
        })
    }

    /// Makes a keeper for a program that cannot be one: every start of a child fails.
    #[must_use]
    pub fn unavailable() -> Arc<Self> {
        Arc::new(Self {
            program: None,
            running: Mutex::default(),
            arrival: OnceLock::new(),
        })
    }

    /// Makes starts wait for the children of the previous process. Must be called once, before the
    /// first start.
    pub fn set_arrival(&self, arrival: HandoverArrival) {
        // There is only one previous process.
        let _first = self.arrival.set(arrival);
    }

    /// Waits until the children of the previous process have arrived.
    pub async fn wait_for_children(&self) {
        if let Some(arrival) = self.arrival.get() {
            arrival.wait().await;
        }
    }

    /// Takes over a child of the previous process, by its descriptors as [`KeptChild::descriptors`]
    /// returns them.
    pub fn adopt(self: &Arc<Self>, descriptors: Vec<OwnedFd>) -> io::Result<KeptChild> {
        let mut descriptors = descriptors.into_iter();
        let mut next = || {
            descriptors
                .next()
                .ok_or_else(|| io::Error::other("a descriptor is missing"))
        };
        let (input, output, errors, socket) = (next()?, next()?, next()?, next()?);
        let socket = StdStream::from(socket);
        socket.set_nonblocking(true)?;
        let (read_half, open) = UnixStream::from_std(socket)?.into_split();
        let (messages, process) = (
            BufReader::new(read_half).lines(),
            descriptors.next().map(ProcessHandle::from),
        );
        Ok(KeptChild {
            input: pipe::Sender::from_owned_fd(input)?,
            output: pipe::Receiver::from_owned_fd(output)?,
            errors: pipe::Receiver::from_owned_fd(errors)?,
            control: ChildControlSocket {
                keeper: self.clone(),
                pipe: self.pipe()?,
                messages,
                open: Some(open),
                process,
            },
        })
    }

    /// Uses the keeper of the previous process, by the pipe that it passed on. Must be called
    /// inside a tokio runtime.
    ///
    /// # Errors
    /// The descriptor is no usable socket.
    pub fn take_over(&self, pipe: StdStream) -> io::Result<()> {
        pipe.set_nonblocking(true)?;
        *self.running.lock() = Some(RunningKeeper {
            pipe: Arc::new(UnixStream::from_std(pipe)?),
            process: None,
        });
        Ok(())
    }

    /// Returns the pipe for the next process; absent if the keeper does not run yet.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn clone_pipe(&self) -> io::Result<Option<OwnedFd>> {
        self.running
            .lock()
            .as_ref()
            .map(|running| running.pipe.as_fd().try_clone_to_owned())
            .transpose()
    }

    /// Starts a child.
    ///
    /// # Errors
    /// The same error as a start by this process itself; or the keeper cannot be started.
    pub async fn start(self: &Arc<Self>, spec: &ChildSpec) -> io::Result<KeptChild> {
        for _ in 0..2 {
            let pipe = self.pipe()?;
            match self.start_with(&pipe, spec).await? {
                Ok(child) => return Ok(child),
                Err(KeeperLost) => self.forget_lost(&pipe),
            }
        }
        Err(io::Error::other(
            "the keeper of child processes takes no child",
        ))
    }

    async fn start_with(
        self: &Arc<Self>,
        pipe: &Arc<UnixStream>,
        spec: &ChildSpec,
    ) -> io::Result<Result<KeptChild, KeeperLost>> {
        let (child_input, input) = io::pipe()?;
        let (output, child_output) = io::pipe()?;
        let (errors, child_errors) = io::pipe()?;
        let (own, other) = StdStream::pair()?;
        own.set_nonblocking(true)?;
        let (read_half, mut open) = UnixStream::from_std(own)?.into_split();
        let given: [OwnedFd; DESCRIPTORS] = [
            other.into(),
            child_input.into(),
            child_output.into(),
            child_errors.into(),
        ];
        let borrowed: [BorrowedFd<'_>; DESCRIPTORS] = std::array::from_fn(|at| given[at].as_fd());
        let sent = descriptors::send(pipe, PROTOCOL_VERSION, &borrowed).await;
        // The child's ends belong to the child alone from here on.
        drop(given);
        let mut text = serde_json::to_vec(spec)?;
        text.push(b'\n');
        if sent.is_err() || open.write_all(&text).await.is_err() {
            return Ok(Err(KeeperLost));
        }
        let Ok(Some((_, process))) = descriptors::receive(read_half.as_ref()).await else {
            return Ok(Err(KeeperLost));
        };
        let process = process.into_iter().next().map(ProcessHandle::from);
        let mut messages = BufReader::new(read_half).lines();
        match next_message(&mut messages).await {
            Some(KeeperMessage::Started) => {}
            Some(KeeperMessage::Failed(number, text)) => {
                return Err(keeper_protocol::error(number, &text));
            }
            Some(KeeperMessage::Ending | KeeperMessage::Ended(_)) | None => {
                return Ok(Err(KeeperLost));
            }
        }
        Ok(Ok(KeptChild {
            input: pipe::Sender::from_owned_fd(input.into())?,
            output: pipe::Receiver::from_owned_fd(output.into())?,
            errors: pipe::Receiver::from_owned_fd(errors.into())?,
            control: ChildControlSocket {
                keeper: self.clone(),
                pipe: pipe.clone(),
                messages,
                open: Some(open),
                process,
            },
        }))
    }

    /// Returns the pipe to the running keeper, or starts one.
    fn pipe(&self) -> io::Result<Arc<UnixStream>> {
        let mut running = self.running.lock();
        if let Some(running) = &*running {
            return Ok(running.pipe.clone());
        }
        let program = self
            .program
            .as_ref()
            .ok_or_else(|| io::Error::other("this program starts no child processes"))?;
        let (own, other) = StdStream::pair()?;
        own.set_nonblocking(true)?;
        let mut command = std::process::Command::new(&program.path);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::arg0(&mut command, "weir");
        let mut command = Command::from(command);
        // A process group of its own: Ctrl-C on a terminal is for weir, which ends its children in
        // its own time.
        command
            .args(&program.args)
            .env_clear()
            .envs(program.env.iter().cloned())
            .process_group(0);
        command
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = command.spawn()?;
        tracing::debug!(process = process.id(), "child process keeper started");
        let pipe = Arc::new(UnixStream::from_std(own)?);
        *running = Some(RunningKeeper {
            pipe: pipe.clone(),
            process: Some(process),
        });
        Ok(pipe)
    }

    /// Forgets the keeper behind this pipe. The next child is started by a new one.
    fn forget_lost(&self, pipe: &Arc<UnixStream>) {
        let mut running = self.running.lock();
        if let Some(lost) = running.take_if(|running| Arc::ptr_eq(&running.pipe, pipe)) {
            drop(running);
            let status = lost
                .process
                .and_then(|mut process| process.try_wait().ok().flatten());
            tracing::error!(
                status = status.map(tracing::field::display),
                "child process keeper lost: restarting it and its children"
            );
        }
    }
}

impl KeptChild {
    /// Returns the child's descriptors, for another process: input, output, error stream, control
    /// socket, and the process if the system has such descriptors. The child ends once every
    /// process has closed the control socket.
    ///
    /// # Errors
    /// A descriptor cannot be recovered.
    pub fn descriptors(self) -> io::Result<Vec<OwnedFd>> {
        let Self {
            input,
            output,
            errors,
            control: socket,
        } = self;
        let ChildControlSocket {
            messages,
            open,
            process,
            ..
        } = socket;
        let open = open.ok_or_else(|| io::Error::other("the child is to end"))?;
        let socket = messages
            .into_inner()
            .into_inner()
            .reunite(open)
            .map_err(io::Error::other)?;
        let mut all = vec![
            input.into_nonblocking_fd()?,
            output.into_nonblocking_fd()?,
            errors.into_nonblocking_fd()?,
            socket.into_std()?.into(),
        ];
        all.extend(process.map(OwnedFd::from));
        Ok(all)
    }
}

impl ChildControlSocket {
    /// Requests the child's end, and returns when its input is to be closed. SIGTERM and SIGKILL
    /// follow in their times. Returns the exit status if the child has just ended.
    pub async fn close(&mut self) -> Option<io::Result<ExitStatus>> {
        self.open = None;
        match next_message(&mut self.messages).await {
            Some(KeeperMessage::Ending) => None,
            message => Some(self.end(message.as_ref())),
        }
    }

    /// Waits for the child's end. Cancel safe.
    ///
    /// # Errors
    /// The keeper was lost, so the exit status is unknown.
    pub async fn ended(&mut self) -> io::Result<ExitStatus> {
        let message = next_message(&mut self.messages).await;
        self.end(message.as_ref())
    }

    /// Ends a child and its descendants after the keeper was lost: its `input` is closed, and soon
    /// after it is killed.
    pub async fn end_without_keeper(self, input: &CancellationToken) {
        match self.process {
            Some(process) => {
                process
                    .end_with_descendants(|| input.cancel(), INPUT_CLOSE_GRACE)
                    .await
            }
            // Without the descriptor the process cannot be told from another with the same number.
            None => input.cancel(),
        }
    }

    fn end(&self, message: Option<&KeeperMessage>) -> io::Result<ExitStatus> {
        if let Some(KeeperMessage::Ended(raw)) = message {
            return Ok(keeper_protocol::status(*raw));
        }
        self.keeper.forget_lost(&self.pipe);
        Err(io::Error::other("the keeper of child processes ended"))
    }
}

/// Returns the next message of the keeper. `None` if the keeper was lost, or the message is unknown.
async fn next_message(messages: &mut Lines<BufReader<OwnedReadHalf>>) -> Option<KeeperMessage> {
    KeeperMessage::parse(&messages.next_line().await.ok()??)
}
