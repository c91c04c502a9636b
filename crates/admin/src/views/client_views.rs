//! The clients: their sessions, streams and programs.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use data_encoding::HEXLOWER;
use serde::Serialize;
use weir_core::SessionKey;
use weir_core::principal::Subject;
use weir_front::{ClientSeen, SessionSeen, StreamSeen};

use crate::admin_error::{AdminError, json};
use crate::state::AdminState;
use crate::views::call_views::PrincipalView;
use crate::views::upstream_views::SoftwareView;
use crate::views::{AdminQuery, Rfc3339Time, millis};

#[derive(Serialize)]
struct SessionsView {
    /// The number of open sessions.
    total: usize,
    /// The newest first.
    sessions: Vec<SessionView>,
}

/// A session of a legacy client.
#[derive(Serialize)]
struct SessionView {
    /// The digest of the session id; it opens no session. For `/admin/sessions/{id}/end`.
    id: String,
    principal: PrincipalView,
    software: Option<SoftwareView>,
    protocol: &'static str,
    since: Rfc3339Time,
    /// The number of calls that run in it.
    calls: usize,
    /// True if its GET stream is open.
    stream: bool,
    /// The number of its resource subscriptions.
    subscriptions: usize,
}

#[derive(Serialize)]
struct ClientsView {
    /// The number of remembered programs.
    total: usize,
    /// The one seen last comes first.
    clients: Vec<ClientView>,
    /// The number of open streams.
    total_streams: usize,
    streams: Vec<StreamView>,
}

/// A client program of one principal.
#[derive(Serialize)]
pub(crate) struct ClientView {
    pub(crate) principal: PrincipalView,
    pub(crate) software: SoftwareView,
    /// `modern` or `legacy`.
    pub(crate) era: &'static str,
    pub(crate) protocol: &'static str,
    pub endpoint: String,
    first_seen: Rfc3339Time,
    /// The time it was seen last. Of a modern client the first request of a connection is noted,
    /// and then every 64th; of a legacy client the begin of a session.
    pub(crate) last_seen: Rfc3339Time,
    /// The number of open streams of its principal.
    pub(crate) streams: usize,
    /// The number of running calls of its principal.
    pub calls: usize,
}

/// A stream that waits for notifications.
#[derive(Serialize)]
struct StreamView {
    principal: PrincipalView,
    endpoint: String,
    /// `listen`, `session`, `resumed` or `http_sse`.
    kind: &'static str,
    age_ms: f64,
}

/// Lists the open sessions.
pub(crate) async fn sessions(
    State(state): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let limit = AdminQuery::read(query.as_deref(), &["limit"])?.limit()?;
    let (total, sessions) = state.front.sessions(limit);
    Ok(json(
        StatusCode::OK,
        &SessionsView {
            total,
            sessions: sessions.iter().map(SessionView::of).collect(),
        },
    ))
}

/// Lists the programs and streams of clients.
pub(crate) async fn all(
    State(state): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let limit = AdminQuery::read(query.as_deref(), &["limit"])?.limit()?;
    let streams = state.front.streams();
    let (mut clients, total_streams) = (state.clients(&streams), streams.len());
    let total = clients.len();
    clients.truncate(limit);
    let streams = streams.iter().take(limit).map(StreamView::of).collect();
    Ok(json(
        StatusCode::OK,
        &ClientsView {
            total,
            clients,
            total_streams,
            streams,
        },
    ))
}

/// Returns the id of a session for operators.
pub(crate) fn session_name(key: SessionKey) -> String {
    HEXLOWER.encode(&key.0)
}

/// Parses the id of a session.
pub(crate) fn session_of(name: &str) -> Option<SessionKey> {
    Some(SessionKey(
        HEXLOWER.decode(name.as_bytes()).ok()?.try_into().ok()?,
    ))
}

impl AdminState {
    pub(crate) fn clients(&self, streams: &[StreamSeen]) -> Vec<ClientView> {
        let mut open: HashMap<[u8; 16], (usize, usize)> = HashMap::new();
        streams
            .iter()
            .for_each(|stream| open.entry(*stream.principal.digest()).or_default().0 += 1);
        self.live
            .all()
            .iter()
            .for_each(|call| open.entry(*call.principal.digest()).or_default().1 += 1);
        let mut seen = self.front.clients();
        seen.sort_by_key(|client| std::cmp::Reverse(client.last));
        let view = |client: ClientSeen| {
            let (streams, calls) = open
                .get(client.principal.digest())
                .copied()
                .unwrap_or_default();
            ClientView {
                principal: PrincipalView::of(&client.principal),
                software: SoftwareView {
                    name: client.name,
                    version: client.version,
                },
                era: client.revision.era().as_str(),
                protocol: client.revision.as_str(),
                endpoint: client.endpoint.to_string(),
                first_seen: Rfc3339Time(client.first),
                last_seen: Rfc3339Time(client.last),
                streams,
                calls,
            }
        };
        seen.into_iter().map(view).collect()
    }

    /// Returns the known principals by digest.
    pub(crate) fn known(&self) -> HashMap<[u8; 16], PrincipalView> {
        let clients = self
            .front
            .clients()
            .into_iter()
            .map(|client| client.principal);
        let calls = self.live.all().into_iter().map(|call| call.principal);
        let blocked = self
            .overrides
            .blocked()
            .into_iter()
            .map(|(issuer, subject)| {
                let digest = *Subject::new(issuer.as_str(), subject.as_str()).digest();
                (
                    digest,
                    PrincipalView {
                        issuer: Some(issuer),
                        subject: Some(subject),
                    },
                )
            });
        clients
            .chain(calls)
            .map(|who| (*who.digest(), PrincipalView::of(&who)))
            .chain(blocked)
            .collect()
    }
}

impl SessionView {
    fn of(seen: &SessionSeen) -> Self {
        let software = seen
            .software
            .clone()
            .map(|(name, version)| SoftwareView { name, version });
        Self {
            id: session_name(seen.key),
            principal: PrincipalView::of(&seen.principal),
            software,
            protocol: seen.revision.as_str(),
            since: Rfc3339Time(seen.began),
            calls: seen.calls,
            stream: seen.stream,
            subscriptions: seen.subscriptions,
        }
    }
}

impl StreamView {
    fn of(seen: &StreamSeen) -> Self {
        Self {
            principal: PrincipalView::of(&seen.principal),
            endpoint: seen.endpoint.to_string(),
            kind: seen.kind.as_str(),
            age_ms: millis(seen.age),
        }
    }
}
