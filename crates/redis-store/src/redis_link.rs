//! The one connection for commands of this replica, reopened in the background. Each command has a
//! time limit and passes the circuit breaker.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use parking_lot::Mutex;
use redis::{
    ErrorKind, FromRedisValue, RedisError, RedisResult, ScriptInvocation, ServerErrorKind,
};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use weir_core::port::{Backoff, Random, StoreError};
use weir_core::telemetry::instruments;

use crate::circuit_breaker::{BreakerPass, CircuitBreaker};
use crate::link_status::{CommandEffect, LinkStatus};
use crate::opened_connection::OpenedConnection;
use crate::pauses::next_pause;
use crate::redis_client::RedisClient;
use crate::redis_connection::RedisConnection;
use crate::server_checks::{read_info, server_risks, server_runs};

/// The time limit of commands that no request waits for.
pub(crate) const BACKGROUND_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest time for one attempt to connect, over all servers of the settings.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time for which commands wait for a connection that is being opened.
const COMMANDS_WAIT: Duration = Duration::from_secs(1);
/// The bounds of the pauses between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// The pause between looks at the runs of a cluster's nodes.
const RUNS_PAUSE: Duration = Duration::from_secs(2);
/// A connection that lasted less is followed by a pause, too.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// The connection for commands.
pub(crate) struct RedisLink {
    client: RedisClient,
    state: watch::Sender<ConnectionState>,
    /// The connection in use is broken.
    broken: Notify,
    breaker: CircuitBreaker,
    status: LinkStatus,
    /// The run of the server that the last connection led to, or those of a cluster's nodes: another
    /// one after a restart or a failover.
    known_runs: Mutex<Vec<String>>,
    /// Grows with every other run of a server.
    server_runs: watch::Sender<u64>,
    random: Arc<dyn Random>,
    command_timeout: Duration,
}

#[derive(Clone)]
enum ConnectionState {
    /// It is being opened, and no attempt has failed: commands wait.
    Opening,
    /// It is open. The number grows with every connection.
    Open(u64, RedisConnection),
    /// It could not be opened: commands fail.
    Down(Arc<str>),
}

impl ConnectionState {
    /// True if the connection of this number is open.
    fn is_open(&self, number: u64) -> bool {
        matches!(self, Self::Open(now, _) if *now == number)
    }
}

/// A command that runs.
#[derive(Clone, Copy)]
pub(crate) struct RunningCommand {
    /// Its name for the metric.
    pub(crate) operation: &'static str,
    pub(crate) effect: CommandEffect,
}

impl RunningCommand {
    pub(crate) const fn new(operation: &'static str, effect: CommandEffect) -> Self {
        Self { operation, effect }
    }

    /// A command that adds data in some cases only.
    pub(crate) fn may_write(operation: &'static str) -> Self {
        Self::new(operation, CommandEffect::MayWrite)
    }
}

/// The use of a connection after a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionUsability {
    /// The server answered with an error: another connection would not help.
    Usable,
    /// It may be dead.
    Unknown,
    /// It is broken, or leads to a server that is of no use any more.
    Lost,
}

/// A failed command.
pub(crate) struct CommandFailure {
    text: String,
    /// For the metric.
    result: &'static str,
}

/// The result of a command that was sent and not answered in time.
const TIMED_OUT: &str = "timeout";

impl CommandFailure {
    /// True if the server did not answer in time: a server that stalls runs the command later.
    pub(crate) fn may_run_later(&self) -> bool {
        self.result == TIMED_OUT
    }
}

impl From<CommandFailure> for StoreError {
    fn from(failure: CommandFailure) -> Self {
        Self(failure.text)
    }
}

impl RedisLink {
    /// A link that is not open yet; [`Self::keep_open`] opens it.
    pub(crate) fn new(
        client: RedisClient,
        random: Arc<dyn Random>,
        command_timeout: Duration,
    ) -> Self {
        Self {
            client,
            state: watch::Sender::new(ConnectionState::Opening),
            broken: Notify::new(),
            breaker: CircuitBreaker::new(),
            status: LinkStatus::default(),
            known_runs: Mutex::default(),
            server_runs: watch::Sender::new(0),
            random,
            command_timeout,
        }
    }

    /// The time limit of commands that a request waits for.
    pub(crate) fn command_timeout(&self) -> Duration {
        self.command_timeout
    }

    /// The opener of further connections, for subscriptions.
    pub(crate) fn client(&self) -> &RedisClient {
        &self.client
    }

    /// The state as commands find it.
    pub(crate) fn status(&self) -> &LinkStatus {
        &self.status
    }

    /// A receiver of the moments when another server, or the same one after a restart, has the data:
    /// it may lack the last writes.
    pub(crate) fn server_runs(&self) -> watch::Receiver<u64> {
        self.server_runs.subscribe()
    }

    /// The randomness of waits.
    pub(crate) fn random(&self) -> &dyn Random {
        &*self.random
    }

    /// Waits for a connection that is newer than the one of this number; returns its number.
    pub(crate) async fn wait_opened(&self, after: u64) -> u64 {
        let mut states = self.state.subscribe();
        let is_newer = |state: &ConnectionState| matches!(state, ConnectionState::Open(number, _) if *number > after);
        match states.wait_for(is_newer).await.as_deref() {
            Ok(ConnectionState::Open(number, _)) => *number,
            // The sender lives as long as `self`.
            Ok(_) | Err(_) => after,
        }
    }

    /// True if nodes of a cluster have the data.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.client, RedisClient::Cluster(..))
    }

    /// Runs a script that adds data. It is sent whole if the server does not know it.
    pub(crate) async fn invoke<T: FromRedisValue>(
        &self,
        operation: &'static str,
        limit: Duration,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, StoreError> {
        let command = RunningCommand::new(operation, CommandEffect::Writes);
        Ok(self.run_script(command, limit, script).await?)
    }

    /// Runs a script with an effect of its own.
    pub(crate) async fn run_script<T: FromRedisValue>(
        &self,
        command: RunningCommand,
        limit: Duration,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, CommandFailure> {
        let work = |mut connection: RedisConnection| async move {
            script.invoke_async(&mut connection).await
        };
        self.run(command, limit, work).await
    }

    /// Runs one command that leaves the data as they are.
    pub(crate) async fn query<T: FromRedisValue>(
        &self,
        operation: &'static str,
        limit: Duration,
        command: &redis::Cmd,
    ) -> Result<T, StoreError> {
        let running = RunningCommand::new(operation, CommandEffect::Reads);
        self.run_command(running, limit, command).await
    }

    /// Runs one command that adds or removes data.
    pub(crate) async fn change(
        &self,
        operation: &'static str,
        limit: Duration,
        command: &redis::Cmd,
    ) -> Result<(), StoreError> {
        self.run_command(RunningCommand::may_write(operation), limit, command)
            .await
    }

    async fn run_command<T: FromRedisValue>(
        &self,
        running: RunningCommand,
        limit: Duration,
        command: &redis::Cmd,
    ) -> Result<T, StoreError> {
        let work = |mut connection: RedisConnection| async move {
            command.query_async(&mut connection).await
        };
        Ok(self.run(running, limit, work).await?)
    }

    async fn run<T, F>(
        &self,
        command: RunningCommand,
        limit: Duration,
        work: impl FnOnce(RedisConnection) -> F,
    ) -> Result<T, CommandFailure>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let began = Instant::now();
        let outcome = self.attempt(command.effect, limit, work).await;
        let result = outcome
            .as_ref()
            .map_or_else(|failure| failure.result, |_| "ok");
        let labels = [
            KeyValue::new("operation", command.operation),
            KeyValue::new("result", result),
        ];
        instruments().store_commands.add(1, &labels);
        if outcome.is_ok() {
            let labels = [
                KeyValue::new("store", "shared"),
                KeyValue::new("operation", command.operation),
            ];
            let taken = began.elapsed().as_secs_f64();
            instruments().store_duration.record(taken, &labels);
        }
        outcome
    }

    async fn attempt<T, F>(
        &self,
        effect: CommandEffect,
        limit: Duration,
        work: impl FnOnce(RedisConnection) -> F,
    ) -> Result<T, CommandFailure>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let began = Instant::now();
        let Some(pass) = self.breaker.admit() else {
            let last = self.status.values().last_error.unwrap_or_default();
            return Err(refused(&last));
        };
        let (number, connection) = self.connection(began + limit).await?;
        let (text, result, connection) = match timeout_at(began + limit, work(connection)).await {
            Ok(Ok(value)) => {
                self.count_success(number, pass, began.elapsed(), effect);
                return Ok(value);
            }
            Ok(Err(error)) => {
                let text = error.to_string();
                if effect != CommandEffect::Reads && error.code().is_some() {
                    self.status.note_refused_write(&text);
                }
                (text, "error", usability_after(&error))
            }
            Err(_) => (
                format!("no answer within {limit:?}"),
                TIMED_OUT,
                ConnectionUsability::Unknown,
            ),
        };
        self.status.note_failure(&text);
        let opened_breaker = self.count_failure(number, pass);
        if opened_breaker {
            self.status.note_unreachable(&text);
        }
        match connection {
            ConnectionUsability::Lost => self.replace(number, ConnectionState::Opening),
            // Commands without an answer in a row may be due to a connection that is dead.
            ConnectionUsability::Unknown if opened_breaker => {
                self.replace(number, ConnectionState::Down(text.as_str().into()));
            }
            ConnectionUsability::Unknown | ConnectionUsability::Usable => {}
        }
        Err(CommandFailure {
            text: format!("shared store: {text}"),
            result,
        })
    }

    /// The connection. While the first attempt to open it is under way, it is awaited.
    async fn connection(&self, until: Instant) -> Result<(u64, RedisConnection), CommandFailure> {
        let mut states = self.state.subscribe();
        let is_settled = |state: &ConnectionState| !matches!(state, ConnectionState::Opening);
        let state = match timeout_at(until, states.wait_for(is_settled)).await {
            Ok(Ok(state)) => state.clone(),
            Ok(Err(_)) | Err(_) => ConnectionState::Opening,
        };
        match state {
            ConnectionState::Open(number, connection) => Ok((number, connection)),
            ConnectionState::Down(text) => Err(refused(&text)),
            ConnectionState::Opening => Err(refused("not connected yet")),
        }
    }

    /// Counts a success on the connection of this number. If the connection was replaced, a late
    /// answer is no sign that the next one works.
    fn count_success(
        &self,
        number: u64,
        pass: BreakerPass<'_>,
        latency: Duration,
        effect: CommandEffect,
    ) {
        let state = self.state.borrow();
        if state.is_open(number) {
            pass.succeed();
            self.status.note_answer(latency, effect);
        }
    }

    /// Counts a failure on the connection of this number; true if it opened the breaker. If the
    /// connection was replaced, its late failures are not those of the next one.
    fn count_failure(&self, number: u64, pass: BreakerPass<'_>) -> bool {
        let state = self.state.borrow();
        state.is_open(number) && pass.fail(self.random())
    }

    /// Has the connection of this number replaced; `meanwhile` is the state until then.
    fn replace(&self, number: u64, meanwhile: ConnectionState) {
        let change = |state: &mut ConnectionState| {
            let is_current = state.is_open(number);
            if is_current {
                *state = meanwhile;
            }
            is_current
        };
        if self.state.send_if_modified(change) {
            self.broken.notify_one();
        }
    }

    /// Opens the connection, and again whenever it breaks. It never ends.
    pub(crate) async fn keep_open(&self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
        let mut number = 0;
        loop {
            match self.open().await {
                Ok(OpenedConnection { connection, info }) => {
                    let opened = Instant::now();
                    number += 1;
                    self.breaker.reset();
                    let state = ConnectionState::Open(number, connection.clone());
                    self.state.send_replace(state);
                    self.note_server_runs(&info);
                    self.check_settings(&info, connection.clone()).await;
                    self.wait_broken(&connection).await;
                    if opened.elapsed() < SHORT_LIFE {
                        let last = self.status.values().last_error.unwrap_or_default();
                        self.status.note_unreachable(&last);
                        self.state.send_replace(ConnectionState::Down(last));
                        sleep(next_pause(&mut backoff, self.random())).await;
                    } else {
                        backoff.reset();
                    }
                }
                Err(text) => {
                    self.status.note_unreachable(&text);
                    self.state.send_replace(ConnectionState::Down(text.into()));
                    sleep(next_pause(&mut backoff, self.random())).await;
                }
            }
        }
    }

    /// Opens a connection to a server that takes writes.
    async fn open(&self) -> Result<OpenedConnection, String> {
        let mut opening = pin!(timeout(OPEN_TIMEOUT, OpenedConnection::open(&self.client)));
        let outcome = match timeout(COMMANDS_WAIT, &mut opening).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let text = "the connection is still being opened";
                self.status.note_unreachable(text);
                self.state.send_replace(ConnectionState::Down(text.into()));
                opening.await
            }
        };
        match outcome {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("no connection within {OPEN_TIMEOUT:?}")),
        }
    }

    /// Waits until the connection is broken. Meanwhile it looks at the runs of a cluster's nodes: a
    /// failover within a cluster does not break the connection to it.
    async fn wait_broken(&self, connection: &RedisConnection) {
        let looking = async {
            loop {
                sleep(RUNS_PAUSE).await;
                let read = timeout(BACKGROUND_TIMEOUT, read_info(connection.clone())).await;
                if let Ok(Ok(info)) = read {
                    self.note_server_runs(&info);
                }
            }
        };
        match connection {
            RedisConnection::Server(_) => self.broken.notified().await,
            RedisConnection::Cluster(_) => tokio::select! {
                () = self.broken.notified() => {}
                () = looking => {}
            },
        }
    }

    /// Compares the runs of the servers with those of the look before.
    fn note_server_runs(&self, info: &str) {
        let runs: Vec<String> = server_runs(info).map(str::to_owned).collect();
        if runs.is_empty() {
            return;
        }
        let mut known = self.known_runs.lock();
        let has_other = !known.is_empty() && runs.iter().any(|run| !known.contains(run));
        *known = runs;
        if has_other {
            self.server_runs.send_modify(|runs| *runs += 1);
        }
    }

    /// Looks at the server's settings, outside the breaker: credentials that do not permit it are
    /// no failure.
    async fn check_settings(&self, info: &str, connection: RedisConnection) {
        if let Ok(risks) = timeout(BACKGROUND_TIMEOUT, server_risks(info, connection)).await {
            self.status.note_risks(&risks);
        }
    }
}

fn refused(reason: &str) -> CommandFailure {
    CommandFailure {
        text: format!("shared store unreachable: {reason}"),
        result: "refused",
    }
}

/// Judges the connection of a command that failed with this error.
fn usability_after(error: &RedisError) -> ConnectionUsability {
    let has_useless_server = matches!(
        error.kind(),
        ErrorKind::Server(
            ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading
        )
    );
    if error.is_unrecoverable_error() || has_useless_server || error.code() == Some("NOAUTH") {
        return ConnectionUsability::Lost;
    }
    let is_refusal = matches!(
        error.kind(),
        ErrorKind::Extension
            | ErrorKind::Server(ServerErrorKind::ResponseError | ServerErrorKind::NoPerm)
    );
    if is_refusal {
        ConnectionUsability::Usable
    } else {
        ConnectionUsability::Unknown
    }
}

#[cfg(test)]
mod tests;
