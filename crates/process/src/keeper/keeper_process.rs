//! The process side of the keeper: one thread, without state but its descendants.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::descriptors;
use crate::keeper::descendants::Descendants;
use crate::keeper::keeper_protocol::{
    ChildSpec, DESCRIPTORS, KeeperMessage, PROCESS_BYTE, PROTOCOL_VERSION,
};
use crate::keeper::process_handle::ProcessHandle;

/// The time that a process has to end by itself after its input is closed, and after SIGTERM.
pub(super) const INPUT_CLOSE_GRACE: Duration = Duration::from_millis(500);
const SIGTERM_GRACE: Duration = Duration::from_secs(5);
/// The interval at which the descendants of each child are noted. A process that left a child in
/// between is ended with the last child.
const SCAN_INTERVAL: Duration = Duration::from_secs(10);
/// The interval and the number of attempts to end all processes, for processes that fork without
/// rest or that the system keeps.
const END_RETRY_INTERVAL: Duration = Duration::from_millis(20);
const MAX_END_ATTEMPTS: u32 = 500;

type SharedDescendants = Rc<RefCell<Descendants>>;

/// Runs the keeper until every process has closed the other end of its standard input, and no
/// descendant is left. Must be called in a process of its own.
///
/// # Errors
/// A text for people: standard input is no socket, so weir did not start this process.
pub fn run() -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(async {
        let pipe = own_pipe().map_err(|error| {
            format!("weir starts this by itself, with a socket as its input: {error}")
        })?;
        run_keeper(pipe)
            .await
            .map_err(|error| format!("signal handlers cannot be installed: {error}"))
    })
}

fn own_pipe() -> io::Result<UnixStream> {
    let pipe = StdStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    pipe.local_addr()?;
    pipe.set_nonblocking(true)?;
    UnixStream::from_std(pipe)
}

async fn run_keeper(pipe: UnixStream) -> io::Result<()> {
    be_subreaper()?;
    let mut ends = signal(SignalKind::child())?;
    // Service managers and terminals signal whole process groups. This process ends after weir, by
    // the pipe alone.
    let _heard = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ]
    .map(signal);
    let descendants = SharedDescendants::default();
    let mut children = FuturesUnordered::new();
    let mut scan_interval = tokio::time::interval(SCAN_INTERVAL);
    let mut open = true;
    while open || !children.is_empty() {
        tokio::select! {
            given = receive(&pipe), if open => match given {
                Ok(Some(given)) => children.push(keep_child(descendants.clone(), given)),
                Ok(None) | Err(_) => open = false,
            },
            _ = children.next(), if !children.is_empty() => {}
            _ = ends.recv() => descendants.borrow_mut().reap(),
            _ = scan_interval.tick(), if !children.is_empty() => descendants.borrow_mut().scan(),
        }
        if children.is_empty() {
            // The processes that are left belong to no running child.
            descendants.borrow_mut().end_all();
        }
    }
    for _ in 0..MAX_END_ATTEMPTS {
        if descendants.borrow_mut().end_all() {
            break;
        }
        tokio::time::sleep(END_RETRY_INTERVAL).await;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn be_subreaper() -> io::Result<()> {
    nix::sys::prctl::set_name(c"weir-keeper")?;
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// There is no subreaper: a process that left its group is not found.
#[cfg(not(target_os = "linux"))]
fn be_subreaper() -> io::Result<()> {
    Ok(())
}

/// Receives the descriptors of the next child; absent once every process has closed the other end.
async fn receive(pipe: &UnixStream) -> io::Result<Option<[OwnedFd; DESCRIPTORS]>> {
    while let Some((version, given)) = descriptors::receive(pipe).await? {
        // The byte is of another version, or descriptors are missing. The line is closed, by which
        // weir sees that no child was started.
        if let (PROTOCOL_VERSION, Ok(given)) = (version, given.try_into()) {
            return Ok(Some(given));
        }
    }
    Ok(None)
}

/// Starts a child, and ends it when its line closes.
async fn keep_child(
    descendants: SharedDescendants,
    [line, input, output, errors]: [OwnedFd; DESCRIPTORS],
) {
    let Ok((request, mut words)) = split(line) else {
        return;
    };
    let mut request = BufReader::new(request);
    let mut text = String::new();
    if request.read_line(&mut text).await.is_err() {
        return;
    }
    let spec = serde_json::from_str::<ChildSpec>(&text).map_err(io::Error::other);
    drop(text);
    let started = spec.and_then(|spec| start(spec, [input, output, errors]));
    let id = match started {
        Ok(id) => id,
        Err(error) => {
            let _gone = descriptors::send(words.as_ref(), PROCESS_BYTE, &[]).await;
            let _gone = words
                .write_all(KeeperMessage::failed(&error).to_line().as_bytes())
                .await;
            return;
        }
    };
    let mut ended = descendants.borrow_mut().add_child(id);
    // The child was not waited for since it was started, so the number is its own.
    let process = ProcessHandle::open(id);
    let handle: Vec<_> = process.iter().map(std::os::fd::AsFd::as_fd).collect();
    let _gone = descriptors::send(words.as_ref(), PROCESS_BYTE, &handle).await;
    drop(process);
    let _gone = words
        .write_all(KeeperMessage::Started.to_line().as_bytes())
        .await;
    let mut rest = [0; 1];
    let status = tokio::select! {
        status = &mut ended => status.ok(),
        _ = request.read(&mut rest) => {
            // While all are still descendants of it.
            descendants.borrow_mut().scan();
            let _gone = words.write_all(KeeperMessage::Ending.to_line().as_bytes()).await;
            end_child(&descendants, id, &mut ended).await
        }
    };
    let _gone = words
        .write_all(
            KeeperMessage::Ended(status.unwrap_or_default())
                .to_line()
                .as_bytes(),
        )
        .await;
}

fn split(
    line: OwnedFd,
) -> io::Result<(
    tokio::net::unix::OwnedReadHalf,
    tokio::net::unix::OwnedWriteHalf,
)> {
    let line = StdStream::from(line);
    line.set_nonblocking(true)?;
    Ok(UnixStream::from_std(line)?.into_split())
}

/// Starts the process in a group of its own. It inherits only the keeper's working directory and
/// limits, which are weir's.
fn start(spec: ChildSpec, [input, output, errors]: [OwnedFd; 3]) -> io::Result<u32> {
    let mut command = Command::new(spec.command);
    command
        .args(spec.args)
        .env_clear()
        .envs(spec.env)
        .process_group(0);
    command
        .stdin(Stdio::from(input))
        .stdout(Stdio::from(output))
        .stderr(Stdio::from(errors));
    if let Some(cwd) = spec.cwd {
        command.current_dir(cwd);
    }
    // All ended children are waited for in one place.
    Ok(command.spawn()?.id())
}

/// Ends a child with an input that is being closed: SIGTERM to its group, then SIGKILL to its
/// group.
async fn end_child(
    descendants: &SharedDescendants,
    id: u32,
    ended: &mut oneshot::Receiver<i32>,
) -> Option<i32> {
    for (time, signal) in [
        (INPUT_CLOSE_GRACE, Signal::TERM),
        (SIGTERM_GRACE, Signal::KILL),
    ] {
        if let Ok(status) = tokio::time::timeout(time, &mut *ended).await {
            return status.ok();
        }
        descendants.borrow_mut().scan();
        descendants.borrow().signal(id, signal);
    }
    ended.await.ok()
}
