//! Finds the session of a legacy request, or the reason for its absence.

use http::{HeaderMap, StatusCode};
use weir_core::{Authenticated, CapabilityClass};
use weir_era::session::LegacySessionRecord;
use weir_wire::{RequestId, Revision, error_code};

use crate::answer;
use crate::observe::HttpAnswer;
use crate::request_checks::envelope_refusal;
use crate::sessions::LoadedSession;
use crate::stack::HttpRequestContext;

/// The reason that a request has no session.
pub(crate) enum NoSession {
    /// The request names no session.
    Missing,
    /// The named session does not live, or does not belong to the caller.
    Unknown,
    /// The version header names a revision that weir does not have.
    Version,
    /// Sessions cannot be read now.
    Unreadable,
}

impl NoSession {
    pub(crate) fn answer(
        &self,
        context: &HttpRequestContext,
        id: Option<&RequestId>,
    ) -> HttpAnswer {
        let (status, text) = match self {
            Self::Missing => (
                StatusCode::BAD_REQUEST,
                "`Mcp-Session-Id` is missing: send `initialize` first",
            ),
            Self::Unknown => (
                StatusCode::NOT_FOUND,
                "This session is over or was never there: send `initialize` again",
            ),
            Self::Version => (
                StatusCode::BAD_REQUEST,
                "`MCP-Protocol-Version` names a version that is not supported",
            ),
            Self::Unreadable => return answer::unreadable_session(),
        };
        envelope_refusal(context, status, id, error_code::INVALID_REQUEST, text)
    }
}

/// Loads the session that a request names.
pub(crate) async fn load_session(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    headers: &HeaderMap,
) -> Result<LoadedSession, NoSession> {
    if !headers.contains_key(&crate::header_names::SESSION) {
        return Err(NoSession::Missing);
    }
    let version = version(headers);
    let loaded = context
        .shared
        .sessions
        .load(known.principal(), headers, context.limits())
        .await;
    let loaded = loaded.map_err(|error| {
        tracing::warn!(%error, "session load failed: client is asked to retry");
        NoSession::Unreadable
    })?;
    let opened = loaded.ok_or(NoSession::Unknown)?;
    // Without the header the session's own revision holds (2025-06-18, transports).
    version.map_err(|()| NoSession::Version)?;
    Ok(opened)
}

/// The legacy revision in the head, if the head names one.
fn version(headers: &HeaderMap) -> Result<Option<Revision>, ()> {
    let Some(value) = headers.get(&crate::header_names::VERSION) else {
        return Ok(None);
    };
    let named = Revision::parse(value.to_str().unwrap_or("?").trim());
    named
        .filter(|revision| !revision.is_modern())
        .map(Some)
        .ok_or(())
}

/// A session for a request that names no session, if the settings serve such requests one by one.
pub(super) fn sessionless(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    headers: &HeaderMap,
) -> Result<LoadedSession, NoSession> {
    if !context.settings.sessionless {
        return Err(NoSession::Missing);
    }
    // A client that names no revision speaks 2025-03-26 (2025-06-18, transports).
    let revision = version(headers)
        .map_err(|()| NoSession::Version)?
        .unwrap_or(Revision::V2025_03_26);
    let began = context.shared.ports.clock.wall();
    let session = LegacySessionRecord {
        revision,
        class: CapabilityClass::BASE,
        level: None,
        initialized: false,
        began,
    };
    Ok(context
        .shared
        .sessions
        .without_record(known.principal(), session))
}
