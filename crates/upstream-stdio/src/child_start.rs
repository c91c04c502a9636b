//! The start of a child process. It runs apart from its callers, for as long as `start` in the
//! config allows, and operators see its progress.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use weir_core::upstream::{ListKinds, ProcessStart};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_era::upstream_messages::RevisionDialect;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::keyed_slots::KeyedSlot;
use weir_upstream_core::retry_backoff::least_wait;
use weir_upstream_core::settings::UpstreamProtocol;
use weir_upstream_core::upstream_context::UpstreamContext;

use crate::child_channel::ChildChannel;
use crate::child_environment;
use crate::child_eras::ChildEras;
use crate::child_fence;
use crate::child_key::ChildKey;
use crate::child_source::ChildSource;
use crate::error_tail::ErrorTail;
use crate::handshake::{ChildClients, HandshakeError, run_handshake};
use crate::running_child::RunningChild;
use crate::upstream_child::{UpstreamChild, explaining_lines};

/// The age below which the end of a child counts as a failure: the next start waits.
const STEADY_AGE: Duration = Duration::from_secs(30);
/// The time after which the log reports a process that has not answered; each further report comes
/// after twice the time.
const FIRST_REPORT: Duration = Duration::from_secs(10);
/// The longest wait for the last lines and the exit status of a process that closed its output. A
/// process that goes on without output has its failure reported after this time.
const EXIT_WAIT: Duration = Duration::from_secs(3);

/// The lines of a failed start that are kept for operators: the error of a Node.js program stands
/// before up to twenty lines of its stack.
const MAX_KEPT_LINES: usize = 25;

/// Programs that download other programs and run them.
const PACKAGE_RUNNERS: [&str; 10] = [
    "npx", "npm", "pnpm", "bunx", "uvx", "uv", "pipx", "docker", "podman", "deno",
];

/// A process that has not answered the first message yet.
#[derive(Debug)]
struct StartingChild {
    since: Instant,
    errors: Arc<ErrorTail>,
    channel: Arc<ChildChannel>,
}

/// Starts the children of one server.
#[derive(Debug)]
pub(super) struct ChildStarter {
    context: Arc<UpstreamContext>,
    pub(super) origin: ChildSource,
    pub(super) eras: ChildEras,
    /// The process that was started last and has not answered yet.
    starting: Mutex<Option<Arc<StartingChild>>>,
}

impl ChildStarter {
    pub(super) fn new(
        context: Arc<UpstreamContext>,
        origin: ChildSource,
        protocol: UpstreamProtocol,
    ) -> Self {
        Self {
            context,
            origin,
            eras: ChildEras::new(protocol),
            starting: Mutex::default(),
        }
    }

    /// Notes the protocol of a child, and the time that its start took.
    pub(super) fn record_dialect(&self, key: &ChildKey, dialect: RevisionDialect, begun: Instant) {
        if self.eras.record_dialect(key.is_legacy, dialect, begun) {
            // Clients with sessions have lists of their own from now on.
            self.context.list_changes.record(ListKinds::default());
        }
    }

    /// Starts a process in a task of its own. A caller that leaves does not end the start: the next
    /// caller waits for the same one.
    pub(super) async fn start_detached(
        self: Arc<Self>,
        slot: Arc<KeyedSlot<RunningChild>>,
        key: ChildKey,
        clients: ChildClients,
        opening: OwnedMutexGuard<()>,
    ) -> Result<Arc<RunningChild>, FailedAttempt> {
        let context = self.context.clone();
        let started = context.tasks.run_endless(async move {
            let _opening = opening;
            let running = Arc::new(Box::pin(self.restart(&slot, &key, clients)).await?);
            if key.principal.is_some() {
                running.open_own_lists();
            }
            slot.current.store(Some(running.clone()));
            Ok(running)
        });
        let outcome = started.await;
        outcome.unwrap_or_else(|| Err(FailedAttempt::removed(&context.label)))
    }

    /// Starts a child apart from the others, and ends it once it has answered the first message,
    /// also with a refusal.
    pub(super) async fn check(&self) -> Result<(), FailedAttempt> {
        let clients = ChildClients {
            class: CapabilityClass::BASE,
            session: None,
            is_owned: false,
        };
        let protocol = self.eras.protocol_of(false);
        let asking = async {
            let child = self.origin.start(&self.context).await?;
            run_handshake(&child.channel, protocol, &clients).await
        };
        let failure = match tokio::time::timeout(self.start_time(), asking).await {
            Ok(Ok(_) | Err(HandshakeError::Refused(_))) => return Ok(()),
            Ok(Err(HandshakeError::Failed(failure))) => failure,
            Ok(Err(HandshakeError::EndedOnProbe)) | Err(_) => self.context.label.fail(
                FailureKind::Unavailable,
                "The upstream did not answer the first message",
            ),
        };
        Err(FailedAttempt::new(failure).mark_not_reached())
    }

    /// Returns the time limit of a start, up to the answer to the first message.
    pub(super) fn start_time(&self) -> Duration {
        self.origin.start_timeout(&self.context)
    }

    /// Returns the process that has not answered yet, for operators.
    pub(super) fn starting(&self) -> Option<ProcessStart> {
        let starting = self.starting.lock().clone()?;
        Some(ProcessStart {
            time: starting.since.elapsed(),
            last_line: starting.errors.last_line(),
        })
    }

    async fn restart(
        &self,
        slot: &KeyedSlot<RunningChild>,
        key: &ChildKey,
        clients: ChildClients,
    ) -> Result<RunningChild, FailedAttempt> {
        // Another replica runs the children: no failure of the upstream.
        child_fence::check(&self.context)?;
        if let Some(before) = slot.current.swap(None) {
            if before.since.elapsed() >= STEADY_AGE {
                slot.pace().record_success();
                // The cause of its end may still be there, so even this start waits.
                tokio::time::sleep(least_wait(0)).await;
            } else {
                // The pace belongs to this child alone: a child that crashes delays no other one.
                slot.pace()
                    .record_end(self.context.clock.now(), self.context.clock.random());
            }
        }
        let now = self.context.clock.now();
        let admitted = slot
            .pace()
            .admit(now)
            .and_then(|()| self.eras.pace(key.is_legacy).admit(now));
        admitted.map_err(|wait| {
            let text = "The upstream ended and is not started again yet: try again shortly";
            let last = slot
                .pace()
                .last_failure()
                .or_else(|| self.eras.pace(key.is_legacy).last_failure());
            let mut refusal = FailedAttempt::too_early(&self.context.label, None, text, wait);
            if let Some(last) = last {
                refusal.failure = refusal.failure.with_cause(last.cause);
            }
            refusal
        })?;
        let timeout = self.eras.start_timeout(key.is_legacy, self.start_time());
        let started = tokio::time::timeout(timeout, self.reporting(self.start(key, clients))).await;
        let starting = self.starting.lock().take();
        match started {
            Ok(Ok(running)) => Ok(RunningChild {
                used: slot.use_clock(),
                ..running
            }),
            // This is a shortage of weir, not a failure of the upstream.
            Ok(Err(failure)) if *failure.kind() == FailureKind::Overloaded => {
                Err(FailedAttempt::new(failure).mark_not_attempted())
            }
            Ok(Err(failure)) => Err(self.not_started(key, failure)),
            Err(_) => {
                let text = "The upstream's process was started and did not answer in time";
                let failure = self.context.label.fail(FailureKind::Unavailable, text);
                Err(self.not_started(
                    key,
                    failure.because(self.explain_timeout(timeout, starting.as_deref())),
                ))
            }
        }
    }

    fn not_started(&self, key: &ChildKey, failure: Failure) -> FailedAttempt {
        let mut pace = self.eras.pace(key.is_legacy);
        pace.record_end(self.context.clock.now(), self.context.clock.random());
        pace.keep_failure(&failure);
        drop(pace);
        self.eras.record_failure(key.is_legacy);
        FailedAttempt::new(failure).mark_not_reached()
    }

    async fn start(&self, key: &ChildKey, clients: ChildClients) -> Result<RunningChild, Failure> {
        let begun = Instant::now();
        let child = self.origin.start(&self.context).await?;
        self.show_starting(&child, begun);
        let (child, outcome) = match run_handshake(
            &child.channel,
            self.eras.protocol_of(key.is_legacy),
            &clients,
        )
        .await
        {
            Err(HandshakeError::EndedOnProbe) => {
                let child = self.origin.start(&self.context).await?;
                self.show_starting(&child, begun);
                let outcome =
                    run_handshake(&child.channel, UpstreamProtocol::Legacy, &clients).await;
                (child, outcome)
            }
            outcome => (child, outcome),
        };
        match outcome {
            Ok(handshake) => {
                self.record_dialect(key, handshake.dialect, begun);
                Ok(RunningChild::new(child, handshake, clients))
            }
            Err(failed) => {
                if matches!(failed, HandshakeError::Refused(_)) {
                    self.eras.record_refusal(key.is_legacy);
                }
                Err(self.explain_failure(&child, failed).await)
            }
        }
    }

    /// Shows a process as starting.
    fn show_starting(&self, child: &UpstreamChild, since: Instant) {
        let (errors, channel) = (child.errors.clone(), child.channel.clone());
        *self.starting.lock() = Some(Arc::new(StartingChild {
            since,
            errors,
            channel,
        }));
    }

    /// Runs a start, and logs now and then that it goes on.
    async fn reporting<T>(&self, start: impl Future<Output = T>) -> T {
        let mut start = std::pin::pin!(start);
        let mut wait = FIRST_REPORT;
        loop {
            match tokio::time::timeout(wait, &mut start).await {
                Ok(done) => return done,
                Err(_) => wait *= 2,
            }
            if let Some(ProcessStart {
                time,
                last_line: says,
            }) = self.starting()
            {
                let (seconds, says) = (time.as_secs(), says.unwrap_or_default());
                tracing::info!(upstream = %self.context.label.id, seconds, says, "upstream is still starting");
            }
        }
    }

    /// The cause of a start that timed out, with advice: lines of the process, and the usual
    /// reasons of its program.
    fn explain_timeout(&self, timeout: Duration, starting: Option<&StartingChild>) -> String {
        let mut text = format!(
            "no answer to the first message within {} s",
            timeout.as_secs()
        );
        let ChildSource::Process(settings, _) = &self.origin else {
            return text;
        };
        let last_lines = starting
            .map(|starting| starting.errors.last_lines(MAX_KEPT_LINES))
            .unwrap_or_default();
        let is_silent = last_lines.is_empty();
        self.context.record.note_lines(last_lines);
        for line in starting
            .into_iter()
            .flat_map(|starting| explaining_lines(&starting.channel, &starting.errors))
        {
            // Writing to a string cannot fail.
            let _ = write!(text, "; {line}");
        }
        let program = settings
            .command
            .rsplit(['/', '\\'])
            .next()
            .unwrap_or_default();
        let program = program.trim_end_matches(".cmd").trim_end_matches(".exe");
        if PACKAGE_RUNNERS.contains(&program) {
            let why = if is_silent {
                "it may wait for a download that is blocked"
            } else {
                "it may still be downloading"
            };
            let _ = write!(
                text,
                "; {why}: run the command by hand, look at the network and the proxy variables, or give it longer with `start`"
            );
            let withheld: Vec<_> =
                child_environment::withheld_proxies(|name| std::env::var(name).ok(), &settings.env)
                    .collect();
            if !withheld.is_empty() {
                let names = withheld.join(", ");
                let _ = write!(
                    text,
                    "; {names} of weir's own environment has a password and is handed on only where `env` lists it"
                );
            }
        } else {
            text.push_str("; run the command by hand to see what it waits for, or give it longer with `start`");
        }
        text
    }

    /// Returns the failure with its cause, the exit status and the last lines of the process.
    async fn explain_failure(&self, child: &UpstreamChild, error: HandshakeError) -> Failure {
        let cause = child.explain_exit(EXIT_WAIT).await;
        self.context
            .record
            .note_lines(child.errors.last_lines(MAX_KEPT_LINES));
        let ended = || {
            self.context.label.fail(
                FailureKind::Unavailable,
                "The upstream ended before it was ready",
            )
        };
        let failure = match error {
            HandshakeError::EndedOnProbe => ended(),
            // The order in which its streams end is arbitrary.
            HandshakeError::Failed(failure)
                if child.is_over() && *failure.kind() == FailureKind::Unavailable =>
            {
                ended()
            }
            HandshakeError::Refused(failure) | HandshakeError::Failed(failure) => failure,
        };
        match cause {
            Some(cause) => failure.and_because(cause),
            None => failure,
        }
    }
}
