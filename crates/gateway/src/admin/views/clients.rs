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

use super::super::desk::Desk;
use super::super::refused::{Refused, json};
use super::calls::Who;
use super::upstreams::Software;
use super::{Moment, Query, millis};

#[derive(Serialize)]
struct Sessions {
    /// The number of open sessions.
    total: usize,
    /// The newest first.
    sessions: Vec<Session>,
}

/// A session of a legacy client.
#[derive(Serialize)]
struct Session {
    /// The digest of the session id; it opens no session. For `/admin/sessions/{id}/end`.
    id: String,
    principal: Who,
    software: Option<Software>,
    protocol: &'static str,
    since: Moment,
    /// The number of calls that run in it.
    calls: usize,
    /// True if its GET stream is open.
    stream: bool,
    /// The number of its resource subscriptions.
    subscriptions: usize,
}

#[derive(Serialize)]
struct Clients {
    /// The number of remembered programs.
    total: usize,
    /// The one seen last comes first.
    clients: Vec<Client>,
    /// The number of open streams.
    total_streams: usize,
    streams: Vec<Stream>,
}

/// A client program of one principal.
#[derive(Serialize)]
pub(in super::super) struct Client {
    pub(in super::super) principal: Who,
    pub(in super::super) software: Software,
    /// `modern` or `legacy`.
    pub(in super::super) era: &'static str,
    pub(in super::super) protocol: &'static str,
    pub(in super::super) endpoint: String,
    first_seen: Moment,
    /// The time it was seen last. Of a modern client the first request of a connection is noted,
    /// and then every 64th; of a legacy client the begin of a session.
    pub(in super::super) last_seen: Moment,
    /// The number of open streams of its principal.
    pub(in super::super) streams: usize,
    /// The number of running calls of its principal.
    pub(in super::super) calls: usize,
}

/// A stream that waits for notifications.
#[derive(Serialize)]
struct Stream {
    principal: Who,
    endpoint: String,
    /// `listen`, `session`, `resumed` or `line`.
    kind: &'static str,
    age_ms: f64,
}

/// Lists the open sessions.
pub(in super::super) async fn sessions(
    State(desk): State<Arc<Desk>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let limit = Query::read(query.as_deref(), &["limit"])?.limit()?;
    let (total, sessions) = desk.front.sessions(limit);
    Ok(json(
        StatusCode::OK,
        &Sessions {
            total,
            sessions: sessions.iter().map(Session::of).collect(),
        },
    ))
}

/// Lists the programs and streams of clients.
pub(in super::super) async fn all(
    State(desk): State<Arc<Desk>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let limit = Query::read(query.as_deref(), &["limit"])?.limit()?;
    let streams = desk.front.streams();
    let (mut clients, total_streams) = (desk.clients(&streams), streams.len());
    let total = clients.len();
    clients.truncate(limit);
    let streams = streams.iter().take(limit).map(Stream::of).collect();
    Ok(json(
        StatusCode::OK,
        &Clients {
            total,
            clients,
            total_streams,
            streams,
        },
    ))
}

/// Returns the id of a session for operators.
pub(in super::super) fn session_name(key: SessionKey) -> String {
    HEXLOWER.encode(&key.0)
}

/// Parses the id of a session.
pub(in super::super) fn session_of(name: &str) -> Option<SessionKey> {
    Some(SessionKey(
        HEXLOWER.decode(name.as_bytes()).ok()?.try_into().ok()?,
    ))
}

impl Desk {
    pub(in super::super) fn clients(&self, streams: &[StreamSeen]) -> Vec<Client> {
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
            Client {
                principal: Who::of(&client.principal),
                software: Software {
                    name: client.name,
                    version: client.version,
                },
                era: if client.revision.is_modern() {
                    "modern"
                } else {
                    "legacy"
                },
                protocol: client.revision.as_str(),
                endpoint: client.endpoint.to_string(),
                first_seen: Moment(client.first),
                last_seen: Moment(client.last),
                streams,
                calls,
            }
        };
        seen.into_iter().map(view).collect()
    }

    /// Returns the known principals by digest.
    pub(in super::super) fn known(&self) -> HashMap<[u8; 16], Who> {
        let clients = self
            .front
            .clients()
            .into_iter()
            .map(|client| client.principal);
        let calls = self.live.all().into_iter().map(|call| call.principal);
        let blocked = self.book.blocked().into_iter().map(|(issuer, subject)| {
            let digest = *Subject::new(issuer.as_str(), subject.as_str()).digest();
            (
                digest,
                Who {
                    issuer: Some(issuer),
                    subject: Some(subject),
                },
            )
        });
        clients
            .chain(calls)
            .map(|who| (*who.digest(), Who::of(&who)))
            .chain(blocked)
            .collect()
    }
}

impl Session {
    fn of(seen: &SessionSeen) -> Self {
        let software = seen
            .software
            .clone()
            .map(|(name, version)| Software { name, version });
        Self {
            id: session_name(seen.key),
            principal: Who::of(&seen.principal),
            software,
            protocol: seen.revision.as_str(),
            since: Moment(seen.began),
            calls: seen.calls,
            stream: seen.stream,
            subscriptions: seen.subscriptions,
        }
    }
}

impl Stream {
    fn of(seen: &StreamSeen) -> Self {
        Self {
            principal: Who::of(&seen.principal),
            endpoint: seen.endpoint.to_string(),
            kind: seen.kind,
            age_ms: millis(seen.age),
        }
    }
}
