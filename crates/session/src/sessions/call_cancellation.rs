//! The cancellation of a running call of a session, and its cause.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// The cause of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancellationCause {
    /// The client cancelled the call: it must not get an answer.
    Client,
    /// The session ended, or another replica took it over: the client may wait for an answer.
    SessionGone,
}

/// The cancellation of one call. The first cause counts.
#[derive(Clone, Debug, Default)]
pub struct CallCancellation {
    token: CancellationToken,
    cause: Arc<OnceLock<CancellationCause>>,
}

impl CallCancellation {
    /// Cancels the call.
    pub(super) fn cancel(&self, cause: CancellationCause) {
        self.cause.get_or_init(|| cause);
        self.token.cancel();
    }

    /// The token that is cancelled with the call.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// The cause, once the call is cancelled.
    pub fn cause(&self) -> Option<CancellationCause> {
        self.cause.get().copied()
    }
}
