//! The session that a legacy request belongs to, or the reason why there is none.

use http::{HeaderMap, StatusCode};
use weir_core::{Authenticated, CapabilityClass};
use weir_era::session::Session;
use weir_wire::{RequestId, Revision, code};

use crate::answer;
use crate::doorway::refuse;
use crate::observe::Answer;
use crate::sessions::Opened;
use crate::stack::Context;

/// Why a request has no session.
pub(crate) enum NoSession {
    /// It names none.
    Missing,
    /// It names none that is alive and its own.
    Unknown,
    /// Its version header names a revision weir does not have.
    Version,
    /// Sessions cannot be read now.
    Unreadable,
}

impl NoSession {
    pub(crate) fn answer(&self, context: &Context, id: Option<&RequestId>) -> Answer {
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
        refuse(context, status, id, (code::INVALID_REQUEST, text))
    }
}

/// The session a request belongs to.
pub(crate) async fn session(
    context: &Context,
    known: &Authenticated<()>,
    headers: &HeaderMap,
) -> Result<Opened, NoSession> {
    if !headers.contains_key(&crate::head::SESSION) {
        return Err(NoSession::Missing);
    }
    let version = version(headers);
    let loaded = context
        .shared
        .sessions
        .load(known.principal(), headers, context.limits())
        .await;
    let loaded = loaded.map_err(|error| {
        tracing::warn!(%error, "a session cannot be read: its client is asked to come again");
        NoSession::Unreadable
    })?;
    let opened = loaded.ok_or(NoSession::Unknown)?;
    // Without the header the session's own revision holds (2025-06-18, transports).
    version.map_err(|()| NoSession::Version)?;
    Ok(opened)
}

/// The legacy revision that the head names, if it names one.
fn version(headers: &HeaderMap) -> Result<Option<Revision>, ()> {
    let Some(value) = headers.get(&crate::head::VERSION) else {
        return Ok(None);
    };
    let named = Revision::parse(value.to_str().unwrap_or("?").trim());
    named
        .filter(|revision| !revision.is_modern())
        .map(Some)
        .ok_or(())
}

/// A session for a request that names none, where those are served one by one.
pub(super) fn alone(
    context: &Context,
    known: &Authenticated<()>,
    headers: &HeaderMap,
) -> Result<Opened, NoSession> {
    if !context.settings.sessionless {
        return Err(NoSession::Missing);
    }
    // A client that names no revision speaks 2025-03-26 (2025-06-18, transports).
    let revision = version(headers)
        .map_err(|()| NoSession::Version)?
        .unwrap_or(Revision::V2025_03_26);
    let began = context.shared.ports.clock.wall();
    let session = Session {
        revision,
        class: CapabilityClass::BASE,
        level: None,
        initialized: false,
        began,
    };
    Ok(context.shared.sessions.alone(known.principal(), session))
}
