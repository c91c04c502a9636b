//! Small requests in the form that replicas send each other.

use serde::{Deserialize, Serialize};
use weir_core::SessionKey;
use weir_core::upstream::ClientSessionChange;

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
    /// False if the roots of their clients changed.
    has_ended: bool,
}

/// The frame of news.
pub(crate) fn news_frame<'a>(
    sessions: impl IntoIterator<Item = &'a SessionKey>,
    news: ClientSessionChange,
) -> Frame {
    let form = SessionNewsForm {
        sessions: sessions.into_iter().map(|SessionKey(key)| *key).collect(),
        has_ended: news == ClientSessionChange::Ended,
    };
    Frame::new(FrameKind::SessionNews, &form)
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
    let news = if form.has_ended {
        ClientSessionChange::Ended
    } else {
        ClientSessionChange::RootsChanged
    };
    Ok((form.sessions.into_iter().map(SessionKey), news))
}
