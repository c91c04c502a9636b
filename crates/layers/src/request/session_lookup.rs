//! Finds the session of a legacy request, or the reason for its absence.

use http::HeaderMap;
use weir_core::CapabilityClass;
use weir_core::port::ReplicaId;
use weir_era::session::LegacySessionRecord;
use weir_session::{LoadedSession, SessionPlace};
use weir_wire::header::ReceivedHeader;
use weir_wire::{RequestId, Revision};

use crate::failure::message_refusal::MessageRefusal;
use crate::failure::request_refusal::RequestRefusal;
use crate::failure::{FailureCause, RequestFailure};
use crate::http::header_names;
use crate::request::request_context::HttpRequestContext;
use crate::request::request_head::RequestHead;

/// The reason that a request has no session.
#[derive(Debug)]
pub enum NoSession {
    /// The request names no session.
    Missing,
    /// The request names a session twice: another reader might believe the other name.
    Repeated,
    /// The named session does not live, or does not belong to the caller.
    Unknown,
    /// The version header is given twice, or names a revision that weir does not have.
    Version,
    /// Another replica owns the session.
    Elsewhere(ReplicaId),
    /// Sessions cannot be read now.
    Unreadable,
}

impl NoSession {
    /// The failure of the message with this id.
    pub fn failure(&self, id: Option<&RequestId>) -> RequestFailure {
        let refusal = match self {
            Self::Missing => MessageRefusal::SessionMissing,
            Self::Repeated => MessageRefusal::SessionRepeated,
            Self::Unknown => MessageRefusal::SessionUnknown,
            Self::Version => MessageRefusal::VersionUnknown,
            Self::Elsewhere(owner) => return FailureCause::Elsewhere(owner.clone()).into(),
            // By status alone: after a 404 the client would begin another session.
            Self::Unreadable => return RequestRefusal::UnreadableSessions.into(),
        };
        RequestFailure::message(id, refusal)
    }
}

/// Loads the session that a request names.
pub async fn load_session(head: RequestHead<'_>) -> Result<LoadedSession, NoSession> {
    let (context, headers) = (head.context, head.headers);
    let named = match ReceivedHeader::of(headers.get_all(&header_names::SESSION)) {
        ReceivedHeader::Absent => return Err(NoSession::Missing),
        ReceivedHeader::Once(named) => named,
        ReceivedHeader::Repeated => return Err(NoSession::Repeated),
    };
    let version = version(headers);
    let loaded = context
        .shared()
        .sessions
        .load(head.sender.principal(), named, &context.limits().session)
        .await;
    let loaded = loaded.map_err(|error| {
        tracing::warn!(%error, "session load failed: client is asked to retry");
        NoSession::Unreadable
    })?;
    let session = match loaded {
        SessionPlace::Here(session) => session,
        SessionPlace::Elsewhere(owner) => return Err(NoSession::Elsewhere(owner)),
        SessionPlace::Gone => return Err(NoSession::Unknown),
    };
    // Without the header the session's own revision holds (2025-06-18, transports).
    version?;
    Ok(session)
}

/// The legacy revision in the head, if the head names one. The era is asked here, because the
/// header is read for requests without a message, too, and a session has no other revisions.
pub fn version(headers: &HeaderMap) -> Result<Option<Revision>, NoSession> {
    let value = match ReceivedHeader::of(headers.get_all(&header_names::VERSION)) {
        ReceivedHeader::Absent => return Ok(None),
        ReceivedHeader::Once(value) => value,
        ReceivedHeader::Repeated => return Err(NoSession::Version),
    };
    let named = Revision::parse(value.to_str().unwrap_or("?").trim());
    named
        .filter(|revision| !revision.is_modern())
        .map(Some)
        .ok_or(NoSession::Version)
}

/// True if the head names a session. Revision 2026-07-28 has no sessions, and ignores the header.
pub fn names_session(headers: &HeaderMap) -> bool {
    let version = headers.get(&header_names::VERSION);
    let is_modern = version
        .and_then(|value| Revision::parse(value.to_str().ok()?.trim()))
        .is_some_and(Revision::is_modern);
    !is_modern && headers.contains_key(&header_names::SESSION)
}

/// A session for a request that names no session, if the settings serve such requests one by one.
pub fn sessionless(head: RequestHead<'_>) -> Result<LoadedSession, NoSession> {
    let context = head.context;
    if !context.route.settings.sessionless {
        return Err(NoSession::Missing);
    }
    // A client that names no revision speaks 2025-03-26 (2025-06-18, transports).
    let revision = version(head.headers)?.unwrap_or(Revision::V2025_03_26);
    let session = plain_session(context, revision);
    Ok(context
        .shared()
        .sessions
        .without_record(head.sender.principal(), session))
}

/// The settings of a session of this revision, for a client of which no more is known.
pub fn plain_session(context: &HttpRequestContext, revision: Revision) -> LegacySessionRecord {
    LegacySessionRecord {
        revision,
        class: CapabilityClass::BASE,
        level: None,
        initialized: false,
        began: context.ports().clock.wall(),
    }
}
