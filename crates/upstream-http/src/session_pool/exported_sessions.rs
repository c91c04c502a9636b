//! The sessions of a pool on their way from one process to the next.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use weir_core::{CapabilityClass, SessionKey};
use weir_oauth_client::AuthorizedHttpClient;
use weir_upstream_core::exported::{ExportedClient, ExportedOwner};
use weir_upstream_core::task_holds::ExportedTaskHold;
use weir_upstream_core::upstream_context::UpstreamContext;

use crate::session_pool::{SessionPool, SessionPoolKey};
use crate::upstream_session::session_handover::ExportedHttpSession;
use crate::upstream_session::{UpstreamSession, UpstreamSessionClient};

/// The most streams of imported sessions that are opened at the same time.
const MAX_STREAMS_AT_ONCE: usize = 8;

/// A session as one process describes it to the next.
#[derive(Clone, Serialize, Deserialize)]
struct ExportedPoolSession {
    owner: ExportedOwner,
    /// The bits of the capability class.
    class: u16,
    /// The client's session, if the upstream session belongs to it alone.
    client: Option<ExportedClient>,
    session: ExportedHttpSession,
    /// The tasks that it is held open for.
    tasks: Vec<ExportedTaskHold>,
    /// The last request id of the previous process.
    last_id: u64,
    /// True if calls of the previous process go on in it.
    is_used: bool,
    /// True if the session was described before, and this is about a later task in it.
    is_known: bool,
}

fn to_bytes(exported: &ExportedPoolSession) -> Option<Bytes> {
    serde_json::to_vec(exported).ok().map(Bytes::from)
}

/// Returns the client's session that a described session belongs to, if it belongs to one alone.
pub(crate) fn client_of_exported(session: &[u8]) -> Option<SessionKey> {
    let exported: ExportedPoolSession = serde_json::from_slice(session).ok()?;
    exported.client?.session()
}

/// Sessions of another process, until the server is known to have sessions. Bounded by the sessions
/// of a pool.
#[derive(Debug, Default)]
pub(crate) struct ImportedSessions {
    sessions: Mutex<Vec<Bytes>>,
    /// The client of a session until its caller's token is known, if calls are made in the names of
    /// callers: weir's own token must not be used in it.
    unknown_caller: Option<AuthorizedHttpClient>,
}

impl ImportedSessions {
    pub(crate) fn new(unknown_caller: Option<AuthorizedHttpClient>) -> Self {
        Self {
            sessions: Mutex::default(),
            unknown_caller,
        }
    }

    pub(crate) fn add(&self, session: &[u8]) {
        self.sessions.lock().push(Bytes::copy_from_slice(session));
    }

    fn take(&self) -> Vec<Bytes> {
        std::mem::take(&mut self.sessions.lock())
    }
}

/// True if a call uses a session of [`SessionPool::export`], or a task.
fn is_used(session: &Arc<UpstreamSession>) -> bool {
    // The references of its slot and of the caller.
    Arc::strong_count(session) > 2
}

impl SessionPool {
    /// Describes the sessions for the next process, which owns them from now on.
    pub(crate) fn export(&self) -> Vec<Bytes> {
        let last_id = self.context.request_ids.last_id();
        let describe = |(key, session): (SessionPoolKey, Arc<UpstreamSession>)| {
            let mut exported = ExportedPoolSession {
                owner: ExportedOwner::of(key.principal.as_ref()),
                class: key.class.bits(),
                client: key.session.map(ExportedClient::of),
                session: session.export()?,
                tasks: Vec::new(),
                last_id,
                is_used: is_used(&session),
                is_known: false,
            };
            let known = ExportedPoolSession {
                is_known: true,
                ..exported.clone()
            };
            exported.tasks = self.context.task_holds.export(&session, move |task| {
                let tasks = vec![task];
                to_bytes(&ExportedPoolSession {
                    tasks,
                    ..known.clone()
                })
            });
            to_bytes(&exported)
        };
        self.slots
            .filled()
            .into_iter()
            .filter_map(describe)
            .collect()
    }

    /// Takes over the sessions of another process. One with an occupied slot is left out.
    pub(crate) fn import(self: &Arc<Self>, imported: &ImportedSessions) {
        let described = imported.take();
        if described.is_empty() {
            return;
        }
        self.sweep();
        let sessions: Vec<_> = described
            .iter()
            .filter_map(|description| self.adopt(description, imported.unknown_caller.as_ref()))
            .collect();
        if imported.unknown_caller.is_some() {
            // The first call of each opens its stream.
            return;
        }
        // Before their streams are open: their clients can already list.
        sessions.iter().for_each(UpstreamSession::continue_lists);
        let pool = self.clone();
        // Each of them opens a stream at the server, a few at a time.
        self.context.tasks.spawn_endless(async move {
            let standing = sessions
                .into_iter()
                .map(|session| session.reopen_standing_stream(&pool.standing));
            stream::iter(standing)
                .buffer_unordered(MAX_STREAMS_AT_ONCE)
                .collect::<()>()
                .await;
        });
    }

    fn adopt(
        &self,
        description: &[u8],
        unknown_caller: Option<&AuthorizedHttpClient>,
    ) -> Option<Arc<UpstreamSession>> {
        let exported: ExportedPoolSession = serde_json::from_slice(description).ok()?;
        let client = match &exported.client {
            Some(client) => Some(client.session()?),
            None => None,
        };
        // No request id comes twice in a session.
        self.context.request_ids.continue_after(exported.last_id);
        let class = CapabilityClass::from_bits(exported.class);
        let key = SessionPoolKey {
            principal: exported.owner.principal(),
            class,
            session: client,
        };
        if exported.is_known {
            let known = self.slots.values_where(|other| *other == key).pop();
            let session = known.filter(|known| known.is_described_by(&exported.session))?;
            self.hold_for_tasks(&session, exported.tasks);
            return None;
        }
        let slot = self.slots.free_slot(&key, self.context.clock.millis())?;
        let behind = UpstreamSessionClient { class, client };
        let http = unknown_caller.unwrap_or(&self.http);
        let mut session = UpstreamSession::import(&self.context, http, behind, exported.session)?;
        if unknown_caller.is_some() {
            session = session.waiting_for_caller();
        }
        let session = Arc::new(session);
        let _one = slot.opening.try_lock().ok()?;
        if slot.current.load().is_some() {
            session.hand_over();
            return None;
        }
        self.chosen_revision
            .get_or_init(|| session.dialect().revision());
        if !self.fill(&slot, &key, &session) {
            return None;
        }
        self.hold_for_tasks(&session, exported.tasks);
        if exported.is_used {
            self.context.predecessor_calls.hold(&session);
        }
        Some(session)
    }

    /// Holds a session open for tasks of the previous process.
    fn hold_for_tasks(&self, session: &Arc<UpstreamSession>, tasks: Vec<ExportedTaskHold>) {
        let UpstreamContext {
            task_holds,
            task_progress,
            ..
        } = &*self.context;
        task_holds.import(tasks, session, task_progress);
    }
}
