//! A session that was just opened. Its caller may leave before the session is in its slot.

use std::ops::Deref;
use std::sync::Arc;

use super::upstream_session::UpstreamSession;

/// A session that ends at the server when it is dropped, unless it is kept.
#[derive(Debug)]
pub(crate) struct OpenedSession {
    session: Arc<UpstreamSession>,
    is_kept: bool,
}

impl OpenedSession {
    pub(crate) fn new(session: UpstreamSession) -> Self {
        Self {
            session: Arc::new(session),
            is_kept: false,
        }
    }

    /// Returns the session, which its user ends from now on.
    pub(crate) fn keep(mut self) -> Arc<UpstreamSession> {
        self.is_kept = true;
        self.session.clone()
    }
}

impl Deref for OpenedSession {
    type Target = Arc<UpstreamSession>;

    fn deref(&self) -> &Self::Target {
        &self.session
    }
}

impl Drop for OpenedSession {
    fn drop(&mut self) {
        if !self.is_kept {
            self.session.clone().close_later();
        }
    }
}
