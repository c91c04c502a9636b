//! The sessions of a server that speaks both eras. It is modern for weir's own watch and for modern
//! clients, and legacy for clients with sessions, which it can ask while a call runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::timeout;
use weir_core::upstream::ListKinds;
use weir_oauth_client::UpstreamHttpClient;
use weir_upstream_core::retry_backoff::RetryBackoff;
use weir_upstream_core::settings::SessionSharing;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::Revision;

use super::session_pool::{ImportedSessions, SessionPool};

/// The longest wait of a call for the first session before it goes on without one.
const SESSION_PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The legacy era of a modern server, probed when the first client of that era calls.
#[derive(Debug, Default)]
pub(super) struct HttpSecondEra {
    pool: ArcSwapOption<SessionPool>,
    /// True once the server has refused to open a session, or opened one without an id, until it is
    /// probed again.
    is_refused: AtomicBool,
    /// Held by the task of the probe: other callers wait for its outcome.
    looking: Arc<tokio::sync::Mutex<()>>,
    pace: Mutex<RetryBackoff>,
    imported: Arc<ImportedSessions>,
}

impl HttpSecondEra {
    /// Makes it with the sessions of another process.
    pub(super) fn new(imported: Arc<ImportedSessions>) -> Self {
        Self {
            imported,
            ..Self::default()
        }
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
    /// refuses sessions, or could not be asked: then it is asked again later.
    ///
    /// The probe runs in a task of its own, which a caller that leaves does not end.
    pub(super) async fn find(
        self: &Arc<Self>,
        context: &Arc<UpstreamContext>,
        http: &UpstreamHttpClient,
        own: Option<&UpstreamHttpClient>,
        sharing: SessionSharing,
    ) -> Option<Arc<SessionPool>> {
        if let Some(pool) = self.known() {
            return Some(pool);
        }
        if self.is_refused() {
            return None;
        }
        let one = self.looking.clone().lock_owned().await;
        if let Some(pool) = self.known() {
            return Some(pool);
        }
        self.pace()
            .admit(context.clock.now())
            .ok()
            .filter(|()| !self.is_refused())?;
        let pool = SessionPool::new(
            context.clone(),
            http.clone(),
            Revision::NEWEST_LEGACY,
            sharing,
        );
        let (era, own_site, own) = (self.clone(), context.clone(), own.cloned());
        let (done, found) = oneshot::channel();
        context.tasks.spawn_endless(async move {
            let found = era.probe(&own_site, pool, own.as_ref()).await;
            drop(one);
            // The caller may be gone.
            let _ = done.send(found);
        });
        found.await.ok().flatten()
    }

    /// Opens a session of this pool to find out if the server has sessions, and ends it.
    async fn probe(
        &self,
        context: &UpstreamContext,
        pool: Arc<SessionPool>,
        own: Option<&UpstreamHttpClient>,
    ) -> Option<Arc<SessionPool>> {
        match timeout(SESSION_PROBE_TIMEOUT, pool.try_open(own)).await {
            // Without a session the server can ask no more than it can in its modern era.
            Ok(Ok(session)) if !session.has_id() => {
                self.is_refused.store(true, Ordering::Release);
                None
            }
            Ok(Ok(session)) => {
                self.pace().record_success();
                drop(session);
                pool.import(&self.imported);
                self.pool.store(Some(pool.clone()));
                // Clients with sessions have lists of their own from now on.
                context.list_changes.record(ListKinds::default());
                Some(pool)
            }
            // Other callers may have a session.
            Ok(Err(refusal)) if refusal.concerns_caller_alone(own.is_some()) => None,
            refused => {
                self.is_refused.store(
                    matches!(&refused, Ok(Err(refusal)) if refusal.refuses_sessions()),
                    Ordering::Release,
                );
                self.pace()
                    .record_failure(context.clock.now(), context.clock.random());
                None
            }
        }
    }

    /// Notes a session that `pool` did not open: a server that refuses sessions is called without,
    /// and the pool is closed. True if the server refused it, or an earlier one for which the pool
    /// still waits.
    pub(super) fn record_refusal(
        &self,
        context: &Arc<UpstreamContext>,
        pool: &Arc<SessionPool>,
    ) -> bool {
        if !pool.is_refused() {
            return false;
        }
        let known = self.pool.compare_and_swap(pool, None);
        if known.as_ref().is_some_and(|known| Arc::ptr_eq(known, pool)) {
            self.is_refused.store(true, Ordering::Release);
            // Clients with sessions get the lists of the modern era from now on.
            context.list_changes.record(ListKinds::default());
            let gone = pool.clone();
            context.tasks.spawn(async move { gone.close().await });
        }
        true
    }

    /// Forgets a refusal, because the server was found to be modern again or for the first time.
    pub(super) fn forget_refusal(&self) {
        self.is_refused.store(false, Ordering::Release);
    }

    /// Takes the pool out, to be closed, because the server is no longer modern.
    pub(super) fn take_pool(&self) -> Option<Arc<SessionPool>> {
        self.pool.swap(None)
    }

    fn pace(&self) -> MutexGuard<'_, RetryBackoff> {
        self.pace.lock()
    }
}
