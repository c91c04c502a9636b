//! One child process: started by the keeper, its three streams served, ended with all that it started.

use std::future::Future;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_core::budget::{Descriptor, Side};
use weir_core::{Failure, FailureKind};

use super::environment;
use super::message_memory::{MessageMemory, SkippedMessage};
use super::pipe::Pipe;
use super::tail::{LineRate, Tail};
use crate::keeper::{ChildLine, ChildSpec, Keeper, KeptChild};
use crate::settings::StdioSettings;
use crate::site::Site;

/// How much of a child's output is read at once.
const READ: usize = 16 << 10;

/// A running child.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pipe: Arc<Pipe>,
    pub(crate) errors: Arc<Tail>,
    /// How the process ended, once it has.
    status: Arc<OnceLock<String>>,
    /// Done once all of its output is read.
    is_read: CancellationToken,
    stop: CancellationToken,
    ended: CancellationToken,
}

impl Child {
    /// Has the process started. Its command, arguments and directory come from the config alone.
    ///
    /// # Errors
    /// `Unavailable` where it cannot be started.
    pub(crate) async fn start(
        site: &Arc<Site>,
        keeper: &Arc<Keeper>,
        settings: &StdioSettings,
    ) -> Result<Self, Failure> {
        let env = environment::variables(|name| std::env::var(name).ok(), &settings.env);
        let spec = ChildSpec {
            command: settings.command.clone(),
            args: settings.args.clone(),
            env: env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect(),
            cwd: settings.cwd.clone(),
        };
        let [of_input, of_output, of_errors, of_line, of_process] = descriptors(site)?;
        let failed = || site.fail(FailureKind::Unavailable, "The upstream's process cannot be started");
        let started = keeper.start(&spec).await.map_err(|error| failed().because(unstarted(settings, &error)))?;
        let KeptChild { input, output, errors, line } = started;
        let pipe = Pipe::new(site.clone());
        let child = Self {
            pipe: pipe.clone(),
            errors: Arc::new(Tail::new(site.mask.clone())),
            status: Arc::default(),
            is_read: CancellationToken::new(),
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        site.sessions(1);
        let closed = CancellationToken::new();
        site.spawn(holding([of_input], write(input, pipe.clone(), closed.clone())));
        let (is_read, reading) = (child.is_read.clone(), read(output, pipe.clone()));
        site.spawn(holding([of_output], async move {
            reading.await;
            is_read.cancel();
        }));
        site.spawn(holding([of_errors], drain(errors, site.clone(), child.errors.clone())));
        let (ended, status) = (child.ended.clone(), child.status.clone());
        let watched = Watched { site: site.clone(), pipe, ended, status };
        site.spawn(holding([of_line, of_process], supervise(line, (child.stop.clone(), closed), watched)));
        Ok(child)
    }

    /// A line that is no process: what it is read by ends with the token, and says so by [`Self::ended`].
    pub(crate) fn line(pipe: Arc<Pipe>) -> (Self, CancellationToken) {
        let stop = CancellationToken::new();
        let (errors, status, ended) = (Arc::default(), Arc::default(), CancellationToken::new());
        let child = Self { pipe, errors, status, is_read: CancellationToken::new(), stop: stop.clone(), ended };
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

    /// How the process ended, if it did, and the last line of its error stream, for operators. Of a process that closed its output both are
    /// waited for, at most so long.
    pub(crate) async fn last_words(&self, most: Duration) -> Option<String> {
        if self.is_over() {
            let over = async { tokio::join!(self.ended.cancelled(), self.is_read.cancelled(), self.errors.closed()) };
            // A grandchild may keep the streams open.
            let _in_time = tokio::time::timeout(most, over).await;
        }
        let lines = explaining_lines(&self.pipe, &self.errors);
        let parts: Vec<String> = self.status.get().cloned().into_iter().chain(lines).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// The lines of a process that may explain its failure: the first that is no message, and the last of its error stream.
pub(super) fn explaining_lines(pipe: &Pipe, errors: &Tail) -> impl Iterator<Item = String> {
    let output = pipe.other_lines.first();
    let output = output.map(|line| format!("its output has lines that are no messages, the first: {line}"));
    let last = errors.last_line().map(|line| format!("its last words: {line}"));
    output.into_iter().chain(last)
}

/// Why a program was not started, and what to do about it.
fn unstarted(settings: &StdioSettings, error: &io::Error) -> String {
    let command = &settings.command;
    let missing_folder = settings.cwd.as_deref().filter(|folder| !folder.is_dir());
    let advice = match (error.kind(), missing_folder) {
        (_, Some(folder)) => format!("there is no folder `{}`: make it, or mend `cwd`", folder.display()),
        (io::ErrorKind::NotFound, _) if command.contains('/') => {
            format!("there is no program `{command}`: install it, or mend `command`")
        }
        (io::ErrorKind::NotFound, _) => {
            format!("no program `{command}` is on the PATH: install it, or write its whole path as `command`")
        }
        (io::ErrorKind::PermissionDenied, _) => {
            format!("`{command}` may not be run: make it executable for the user that runs weir")
        }
        _ => return format!("{command}: {error}"),
    };
    format!("{error}; {advice}")
}

/// What a child takes of the descriptors of this process: its three streams, its line, and itself.
fn descriptors(site: &Site) -> Result<[Descriptor; 5], Failure> {
    let taken: Option<Vec<_>> = (0..5).map(|_| site.budgets.descriptors.take(Side::Upstream)).collect();
    taken.and_then(|taken| taken.try_into().ok()).ok_or_else(|| {
        let text = "weir has no file descriptors left for another process: try again shortly";
        Failure::new(FailureKind::Overloaded, text).at(&site.id)
    })
}

/// Runs a task that has these descriptors.
async fn holding<const N: usize>(_descriptors: [Descriptor; N], task: impl Future<Output = ()>) {
    task.await;
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
    status: Arc<OnceLock<String>>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.pipe.close("the process was ended");
        self.site.sessions(-1);
        self.ended.cancel();
    }
}

/// Waits for the end, or makes it: with the input closed, the keeper sends SIGTERM and SIGKILL in their times, and ends what the
/// process started.
async fn supervise(mut line: ChildLine, (stop, input): (CancellationToken, CancellationToken), watched: Watched) {
    let closed = watched.pipe.closed();
    let status = tokio::select! {
        biased;
        status = line.ended() => status,
        () = async { tokio::select! { () = stop.cancelled() => {}, () = closed.cancelled() => {} } } => {
            watched.pipe.close("weir ended the process");
            match line.close().await {
                Some(ended) => ended,
                None => {
                    input.cancel();
                    line.ended().await
                }
            }
        }
    };
    let why = match &status {
        Ok(status) => format!("the process ended: {status}"),
        Err(error) => format!("the process was lost: {error}"),
    };
    tracing::info!(upstream = %watched.site.id, why, "a child process ended");
    // It is set here alone.
    let _ = watched.status.set(why.clone());
    watched.pipe.close(&why);
    match status {
        Ok(_) => input.cancel(),
        // It runs on, and nobody else ends it.
        Err(_) => line.end_without_keeper(&input).await,
    }
}

/// Writes messages, a line each, until the child's input is to be closed or it does not read any more.
async fn write(mut input: Sender, pipe: Arc<Pipe>, stop: CancellationToken) {
    loop {
        let message = tokio::select! {
            () = stop.cancelled() => return,
            message = pipe.next_message() => message,
        };
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
            written = input.write_all(&line) => if written.is_err() { return pipe.unwritable() },
        }
        pipe.site.meter.sent(line.len());
    }
}

/// Reads lines until the child closes its output or sends one that is too long. A line for which there is no memory is read
/// over.
async fn read(mut output: Receiver, pipe: Arc<Pipe>) {
    let most = pipe.site.bounds.max_reply;
    let mut memory = MessageMemory::new(pipe.site.budgets.results.clone());
    let mut skipped: Option<SkippedMessage> = None;
    let mut held = BytesMut::with_capacity(READ);
    let mut searched = 0;
    loop {
        while let Some(at) = memchr::memchr(b'\n', &held[searched..]) {
            let line = held.split_to(searched + at + 1).freeze();
            searched = 0;
            if let Some(mut skipped) = skipped.take() {
                skipped.feed(&line);
                pipe.skipped(skipped.request());
            } else if !line.iter().all(u8::is_ascii_whitespace) {
                let is_large = line.len() > READ;
                pipe.receive(memory.hold(line));
                if is_large {
                    // What comes next must not keep the memory of this one.
                    held = BytesMut::from(&held[..]);
                }
            }
        }
        if skipped.is_none() && !memory.cover(held.len()).await {
            memory.release();
            skipped = Some(SkippedMessage::new(std::mem::take(&mut held), most));
        } else if let Some(skipped) = &mut skipped {
            skipped.feed(&held.split().freeze());
        }
        searched = held.len();
        if held.len() > most || skipped.as_ref().is_some_and(|skipped| skipped.length > most) {
            pipe.site.dropped("line_too_long");
            return pipe.close("the process sent a line that is too long");
        }
        held.reserve(READ);
        match output.read_buf(&mut held).await {
            Ok(0) => return pipe.close("the process closed its output"),
            Ok(bytes) => pipe.site.meter.received(bytes),
            Err(error) => return pipe.close(&format!("its output cannot be read: {error}")),
        }
    }
}

/// Reads what the child says of itself into the log, which takes so many lines a second and then their count.
async fn drain(mut errors: Receiver, site: Arc<Site>, tail: Arc<Tail>) {
    let omitted = |lines: Option<u64>| {
        if let Some(lines) = lines {
            tracing::warn!(upstream = %site.id, lines, "lines of a child process were left out of the log");
        }
    };
    let mut rate = LineRate::new(Instant::now());
    let mut chunk = [0; 4096];
    loop {
        let read = match rate.due() {
            None => errors.read(&mut chunk).await,
            Some(due) => match tokio::time::timeout_at(due, errors.read(&mut chunk)).await {
                Ok(read) => read,
                Err(_) => {
                    omitted(rate.omitted(Instant::now()));
                    continue;
                }
            },
        };
        let Ok(length @ 1..) = read else { break };
        let now = Instant::now();
        tail.take(&chunk[..length], |line| {
            omitted(rate.omitted(now));
            if rate.admits() {
                tracing::info!(upstream = %site.id, stderr = line, "child process");
            }
        });
    }
    omitted(rate.rest());
    tail.close();
}
