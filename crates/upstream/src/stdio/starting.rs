//! The start of a child process. It runs apart from its callers, for as long as `start` in the
//! config allows, and operators see its progress.

use std::fmt::Write as _;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::Instant;
use weir_core::upstream::{ListKinds, ProcessStart};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_era::upstream_messages::RevisionDialect;

use super::child::{Child, explaining_lines};
use super::environment;
use super::greet::{Clients, Greeted, Rude, greet};
use super::origin::Origin;
use super::pipe::Pipe;
use super::tail::Tail;
use super::{Key, Running, StdioServer, lock};
use crate::pace::{Pace, least};
use crate::refusal::Refusal;
use crate::settings::Protocol;
use crate::slots::Slot;

/// The age below which the end of a child counts as a failure: the next start waits.
const STEADY: Duration = Duration::from_secs(30);
/// The time after which the log reports a process that has not answered; each further report comes
/// after twice the time.
const FIRST_REPORT: Duration = Duration::from_secs(10);
/// The wait for the last lines and the exit status of a process that closed its output.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The lines of a failed start that are kept for operators.
const MOST_LINES: usize = 10;

/// Programs that download other programs and run them.
const PACKAGE_RUNNERS: [&str; 10] = [
    "npx", "npm", "pnpm", "bunx", "uvx", "uv", "pipx", "docker", "podman", "deno",
];

/// A process that has not answered the first message yet.
#[derive(Debug)]
pub(super) struct StartingChild {
    since: Instant,
    errors: Arc<Tail>,
    pipe: Arc<Pipe>,
}

impl StdioServer {
    /// Starts a process in a task of its own. A caller that leaves does not end the start: the next
    /// caller waits for the same one.
    pub(super) async fn start_apart(
        self: Arc<Self>,
        (slot, key): (Arc<Slot<Running>>, Key),
        clients: Clients,
        opening: OwnedMutexGuard<()>,
    ) -> Result<Arc<Running>, Refusal> {
        let site = self.site.clone();
        let (done, started) = oneshot::channel();
        site.background(async move {
            let result = Box::pin(self.restart((&slot, &key), clients))
                .await
                .map(|running| {
                    let running = Arc::new(running);
                    if key.principal.is_some() {
                        running.has_own_lists();
                    }
                    slot.current.store(Some(running.clone()));
                    running
                });
            drop(opening);
            // The caller may be gone.
            let _ = done.send(result);
        });
        let removed = || {
            site.fail(
                FailureKind::Unavailable,
                "The upstream is not served any more",
            )
        };
        started
            .await
            .unwrap_or_else(|_| Err(Refusal::new(removed()).unasked()))
    }

    /// Returns the time limit of a start, up to the answer to the first message.
    pub(crate) fn start_time(&self) -> Duration {
        self.origin.patience(&self.site)
    }

    /// Returns the process that has not answered yet, for operators.
    pub(crate) fn starting(&self) -> Option<ProcessStart> {
        let starting = lock(&self.starting).clone()?;
        Some(ProcessStart {
            time: starting.since.elapsed(),
            last_line: starting.errors.last_line(),
        })
    }

    async fn restart(
        &self,
        (slot, key): (&Slot<Running>, &Key),
        clients: Clients,
    ) -> Result<Running, Refusal> {
        if let Some(before) = slot.current.swap(None) {
            if before.since.elapsed() >= STEADY {
                lock(&slot.pace).succeeded();
                // The cause of its end may still be there, so even this start waits.
                tokio::time::sleep(least(0)).await;
            } else {
                // The pace belongs to this child alone: a child that crashes delays no other one.
                lock(&slot.pace).ended(self.site.now(), &*self.site.random);
            }
        }
        let now = self.site.now();
        let admitted = lock(&slot.pace)
            .admit(now)
            .and_then(|()| self.pace(key).admit(now));
        admitted.map_err(|wait| {
            let text = "The upstream ended and is not started again yet: try again shortly";
            let last = lock(&slot.pace)
                .last_failure()
                .or_else(|| self.pace(key).last_failure());
            let mut refusal = self.site.not_yet(None, text, wait);
            if let Some(last) = last {
                refusal.failure = refusal.failure.with_cause(last.cause);
            }
            refusal
        })?;
        let patience = self.patience(key);
        let started =
            tokio::time::timeout(patience, self.reporting(self.start(key, clients))).await;
        let starting = lock(&self.starting).take();
        match started {
            Ok(Ok(running)) => Ok(Running {
                used: slot.last_used(),
                ..running
            }),
            // This is a shortage of weir, not a failure of the upstream.
            Ok(Err(failure)) if *failure.kind() == FailureKind::Overloaded => {
                Err(Refusal::new(failure).unasked())
            }
            Ok(Err(failure)) => Err(self.not_started(key, failure)),
            Err(_) => {
                let text = "The upstream's process was started and did not answer in time";
                let failure = self.site.fail(FailureKind::Unavailable, text);
                Err(self.not_started(
                    key,
                    failure.because(self.silence(patience, starting.as_deref())),
                ))
            }
        }
    }

    fn not_started(&self, key: &Key, failure: Failure) -> Refusal {
        let mut pace = self.pace(key);
        pace.ended(self.site.now(), &*self.site.random);
        pace.because(&failure);
        drop(pace);
        if key.is_legacy {
            self.second.failed();
        }
        Refusal::new(failure).unreached()
    }

    async fn start(&self, key: &Key, clients: Clients) -> Result<Running, Failure> {
        let begun = Instant::now();
        let child = self.origin.start(&self.site).await?;
        self.show(&child, begun);
        let (child, greeted) = match greet(&child.pipe, self.protocol_of(key), &clients).await {
            Err(Rude::EndedOnProbe) => {
                let child = self.origin.start(&self.site).await?;
                self.show(&child, begun);
                let greeted = greet(&child.pipe, Protocol::Legacy, &clients).await;
                (child, greeted)
            }
            greeted => (child, greeted),
        };
        match greeted {
            Ok(greeted) => {
                self.note(key, greeted.tongue, begun);
                Ok(self.ready(child, greeted, clients))
            }
            Err(rude) => {
                if key.is_legacy && matches!(rude, Rude::Refused(_)) {
                    self.second.refused();
                }
                Err(self.explain(&child, rude).await)
            }
        }
    }

    /// Returns the protocol of the first message to a child of this key.
    fn protocol_of(&self, key: &Key) -> Protocol {
        match (self.protocol, self.first.tongue()) {
            (Protocol::Auto, _) if key.is_legacy => Protocol::Legacy,
            (Protocol::Auto, Some(tongue)) if tongue.revision().is_modern() => Protocol::Modern,
            (Protocol::Auto, Some(_)) => Protocol::Legacy,
            (protocol, _) => protocol,
        }
    }

    /// Notes the protocol of a child, and the time that its start took.
    pub(super) fn note(&self, key: &Key, tongue: RevisionDialect, begun: Instant) {
        if key.is_legacy {
            if self.second.found(tongue) {
                // Clients with sessions have lists of their own from now on.
                self.site.list_changed(ListKinds::default());
            }
        } else {
            self.first.set(Some(tongue));
            *lock(&self.took) = begun.elapsed();
        }
    }

    pub(super) fn ready(&self, child: Child, greeted: Greeted, clients: Clients) -> Running {
        if greeted.tongue.revision().is_modern() {
            child.pipe.set_modern();
        } else if clients.class != CapabilityClass::BASE {
            child
                .pipe
                .set_asks((clients.class, clients.session), greeted.tongue.revision());
        }
        let (since, turn, class) = (Instant::now(), Arc::default(), clients.class);
        let (declares_roots_changes, used) = (clients.session.is_some(), Arc::default());
        let level = tokio::sync::Mutex::default();
        Running {
            child,
            greeted,
            since,
            class,
            declares_roots_changes,
            turn,
            used,
            level,
        }
    }

    /// Shows a process as starting.
    fn show(&self, child: &Child, since: Instant) {
        let (errors, pipe) = (child.errors.clone(), child.pipe.clone());
        *lock(&self.starting) = Some(Arc::new(StartingChild {
            since,
            errors,
            pipe,
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
                tracing::info!(upstream = %self.site.id, seconds, says, "upstream is still starting");
            }
        }
    }

    /// The cause of a start that timed out, with advice: lines of the process, and the usual
    /// reasons of its program.
    fn silence(&self, patience: Duration, starting: Option<&StartingChild>) -> String {
        let mut text = format!(
            "no answer to the first message within {} s",
            patience.as_secs()
        );
        let Origin::Process(settings, _) = &self.origin else {
            return text;
        };
        let last_lines = starting
            .map(|starting| starting.errors.last_lines(MOST_LINES))
            .unwrap_or_default();
        let is_silent = last_lines.is_empty();
        self.site.note_lines(last_lines);
        for line in starting
            .into_iter()
            .flat_map(|starting| explaining_lines(&starting.pipe, &starting.errors))
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
                environment::withheld(|name| std::env::var(name).ok(), &settings.env).collect();
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

    /// Returns the failure with the exit status and the last line of the process.
    async fn explain(&self, child: &Child, rude: Rude) -> Failure {
        let words = child.last_words(LAST_WORDS).await;
        self.site.note_lines(child.errors.last_lines(MOST_LINES));
        let ended = || {
            self.site.fail(
                FailureKind::Unavailable,
                "The upstream ended before it was ready",
            )
        };
        let failure = match rude {
            Rude::EndedOnProbe => ended(),
            // The order in which its streams end is arbitrary.
            Rude::Failed(failure)
                if child.is_over() && *failure.kind() == FailureKind::Unavailable =>
            {
                ended()
            }
            Rude::Refused(failure) | Rude::Failed(failure) => failure,
        };
        match words {
            Some(words) => failure.because(words),
            None => failure,
        }
    }

    fn pace(&self, key: &Key) -> MutexGuard<'_, Pace> {
        lock(if key.is_legacy {
            &self.second.era.pace
        } else {
            &self.first.pace
        })
    }
}
