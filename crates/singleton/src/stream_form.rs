//! Small requests in the form that replicas send each other.

use serde::{Deserialize, Serialize};
use weir_core::SessionKey;
use weir_core::upstream::ClientSessionChange;
use weir_wire::LogLevel;

use crate::frame::{BadFrame, Frame, FrameKind};

/// The request for the progress of a task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProgressForm {
    /// Issuer and subject of the principal; absent for the anonymous one.
    pub(crate) principal: Option<(String, String)>,
    /// The task's own id at the server.
    pub(crate) native: String,
}

/// A change of client sessions.
#[derive(Debug, Serialize, Deserialize)]
struct SessionChangeForm {
    sessions: Vec<[u8; 16]>,
    /// False if the roots of their clients changed, or the level below.
    has_ended: bool,
    /// The level of log messages that their clients asked for. A replica that does not know the
    /// member takes the change for changed roots, and its server then reads them once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log_level: Option<String>,
}

/// The frame of a change of client sessions. `None` if it concerns this replica alone.
pub(crate) fn session_change_frame<'a>(
    sessions: impl IntoIterator<Item = &'a SessionKey>,
    change: ClientSessionChange,
) -> Option<Frame> {
    let log_level = match change {
        ClientSessionChange::LogLevel(level) => Some(level.as_str().to_owned()),
        ClientSessionChange::Ended | ClientSessionChange::RootsChanged => None,
        ClientSessionChange::EndedHere => return None,
    };
    let form = SessionChangeForm {
        sessions: sessions.into_iter().map(|SessionKey(key)| *key).collect(),
        has_ended: change == ClientSessionChange::Ended,
        log_level,
    };
    Some(Frame::new(FrameKind::SessionChange, &form))
}

/// The change of client sessions in a frame.
pub(crate) fn read_session_change(
    frame: &Frame,
) -> Result<
    (
        impl Iterator<Item = SessionKey> + use<>,
        ClientSessionChange,
    ),
    BadFrame,
> {
    let form: SessionChangeForm = frame.facts()?;
    let level = form.log_level.as_deref().and_then(LogLevel::parse);
    let change = match level {
        Some(level) => ClientSessionChange::LogLevel(level),
        None if form.has_ended => ClientSessionChange::Ended,
        None => ClientSessionChange::RootsChanged,
    };
    Ok((form.sessions.into_iter().map(SessionKey), change))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn every_change_of_a_session_comes_back_from_its_frame() {
        let sessions = [SessionKey([7; 16]), SessionKey([9; 16])];
        for change in [
            ClientSessionChange::Ended,
            ClientSessionChange::RootsChanged,
            ClientSessionChange::LogLevel(LogLevel::Notice),
        ] {
            let frame = session_change_frame(&sessions, change).unwrap();
            let (read, read_change) = read_session_change(&frame).unwrap();
            assert_eq!(read_change, change);
            assert!(read.eq(sessions));
        }
    }

    #[test]
    fn end_at_one_replica_is_no_news_for_the_others() {
        let sessions = [SessionKey([7; 16])];
        assert!(session_change_frame(&sessions, ClientSessionChange::EndedHere).is_none());
    }
}
