//! A real `redis-server` on a free loopback port, for tests of the state that replicas share.

mod resp_connection;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use resp_connection::RespConnection;
pub use resp_connection::RespValue;

/// The name of the program, of the Debian package of the same name.
const PROGRAM: &str = "redis-server";

/// The most time for the server to start or to end.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause between two looks at another process.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The ports that servers are started on. The system gives none of them to a connection or to a
/// listener on any port, so a killed server gets its own port back.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A running `redis-server`. Dropping it kills the process and removes its folder.
#[derive(Debug)]
pub struct RedisServer {
    address: SocketAddr,
    password: Option<String>,
    folder: PathBuf,
    process: Option<Child>,
}

impl RedisServer {
    /// Starts a server without a password, and waits until it answers.
    ///
    /// # Panics
    /// `redis-server` is not on PATH, or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::on_free_port(None)
    }

    /// Starts a server whose clients need this password.
    ///
    /// # Panics
    /// `redis-server` is not on PATH, or does not start.
    #[must_use]
    pub fn with_password(password: &str) -> Self {
        Self::on_free_port(Some(password.to_owned()))
    }

    fn on_free_port(password: Option<String>) -> Self {
        let mut server = Self {
            address: ([127, 0, 0, 1], 0).into(),
            password,
            folder: fresh_folder(),
            process: None,
        };
        let begun = Instant::now();
        while begun.elapsed() < START_TIMEOUT {
            server.address.set_port(free_port());
            if server.launch() {
                return server;
            }
            // Another test was quicker to take the port.
        }
        panic!("{PROGRAM} does not start: {}", server.log());
    }

    /// The address that it listens on. The same after a restart.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        let password = self.password.as_ref();
        let user = password.map_or_else(String::new, |password| format!(":{password}@"));
        format!("redis://{user}{}", self.address)
    }

    /// Runs one command, such as `&["CONFIG", "SET", "maxmemory", "1mb"]`, over a connection of its
    /// own.
    ///
    /// # Errors
    /// The server cannot be reached, or does not answer within ten seconds. An error reply of the
    /// server is [`RespValue::Error`].
    pub fn command(&self, words: &[&str]) -> io::Result<RespValue> {
        let mut connection = RespConnection::open(self.address)?;
        if let Some(password) = &self.password {
            connection.run(&["AUTH", password])?;
        }
        connection.run(words)
    }

    /// Runs one command that must succeed.
    ///
    /// # Panics
    /// The server does not answer, or answers with an error.
    pub fn run(&self, words: &[&str]) -> RespValue {
        match self.command(words) {
            Ok(RespValue::Error(error)) => panic!("{words:?}: {error}"),
            Ok(value) => value,
            Err(error) => panic!("{words:?}: {error}; log: {}", self.log()),
        }
    }

    /// Deletes every key.
    pub fn flush(&self) {
        self.run(&["FLUSHALL"]);
    }

    /// The names of all keys, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let mut keys = self.run(&["KEYS", "*"]).texts();
        keys.sort_unstable();
        keys
    }

    /// The calls of each command since the start or [`RedisServer::reset_command_counts`]. Names
    /// are in lower case; a subcommand follows its command after `|`. The commands of
    /// [`RedisServer::command`] count too.
    #[must_use]
    pub fn command_counts(&self) -> BTreeMap<String, u64> {
        let info = self.run(&["INFO", "commandstats"]).text();
        info.lines().filter_map(command_count).collect()
    }

    /// Sets all counts of commands to zero.
    pub fn reset_command_counts(&self) {
        self.run(&["CONFIG", "RESETSTAT"]);
    }

    /// Ends the process at once. Its port refuses connections from now on.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Both fail only for a process that has ended.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Stops the process: connections stay open, and no command is answered.
    ///
    /// # Panics
    /// The process has ended.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets a stopped process go on.
    ///
    /// # Panics
    /// The process has ended.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Starts the process again on the same port with its data. Kills it first if it runs.
    ///
    /// # Panics
    /// The server does not start.
    pub fn restart(&mut self) {
        self.kill();
        let begun = Instant::now();
        while !self.launch() {
            let log = self.log();
            assert!(begun.elapsed() < START_TIMEOUT, "no restart: {log}");
        }
    }

    /// Starts the process again on the same port without any data. Kills it first if it runs.
    ///
    /// # Panics
    /// The server does not start.
    pub fn restart_empty(&mut self) {
        self.kill();
        let emptied = std::fs::remove_dir_all(&self.folder)
            .and_then(|()| std::fs::create_dir_all(&self.folder));
        emptied.unwrap_or_else(|error| panic!("{}: {error}", self.folder.display()));
        self.restart();
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref();
        let id = process
            .unwrap_or_else(|| panic!("{PROGRAM} was killed"))
            .id();
        let id = Pid::from_raw(id.try_into().unwrap_or_else(|error| panic!("{error}")));
        kill(id, signal).unwrap_or_else(|error| panic!("{signal}: {error}"));
    }

    /// Starts the process and waits until it answers; false if it ended before.
    fn launch(&mut self) -> bool {
        let mut command = Command::new(PROGRAM);
        let port = self.address.port().to_string();
        command
            .args(["--port", &port, "--bind", "127.0.0.1", "--daemonize", "no"])
            // Every command is written before its reply, so that a kill loses none.
            .args(["--save", "", "--appendonly", "yes"])
            .args(["--appendfsync", "no", "--logfile", "redis.log"])
            .arg("--dir")
            .arg(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(password) = &self.password {
            command.args(["--requirepass", password]);
        }
        let process = command.spawn().unwrap_or_else(|error| {
            panic!("{PROGRAM}: {error}; install the package `redis-server`")
        });
        let process = self.process.insert(process);
        let id = process.id().to_string();
        let begun = Instant::now();
        loop {
            let process = self.process.as_mut();
            if process.is_none_or(|process| !matches!(process.try_wait(), Ok(None))) {
                return false;
            }
            if self.answers_as(&id) {
                return true;
            }
            let log = self.log();
            assert!(begun.elapsed() < START_TIMEOUT, "it does not answer: {log}");
            pause(POLL_INTERVAL);
        }
    }

    /// Reports if the process with this id answers at the port, and not a server of another test.
    fn answers_as(&self, id: &str) -> bool {
        let is_alive = self
            .command(&["PING"])
            .is_ok_and(|reply| reply.text() == "PONG");
        let info = self.command(&["INFO", "server"]);
        let line = format!("process_id:{id}");
        is_alive && info.is_ok_and(|info| info.text().lines().any(|own| own.trim() == line))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("redis.log")).unwrap_or_default()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        // An error leaves a folder among the temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Reads a line such as `cmdstat_config|set:calls=2,usec=9,...`.
fn command_count(line: &str) -> Option<(String, u64)> {
    let (name, counts) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let calls = counts.strip_prefix("calls=")?.split(',').next()?;
    Some((name.to_owned(), calls.parse().ok()?))
}

#[expect(
    clippy::disallowed_methods,
    reason = "another process is polled: there is no event to wait on"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

fn fresh_folder() -> PathBuf {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let name = format!("weir-redis-{}-{number}", std::process::id());
    let folder: &Path = &std::env::temp_dir().join(name);
    std::fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    folder.to_owned()
}

/// Returns a port without a listener. Tests of other processes begin at other ports.
fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    let first = u16::try_from(std::process::id() * 7 % u32::from(count)).unwrap_or_default();
    for _ in 0..count {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed) % count;
        let port = PORTS.start + (first + tried) % count;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port of {PORTS:?} is free");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killed_server_comes_back_with_or_without_its_data() {
        let mut server = RedisServer::start();
        assert_eq!(server.run(&["SET", "a", "1"]).text(), "OK");
        assert_eq!(server.run(&["INCR", "a"]).text(), "2");
        server.kill();
        let refused = server.command(&["PING"]).map_err(|error| error.kind());
        assert_eq!(refused, Err(io::ErrorKind::ConnectionRefused));
        server.restart();
        assert_eq!(server.run(&["GET", "a"]).text(), "2");
        assert_eq!(server.keys(), ["a"]);
        server.restart_empty();
        assert_eq!(server.run(&["GET", "a"]), RespValue::Null);
    }

    #[test]
    fn password_is_asked_for() {
        let server = RedisServer::with_password("secret");
        assert!(server.url().starts_with("redis://:secret@127.0.0.1:"));
        assert_eq!(server.run(&["PING"]).text(), "PONG");
        let mut stranger = RespConnection::open(server.address()).expect("a connection");
        let refused = stranger.run(&["PING"]).expect("a reply");
        assert!(matches!(&refused, RespValue::Error(text) if text.starts_with("NOAUTH")));
    }

    #[test]
    fn commands_are_counted_by_name() {
        let server = RedisServer::start();
        server.reset_command_counts();
        server.run(&["SET", "a", "1"]);
        server.run(&["SET", "b", "1"]);
        server.run(&["CONFIG", "SET", "maxmemory", "0"]);
        let counts = server.command_counts();
        assert_eq!(counts.get("set"), Some(&2), "{counts:?}");
        assert_eq!(counts.get("config|set"), Some(&1), "{counts:?}");
        assert_eq!(counts.get("get"), None, "{counts:?}");
        server.flush();
        assert_eq!(server.keys(), [""; 0]);
    }

    #[test]
    fn paused_server_answers_once_it_is_resumed() {
        let server = RedisServer::start();
        server.pause();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| server.run(&["PING"]).text());
            server.resume();
            assert_eq!(asked.join().ok().as_deref(), Some("PONG"));
        });
    }
}
