//! The session pool of one legacy server: the sharing of sessions, their opening and closing.
//!
//! Opening is single-flight for each key. After a failure the whole server gets one attempt at a
//! time with backoff, so that a server that comes back is not flooded.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tracing::Instrument as _;
use weir_core::instant::millis;
use weir_core::principal::Principal;
use weir_core::reply::Reply;
use weir_core::upstream::{ClientSessionChange, OutboundCall};
use weir_core::{CapabilityClass, FailureKind, SessionKey};
use weir_era::lower;
use weir_era::upstream_messages::{ResendProof, RevisionDialect};
use weir_oauth_client::AuthorizedHttpClient;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::keyed_slots::{KeyedSlot, KeyedSlots};
use weir_upstream_core::retry_backoff::RetryBackoff;
use weir_upstream_core::settings::SessionSharing;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::Revision;

use crate::ended_clients::EndedClients;
use crate::standing_stream_slots::StandingStreamSlots;
use crate::upstream_session::{OpenedUpstreamSession, UpstreamSession, UpstreamSessionClient};

pub(crate) mod exported_sessions;

/// The legacy side of one HTTP server.
#[derive(Debug)]
pub(crate) struct SessionPool {
    context: Arc<UpstreamContext>,
    http: AuthorizedHttpClient,
    offered: Revision,
    sharing: SessionSharing,
    slots: KeyedSlots<SessionPoolKey, UpstreamSession>,
    /// The slots of streams for changes of sessions' own lists.
    standing: StandingStreamSlots,
    pace: Mutex<RetryBackoff>,
    /// Held while a session is opened after a failure: one attempt at a time.
    attempt: tokio::sync::Mutex<()>,
    /// Permits for openings, which go on after their callers have left.
    openings: Arc<Semaphore>,
    ended_clients: EndedClients,
    swept: AtomicBool,
    /// True once all sessions were ended.
    is_closed: AtomicBool,
    /// True if the server refused the last session that was requested.
    is_refused: AtomicBool,
    /// The revision that the server chose.
    chosen_revision: OnceLock<Revision>,
}

/// The key of a session: two principals never share one, unless the operator allows it. Bounded by
/// `UpstreamBounds::sessions`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SessionPoolKey {
    principal: Option<Principal>,
    class: CapabilityClass,
    session: Option<SessionKey>,
}

/// The slot of the session of a call.
#[derive(Debug)]
pub(crate) struct SessionSlot {
    key: SessionPoolKey,
    slot: Arc<KeyedSlot<UpstreamSession>>,
    /// The time of the call that takes it, in milliseconds of the upstream's clock.
    used_at: u64,
}

impl SessionPool {
    pub(super) fn new(
        context: Arc<UpstreamContext>,
        http: AuthorizedHttpClient,
        offered: Revision,
        sharing: SessionSharing,
    ) -> Arc<Self> {
        Arc::new(Self {
            slots: KeyedSlots::new(context.bounds.sessions, 0),
            standing: StandingStreamSlots::new(context.bounds.standing),
            openings: Arc::new(Semaphore::new(context.bounds.in_flight)),
            ended_clients: EndedClients::default(),
            context,
            http,
            offered,
            sharing,
            pace: Mutex::default(),
            attempt: tokio::sync::Mutex::default(),
            swept: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            chosen_revision: OnceLock::new(),
        })
    }

    pub(crate) fn offered(&self) -> Revision {
        self.offered
    }

    /// Returns the revision that the server chose, once a session was opened.
    pub(crate) fn revision(&self) -> Option<Revision> {
        self.chosen_revision.get().copied()
    }

    /// True if the server answered the last request for a session that it opens none.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Acquire)
    }

    /// Returns the number of open sessions.
    pub(crate) fn len(&self) -> usize {
        self.slots.open_count()
    }

    /// Makes a call in its session, with the caller's `own` client if it has one.
    pub(crate) async fn call(
        self: &Arc<Self>,
        outbound: &OutboundCall,
        own: Option<AuthorizedHttpClient>,
    ) -> Result<Reply, FailedAttempt> {
        let session_slot = self
            .session_slot(outbound)
            .ok_or_else(|| self.full_failure())?;
        let session = self
            .session_at(&session_slot, own.as_ref())
            .await
            .map_err(FailedAttempt::mark_did_not_run)?;
        self.call_in(&session_slot, &session, outbound, own).await
    }

    /// Makes the refusal of a call that got no session.
    pub(crate) fn full_failure(&self) -> FailedAttempt {
        let text = "The upstream holds as many sessions as it may: try again later";
        self.context.label.fail(FailureKind::Busy, text).into()
    }

    /// Returns the slot of the session of a call; absent if the most sessions are open.
    pub(crate) fn session_slot(&self, outbound: &OutboundCall) -> Option<SessionSlot> {
        let key = self.key(outbound);
        let used_at = self.context.clock.millis();
        let (slot, gone) = self.slots.slot(&key, used_at)?;
        if let Some(gone) = gone {
            gone.close_later();
        }
        Some(SessionSlot { key, slot, used_at })
    }

    /// Returns that slot, unless another session would have to end for it.
    pub(crate) fn free_session_slot(&self, outbound: &OutboundCall) -> Option<SessionSlot> {
        let key = self.key(outbound);
        let used_at = self.context.clock.millis();
        let slot = self.slots.free_slot(&key, used_at)?;
        Some(SessionSlot { key, slot, used_at })
    }

    /// Returns that slot, if the session belongs to the client alone.
    pub(crate) fn own_session_slot(&self, outbound: &OutboundCall) -> Option<SessionSlot> {
        self.key(outbound)
            .session
            .and_then(|_| self.free_session_slot(outbound))
    }

    /// True if the session of a call belongs to its client's session alone.
    pub(crate) fn has_own_session(&self, outbound: &OutboundCall) -> bool {
        self.key(outbound).session.is_some()
    }

    /// True if the session of a call is open.
    pub(crate) fn has_open_session(&self, outbound: &OutboundCall) -> bool {
        self.slots.is_filled(&self.key(outbound))
    }

    /// Returns the session of this slot, opened if there is none yet.
    pub(crate) async fn session_at(
        self: &Arc<Self>,
        session_slot: &SessionSlot,
        own: Option<&AuthorizedHttpClient>,
    ) -> Result<Arc<UpstreamSession>, FailedAttempt> {
        self.sweep();
        self.session(&session_slot.slot, &session_slot.key, own)
            .await
    }

    /// Makes a call in the session of this slot.
    pub(crate) async fn call_in(
        self: &Arc<Self>,
        session_slot: &SessionSlot,
        session: &Arc<UpstreamSession>,
        outbound: &OutboundCall,
        own: Option<AuthorizedHttpClient>,
    ) -> Result<Reply, FailedAttempt> {
        if let Some(own) = &own
            && session.meet_caller(own)
        {
            session.continue_lists();
            let (session, pool) = (session.clone(), self.clone());
            self.context.tasks.spawn_endless(async move {
                session.reopen_standing_stream(&pool.standing).await;
            });
        }
        let reply = session.call(outbound, own, session_slot.used_at).await;
        if let Err(refusal) = &reply
            && refusal.proof == Some(ResendProof::SessionLost)
        {
            session_slot.slot.remove(session);
        }
        reply
    }

    /// Opens a session outside of the pool, for a watch.
    pub(crate) async fn open_apart(
        self: &Arc<Self>,
        class: CapabilityClass,
    ) -> Result<OpenedUpstreamSession, FailedAttempt> {
        let behind = UpstreamSessionClient {
            class,
            client: None,
        };
        self.open_detached(behind, None).await
    }

    /// Opens a session outside of the pool to find out if the server has sessions, with the
    /// caller's `own` client if it has one.
    pub(crate) async fn try_open(
        self: &Arc<Self>,
        own: Option<&AuthorizedHttpClient>,
    ) -> Result<OpenedUpstreamSession, FailedAttempt> {
        let behind = UpstreamSessionClient {
            class: CapabilityClass::BASE,
            client: None,
        };
        self.open_detached(behind, own).await
    }

    /// Ends all sessions.
    pub(crate) async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let open = self.slots.take_all();
        futures_util::future::join_all(open.iter().map(|session| session.close())).await;
    }

    /// Returns the part of a client's class that is carried to the server. UI capabilities are
    /// declared, too, because each session is opened for its own client; a child serves all
    /// clients.
    pub(crate) fn carries(&self) -> CapabilityClass {
        self.context
            .permissions
            .carries(RevisionDialect::new(self.offered))
            .with(CapabilityClass::UI)
    }

    /// Forwards a change of client sessions to the upstream sessions that belong to them.
    pub(crate) fn forward_session_change(
        &self,
        sessions: &HashSet<SessionKey>,
        change: ClientSessionChange,
    ) {
        let is_its_own = |key: &SessionPoolKey| {
            key.session
                .is_some_and(|session| sessions.contains(&session))
        };
        if change == ClientSessionChange::Ended {
            // Before the slots: an opening that ends later finds its client here.
            self.ended_clients.add(sessions);
        }
        match change {
            ClientSessionChange::Ended => self
                .slots
                .take_where(is_its_own)
                .into_iter()
                .for_each(UpstreamSession::close_later),
            // Tasks go on for the client at another replica, whose requests about them come here.
            // The sessions that they need are closed as unused once the tasks are over.
            ClientSessionChange::EndedHere => self
                .slots
                .take_unless(is_its_own, self.context.values_in_use())
                .into_iter()
                .for_each(UpstreamSession::close_later),
            ClientSessionChange::RootsChanged => {
                let has_roots =
                    |key: &SessionPoolKey| is_its_own(key) && key.class.has(CapabilityClass::ROOTS);
                self.slots
                    .values_where(has_roots)
                    .iter()
                    .for_each(|session| session.channel().send(lower::roots_changed()));
            }
            ClientSessionChange::LogLevel(level) => {
                for session in self.slots.values_where(is_its_own) {
                    self.context.tasks.spawn_endless(async move {
                        // After a failure, the client's next call asks again.
                        let _raised = session.raise_log_level(level).await;
                    });
                }
            }
        }
    }

    fn key(&self, outbound: &OutboundCall) -> SessionPoolKey {
        let class = outbound.call.capabilities.class.cut(self.carries());
        match self.sharing {
            // A client with capabilities has a session of its own, because a server's questions
            // there concern that client alone.
            SessionSharing::Shared if class == CapabilityClass::BASE => SessionPoolKey {
                principal: None,
                class,
                session: None,
            },
            SessionSharing::Shared | SessionSharing::Principal => SessionPoolKey {
                principal: Some(outbound.principal.clone()),
                class,
                session: outbound.call.session,
            },
        }
    }

    /// Returns the slot's session, opened if there is none yet.
    async fn session(
        self: &Arc<Self>,
        slot: &Arc<KeyedSlot<UpstreamSession>>,
        key: &SessionPoolKey,
        own: Option<&AuthorizedHttpClient>,
    ) -> Result<Arc<UpstreamSession>, FailedAttempt> {
        match slot.current.load_full() {
            Some(session) if !session.over().is_cancelled() => Ok(session),
            _ => Box::pin(self.opened(slot, key, own)).await,
        }
    }

    /// Opens the slot's session. If the caller leaves meanwhile, the next one finds it in the slot.
    async fn opened(
        self: &Arc<Self>,
        slot: &Arc<KeyedSlot<UpstreamSession>>,
        key: &SessionPoolKey,
        own: Option<&AuthorizedHttpClient>,
    ) -> Result<Arc<UpstreamSession>, FailedAttempt> {
        let one = slot.opening.clone().lock_owned().await;
        match slot.current.load_full() {
            Some(session) if session.over().is_cancelled() => slot.remove(&session),
            Some(session) => return Ok(session),
            None => {}
        }
        let (pool, slot) = (self.clone(), slot.clone());
        let (key, own) = (key.clone(), own.cloned());
        self.run_detached(async move {
            let _one = one;
            pool.open_in(&slot, &key, own.as_ref()).await
        })
        .await
    }

    async fn open_in(
        &self,
        slot: &KeyedSlot<UpstreamSession>,
        key: &SessionPoolKey,
        own: Option<&AuthorizedHttpClient>,
    ) -> Result<Arc<UpstreamSession>, FailedAttempt> {
        let session = self
            .open(
                UpstreamSessionClient {
                    class: key.class,
                    client: key.session,
                },
                own,
            )
            .await?;
        session.open_standing_stream(&self.standing).await;
        let session = session.keep();
        if self.fill(slot, key, &session) {
            return Ok(session);
        }
        let failed =
            |text| FailedAttempt::new(self.context.label.fail(FailureKind::Unavailable, text));
        Err(if self.is_closed.load(Ordering::Acquire) {
            // The upstream may be called in another way by now.
            let text = "The sessions at the upstream were closed while one was opened: try again";
            failed(text).with_proof(Some(ResendProof::NotSent))
        } else {
            let text = "The client's session ended while one was opened for it at the upstream";
            failed(text).mark_not_attempted()
        })
    }

    /// Fills a slot. If its client or the upstream has ended meanwhile, the session ends as well:
    /// then it returns false.
    fn fill(
        &self,
        slot: &KeyedSlot<UpstreamSession>,
        key: &SessionPoolKey,
        session: &Arc<UpstreamSession>,
    ) -> bool {
        session.channel().set_slot_use(slot.use_clock());
        slot.current.store(Some(session.clone()));
        // A call may make its slot after the pool was closed, or its client has ended.
        let has_client_ended = || {
            let client = key.session.as_ref();
            client.is_some_and(|client| self.ended_clients.contains(client))
        };
        let is_held = self.slots.holds(key, slot)
            && !self.is_closed.load(Ordering::Acquire)
            && !has_client_ended();
        if !is_held && let Some(gone) = slot.current.swap(None) {
            gone.close_later();
        }
        is_held
    }

    async fn open_detached(
        self: &Arc<Self>,
        behind: UpstreamSessionClient,
        own: Option<&AuthorizedHttpClient>,
    ) -> Result<OpenedUpstreamSession, FailedAttempt> {
        let (pool, own) = (self.clone(), own.cloned());
        self.run_detached(async move { pool.open(behind, own.as_ref()).await })
            .await
    }

    /// Runs an opening in a task of its own, which a caller that leaves does not end: the server may
    /// have opened the session, and weir cannot end one whose id it does not know. As many run at a
    /// time as calls may.
    async fn run_detached<T: Send + 'static>(
        &self,
        opening: impl Future<Output = Result<T, FailedAttempt>> + Send + 'static,
    ) -> Result<T, FailedAttempt> {
        let UpstreamContext { tasks, label, .. } = &*self.context;
        let permit = self.openings.clone().try_acquire_owned().map_err(|_| {
            let text = "The upstream opens as many sessions as it may: try again shortly";
            FailedAttempt::new(label.fail(FailureKind::Busy, text)).mark_not_attempted()
        })?;
        let opening = async move {
            let _permit = permit;
            opening.await
        };
        let opened = tasks.run(opening.in_current_span()).await;
        opened.unwrap_or_else(|| Err(FailedAttempt::removed(label)))
    }

    async fn open(
        &self,
        behind: UpstreamSessionClient,
        own: Option<&AuthorizedHttpClient>,
    ) -> Result<OpenedUpstreamSession, FailedAttempt> {
        // Without failures sessions are opened side by side; after a failure one at a time.
        let failing = self.pace.lock().is_failing();
        let turn = if failing {
            let turn = self
                .attempt
                .try_lock()
                .map_err(|_| self.backoff_failure(Duration::ZERO))?;
            let admitted = self.pace.lock().admit(self.context.clock.now());
            admitted.map_err(|wait| self.backoff_failure(wait))?;
            Some(turn)
        } else {
            None
        };
        let http = own.unwrap_or(&self.http);
        let opened = UpstreamSession::open(&self.context, http, self.offered, behind).await;
        match &opened {
            Ok(session) => {
                self.is_refused.store(false, Ordering::Release);
                self.pace.lock().record_success();
                self.chosen_revision
                    .get_or_init(|| session.dialect().revision());
            }
            // An unread request is no sign of the server's state, and is sent again.
            Err(refusal) if refusal.proof.is_some() => {}
            // Other callers may well get a session.
            Err(refusal) if refusal.concerns_caller_alone(own.is_some()) => {}
            Err(refusal) => {
                let is_refused = refusal.refuses_sessions();
                self.is_refused.store(is_refused, Ordering::Release);
                let mut pace = self.pace.lock();
                if turn.is_none() && pace.is_failing() {
                    // Of attempts that ran side by side, the first one counts.
                    return opened;
                }
                pace.record_failure(self.context.clock.now(), self.context.clock.random());
                pace.keep_failure(&refusal.failure);
            }
        }
        opened
    }

    fn backoff_failure(&self, wait: Duration) -> FailedAttempt {
        let usual = "The upstream does not open sessions now: try again shortly";
        let last = self.pace.lock().last_failure();
        FailedAttempt::too_early(&self.context.label, last, usual, wait)
    }

    /// Starts the task that closes unused sessions, once. It ends with the pool.
    fn sweep(self: &Arc<Self>) {
        if self.swept.swap(true, Ordering::AcqRel) {
            return;
        }
        let pool = Arc::downgrade(self);
        let idle = self.context.bounds.session_idle;
        self.context.tasks.spawn_endless(async move {
            loop {
                tokio::time::sleep((idle / 4).max(Duration::from_millis(10))).await;
                let Some(pool) = pool.upgrade() else { return };
                let before = pool.context.clock.millis().saturating_sub(millis(idle));
                let unused = pool.slots.take_unused(before);
                unused.into_iter().for_each(UpstreamSession::close_later);
            }
        });
    }
}

#[cfg(test)]
mod tests;
