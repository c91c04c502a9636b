//! A child process that does not outlive its test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::listening_ports;

/// The longest wait for the last output of a process.
const OUTPUT_TIME: Duration = Duration::from_secs(20);
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// A running child. Dropping it kills it and its process group.
pub struct TestProcess {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    bytes: Arc<AtomicUsize>,
    /// The threads that collect its outputs.
    readers: Vec<JoinHandle<()>>,
}

impl TestProcess {
    /// Starts it in a process group of its own, and collects both of its outputs.
    pub fn start(mut command: Command) -> Self {
        use std::os::unix::process::CommandExt as _;
        command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (lines, bytes) = (
            Arc::new(Mutex::new(Vec::new())),
            Arc::new(AtomicUsize::new(0)),
        );
        let out: Box<dyn std::io::Read + Send> = Box::new(child.stdout.take().unwrap());
        let err: Box<dyn std::io::Read + Send> = Box::new(child.stderr.take().unwrap());
        let readers = [out, err].map(|stream| {
            let (lines, bytes) = (lines.clone(), bytes.clone());
            // The thread ends with the stream, which ends with the child.
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    bytes.fetch_add(line.len() + 1, Ordering::Relaxed);
                    lines.lock().push(line);
                }
            })
        });
        Self {
            child,
            lines,
            bytes,
            readers: readers.into(),
        }
    }

    /// Returns its output so far.
    pub fn output(&self) -> String {
        self.lines.lock().join("\n")
    }

    /// Returns the counter of the bytes that it has written.
    pub fn output_bytes(&self) -> Arc<AtomicUsize> {
        self.bytes.clone()
    }

    /// Returns the whole output of a process that has ended: waits for the threads that read it. If
    /// the process left its outputs to another one, returns what came in [`OUTPUT_TIME`].
    pub fn final_output(&self) -> String {
        let begin = Instant::now();
        while !self.readers.iter().all(JoinHandle::is_finished) && begin.elapsed() < OUTPUT_TIME {
            std::thread::sleep(LOOK_PAUSE);
        }
        self.output()
    }

    /// Returns the port at which it, or a process that it started, listens. Waits until there is
    /// one.
    pub fn listening_port(&mut self) -> u16 {
        super::wait_until("the process to listen", || {
            assert!(!self.has_exited(), "ended early: {}", self.output());
            listening_ports::listening_ports_of_group(self.id())
                .first()
                .copied()
        })
    }

    /// Waits for a line with this prefix; returns the rest of the line.
    pub fn wait_for_line(&mut self, prefix: &str) -> String {
        super::wait_until(&format!("`{prefix}`, got: {}", self.output()), || {
            let found = self
                .lines
                .lock()
                .iter()
                .find_map(|line| line.strip_prefix(prefix).map(str::to_owned));
            if found.is_none() {
                assert!(
                    self.child.try_wait().unwrap().is_none(),
                    "ended early: {}",
                    self.output()
                );
            }
            found
        })
    }

    /// Reports if it has ended.
    pub fn has_exited(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name (`TERM`, `STOP`, `CONT`, `HUP`).
    pub fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// Has it stand still, and waits until all of its threads do: on a busy machine some of them run
    /// on for a while after the signal was sent. `CONT` lets it go on.
    pub fn freeze(&self) {
        self.signal("STOP");
        let threads = format!("/proc/{}/task", self.id());
        super::wait_until("all threads to stand still", || {
            let mut threads = std::fs::read_dir(&threads).unwrap();
            threads
                .all(|thread| is_stopped(&thread.unwrap().path()))
                .then_some(())
        });
    }

    /// Stops it by SIGTERM: it must end without an error.
    pub fn stop_gracefully(&mut self) {
        self.signal("TERM");
        assert_eq!(self.wait_for_exit(), Some(0), "{}", self.output());
    }

    /// Waits for its end; returns its exit code.
    pub fn wait_for_exit(&mut self) -> Option<i32> {
        super::wait_until("the process to end", || self.child.try_wait().unwrap()).code()
    }
}

/// Reports if a thread, by its folder in `/proc`, is stopped. One that has ended runs no more.
fn is_stopped(thread: &Path) -> bool {
    let Ok(stat) = std::fs::read_to_string(thread.join("stat")) else {
        return true;
    };
    // The name before the state stands in brackets and may contain some.
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Sends a signal to a process by name.
pub fn signal(id: u32, name: &str) {
    let sent = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(id.to_string())
        .status()
        .unwrap();
    assert!(sent.success());
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        // The whole group: a wrapper may have started the server. Without `--`, procps takes
        // `-1234` for options and kills the process `-1`, that is every process of the user.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill")
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
