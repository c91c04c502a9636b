//! A real `redis-server` on a free loopback port, for tests of the state that replicas share.

mod resp_connection;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weir_testkit::TestFolder;

use resp_connection::RespConnection;
pub use resp_connection::RespValue;

use crate::documented_user::documented_user;
use crate::free_port::free_port;
use crate::poll_pause::pause;
use crate::tls_files::TlsFiles;

/// The name of the program, of the Debian package of the same name.
const PROGRAM: &str = "redis-server";

/// The variable with another program, such as the path of a `valkey-server`.
const PROGRAM_VARIABLE: &str = "WEIR_REDIS_SERVER";

/// The most time for the server to start or to end.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The config file of a sentinel, which writes its own state into it.
const SENTINEL_FILE: &str = "sentinel.conf";

/// The bytes after which a server that loads its data looks at its connections.
const LOADING_STEP: [&str; 2] = ["loading-process-events-interval-bytes", "1024"];

/// A running `redis-server`. Dropping it kills the process and removes its folder.
#[derive(Debug)]
pub struct RedisServer {
    address: SocketAddr,
    password: Option<String>,
    /// Further directives of the config, each a name and a value.
    settings: Vec<[String; 2]>,
    mode: ServerMode,
    folder: TestFolder,
    process: Option<Child>,
}

/// The work of a server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerMode {
    /// It keeps data.
    Data,
    /// It watches a primary server.
    Sentinel,
}

impl RedisServer {
    /// The setting of a server that clients of this machine may tell to fail.
    pub const DEBUG_COMMANDS: [&str; 2] = ["enable-debug-command", "local"];

    /// Starts a server without a password, and waits until it answers.
    ///
    /// # Panics
    /// `redis-server` is not on PATH, or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::with_settings(&[])
    }

    /// Starts a server whose clients need this password.
    ///
    /// # Panics
    /// `redis-server` is not on PATH, or does not start.
    #[must_use]
    pub fn with_password(password: &str) -> Self {
        let mut server = Self::stopped(&[], ServerMode::Data);
        server.password = Some(password.to_owned());
        server.start_on_free_port();
        server
    }

    /// Starts a server with further directives of its config, such as `&[["maxmemory", "1mb"]]`.
    ///
    /// # Panics
    /// `redis-server` is not on PATH, or does not start.
    #[must_use]
    pub fn with_settings(settings: &[[&str; 2]]) -> Self {
        let mut server = Self::stopped(settings, ServerMode::Data);
        server.start_on_free_port();
        server
    }

    /// Starts a server that takes connections with TLS, too.
    ///
    /// # Panics
    /// `redis-server` is not on PATH, or does not start: programs of some packages have no TLS.
    #[must_use]
    pub fn with_tls(files: &TlsFiles) -> Self {
        let mut server = Self::stopped(&[], ServerMode::Data);
        server.settings = files.settings().into();
        server.start_on_free_port();
        server
    }

    /// Starts a sentinel that makes another server the primary one soon after `primary` ended. Its
    /// clients know the primary server by the name `main`.
    ///
    /// # Panics
    /// `redis-server` is not on PATH, or does not start.
    #[must_use]
    pub fn sentinel_of(primary: &Self) -> Self {
        let mut server = Self::stopped(&[], ServerMode::Sentinel);
        let (ip, port) = (primary.address.ip(), primary.address.port());
        let config = format!(
            "sentinel monitor main {ip} {port} 1\n\
             sentinel down-after-milliseconds main 3000\n\
             sentinel failover-timeout main 2000\n"
        );
        std::fs::write(server.folder.file(SENTINEL_FILE), config)
            .unwrap_or_else(|error| panic!("{SENTINEL_FILE}: {error}"));
        server.start_on_free_port();
        server
    }

    fn stopped(settings: &[[&str; 2]], mode: ServerMode) -> Self {
        Self {
            address: ([127, 0, 0, 1], 0).into(),
            password: None,
            settings: settings
                .iter()
                .map(|line| line.map(str::to_owned))
                .collect(),
            mode,
            folder: TestFolder::new("redis"),
            process: None,
        }
    }

    fn start_on_free_port(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < START_TIMEOUT {
            self.address.set_port(free_port());
            if self.launch() {
                return;
            }
            // Another test was quicker to take the port.
        }
        panic!("{} does not start: {}", program(), self.log());
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

    /// The URL with the credentials of a user.
    #[must_use]
    pub fn url_of_user(&self, name: &str, password: &str) -> String {
        format!("redis://{name}:{password}@{}", self.address)
    }

    /// Adds the user `weir` with the rights of the documentation, and this password.
    ///
    /// # Panics
    /// The documentation has no such line, or the server does not take it.
    pub fn add_documented_user(&self, password: &str) {
        let words = documented_user(password);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        self.run(&words);
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

    /// Changes the password that clients need from now on. Open connections stay.
    ///
    /// # Panics
    /// The server does not answer.
    pub fn set_password(&mut self, password: Option<&str>) {
        self.run(&["CONFIG", "SET", "requirepass", password.unwrap_or_default()]);
        self.password = password.map(str::to_owned);
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

    /// Starts the process again on the same port, so slowly that it answers `LOADING` for this time
    /// for each of its keys. Kills it first if it runs, after a snapshot of its data.
    ///
    /// # Panics
    /// The server does not start, or keeps an append-only file.
    pub fn restart_loading(&mut self, time_per_key: Duration) {
        assert!(self.has_snapshots_alone(), "it loads the append-only file");
        self.run(&["SAVE"]);
        self.kill();
        let micros = time_per_key.as_micros().to_string();
        let before = self.settings.clone();
        let slow = [["key-load-delay", &micros], LOADING_STEP];
        self.settings
            .extend(slow.map(|line| line.map(str::to_owned)));
        self.spawn();
        self.settings = before;
        let begun = Instant::now();
        while !self.is_loading() {
            let log = self.log();
            assert!(begun.elapsed() < START_TIMEOUT, "it does not load: {log}");
            pause();
        }
    }

    /// Has the server load its data again from a snapshot, so slowly that it answers `LOADING` for
    /// about this time, or not at all without keys. [`RedisServer::DEBUG_COMMANDS`] allows it.
    ///
    /// # Panics
    /// The server does not answer, or the time is more than some seconds.
    pub fn reload_slowly(&self, time: Duration) {
        let Ok(keys @ 1_u32..) = self.run(&["DBSIZE"]).text().parse() else {
            return;
        };
        let micros = (time / keys).as_micros().to_string();
        let set = |[name, value]: [&str; 2]| self.run(&["CONFIG", "SET", name, value]);
        set(LOADING_STEP);
        set(["key-load-delay", &micros]);
        self.run(&["DEBUG", "RELOAD"]);
        set(["key-load-delay", "0"]);
    }

    fn has_snapshots_alone(&self) -> bool {
        let no = ["appendonly", "no"];
        self.settings.iter().any(|line| *line == no)
    }

    fn is_loading(&self) -> bool {
        let reply = self.command(&["PING"]);
        matches!(reply, Ok(RespValue::Error(error)) if error.starts_with("LOADING"))
    }

    /// Starts the process again on the same port without any data. Kills it first if it runs.
    ///
    /// # Panics
    /// The server does not start.
    pub fn restart_empty(&mut self) {
        self.kill();
        let folder = self.folder.path();
        let emptied =
            std::fs::remove_dir_all(folder).and_then(|()| std::fs::create_dir_all(folder));
        emptied.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        self.restart();
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref();
        let id = process
            .unwrap_or_else(|| panic!("{} was killed", program()))
            .id();
        let id = Pid::from_raw(id.try_into().unwrap_or_else(|error| panic!("{error}")));
        kill(id, signal).unwrap_or_else(|error| panic!("{signal}: {error}"));
    }

    /// Starts the process and waits until it answers; false if it ended before.
    fn launch(&mut self) -> bool {
        let id = self.spawn().to_string();
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
            pause();
        }
    }

    /// Starts the process; returns its id.
    fn spawn(&mut self) -> u32 {
        let mut command = Command::new(program());
        if self.mode == ServerMode::Sentinel {
            let file = self.folder.file(SENTINEL_FILE);
            command.arg(file).arg("--sentinel");
        } else {
            // Every command is written before its reply, so that a kill loses none.
            command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "no"]);
        }
        let port = self.address.port().to_string();
        command
            .args(["--port", &port, "--bind", "127.0.0.1", "--daemonize", "no"])
            .args(["--logfile", "redis.log", "--dir"])
            .arg(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(password) = &self.password {
            command.args(["--requirepass", password]);
        }
        for [name, value] in &self.settings {
            command.arg(format!("--{name}")).arg(value);
        }
        let process = command.spawn().unwrap_or_else(|error| {
            panic!("{}: {error}; install the package `redis-server`", program())
        });
        self.process.insert(process).id()
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
        std::fs::read_to_string(self.folder.file("redis.log")).unwrap_or_default()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads a line such as `cmdstat_config|set:calls=2,usec=9,...`.
fn command_count(line: &str) -> Option<(String, u64)> {
    let (name, counts) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let calls = counts.strip_prefix("calls=")?.split(',').next()?;
    Some((name.to_owned(), calls.parse().ok()?))
}

fn program() -> String {
    std::env::var(PROGRAM_VARIABLE).unwrap_or_else(|_| PROGRAM.to_owned())
}
