//! The probe of a server over Streamable HTTP for its era: once, and again after failures.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_core::upstream::{ListKind, ServerDescription};
use weir_core::{CapabilityClass, FailureKind};
use weir_era::upstream_messages::{self, DiscoveredServer, ProbeOutcome, judge_probe};
use weir_upstream_core::failed_attempt::{FailedAttempt, Reach};
use weir_upstream_core::settings::UpstreamProtocol;
use weir_upstream_stdio::{ChildSource, StdioUpstream};
use weir_wire::method::Method;
use weir_wire::{ErrorObject, Revision};

use crate::HttpUpstream;
use crate::modern_server::ModernServer;
use crate::server_dialog::{EraProbeResult, ServerDialog};
use crate::server_era::ServerEra;
use crate::session_pool::SessionPool;
use crate::sse::{self, SseServer};

/// The most probes with a lost connection before the server is called without an answer.
const MAX_PROBES: usize = 3;

/// The wait for the first event of HTTP+SSE at a server that was not initialized. Such a server
/// sends it at once.
const ENDPOINT_WAIT: Duration = Duration::from_secs(1);

/// The unanswered probes in a row that a modern server may have before it is tried as another one.
const MAX_UNANSWERED: u32 = 3;

impl ServerEra {
    /// Makes the dialog with the server by the outcome of a probe, which ends the doubt about it.
    ///
    /// # Errors
    /// The server has no revision in common with weir.
    pub(super) fn settle(
        &self,
        probed: EraProbeResult,
    ) -> Result<Arc<ServerDialog>, FailedAttempt> {
        let before = self.dialog();
        match probed {
            EraProbeResult::NoAnswer => self.guess.record_unanswered(self.context.clock.millis()),
            EraProbeResult::Era(_) | EraProbeResult::Sse => self.guess.end_guess(),
        }
        let dialog = match probed {
            EraProbeResult::Era(found) => self.dialog_of(found, before.as_deref())?,
            EraProbeResult::NoAnswer => self.after_silence(before.clone())?,
            EraProbeResult::Sse => self.sse_dialog(before.clone()),
        };
        let stays = before
            .as_ref()
            .is_some_and(|before| Arc::ptr_eq(before, &dialog));
        if !stays {
            self.close_replaced(before.as_deref(), &dialog);
            self.dialog.store(Some(dialog.clone()));
        }
        self.in_doubt.store(false, Ordering::Release);
        Ok(dialog)
    }

    /// Returns the dialog after a probe without an answer. Silence is no sign of another server,
    /// but a modern server that stays silent may have become one.
    fn after_silence(
        &self,
        before: Option<Arc<ServerDialog>>,
    ) -> Result<Arc<ServerDialog>, FailedAttempt> {
        let may_stay = |known: &ServerDialog| {
            !matches!(known, ServerDialog::Modern(..)) || self.guess.times() <= MAX_UNANSWERED
        };
        match before {
            Some(known) if may_stay(&known) => Ok(known),
            before => self.dialog_of(judge_probe(None), before.as_deref()),
        }
    }

    fn sse_dialog(&self, before: Option<Arc<ServerDialog>>) -> Arc<ServerDialog> {
        let known = before.filter(|known| matches!(**known, ServerDialog::Sse(_)));
        known.unwrap_or_else(|| {
            let upstream = StdioUpstream::new(
                self.context.clone(),
                ChildSource::Sse(Arc::new(SseServer(self.http.clone()))),
                UpstreamProtocol::Legacy,
                self.sharing,
            );
            Arc::new(ServerDialog::Sse(Arc::new(upstream)))
        })
    }

    /// Makes the dialog with a server of this era.
    ///
    /// # Errors
    /// As [`Self::settle`].
    fn dialog_of(
        &self,
        found: ProbeOutcome,
        before: Option<&ServerDialog>,
    ) -> Result<Arc<ServerDialog>, FailedAttempt> {
        let dialog = match (found, before) {
            (ProbeOutcome::Legacy(offered), Some(ServerDialog::Legacy(pool)))
                if pool.offered() == offered =>
            {
                // The same server: its sessions stay.
                ServerDialog::Legacy(pool.clone())
            }
            (ProbeOutcome::Legacy(offered), _) => {
                let pool = SessionPool::new(
                    self.context.clone(),
                    self.http.clone(),
                    offered,
                    self.sharing,
                );
                pool.import(&self.imported);
                ServerDialog::Legacy(pool)
            }
            (ProbeOutcome::Modern(found), _) => {
                let DiscoveredServer { revision, about } = *found;
                // A server that refused the probe describes nothing: its lists and changes are
                // tried.
                let about = about.unwrap_or(ServerDescription {
                    // A server that does not say is asked.
                    offers: ListKind::ALL.into_iter().collect(),
                    notifies_of: ListKind::ALL.into_iter().collect(),
                    ..ServerDescription::default()
                });
                let modern = ModernServer::new(self.context.clone(), self.http.clone(), revision)
                    .with_description(&about);
                ServerDialog::Modern(modern, about)
            }
            (ProbeOutcome::NoCommonRevision(versions), _) => {
                let list = upstream_messages::listed_versions(&versions);
                let text = format!(
                    "The upstream speaks protocol versions that weir does not have: {list}"
                );
                let failure = self.context.label.fail(FailureKind::Unavailable, text);
                return Err(failure.into());
            }
        };
        Ok(Arc::new(dialog))
    }

    /// Closes the sessions that a new dialog has no use for.
    fn close_replaced(&self, before: Option<&ServerDialog>, dialog: &ServerDialog) {
        let pool = match (before, dialog) {
            (_, ServerDialog::Legacy(_) | ServerDialog::Sse(_)) => self.second_era.take_pool(),
            (Some(ServerDialog::Legacy(pool)), ServerDialog::Modern(..)) => Some(pool.clone()),
            (_, ServerDialog::Modern(..)) => None,
        };
        if matches!(dialog, ServerDialog::Modern(..)) {
            self.second_era.forget_refusal();
        }
        if let Some(pool) = pool {
            self.context.tasks.spawn(async move { pool.close().await });
        }
    }

    /// Probes the server for its era, unless the operator configured it.
    ///
    /// # Errors
    /// The server cannot be reached, is too busy, or refuses weir's credentials: no sign of its
    /// era.
    pub(super) async fn probe(&self) -> Result<EraProbeResult, FailedAttempt> {
        match self.protocol {
            UpstreamProtocol::Legacy => {
                return Ok(EraProbeResult::Era(ProbeOutcome::Legacy(
                    Revision::NEWEST_LEGACY,
                )));
            }
            UpstreamProtocol::Sse => return Ok(EraProbeResult::Sse),
            UpstreamProtocol::Auto | UpstreamProtocol::Modern => {}
        }
        let answer = self.discover().await;
        let no_endpoint = answer.as_ref().is_err_and(|refusal| refusal.no_endpoint);
        let Some(found) = judge_outcome(answer)? else {
            return Ok(if matches!(self.protocol, UpstreamProtocol::Modern) {
                EraProbeResult::Era(modern_without_answer())
            } else {
                EraProbeResult::NoAnswer
            });
        };
        Ok(match (self.protocol, found) {
            (UpstreamProtocol::Modern, ProbeOutcome::Legacy(_)) => {
                EraProbeResult::Era(modern_without_answer())
            }
            // The URL takes no messages by POST (400, 404, 405, or a stream of HTTP+SSE): a server of
            // 2024-11-05 alone answers so.
            (UpstreamProtocol::Auto, ProbeOutcome::Legacy(_))
                if no_endpoint
                    && sse::probe_endpoint(&self.context, &self.http, self.endpoint_wait())
                        .await =>
            {
                EraProbeResult::Sse
            }
            (_, found) => EraProbeResult::Era(found),
        })
    }

    /// Returns the wait for the first event of HTTP+SSE. A server is to get `initialize` after any
    /// answer that no modern server gives (2026-07-28, Streamable HTTP, "Backward Compatibility"),
    /// so one that leaves a GET stream silent is initialized soon. After that it is in doubt only if
    /// it refused, or if it changed, and may take its time.
    fn endpoint_wait(&self) -> Duration {
        let longest = sse::endpoint_timeout(&self.context);
        if self.dialog().is_some() {
            longest
        } else {
            longest.min(ENDPOINT_WAIT)
        }
    }

    /// Sends the probe. It is repeated if its connection is lost, which is no sign of an era.
    async fn discover(&self) -> Result<bytes::Bytes, FailedAttempt> {
        let modern = ModernServer::new(
            self.context.clone(),
            self.http.without_reuse(),
            Revision::MODERN,
        );
        let is_lost = |refusal: &FailedAttempt| {
            matches!(refusal.failure.kind(), FailureKind::ResultUnknown)
                && refusal.reach != Reach::NotReached
        };
        for _ in 1..MAX_PROBES {
            match modern
                .request(CapabilityClass::BASE, Method::Discover, &[])
                .await
            {
                Err(refusal) if is_lost(&refusal) => {}
                outcome => return outcome,
            }
        }
        modern
            .request(CapabilityClass::BASE, Method::Discover, &[])
            .await
    }
}

impl HttpUpstream {
    /// Asks the server if it answers, with a request that its era has: `server/discover`, or
    /// `initialize` at a legacy server, which need not answer unknown methods. Any answer will do,
    /// except that the server is too busy.
    ///
    /// # Errors
    /// The server cannot be reached, or gave no answer.
    pub async fn check(&self) -> Result<(), FailedAttempt> {
        let dialog = self.era.dialog();
        let outcome = match (self.era.protocol, dialog.as_deref()) {
            (_, Some(ServerDialog::Legacy(pool))) => check_session(pool).await,
            (_, Some(ServerDialog::Sse(server))) => return server.check_stream().await,
            (UpstreamProtocol::Legacy | UpstreamProtocol::Sse, _) => {
                match &*self.era.find_dialog().await? {
                    ServerDialog::Legacy(pool) => check_session(pool).await,
                    ServerDialog::Sse(server) => return server.check_stream().await,
                    ServerDialog::Modern(..) => Ok(()),
                }
            }
            (UpstreamProtocol::Auto | UpstreamProtocol::Modern, _) => {
                self.era.discover().await.map(drop)
            }
        };
        match outcome {
            Err(refusal) if !is_answered(&refusal) => Err(refusal),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Opens a session and ends it.
async fn check_session(pool: &Arc<SessionPool>) -> Result<(), FailedAttempt> {
    pool.open_apart(CapabilityClass::BASE).await.map(drop)
}

/// True for a refusal by a server that could serve.
fn is_answered(refusal: &FailedAttempt) -> bool {
    let is_silent = matches!(
        refusal.failure.kind(),
        FailureKind::TimedOut
            | FailureKind::ResultUnknown
            | FailureKind::Busy
            | FailureKind::Limit
            | FailureKind::Overloaded
    );
    refusal.reach == Reach::Reached && refusal.proof.is_none() && !is_silent
}

/// Judges the answer to a probe; absent if it was not answered.
///
/// # Errors
/// The request's own, if it is no sign of the server's era.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the dozen other failures are no sign of an era"
)]
fn judge_outcome(
    outcome: Result<bytes::Bytes, FailedAttempt>,
) -> Result<Option<ProbeOutcome>, FailedAttempt> {
    let refusal = match outcome {
        Ok(result) => return Ok(Some(judge_probe(Some(&Ok(result))))),
        Err(refusal) => refusal,
    };
    match refusal.failure.kind() {
        FailureKind::Upstream(error) => {
            let error = ErrorObject {
                code: error.code,
                message: error.message.clone(),
                data: error.data.clone(),
            };
            Ok(Some(judge_probe(Some(&Err(error.to_json())))))
        }
        FailureKind::BadAnswer => Ok(Some(judge_probe(None))),
        FailureKind::Unavailable if refusal.no_endpoint => Ok(Some(judge_probe(None))),
        FailureKind::TimedOut => Ok(None),
        FailureKind::ResultUnknown if refusal.reach != Reach::NotReached => Ok(None),
        _ => Err(refusal),
    }
}

/// Describes a modern server that did not answer the probe as one.
fn modern_without_answer() -> ProbeOutcome {
    ProbeOutcome::Modern(Box::new(DiscoveredServer {
        revision: Revision::MODERN,
        about: None,
    }))
}
