//! The session pool of one legacy server: the sharing of sessions, their opening and closing.
//!
//! Opening is single-flight for each key. After a failure the whole server gets one attempt at a
//! time with backoff, so that a server that comes back is not flooded.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use weir_core::principal::Principal;
use weir_core::reply::Reply;
use weir_core::upstream::{ClientSessionChange, OutboundCall};
use weir_core::{CapabilityClass, FailureKind, SessionKey};
use weir_era::lower;
use weir_era::upstream_messages::{ResendProof, RevisionDialect};
use weir_wire::Revision;

use super::client::Http;
use super::session::{Behind, ExportedSession, Session};
use super::standing_places::StandingPlaces;
use super::talk::Side;
use crate::exported::{ExportedClient, ExportedOwner};
use crate::pace::Pace;
use crate::refusal::Refusal;
use crate::settings::Sharing;
use crate::site::Site;
use crate::slots::{Slot, Slots};

/// The most streams of imported sessions that are opened at the same time.
const STREAMS_AT_ONCE: usize = 8;

/// The legacy side of one HTTP server.
#[derive(Debug)]
pub(crate) struct Pool {
    site: Arc<Site>,
    http: Http,
    offered: Revision,
    sharing: Sharing,
    slots: Slots<Key, Session>,
    /// The slots of streams for changes of sessions' own lists.
    standing: StandingPlaces,
    pace: Mutex<Pace>,
    /// Held while a session is opened after a failure: one attempt at a time.
    attempt: tokio::sync::Mutex<()>,
    swept: AtomicBool,
    /// The revision that the server chose.
    spoken: OnceLock<Revision>,
}

/// The key of a session: two principals never share one, unless the operator allows it. Bounded by
/// `Bounds::sessions`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    principal: Option<Principal>,
    class: CapabilityClass,
    session: Option<SessionKey>,
}

/// A session as one process describes it to the next.
#[derive(Serialize, Deserialize)]
struct ExportedPlace {
    owner: ExportedOwner,
    /// The bits of the capability class.
    class: u16,
    /// The client's session, if the upstream session belongs to it alone.
    client: Option<ExportedClient>,
    session: ExportedSession,
}

/// Sessions of another process, until the server is known to have sessions. Bounded by the sessions
/// of a pool.
#[derive(Debug, Default)]
pub(super) struct ImportedSessions(Mutex<Vec<Bytes>>);

impl ImportedSessions {
    pub(super) fn add(&self, session: &[u8]) {
        self.lock().push(Bytes::copy_from_slice(session));
    }

    fn take(&self) -> Vec<Bytes> {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Bytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of the session of a call.
#[derive(Debug)]
pub(crate) struct SessionPlace {
    key: Key,
    slot: Arc<Slot<Session>>,
}

impl Pool {
    pub(super) fn new(
        site: Arc<Site>,
        http: Http,
        offered: Revision,
        sharing: Sharing,
    ) -> Arc<Self> {
        Arc::new(Self {
            slots: Slots::new(site.bounds.sessions, 0),
            standing: StandingPlaces::new(site.bounds.standing),
            site,
            http,
            offered,
            sharing,
            pace: Mutex::default(),
            attempt: tokio::sync::Mutex::default(),
            swept: AtomicBool::new(false),
            spoken: OnceLock::new(),
        })
    }

    pub(crate) fn offered(&self) -> Revision {
        self.offered
    }

    /// Returns the revision that the server chose, once a session was opened.
    pub(crate) fn revision(&self) -> Option<Revision> {
        self.spoken.get().copied()
    }

    /// Returns the number of open sessions.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Makes a call in its session, with the caller's `own` client if it has one.
    pub(crate) async fn call(
        self: &Arc<Self>,
        outbound: &OutboundCall,
        own: Option<Http>,
    ) -> Result<Reply, Refusal> {
        let place = self.place(outbound).ok_or_else(|| self.is_full())?;
        let session = self.session_at(&place, own.as_ref()).await?;
        self.call_in(&place, &session, outbound, own).await
    }

    /// Makes the refusal of a call that got no session.
    pub(crate) fn is_full(&self) -> Refusal {
        let text = "The upstream holds as many sessions as it may: try again later";
        self.site.fail(FailureKind::Busy, text).into()
    }

    /// Returns the slot of the session of a call; absent if the most sessions are open.
    pub(crate) fn place(&self, outbound: &OutboundCall) -> Option<SessionPlace> {
        let key = self.key(outbound);
        let (slot, gone) = self.slots.slot(&key, self.site.millis())?;
        self.end(gone);
        Some(SessionPlace { key, slot })
    }

    /// Returns that slot, unless another session would have to end for it.
    pub(crate) fn free_place(&self, outbound: &OutboundCall) -> Option<SessionPlace> {
        let key = self.key(outbound);
        let slot = self.slots.free_slot(&key, self.site.millis())?;
        Some(SessionPlace { key, slot })
    }

    /// Returns that slot, if the session belongs to the client alone.
    pub(crate) fn own_place(&self, outbound: &OutboundCall) -> Option<SessionPlace> {
        self.key(outbound)
            .session
            .and_then(|_| self.free_place(outbound))
    }

    /// Returns the session of this slot, opened if there is none yet.
    pub(crate) async fn session_at(
        self: &Arc<Self>,
        place: &SessionPlace,
        own: Option<&Http>,
    ) -> Result<Arc<Session>, Refusal> {
        self.sweep();
        self.session(&place.slot, &place.key, own).await
    }

    /// Makes a call in the session of this slot.
    pub(crate) async fn call_in(
        &self,
        place: &SessionPlace,
        session: &Arc<Session>,
        outbound: &OutboundCall,
        own: Option<Http>,
    ) -> Result<Reply, Refusal> {
        let spoken = session.call(outbound, own).await;
        if let Err(refusal) = &spoken
            && refusal.proof == Some(ResendProof::SessionLost)
        {
            place.slot.forget(session);
        }
        spoken
    }

    /// Opens a session outside of the pool, for a watch.
    pub(crate) async fn apart(&self, class: CapabilityClass) -> Result<Arc<Session>, Refusal> {
        self.open(
            Behind {
                class,
                client: None,
            },
            &self.http,
        )
        .await
    }

    /// Opens a session outside of the pool with this client, to find out if the server has
    /// sessions.
    pub(crate) async fn try_open(&self, http: &Http) -> Result<Arc<Session>, Refusal> {
        self.open(
            Behind {
                class: CapabilityClass::BASE,
                client: None,
            },
            http,
        )
        .await
    }

    /// Describes the sessions for the next process, which owns them from now on.
    pub(crate) fn export(&self) -> Vec<Bytes> {
        let describe = |(key, session): (Key, Arc<Session>)| {
            let place = ExportedPlace {
                owner: ExportedOwner::of(key.principal.as_ref()),
                class: key.class.bits(),
                client: key.session.map(ExportedClient::of),
                session: session.export()?,
            };
            serde_json::to_vec(&place).ok().map(Bytes::from)
        };
        self.slots.all().into_iter().filter_map(describe).collect()
    }

    /// Takes over the sessions of another process. One with an occupied slot is left out.
    pub(super) fn import(self: &Arc<Self>, imported: &ImportedSessions) {
        let described = imported.take();
        if described.is_empty() {
            return;
        }
        self.sweep();
        let sessions: Vec<_> = described
            .iter()
            .filter_map(|place| self.adopt(place))
            .collect();
        let pool = self.clone();
        // Each of them opens a stream at the server, a few at a time.
        self.site.background(async move {
            let standing = sessions
                .into_iter()
                .map(|session| session.stand_again(&pool.standing));
            stream::iter(standing)
                .buffer_unordered(STREAMS_AT_ONCE)
                .collect::<()>()
                .await;
        });
    }

    fn adopt(&self, place: &[u8]) -> Option<Arc<Session>> {
        let place: ExportedPlace = serde_json::from_slice(place).ok()?;
        let client = match &place.client {
            Some(client) => Some(client.session()?),
            None => None,
        };
        let class = CapabilityClass::from_bits(place.class);
        let key = Key {
            principal: place.owner.principal(),
            class,
            session: client,
        };
        let slot = self.slots.free_slot(&key, self.site.millis())?;
        let behind = Behind { class, client };
        let session = Arc::new(Session::import(
            &self.site,
            &self.http,
            behind,
            place.session,
        )?);
        let _one = slot.opening.try_lock().ok()?;
        if slot.current.load().is_some() {
            session.leave();
            return None;
        }
        self.spoken.get_or_init(|| session.tongue().revision());
        slot.current.store(Some(session.clone()));
        Some(session)
    }

    /// Ends all sessions.
    pub(crate) async fn close(&self) {
        let open = self.slots.take_all();
        futures_util::future::join_all(open.iter().map(|session| session.close())).await;
    }

    /// Returns the part of a client's class that is carried to the server. UI capabilities are
    /// declared, too, because each session is opened for its own client; a child serves all
    /// clients.
    pub(crate) fn carries(&self) -> CapabilityClass {
        self.site
            .carries(RevisionDialect::new(self.offered))
            .with(CapabilityClass::UI)
    }

    /// Forwards news of client sessions to the upstream sessions that belong to them.
    pub(crate) fn tell(&self, sessions: &HashSet<SessionKey>, news: ClientSessionChange) {
        let is_its_own = |key: &Key| {
            key.session
                .is_some_and(|session| sessions.contains(&session))
        };
        match news {
            ClientSessionChange::Ended => self
                .slots
                .take_where(is_its_own)
                .into_iter()
                .for_each(|gone| self.end(Some(gone))),
            ClientSessionChange::RootsChanged => {
                let told = |key: &Key| is_its_own(key) && key.class.has(CapabilityClass::ROOTS);
                self.slots
                    .those(told)
                    .iter()
                    .for_each(|session| session.send(lower::roots_changed()));
            }
        }
    }

    fn key(&self, outbound: &OutboundCall) -> Key {
        let class = outbound.call.capabilities.class.cut(self.carries());
        match self.sharing {
            // A client with capabilities has a session of its own, because a server's questions
            // there concern that client alone.
            Sharing::Shared if class == CapabilityClass::BASE => Key {
                principal: None,
                class,
                session: None,
            },
            Sharing::Shared | Sharing::Principal => Key {
                principal: Some(outbound.principal.clone()),
                class,
                session: outbound.call.session,
            },
        }
    }

    /// Returns the slot's session, opened if there is none yet.
    async fn session(
        &self,
        slot: &Slot<Session>,
        key: &Key,
        own: Option<&Http>,
    ) -> Result<Arc<Session>, Refusal> {
        match slot.current.load_full() {
            Some(session) if !session.over().is_cancelled() => Ok(session),
            _ => Box::pin(self.opened(slot, key, own.unwrap_or(&self.http))).await,
        }
    }

    async fn opened(
        &self,
        slot: &Slot<Session>,
        key: &Key,
        http: &Http,
    ) -> Result<Arc<Session>, Refusal> {
        let _one = slot.opening.lock().await;
        match slot.current.load_full() {
            Some(session) if session.over().is_cancelled() => slot.forget(&session),
            Some(session) => return Ok(session),
            None => {}
        }
        let session = self
            .open(
                Behind {
                    class: key.class,
                    client: key.session,
                },
                http,
            )
            .await?;
        session.stand(&self.standing).await;
        slot.current.store(Some(session.clone()));
        Ok(session)
    }

    async fn open(&self, behind: Behind, http: &Http) -> Result<Arc<Session>, Refusal> {
        // Without failures sessions are opened side by side; after a failure one at a time.
        let failing = self.pace().is_failing();
        let _turn = if failing {
            let turn = self
                .attempt
                .try_lock()
                .map_err(|_| self.wait(Duration::ZERO))?;
            let admitted = self.pace().admit(self.site.now());
            admitted.map_err(|wait| self.wait(wait))?;
            Some(turn)
        } else {
            None
        };
        let opened = Session::open(&self.site, http, self.offered, behind).await;
        match &opened {
            Ok(session) => {
                self.pace().succeeded();
                self.spoken.get_or_init(|| session.tongue().revision());
            }
            // An unread request is no sign of the server's state, and is sent again.
            Err(refusal) if refusal.proof.is_some() => {}
            Err(refusal) => {
                let mut pace = self.pace();
                pace.failed(self.site.now(), &*self.site.random);
                pace.because(&refusal.failure);
            }
        }
        opened
    }

    fn wait(&self, wait: Duration) -> Refusal {
        let usual = "The upstream does not open sessions now: try again shortly";
        let last = self.pace().last_failure();
        self.site.not_yet(last, usual, wait)
    }

    fn end(&self, gone: Option<Arc<Session>>) {
        if let Some(session) = gone {
            self.site.spawn(async move { session.close().await });
        }
    }

    /// Starts the task that closes unused sessions, once. It ends with the pool.
    fn sweep(self: &Arc<Self>) {
        if self.swept.swap(true, Ordering::AcqRel) {
            return;
        }
        let pool = Arc::downgrade(self);
        let idle = self.site.bounds.session_idle;
        self.site.background(async move {
            loop {
                tokio::time::sleep((idle / 4).max(Duration::from_millis(10))).await;
                let Some(pool) = pool.upgrade() else { return };
                let before = pool
                    .site
                    .millis()
                    .saturating_sub(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
                for session in pool.slots.take_unused(before) {
                    pool.end(Some(session));
                }
            }
        });
    }

    fn pace(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
