//! A server over Streamable HTTP. Its era is probed once, and again after failures. This module
//! alone chooses between the two eras; for a server that speaks both, by the era of each caller.

mod answer_delivery;
mod content_headers;
mod early_reply;
mod ended_clients;
mod era_guess;
mod era_probe;
mod held_blocks;
mod http_call;
mod http_post;
mod http_second_era;
mod http_updates;
mod http_watch;
mod idle_events;
mod large_result;
mod lost_connection;
mod message_collector;
mod modern_server;
mod pending_request;
mod reading_state;
mod refused_response;
mod response_drain;
mod response_part;
mod response_reader;
mod retry_after;
mod server_dialog;
mod server_era;
mod session_channel;
mod session_pool;
mod side_channel;
mod sse;
mod sse_posts;
mod standing_stream;
mod standing_stream_slots;
mod stream_reader;
mod stream_resumption;
mod unopened_session;
mod upstream_session;

use std::collections::HashSet;
use std::sync::Arc;

use weir_core::reply::Reply;
use weir_core::telemetry::instruments;
use weir_core::upstream::{
    ClientSessionChange, HandoverSession, ListKinds, ListWatch, OutboundCall, ResourceUpdates,
    TaskNotifications,
};
use weir_core::{CapabilityClass, Failure, FailureKind, SessionKey};
use weir_era::upstream_messages::ResendProof;
use weir_oauth_client::{AuthorizedHttpClient, UpstreamCredentials};
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::settings::{SessionSharing, UpstreamProtocol};
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::Revision;

use http_updates::HttpUpdates;
use http_watch::HttpWatch;
use server_dialog::ServerDialog;
use server_era::ServerEra;
use session_pool::SessionPool;
use session_pool::exported_sessions::{self, ImportedSessions};

/// One server behind a URL.
#[derive(Debug)]
pub struct HttpUpstream {
    credentials: Option<UpstreamCredentials>,
    era: Arc<ServerEra>,
}

impl HttpUpstream {
    /// Makes a server behind `http`, with `credentials` if it wants some.
    pub fn new(
        context: Arc<UpstreamContext>,
        http: AuthorizedHttpClient,
        credentials: Option<UpstreamCredentials>,
        protocol: UpstreamProtocol,
        sharing: SessionSharing,
    ) -> Self {
        let http = credentials
            .as_ref()
            .map_or(http, UpstreamCredentials::own_client);
        let unknown_caller = credentials
            .as_ref()
            .and_then(UpstreamCredentials::unknown_caller_client);
        let imported = Arc::new(ImportedSessions::new(unknown_caller));
        Self {
            era: ServerEra::new(context, http, protocol, sharing, imported),
            credentials,
        }
    }

    /// Makes one attempt at a call. `again` is the proof of the previous attempt, if this is not
    /// the first.
    pub async fn call(
        &self,
        outbound: &OutboundCall,
        again: Option<ResendProof>,
    ) -> Result<Reply, FailedAttempt> {
        let own = self.caller_client(outbound)?;
        let dialog = self
            .era
            .find_dialog()
            .await
            .map_err(FailedAttempt::mark_did_not_run)?;
        match &*dialog {
            ServerDialog::Modern(modern, _) => {
                if self.may_have_sessions(outbound.call.capabilities.class)
                    && let Some(reply) =
                        Box::pin(self.call_in_session(outbound, own.as_ref())).await
                {
                    return reply;
                }
                let newer = match again {
                    Some(ResendProof::HeaderMismatch) => {
                        let class = outbound
                            .call
                            .capabilities
                            .class
                            .cut(self.era.context.permissions.carries(modern.dialect));
                        self.era.context.list_changes.record(ListKinds::default());
                        // Without a newer definition the call is repeated unchanged.
                        Box::pin(modern.definition(class, &outbound.native))
                            .await
                            .unwrap_or_default()
                    }
                    _ => None,
                };
                match own {
                    None => modern.call(outbound, newer.as_ref()).await,
                    Some(own) => {
                        Box::pin(modern.with_client(own).call(outbound, newer.as_ref())).await
                    }
                }
            }
            ServerDialog::Legacy(pool) => pool.call(outbound, own).await,
            ServerDialog::Sse(_) if own.is_some() => {
                let text = "A server of HTTP+SSE cannot be called in the names of callers";
                Err(self
                    .era
                    .context
                    .label
                    .fail(FailureKind::Unavailable, text)
                    .into())
            }
            ServerDialog::Sse(server) => server.call(outbound).await,
        }
    }

    /// Returns the client of the caller's account, if calls are made in the name of callers.
    fn caller_client(
        &self,
        outbound: &OutboundCall,
    ) -> Result<Option<AuthorizedHttpClient>, Failure> {
        self.credentials
            .as_ref()
            .map_or(Ok(None), |credentials| credentials.caller_client(outbound))
    }

    /// Opens the session for the calls of a client's session, if the server has sessions and no
    /// other session has to end for it. Failures are left to the first call.
    pub async fn open_client_session(&self, outbound: &OutboundCall) {
        let Ok(own) = self.caller_client(outbound) else {
            return;
        };
        let Ok(dialog) = self.era.find_dialog().await else {
            return;
        };
        let pool = match &*dialog {
            ServerDialog::Legacy(pool) => Some(pool.clone()),
            ServerDialog::Modern(..)
                if self.may_have_sessions(outbound.call.capabilities.class) =>
            {
                self.era.second_era.find(own.as_ref()).await
            }
            ServerDialog::Modern(..) | ServerDialog::Sse(_) => None,
        };
        if let Some(pool) = pool
            && let Some(slot) = pool.own_session_slot(outbound)
            && pool.session_at(&slot, own.as_ref()).await.is_err()
            && matches!(*dialog, ServerDialog::Modern(..))
        {
            // A session that the server did not refuse is opened by its first call.
            self.era.second_era.record_refusal(&pool);
        }
    }

    /// True while it is unknown if a modern server has sessions for clients that have them.
    pub fn may_find_sessions(&self) -> bool {
        let dialog = self.era.dialog.load();
        matches!(dialog.as_deref(), Some(ServerDialog::Modern(..)))
            && self.may_have_sessions(CapabilityClass::SESSIONS)
            && self.era.second_era.known().is_none()
    }

    /// Finds out if a modern server has sessions, with the client of the caller's account if calls
    /// are made in the name of callers.
    pub async fn find_sessions(&self, outbound: &OutboundCall) {
        let Ok(own) = self.caller_client(outbound) else {
            return;
        };
        let _known_now = self.era.second_era.find(own.as_ref()).await;
    }

    /// True if a client of this class is served in a session, provided the modern server has
    /// sessions.
    fn may_have_sessions(&self, class: CapabilityClass) -> bool {
        class.has(CapabilityClass::SESSIONS)
            && self.era.protocol == UpstreamProtocol::Auto
            && !self.era.second_era.is_refused()
    }

    /// Returns the session pool of a modern server for clients of this class; absent unless the
    /// server is known to have sessions.
    fn second_for(&self, class: CapabilityClass) -> Option<Arc<SessionPool>> {
        self.era
            .second_era
            .known()
            .filter(|_| self.may_have_sessions(class))
    }

    /// Returns the session pool of the server, in either era.
    fn pool(&self) -> Option<Arc<SessionPool>> {
        match self.era.dialog.load().as_deref()? {
            ServerDialog::Legacy(pool) => Some(pool.clone()),
            ServerDialog::Modern(..) => self.era.second_era.known(),
            ServerDialog::Sse(_) => None,
        }
    }

    /// Makes a call in a session of a server that speaks both eras. Absent if the call is to go
    /// over the bridge: the server has no sessions, opens no further one, or holds as many as
    /// allowed and the client has no capabilities.
    async fn call_in_session(
        &self,
        outbound: &OutboundCall,
        own: Option<&AuthorizedHttpClient>,
    ) -> Option<Result<Reply, FailedAttempt>> {
        let pool = self.era.second_era.find(own).await?;
        let class = outbound
            .call
            .capabilities
            .class
            .cut(pool.carries())
            .without(CapabilityClass::UI);
        let can_be_asked = class != CapabilityClass::BASE;
        // A client without capabilities does not justify ending another client's session.
        let slot = if can_be_asked {
            pool.session_slot(outbound)
        } else {
            pool.free_session_slot(outbound)
        };
        let Some(slot) = slot else {
            if can_be_asked {
                return Some(Err(pool.full_failure()));
            }
            instruments()
                .upstream_bridged
                .add(1, &[self.era.context.label.attribute()]);
            return None;
        };
        let session = match pool.session_at(&slot, own).await {
            Ok(session) => session,
            Err(refusal) => {
                let is_refused = self.era.second_era.record_refusal(&pool);
                return (!is_refused).then(|| Err(refusal.mark_did_not_run()));
            }
        };
        Some(pool.call_in(&slot, &session, outbound, own.cloned()).await)
    }

    /// Opens a watch. The server's description is fetched anew.
    pub async fn watch(&self, class: CapabilityClass) -> Result<Box<dyn ListWatch>, FailedAttempt> {
        let is_modern = matches!(
            self.era.dialog.load().as_deref(),
            Some(ServerDialog::Modern(..))
        );
        let second = self.second_for(class);
        let dialog = if is_modern {
            self.era.probe_again().await?
        } else {
            self.era.find_dialog().await?
        };
        let pool = match (&*dialog, second) {
            (ServerDialog::Modern(modern, about), None) => {
                if about.tasks
                    && !self.uses_callers_accounts()
                    && self.may_have_sessions(CapabilityClass::SESSIONS)
                {
                    // The tools of the two eras differ in their task support.
                    let _known_now = self.era.second_era.find(None).await;
                }
                let class = class.cut(self.era.context.permissions.carries(modern.dialect));
                let (modern, about) = (modern.clone(), about.clone());
                let watch = HttpWatch::modern(modern, about, class, self.era.second_era.clone());
                return Ok(Box::new(watch.await?));
            }
            (ServerDialog::Sse(server), _) => return server.watch(class).await,
            (ServerDialog::Modern(..), Some(pool)) => pool,
            (ServerDialog::Legacy(pool), _) => pool.clone(),
        };
        let opened = pool.open_apart(class.cut(pool.carries())).await;
        if opened.is_err() && matches!(*dialog, ServerDialog::Modern(..)) {
            // The next watch is in the modern era then.
            self.era.second_era.record_refusal(&pool);
        }
        let session = opened?;
        Ok(Box::new(
            HttpWatch::legacy(self.era.context.clone(), session).await,
        ))
    }

    /// True if calls use the accounts of their callers.
    #[must_use]
    pub fn uses_callers_accounts(&self) -> bool {
        self.credentials
            .as_ref()
            .is_some_and(|credentials| credentials.are_of_callers())
    }

    /// Opens a subscription to updates of single resources.
    pub async fn updates(&self) -> Result<Box<dyn ResourceUpdates>, FailedAttempt> {
        match &*self.era.find_dialog().await? {
            ServerDialog::Modern(modern, _) => Ok(Box::new(HttpUpdates::modern(modern.clone()))),
            ServerDialog::Legacy(pool) => {
                let session = pool.open_apart(CapabilityClass::BASE).await?;
                Ok(Box::new(
                    HttpUpdates::legacy(self.era.context.clone(), session).await?,
                ))
            }
            ServerDialog::Sse(server) => server.updates().await,
        }
    }

    /// Subscribes to a task's status; absent if the server has no such subscription.
    pub async fn follow(&self, outbound: &OutboundCall) -> Option<TaskNotifications> {
        let own = self.caller_client(outbound).ok()?;
        match (&*self.era.find_dialog().await.ok()?, own) {
            // In a session a server sends no status of a task.
            (ServerDialog::Modern(..), _)
                if self.second_for(outbound.call.capabilities.class).is_some() =>
            {
                None
            }
            (ServerDialog::Modern(modern, _), None) => {
                http_updates::follow_task(modern, outbound).await
            }
            (ServerDialog::Modern(modern, _), Some(own)) => {
                http_updates::follow_task(&modern.with_client(own), outbound).await
            }
            (ServerDialog::Sse(server), None) => server.follow(outbound).await,
            (ServerDialog::Legacy(_), _) | (ServerDialog::Sse(_), Some(_)) => None,
        }
    }

    /// Marks the server as possibly replaced: it is probed before the next request.
    pub fn doubt_era(&self) {
        self.era.doubt();
    }

    /// Returns the capabilities that are carried to the server, by its known eras.
    pub fn carries(&self) -> CapabilityClass {
        match self.era.dialog.load().as_deref() {
            Some(ServerDialog::Modern(modern, _)) => {
                let carried = self.era.context.permissions.carries(modern.dialect);
                match self.era.second_era.known() {
                    Some(pool) => carried.with(pool.carries()).with(CapabilityClass::SESSIONS),
                    None => carried,
                }
            }
            Some(ServerDialog::Legacy(pool)) => pool.carries(),
            Some(ServerDialog::Sse(server)) => server.carries(),
            None => CapabilityClass::BASE,
        }
    }

    /// Returns the server's revision, once it is known.
    pub fn revision(&self) -> Option<Revision> {
        match self.era.dialog.load().as_deref() {
            Some(ServerDialog::Modern(modern, _)) => Some(modern.dialect.revision()),
            Some(ServerDialog::Legacy(pool)) => pool.revision(),
            Some(ServerDialog::Sse(server)) => server.revision(),
            None => None,
        }
    }

    /// Returns the number of open sessions.
    pub fn sessions(&self) -> usize {
        match self.era.dialog.load().as_deref() {
            Some(ServerDialog::Sse(server)) => server.processes(),
            _ => self.pool().map_or(0, |pool| pool.len()),
        }
    }

    /// Returns the server's revision for a client of this class, once it is known.
    pub fn revision_for(&self, class: CapabilityClass) -> Option<Revision> {
        let second = self.second_for(class).and_then(|pool| pool.revision());
        second.or_else(|| self.revision())
    }

    /// Returns the revision of its other era, if it is known to speak both.
    pub fn second_revision(&self) -> Option<Revision> {
        self.era.second_era.known()?.revision()
    }

    /// Forwards a change of client sessions.
    pub fn forward_session_change(
        &self,
        sessions: &HashSet<SessionKey>,
        change: ClientSessionChange,
    ) {
        if change == ClientSessionChange::Ended {
            self.era.context.task_holds.end_sessions(sessions);
        }
        if let Some(ServerDialog::Sse(server)) = self.era.dialog.load().as_deref() {
            server.forward_session_change(sessions, change);
        } else if let Some(pool) = self.pool() {
            pool.forward_session_change(sessions, change);
        }
    }

    /// Implements [`weir_core::upstream::Upstream::export_sessions`].
    pub fn export_sessions(&self) -> Vec<HandoverSession> {
        let sessions = self
            .pool()
            .map(|pool| pool.export())
            .unwrap_or_default()
            .into_iter();
        sessions
            .map(|description| HandoverSession {
                description,
                descriptors: Vec::new(),
            })
            .collect()
    }

    /// Implements [`weir_core::upstream::Upstream::import_session`]. Returns the client's session
    /// that the upstream session belongs to, if it belongs to one alone.
    pub fn import_session(&self, session: &[u8]) -> Option<SessionKey> {
        self.era.imported.add(session);
        if let Some(pool) = self.pool() {
            pool.import(&self.era.imported);
        }
        exported_sessions::client_of_exported(session)
    }

    /// True if the call belongs into the upstream session of its client's session, which only the
    /// instance that opened it has. Also true while that is not known.
    pub fn keeps_client_session(&self, outbound: &OutboundCall) -> bool {
        outbound.call.session.is_some()
            && match self.era.dialog.load().as_deref() {
                Some(ServerDialog::Modern(..)) => {
                    self.may_have_sessions(outbound.call.capabilities.class)
                }
                Some(ServerDialog::Legacy(pool)) => pool.has_own_session(outbound),
                Some(ServerDialog::Sse(_)) | None => true,
            }
    }

    /// True if the upstream session of the call's client is open here.
    pub fn has_client_session(&self, outbound: &OutboundCall) -> bool {
        self.pool()
            .is_some_and(|pool| pool.has_open_session(outbound))
    }

    /// Ends the sessions.
    pub async fn close(&self) {
        if let Some(ServerDialog::Sse(server)) = self.era.dialog.load_full().as_deref() {
            server.close().await;
        } else if let Some(pool) = self.pool() {
            pool.close().await;
        }
    }
}

#[cfg(test)]
mod tests;
