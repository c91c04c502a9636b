//! The era of a server over Streamable HTTP: unknown, known, guessed or in doubt. The probe that
//! finds it out runs in a task of its own: a caller that leaves does not end it, and calls of a
//! server that is known already do not wait for a server that is silent on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use weir_oauth_client::AuthorizedHttpClient;
use weir_upstream_core::background_tasks::TaskOutcome;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::retry_backoff::RetryBackoff;
use weir_upstream_core::settings::{SessionSharing, UpstreamProtocol};
use weir_upstream_core::upstream_context::UpstreamContext;

use crate::era_guess::EraGuess;
use crate::http_second_era::HttpSecondEra;
use crate::server_dialog::{EraProbeResult, ServerDialog};
use crate::session_pool::exported_sessions::ImportedSessions;

/// The longest wait of a call for the probe of a server in doubt, from the beginning of the probe.
/// After that the call is made in the known era.
const DOUBT_WAIT: Duration = Duration::from_millis(500);

/// The outcome of a probe in a task of its own.
type ProbeTask = TaskOutcome<Result<Arc<ServerDialog>, FailedAttempt>>;

/// The transport and era in use for one server, and their probe.
#[derive(Debug)]
pub(super) struct ServerEra {
    pub(super) context: Arc<UpstreamContext>,
    pub(super) http: AuthorizedHttpClient,
    pub(super) protocol: UpstreamProtocol,
    pub(super) sharing: SessionSharing,
    pub(super) dialog: ArcSwapOption<ServerDialog>,
    /// Set if the server may have been replaced.
    pub(super) in_doubt: AtomicBool,
    /// Set while the era is only a guess.
    pub(super) guess: EraGuess,
    /// The other era of a modern server that speaks both.
    pub(super) second_era: Arc<HttpSecondEra>,
    /// The sessions of the previous process, until the era is known.
    pub(super) imported: Arc<ImportedSessions>,
    /// Held by the task of the probe.
    probing: Arc<tokio::sync::Mutex<()>>,
    /// The beginning of the probe that runs.
    probing_since: Mutex<Option<Instant>>,
    pace: Mutex<RetryBackoff>,
}

/// The mark of a probe that runs. Dropping it removes the mark, and lets the next probe begin.
struct RunningProbe {
    era: Arc<ServerEra>,
    _one: OwnedMutexGuard<()>,
}

impl ServerEra {
    pub(super) fn new(
        context: Arc<UpstreamContext>,
        http: AuthorizedHttpClient,
        protocol: UpstreamProtocol,
        sharing: SessionSharing,
        imported: Arc<ImportedSessions>,
    ) -> Arc<Self> {
        let second_era =
            HttpSecondEra::new(context.clone(), http.clone(), sharing, imported.clone());
        Arc::new(Self {
            context,
            http,
            protocol,
            sharing,
            dialog: ArcSwapOption::empty(),
            in_doubt: AtomicBool::new(false),
            guess: EraGuess::default(),
            second_era,
            imported,
            probing: Arc::default(),
            probing_since: Mutex::default(),
            pace: Mutex::default(),
        })
    }

    /// Returns the known dialog, also if the era is in doubt.
    pub(super) fn dialog(&self) -> Option<Arc<ServerDialog>> {
        self.dialog.load_full()
    }

    /// Marks the server as possibly replaced: it is probed before the next request.
    pub(super) fn doubt(&self) {
        self.in_doubt.store(true, Ordering::Release);
    }

    /// Returns the dialog with the server. If the era is unknown, the call waits for the probe that
    /// all callers share. A server in doubt is probed, too, but no call waits long for that.
    ///
    /// # Errors
    /// The era is unknown, and the probe failed.
    pub(super) async fn find_dialog(self: &Arc<Self>) -> Result<Arc<ServerDialog>, FailedAttempt> {
        let Some(known) = self.dialog() else {
            // Boxed, like every rare part of a call: a call's future is built, moved and kept in
            // its largest form.
            return Box::pin(self.find()).await;
        };
        if self.in_doubt.load(Ordering::Acquire) {
            return Ok(Box::pin(self.recheck(known)).await);
        }
        if self.guess.take_due(|| self.context.clock.millis()) {
            self.probe_beside_calls();
        }
        Ok(known)
    }

    /// Probes the server again, and returns the dialog with it.
    ///
    /// # Errors
    /// The probe failed.
    pub(super) async fn probe_again(self: &Arc<Self>) -> Result<Arc<ServerDialog>, FailedAttempt> {
        match self.probing.clone().try_lock_owned() {
            Ok(one) => self.probe_detached(one).await,
            Err(_) => self.find().await,
        }
    }

    /// Returns the dialog with a server that may have been replaced. The call that finds it out
    /// would fail in the wrong era, so it waits for the probe, for a moment.
    async fn recheck(self: &Arc<Self>, known: Arc<ServerDialog>) -> Arc<ServerDialog> {
        // A server that left the last probe without an answer is likely to be silent again.
        if self.guess.times() > 0 {
            self.probe_beside_calls();
            return known;
        }
        let until = self.since().unwrap_or_else(Instant::now) + DOUBT_WAIT;
        match tokio::time::timeout_at(until, self.find()).await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) | Err(_) => known,
        }
    }

    async fn find(self: &Arc<Self>) -> Result<Arc<ServerDialog>, FailedAttempt> {
        let one = self.probing.clone().lock_owned().await;
        if let Some(known) = self.dialog()
            && !self.in_doubt.load(Ordering::Acquire)
        {
            return Ok(known);
        }
        self.probe_detached(one).await
    }

    /// Starts a probe, unless one runs.
    fn probe_beside_calls(self: &Arc<Self>) {
        // The outcome is in the dialog; a probe that runs already has the same one.
        if let Ok(one) = self.probing.clone().try_lock_owned()
            && self.start_probe(one).is_err()
        {
            self.guess.postpone(self.context.clock.millis());
        }
    }

    /// Runs a probe in a task of its own.
    async fn probe_detached(
        self: &Arc<Self>,
        one: OwnedMutexGuard<()>,
    ) -> Result<Arc<ServerDialog>, FailedAttempt> {
        self.start_probe(one)?
            .await
            .unwrap_or_else(|| Err(FailedAttempt::removed(&self.context.label)))
    }

    /// Starts a probe in a task of its own.
    ///
    /// # Errors
    /// The last probe failed a short while ago.
    fn start_probe(self: &Arc<Self>, one: OwnedMutexGuard<()>) -> Result<ProbeTask, FailedAttempt> {
        let admitted = self.pace.lock().admit(self.context.clock.now());
        admitted.map_err(|wait| {
            let last = self.pace.lock().last_failure();
            FailedAttempt::too_early(
                &self.context.label,
                last,
                "The upstream cannot be reached now",
                wait,
            )
        })?;
        *self.probing_since.lock() = Some(Instant::now());
        let running = RunningProbe {
            era: self.clone(),
            _one: one,
        };
        Ok(self.context.tasks.run_endless(async move {
            let probed = running.era.probe().await;
            running.era.record_probe(probed)
        }))
    }

    fn record_probe(
        &self,
        probed: Result<EraProbeResult, FailedAttempt>,
    ) -> Result<Arc<ServerDialog>, FailedAttempt> {
        match probed {
            Ok(found) => {
                self.pace.lock().record_success();
                self.settle(found)
            }
            Err(refusal) => {
                self.guess.postpone(self.context.clock.millis());
                // An unread request is no sign of the server's state, and is sent again.
                if refusal.proof.is_none() {
                    let mut pace = self.pace.lock();
                    pace.record_failure(self.context.clock.now(), self.context.clock.random());
                    pace.keep_failure(&refusal.failure);
                }
                Err(refusal)
            }
        }
    }

    fn since(&self) -> Option<Instant> {
        *self.probing_since.lock()
    }
}

impl Drop for RunningProbe {
    fn drop(&mut self) {
        *self.era.probing_since.lock() = None;
    }
}
