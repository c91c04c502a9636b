//! One child process: started in a group of its own, its three streams served, ended with its whole group.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use weir_core::{Failure, FailureKind};

use super::environment;
use super::pipe::Pipe;
use super::tail::Tail;
use crate::settings::StdioSettings;
use crate::site::Site;

/// How long a process may take to end by itself, after its input is closed and after it is asked to.
const CLOSING: Duration = Duration::from_millis(500);
const TERMINATING: Duration = Duration::from_secs(5);

/// A running child.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pipe: Arc<Pipe>,
    pub(crate) errors: Arc<Tail>,
    stop: CancellationToken,
    ended: CancellationToken,
}

impl Child {
    /// Starts the process. Its command, arguments and directory come from the config alone.
    ///
    /// # Errors
    /// `Unavailable` where it cannot be started.
    pub(crate) fn start(site: &Arc<Site>, settings: &StdioSettings) -> Result<Self, Failure> {
        let mut command = Command::new(&settings.command);
        command.args(&settings.args).env_clear().process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, value) in environment::variables(|name| std::env::var(name).ok(), &settings.env) {
            command.env(name, value.expose());
        }
        if let Some(cwd) = &settings.cwd {
            command.current_dir(cwd);
        }
        let failed = || site.fail(FailureKind::Unavailable, "The upstream's process cannot be started");
        let mut process = command.spawn().map_err(|error| failed().because(error))?;
        let (Some(input), Some(output), Some(errors)) =
            (process.stdin.take(), process.stdout.take(), process.stderr.take())
        else {
            return Err(failed());
        };
        let group = Group(process.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw));
        let (pipe, out) = Pipe::new(site.clone());
        let child = Self {
            pipe: pipe.clone(),
            errors: Arc::default(),
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        site.sessions(1);
        site.spawn(write(input, out, site.clone(), child.stop.clone()));
        site.spawn(read(output, pipe.clone()));
        site.spawn(drain(errors, site.clone(), child.errors.clone()));
        let watched = Watched { site: site.clone(), pipe, ended: child.ended.clone() };
        site.spawn(supervise(process, group, child.stop.clone(), watched));
        Ok(child)
    }

    /// A line that is no process: what it is read by ends with the token, and says so by [`Self::ended`].
    pub(crate) fn line(pipe: Arc<Pipe>) -> (Self, CancellationToken) {
        let stop = CancellationToken::new();
        let child = Self { pipe, errors: Arc::default(), stop: stop.clone(), ended: CancellationToken::new() };
        (child, stop)
    }

    /// To be cancelled when it has ended.
    pub(crate) fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// Begins to end it.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Ends it, and waits for that.
    pub(crate) async fn stopped(&self) {
        self.stop();
        self.ended.cancelled().await;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.pipe.is_closed()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What is told when the process has ended, however its supervision ends.
struct Watched {
    site: Arc<Site>,
    pipe: Arc<Pipe>,
    ended: CancellationToken,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.pipe.close("the process was ended");
        self.site.sessions(-1);
        self.ended.cancel();
    }
}

/// A process group. Whatever is left of it when this is dropped is killed.
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // The group is gone where its last process has ended.
            let _gone = killpg(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// Waits for the end, or makes it: input closed, SIGTERM to the group, SIGKILL to the group.
async fn supervise(mut process: tokio::process::Child, group: Group, stop: CancellationToken, watched: Watched) {
    let status = tokio::select! {
        status = process.wait() => status,
        () = stop.cancelled() => {
            watched.pipe.close("weir ended the process");
            match tokio::time::timeout(CLOSING, process.wait()).await {
                Ok(status) => status,
                Err(_) => {
                    group.signal(Signal::SIGTERM);
                    match tokio::time::timeout(TERMINATING, process.wait()).await {
                        Ok(status) => status,
                        Err(_) => {
                            group.signal(Signal::SIGKILL);
                            process.wait().await
                        }
                    }
                }
            }
        }
    };
    // Children of the child that did not end with it.
    drop(group);
    let why = match status {
        Ok(status) => format!("the process ended: {status}"),
        Err(error) => format!("the process was lost: {error}"),
    };
    tracing::info!(upstream = %watched.site.id, why, "a child process ended");
    watched.pipe.close(&why);
}

/// Writes messages, a line each, until the child is to end or does not read any more.
async fn write(mut input: ChildStdin, mut out: mpsc::Receiver<Bytes>, site: Arc<Site>, stop: CancellationToken) {
    loop {
        let message = tokio::select! {
            () = stop.cancelled() => return,
            message = out.recv() => message,
        };
        let Some(message) = message else { return };
        let mut line = BytesMut::with_capacity(message.len() + 1);
        line.extend_from_slice(&message);
        // Between the tokens of JSON line breaks are blanks, and inside strings they are escaped.
        for byte in line.iter_mut() {
            if matches!(*byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        line.extend_from_slice(b"\n");
        tokio::select! {
            () = stop.cancelled() => return,
            written = input.write_all(&line) => if written.is_err() { return },
        }
        site.meter.sent(line.len());
    }
}

/// Reads lines until the child closes its output or sends one that is too long.
async fn read(mut output: ChildStdout, pipe: Arc<Pipe>) {
    let most = pipe.site.bounds.max_reply;
    let mut held = BytesMut::with_capacity(16 << 10);
    let mut searched = 0;
    loop {
        while let Some(at) = memchr::memchr(b'\n', &held[searched..]) {
            let line = held.split_to(searched + at + 1).freeze();
            searched = 0;
            if !line.iter().all(u8::is_ascii_whitespace) {
                pipe.receive(line);
            }
        }
        searched = held.len();
        if held.len() > most {
            pipe.site.dropped("line_too_long");
            return pipe.close("the process sent a line that is too long");
        }
        held.reserve(16 << 10);
        match output.read_buf(&mut held).await {
            Ok(0) => return pipe.close("the process closed its output"),
            Ok(bytes) => pipe.site.meter.received(bytes),
            Err(error) => return pipe.close(&format!("its output cannot be read: {error}")),
        }
    }
}

/// Reads what the child says of itself into the log.
async fn drain(mut errors: ChildStderr, site: Arc<Site>, tail: Arc<Tail>) {
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = errors.read(&mut chunk).await {
        tail.take(&chunk[..length], |line| {
            tracing::info!(upstream = %site.id, stderr = line, "child process");
        });
    }
}
