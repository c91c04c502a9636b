//! The probe of a server over Streamable HTTP for its era: once, and again after failures.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use weir_core::upstream::{ListKind, ServerDescription};
use weir_core::{CapabilityClass, FailureKind};
use weir_era::upstream_messages::{DiscoveredServer, ProbeOutcome, judge_probe};
use weir_wire::method::Method;
use weir_wire::{ErrorObject, Revision};

use super::modern::Modern;
use super::pool::Pool;
use super::{HttpServer, Speaker};
use crate::pace::Pace;
use crate::refusal::Refusal;
use crate::settings::Protocol;
use crate::stdio::{Origin, StdioServer, sse};

/// The most probes with a lost connection before the server is called without an answer.
const PROBES: usize = 3;

/// The unanswered probes in a row that a modern server may have before it is tried as another one.
const MOST_SILENCES: u32 = 3;

/// The outcome of a probe.
enum Probed {
    Era(ProbeOutcome),
    Line,
    /// The probe was not answered: it may be a legacy server, which is tried.
    Nothing,
}

impl HttpServer {
    pub(super) async fn find(&self) -> Result<Arc<Speaker>, Refusal> {
        let _one = self.probing.lock().await;
        if let Some(speaker) = self.known() {
            return Ok(speaker);
        }
        let admitted = self.pace().admit(self.site.now());
        admitted.map_err(|wait| {
            let last = self.pace().last_failure();
            self.site
                .not_yet(last, "The upstream cannot be reached now", wait)
        })?;
        let found = match self.probe().await {
            Ok(found) => found,
            Err(refusal) => {
                // An unread request is no sign of the server's state, and is sent again.
                if refusal.proof.is_none() {
                    let mut pace = self.pace();
                    pace.failed(self.site.now(), &*self.site.random);
                    pace.because(&refusal.failure);
                }
                return Err(refusal);
            }
        };
        self.pace().succeeded();
        self.settle(found).await
    }

    /// Probes a server with a guessed era again, while calls go on. If it answers, the next call
    /// probes it once more and uses that answer.
    pub(super) fn check_guess(&self) {
        let modern = Modern::new(self.site.clone(), self.http.anew(), Revision::MODERN);
        let (site, guess, doubtful) =
            (self.site.clone(), self.guess.clone(), self.doubtful.clone());
        self.site.background(async move {
            let asked = modern
                .ask(CapabilityClass::BASE, Method::Discover, &[])
                .await;
            if matches!(judged(asked), Ok(Some(_))) {
                doubtful.store(true, Ordering::Release);
            } else {
                guess.unanswered(site.millis());
            }
        });
    }

    async fn settle(&self, probed: Probed) -> Result<Arc<Speaker>, Refusal> {
        let before = self.speaker.load_full();
        match probed {
            Probed::Nothing => self.guess.unanswered(self.site.millis()),
            Probed::Era(_) | Probed::Line => self.guess.settled(),
        }
        let found = match (probed, before.clone()) {
            (Probed::Era(found), _) => found,
            // Its silence does not make it another server, but it may have become one.
            (Probed::Nothing, Some(modern))
                if matches!(*modern, Speaker::Modern(..))
                    && self.guess.times() <= MOST_SILENCES =>
            {
                self.doubtful.store(false, Ordering::Release);
                return Ok(modern);
            }
            (Probed::Nothing, _) => judge_probe(None),
            (Probed::Line, Some(line)) if matches!(*line, Speaker::Line(_)) => {
                self.doubtful.store(false, Ordering::Release);
                return Ok(line);
            }
            (Probed::Line, _) => {
                let origin = Origin::Line(self.http.clone());
                let line =
                    StdioServer::new(self.site.clone(), origin, Protocol::Legacy, self.sharing);
                let speaker = Arc::new(Speaker::Line(Arc::new(line)));
                self.speaker.store(Some(speaker.clone()));
                self.doubtful.store(false, Ordering::Release);
                return Ok(speaker);
            }
        };
        let speaker = match (found, before.as_deref()) {
            (ProbeOutcome::Legacy(offered), Some(Speaker::Legacy(pool)))
                if pool.offered() == offered =>
            {
                // The same server: its sessions stay.
                Speaker::Legacy(pool.clone())
            }
            (ProbeOutcome::Legacy(offered), _) => {
                let pool = Pool::new(self.site.clone(), self.http.clone(), offered, self.sharing);
                pool.import(&self.imported);
                Speaker::Legacy(pool)
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
                let modern = Modern::new(self.site.clone(), self.http.clone(), revision)
                    .with(&about.extensions);
                Speaker::Modern(modern, about)
            }
            (ProbeOutcome::NoCommonRevision(versions), _) => {
                let list: String = versions.join(", ").chars().take(200).collect();
                let text = format!(
                    "The upstream speaks protocol versions that weir does not have: {list}"
                );
                return Err(self.site.fail(FailureKind::Unavailable, text).into());
            }
        };
        if let (Some(Speaker::Legacy(old)), Speaker::Modern(..)) = (before.as_deref(), &speaker) {
            let old = old.clone();
            self.site.spawn(async move { old.close().await });
        }
        match &speaker {
            Speaker::Modern(..) => self.second.renew(),
            Speaker::Legacy(_) | Speaker::Line(_) => {
                if let Some(pool) = self.second.take() {
                    self.site.spawn(async move { pool.close().await });
                }
            }
        }
        let speaker = Arc::new(speaker);
        self.speaker.store(Some(speaker.clone()));
        self.doubtful.store(false, Ordering::Release);
        Ok(speaker)
    }

    /// Probes the server for its era, unless the operator configured it.
    ///
    /// # Errors
    /// The server cannot be reached, is too busy, or refuses weir's credentials: no sign of its
    /// era.
    async fn probe(&self) -> Result<Probed, Refusal> {
        match self.protocol {
            Protocol::Legacy => {
                return Ok(Probed::Era(ProbeOutcome::Legacy(Revision::NEWEST_LEGACY)));
            }
            Protocol::Sse => return Ok(Probed::Line),
            Protocol::Auto | Protocol::Modern => {}
        }
        let asked = self.discover().await;
        let no_endpoint = asked.as_ref().is_err_and(|refusal| refusal.answered);
        let Some(found) = judged(asked)? else {
            return Ok(match self.protocol {
                Protocol::Modern => Probed::Era(modern_unasked()),
                _ => Probed::Nothing,
            });
        };
        Ok(match (self.protocol, found) {
            (Protocol::Modern, ProbeOutcome::Legacy(_)) => Probed::Era(modern_unasked()),
            // The URL takes no messages by POST (400, 404, 405): a server of 2024-11-05 alone
            // answers so.
            (Protocol::Auto, ProbeOutcome::Legacy(_))
                if no_endpoint && sse::is_there(&self.site, &self.http).await =>
            {
                Probed::Line
            }
            (_, found) => Probed::Era(found),
        })
    }

    /// Sends the probe. It is repeated if its connection is lost, which is no sign of an era.
    async fn discover(&self) -> Result<bytes::Bytes, Refusal> {
        let modern = Modern::new(self.site.clone(), self.http.anew(), Revision::MODERN);
        let is_lost = |refusal: &Refusal| {
            matches!(refusal.failure.kind(), FailureKind::ResultUnknown) && !refusal.unreached
        };
        for _ in 1..PROBES {
            match modern
                .ask(CapabilityClass::BASE, Method::Discover, &[])
                .await
            {
                Err(refusal) if is_lost(&refusal) => {}
                asked => return asked,
            }
        }
        modern
            .ask(CapabilityClass::BASE, Method::Discover, &[])
            .await
    }

    fn pace(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Judges the answer to a probe; absent if it was not answered.
///
/// # Errors
/// The request's own, if it is no sign of the server's era.
fn judged(asked: Result<bytes::Bytes, Refusal>) -> Result<Option<ProbeOutcome>, Refusal> {
    let refusal = match asked {
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
        FailureKind::Unavailable if refusal.answered => Ok(Some(judge_probe(None))),
        FailureKind::TimedOut => Ok(None),
        FailureKind::ResultUnknown if !refusal.unreached => Ok(None),
        _ => Err(refusal),
    }
}

/// Describes a modern server that did not answer the probe as one.
fn modern_unasked() -> ProbeOutcome {
    ProbeOutcome::Modern(Box::new(DiscoveredServer {
        revision: Revision::MODERN,
        about: None,
    }))
}
