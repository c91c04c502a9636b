//! The sessions of a server that speaks both eras. It is modern for weir's own watch and for modern
//! clients, and legacy for clients with sessions, which it can ask while a call runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use weir_core::FailureKind;
use weir_core::upstream::ListKinds;
use weir_oauth_client::AuthorizedHttpClient;
use weir_upstream_core::retry_backoff::RetryBackoff;
use weir_upstream_core::settings::SessionSharing;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::Revision;

use crate::session_pool::SessionPool;
use crate::session_pool::exported_sessions::ImportedSessions;

/// The longest wait of a call for the first session before it goes on without one.
const SESSION_PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// A failed probe that took this long keeps later calls from waiting for another.
const LONG_PROBE: Duration = Duration::from_secs(1);

/// The legacy era of a modern server, probed when the first client of that era calls.
#[derive(Debug)]
pub(super) struct HttpSecondEra {
    context: Arc<UpstreamContext>,
    http: AuthorizedHttpClient,
    sharing: SessionSharing,
    pool: ArcSwapOption<SessionPool>,
    /// True once the server has refused to open a session, or opened one without an id, until it is
    /// probed again.
    is_refused: AtomicBool,
    /// True once the server has left a probe unanswered, until it answers one. Later probes run
    /// beside the calls, which go on without a session.
    is_silent: AtomicBool,
    /// Held by the task of the probe: other callers wait for its outcome.
    looking: Arc<tokio::sync::Mutex<()>>,
    pace: Mutex<RetryBackoff>,
    imported: Arc<ImportedSessions>,
}

/// The answer of a server to a probe for sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeAnswer {
    /// It opened a session with an id.
    HasSessions,
    /// It opened no session, or one without an id.
    Refused,
}

impl HttpSecondEra {
    /// Makes it with the sessions of another process.
    pub(super) fn new(
        context: Arc<UpstreamContext>,
        http: AuthorizedHttpClient,
        sharing: SessionSharing,
        imported: Arc<ImportedSessions>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context,
            http,
            sharing,
            pool: ArcSwapOption::empty(),
            is_refused: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            looking: Arc::default(),
            pace: Mutex::default(),
            imported,
        })
    }

    /// Returns the session pool, if the server is known to have sessions.
    pub(super) fn known(&self) -> Option<Arc<SessionPool>> {
        self.pool.load_full()
    }

    /// True once the server has refused to open a session, or opened one without an id.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Acquire)
    }

    /// Returns the session pool. If it is unknown whether the server has sessions, it opens one to
    /// find out, with the caller's `own` client if it has one, and ends it. Absent if the server
    /// refuses sessions, or could not be asked: then it is asked again later. Also absent while a
    /// server that left an earlier probe unanswered is asked: no caller waits for it again.
    ///
    /// The probe runs in a task of its own, which a caller that leaves does not end.
    pub(super) async fn find(
        self: &Arc<Self>,
        own: Option<&AuthorizedHttpClient>,
    ) -> Option<Arc<SessionPool>> {
        if let Some(pool) = self.known() {
            return Some(pool);
        }
        if self.is_refused() {
            return None;
        }
        let looking = self.looking.clone();
        let guard = if self.is_silent() {
            looking.try_lock_owned().ok()?
        } else {
            looking.lock_owned().await
        };
        if let Some(pool) = self.known() {
            return Some(pool);
        }
        self.pace
            .lock()
            .admit(self.context.clock.now())
            .ok()
            .filter(|()| !self.is_refused())?;
        let is_awaited = !self.is_silent();
        let pool = SessionPool::new(
            self.context.clone(),
            self.http.clone(),
            Revision::NEWEST_LEGACY,
            self.sharing,
        );
        let (era, own) = (self.clone(), own.cloned());
        let found = self.context.tasks.run_endless(async move {
            let _guard = guard;
            era.probe(pool, own.as_ref()).await
        });
        if !is_awaited {
            return None;
        }
        found.await.flatten()
    }

    /// Opens a session of this pool to find out if the server has sessions, and ends it.
    async fn probe(
        &self,
        pool: Arc<SessionPool>,
        own: Option<&AuthorizedHttpClient>,
    ) -> Option<Arc<SessionPool>> {
        let begun = Instant::now();
        let opening = pool.try_open(own);
        // Without callers that wait, the probe may take as long as any other.
        let opened = if self.is_silent() {
            Some(opening.await)
        } else {
            timeout(SESSION_PROBE_TIMEOUT, opening).await.ok()
        };
        match opened {
            // Without a session the server can ask no more than it can in its modern era.
            Some(Ok(session)) if !session.has_id() => {
                self.record_answer(ProbeAnswer::Refused);
                None
            }
            Some(Ok(session)) => {
                self.record_answer(ProbeAnswer::HasSessions);
                self.pace.lock().record_success();
                drop(session);
                pool.import(&self.imported);
                self.pool.store(Some(pool.clone()));
                // Clients with sessions have lists of their own from now on.
                self.context.list_changes.record(ListKinds::default());
                Some(pool)
            }
            // Other callers may have a session.
            Some(Err(refusal)) if refusal.concerns_caller_alone(own.is_some()) => None,
            Some(Err(refusal)) if refusal.refuses_sessions() => {
                self.record_answer(ProbeAnswer::Refused);
                self.record_failure();
                None
            }
            Some(Err(refusal)) => {
                let is_late = *refusal.failure.kind() == FailureKind::TimedOut;
                if is_late || begun.elapsed() >= LONG_PROBE {
                    self.record_silence();
                } else {
                    self.record_failure();
                }
                None
            }
            None => {
                self.record_silence();
                None
            }
        }
    }

    /// Notes the answer to a probe.
    fn record_answer(&self, answer: ProbeAnswer) {
        let is_refused = answer == ProbeAnswer::Refused;
        self.is_refused.store(is_refused, Ordering::Release);
        self.is_silent.store(false, Ordering::Release);
    }

    /// Notes a probe that failed.
    fn record_failure(&self) {
        let clock = &self.context.clock;
        let (now, random) = (clock.now(), clock.random());
        self.pace.lock().record_failure(now, random);
    }

    /// Notes a probe that the server left unanswered for long.
    fn record_silence(&self) {
        self.is_silent.store(true, Ordering::Release);
        let clock = &self.context.clock;
        let (now, random) = (clock.now(), clock.random());
        self.pace.lock().record_silence(now, random);
    }

    /// Notes a session that `pool` did not open: a server that refuses sessions is called without,
    /// and the pool is closed. True if the server refused it, or an earlier one for which the pool
    /// still waits.
    pub(super) fn record_refusal(&self, pool: &Arc<SessionPool>) -> bool {
        if !pool.is_refused() {
            return false;
        }
        let known = self.pool.compare_and_swap(pool, None);
        if known.as_ref().is_some_and(|known| Arc::ptr_eq(known, pool)) {
            self.is_refused.store(true, Ordering::Release);
            // Clients with sessions get the lists of the modern era from now on.
            self.context.list_changes.record(ListKinds::default());
            let gone = pool.clone();
            self.context.tasks.spawn(async move { gone.close().await });
        }
        true
    }

    /// Forgets a refusal, because the server was found to be modern again or for the first time. A
    /// silent server may be probed at once, beside the calls.
    pub(super) fn forget_refusal(&self) {
        self.is_refused.store(false, Ordering::Release);
        if self.is_silent() {
            self.pace.lock().record_success();
        }
    }

    /// Takes the pool out, to be closed, because the server is no longer modern.
    pub(super) fn take_pool(&self) -> Option<Arc<SessionPool>> {
        self.pool.swap(None)
    }

    fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Acquire)
    }
}
