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

/// News of client sessions.
#[derive(Debug, Serialize, Deserialize)]
struct SessionNewsForm {
    sessions: Vec<[u8; 16]>,
    /// False if the roots of their clients changed, or the level below.
    has_ended: bool,
    /// The level of log messages that their clients asked for. A replica that does not know the
    /// member takes the news for changed roots, and its server then reads them once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log_level: Option<String>,
}

/// The frame of news. `None` for a change that concerns this replica alone.
pub(crate) fn news_frame<'a>(
    sessions: impl IntoIterator<Item = &'a SessionKey>,
    news: ClientSessionChange,
) -> Option<Frame> {
    let log_level = match news {
        ClientSessionChange::LogLevel(level) => Some(level.as_str().to_owned()),
        ClientSessionChange::Ended | ClientSessionChange::RootsChanged => None,
        ClientSessionChange::EndedHere => return None,
    };
    let form = SessionNewsForm {
        sessions: sessions.into_iter().map(|SessionKey(key)| *key).collect(),
        has_ended: news == ClientSessionChange::Ended,
        log_level,
    };
    Some(Frame::new(FrameKind::SessionNews, &form))
}

/// The news of a frame.
pub(crate) fn read_news(
    frame: &Frame,
) -> Result<
    (
        impl Iterator<Item = SessionKey> + use<>,
        ClientSessionChange,
    ),
    BadFrame,
> {
    let form: SessionNewsForm = frame.facts()?;
    let level = form.log_level.as_deref().and_then(LogLevel::parse);
    let news = match level {
        Some(level) => ClientSessionChange::LogLevel(level),
        None if form.has_ended => ClientSessionChange::Ended,
        None => ClientSessionChange::RootsChanged,
    };
    Ok((form.sessions.into_iter().map(SessionKey), news))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn every_change_of_a_session_comes_back_from_its_frame() {
        let sessions = [SessionKey([7; 16]), SessionKey([9; 16])];
        for news in [
            ClientSessionChange::Ended,
            ClientSessionChange::RootsChanged,
            ClientSessionChange::LogLevel(LogLevel::Notice),
        ] {
            let frame = news_frame(&sessions, news).unwrap();
            let (read, change) = read_news(&frame).unwrap();
            assert_eq!(change, news);
            assert!(read.eq(sessions));
        }
    }

    #[test]
    fn end_at_one_replica_is_no_news_for_the_others() {
        let sessions = [SessionKey([7; 16])];
        assert!(news_frame(&sessions, ClientSessionChange::EndedHere).is_none());
    }
}
