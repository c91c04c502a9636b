//! A request in flight, as its caller and its sender share it: the messages for it, and its end.

use parking_lot::Mutex;

use tokio_util::sync::CancellationToken;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::message_budget::MessageBudget;
use weir_upstream_core::request_inbox::RequestInbox;

/// A request in flight.
#[derive(Debug)]
pub struct PendingChildRequest {
    id: u64,
    pub(crate) inbox: RequestInbox,
    /// Cancelled once its caller waits for it no more.
    over: CancellationToken,
    /// The failure of a request that was refused.
    refusal: Mutex<Option<FailedAttempt>>,
}

impl PendingChildRequest {
    pub(crate) fn new(id: u64, messages: MessageBudget) -> Self {
        Self {
            id,
            inbox: RequestInbox::new(messages),
            over: CancellationToken::new(),
            refusal: Mutex::default(),
        }
    }

    /// Returns the id in the message.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the token that is cancelled once the request is answered or given up.
    pub fn over(&self) -> &CancellationToken {
        &self.over
    }

    /// True once the answer has come.
    pub fn is_answered(&self) -> bool {
        self.inbox.is_answered()
    }

    /// Fails the request alone. An answer that came before counts.
    pub fn refuse(&self, refusal: FailedAttempt) {
        *self.refusal.lock() = Some(refusal);
        self.inbox.close();
    }

    pub(crate) fn take_refusal(&self) -> Option<FailedAttempt> {
        self.refusal.lock().take()
    }

    /// Notes that its caller waits for it no more.
    pub(crate) fn end(&self) {
        self.over.cancel();
    }
}
