//! A child process of the run: started, controlled by lines, measured through `/proc`, and killed
//! when dropped.
//!
//! The bench's own children also end when their standard input closes, so that none outlives a
//! killed run.

use anyhow::{Context as _, Result, anyhow, bail};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The most time for one line of answer.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);
/// The most time for a process with workers to end them.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A running child.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    name: &'static str,
    child: Child,
    pid: u32,
    /// True if its work is done by children of its own, which a killed process leaves behind.
    has_workers: bool,
    /// True if it is asked to end before it is killed.
    is_graceful: bool,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl ChildProcess {
    /// Starts `program`. Its standard error goes to `log`.
    ///
    /// # Errors
    /// The log cannot be created, or the program cannot be started.
    pub(crate) fn spawn<A: AsRef<OsStr>>(
        name: &'static str,
        program: &Path,
        args: impl IntoIterator<Item = A>,
        log: &Path,
    ) -> Result<Self> {
        let stderr =
            fs::File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {name} ({})", program.display()))?;
        let stdout = child.stdout.take().context("no standard output")?;
        Ok(Self {
            name,
            pid: child.id().context("ended at once")?,
            has_workers: false,
            is_graceful: false,
            stdin: child.stdin.take(),
            lines: BufReader::new(stdout).lines(),
            child,
        })
    }

    /// Starts this very executable with another subcommand.
    ///
    /// # Errors
    /// As [`ChildProcess::spawn`].
    pub(crate) fn this<A: AsRef<OsStr>>(
        name: &'static str,
        args: impl IntoIterator<Item = A>,
        log: &Path,
    ) -> Result<Self> {
        Self::spawn(name, &std::env::current_exe()?, args, log)
    }

    /// Marks it as one whose work is done by children of its own.
    pub(crate) const fn with_workers(mut self) -> Self {
        self.has_workers = true;
        self.is_graceful = true;
        self
    }

    /// Has it asked to end when it is stopped, and only then killed.
    pub(crate) const fn graceful(mut self, is_graceful: bool) -> Self {
        self.is_graceful = is_graceful;
        self
    }

    /// Reads the next line of its standard output.
    ///
    /// # Errors
    /// It ended, or printed no line for a minute.
    pub(crate) async fn line(&mut self) -> Result<String> {
        let line = timeout(LINE_TIMEOUT, self.lines.next_line()).await;
        let line = line.map_err(|_| anyhow!("{} says nothing", self.name))??;
        line.with_context(|| format!("{} ended", self.name))
    }

    /// Sends one line and waits for the line that answers it.
    ///
    /// # Errors
    /// As [`ChildProcess::line`], or its standard input is closed.
    pub(crate) async fn ask(&mut self, line: &str) -> Result<String> {
        let stdin = self
            .stdin
            .as_mut()
            .with_context(|| format!("{} takes no commands", self.name))?;
        stdin.write_all(format!("{line}\n").as_bytes()).await?;
        stdin.flush().await?;
        self.line().await
    }

    /// An error if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended with {status}", self.name);
        }
        Ok(())
    }

    /// CPU time of all its living threads so far, in nanoseconds, with those of its workers.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn cpu_nanos(&self) -> Result<u64> {
        let mut nanos = thread_nanos(self.pid)?;
        if self.has_workers {
            for worker in workers(self.pid)? {
                nanos += thread_nanos(worker)?;
            }
        }
        Ok(nanos)
    }

    /// Resident memory in bytes, from `smaps_rollup`, which unlike `statm` is exact.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn resident(&self) -> Result<u64> {
        self.kib("smaps_rollup", "Rss:")
    }

    /// The count of its open descriptors.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn descriptors(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.pid))?.count())
    }

    /// The high water of resident memory in bytes, since the start or the last
    /// [`ChildProcess::reset_peak`].
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn peak(&self) -> Result<u64> {
        self.kib("status", "VmHWM:")
    }

    /// Resets the high water to the resident memory of now.
    ///
    /// # Errors
    /// The process has ended, or the kernel has no such control.
    pub(crate) fn reset_peak(&self) -> Result<()> {
        Ok(fs::write(format!("/proc/{}/clear_refs", self.pid), "5")?)
    }

    /// Kills it and waits until it is gone.
    pub(crate) async fn stop(mut self) {
        if self.is_graceful {
            ask_to_end(self.pid);
            let _ = timeout(END_TIMEOUT, self.child.wait()).await;
        }
        // An error means that it had ended already.
        let _ = self.child.kill().await;
    }

    fn kib(&self, file: &str, key: &str) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/{file}", self.pid))?;
        let value = text.lines().find_map(|line| {
            line.strip_prefix(key)?
                .split_whitespace()
                .next()?
                .parse::<u64>()
                .ok()
        });
        Ok(value.with_context(|| format!("no {key} in {file}"))? * 1024)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // The field is killed when it is dropped, which leaves its workers behind.
        if self.has_workers && matches!(self.child.try_wait(), Ok(None)) {
            ask_to_end(self.pid);
        }
    }
}

/// CPU time of all living threads of a process so far, in nanoseconds.
fn thread_nanos(pid: u32) -> Result<u64> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end between the listing and the read.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else {
            continue;
        };
        nanos += text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse::<u64>().ok())
            .unwrap_or(0);
    }
    Ok(nanos)
}

/// The children of a process's first thread.
///
/// # Errors
/// The process has ended, or the kernel has no such list.
fn workers(pid: u32) -> Result<Vec<u32>> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let children = children.split_whitespace();
    Ok(children.map(str::parse).collect::<Result<_, _>>()?)
}

/// Sends SIGTERM to a process and its workers.
fn ask_to_end(pid: u32) {
    let all = [vec![pid], workers(pid).unwrap_or_default()].concat();
    // An error means that they had ended already.
    let _ = std::process::Command::new("kill")
        .arg("-TERM")
        .args(all.iter().map(u32::to_string))
        .stderr(Stdio::null())
        .status();
}

/// Returns the lines of standard input. The channel closes when it ends, because then the run that
/// started this process is gone.
///
/// Lines are read on a thread of their own: a blocking read inside the runtime would keep it from
/// shutting down.
pub(crate) fn commands() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Returns when standard input ends.
pub(crate) async fn parent_gone() {
    let mut commands = commands();
    while commands.recv().await.is_some() {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use weir_testkit::TestFolder;

    use super::*;

    #[tokio::test]
    async fn a_child_answers_is_measured_and_is_gone_after_stop() {
        let folder = TestFolder::new("test");
        let log = folder.file("log");
        let mut child = ChildProcess::spawn("cat", Path::new("/bin/cat"), [""; 0], &log).unwrap();
        assert_eq!(child.ask("hello").await.unwrap(), "hello");
        child.check().unwrap();
        assert!(child.resident().unwrap() > 0);
        assert!(child.peak().unwrap() > 0);
        child.cpu_nanos().unwrap();
        let pid = child.pid;
        child.stop().await;
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[tokio::test]
    async fn workers_are_measured_and_end_with_their_process() {
        let folder = TestFolder::new("work");
        let log = folder.file("log");
        let script = "sleep 60 & echo $!; wait";
        let shell = ChildProcess::spawn("sh", Path::new("/bin/sh"), ["-c", script], &log).unwrap();
        let mut shell = shell.with_workers();
        let worker = shell.line().await.unwrap();
        assert_eq!(
            workers(shell.pid).unwrap(),
            [worker.parse::<u32>().unwrap()]
        );
        let own = thread_nanos(shell.pid).unwrap();
        assert!(shell.cpu_nanos().unwrap() >= own);
        drop(shell);
        let status = format!("/proc/{worker}/status");
        // It ends, and is removed by whatever process adopts it.
        while fs::read_to_string(&status).is_ok_and(|status| !status.contains("State:\tZ")) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_child_that_ended_is_an_error_not_a_hang() {
        let folder = TestFolder::new("end");
        let log = folder.file("log");
        let mut child = ChildProcess::spawn("true", Path::new("/bin/true"), [""; 0], &log).unwrap();
        assert!(child.line().await.is_err());
    }
}
