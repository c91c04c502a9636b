//! A request in flight: its cancellation, and its registration at another stream.

use std::sync::Arc;
use std::task::{Context, Poll};

use weir_era::server_questions;
use weir_wire::{Message, Request};

use crate::session_channel::UpstreamSessionUse;
use crate::side_channel::SideChannel;
use crate::standing_stream::CallRegistration;

/// A request in flight. Dropping it before its end cancels it at the server.
pub(crate) struct PendingRequest {
    pub(crate) side: Option<Arc<dyn SideChannel>>,
    pub(crate) id: u64,
    /// The registration at another stream on which the server may send messages about it.
    entry: Option<CallRegistration>,
    /// The use of its session, if it is a client's call.
    session_use: Option<UpstreamSessionUse>,
}

impl PendingRequest {
    pub(crate) fn new(side: Option<Arc<dyn SideChannel>>, id: u64) -> Self {
        Self {
            side,
            id,
            entry: None,
            session_use: None,
        }
    }

    /// Adds the use of its session, which ends with the request.
    pub(crate) fn with_use(mut self, session_use: Option<UpstreamSessionUse>) -> Self {
        self.session_use = session_use;
        self
    }

    /// Adds the registration at the session's standing stream.
    pub(crate) fn with_registration(mut self, entry: Option<CallRegistration>) -> Self {
        self.entry = entry;
        self
    }

    /// True if the server may send messages about the request at another stream.
    pub(crate) fn is_registered(&self) -> bool {
        self.entry.is_some()
    }

    /// Ends the request without a cancellation.
    pub(crate) fn end(&mut self) {
        // Before the session is released: an unused session is ended by the time of its last use.
        drop(self.session_use.take());
        self.stop_listening(Vec::new());
        self.side = None;
    }

    /// Stops taking messages but the response itself: further questions would wait as long as the
    /// client does not read. The questions that it has `heard` at the other stream, and the unread
    /// ones, go to another call; without one they are answered with an error, because the server
    /// must not wait.
    pub(crate) fn stop_listening(&mut self, heard: Vec<Request>) {
        let Some(entry) = self.entry.take() else {
            return;
        };
        let refused = entry.pass_questions_on(heard);
        if let Some(side) = &self.side {
            refused
                .iter()
                .for_each(|id| side.send(server_questions::no_answer_response(id)));
        }
    }

    /// Polls the next message about the request at the other stream.
    pub(crate) fn poll_registration(&self, cx: &mut Context<'_>) -> Option<Message> {
        match self.entry.as_ref()?.poll_message(cx) {
            Poll::Ready(message) => Some(message),
            Poll::Pending => None,
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        drop(self.session_use.take());
        if let Some(side) = &self.side {
            side.cancel(self.id);
        }
        self.stop_listening(Vec::new());
    }
}
