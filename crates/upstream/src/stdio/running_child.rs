//! A child that is ready for calls.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use tokio::time::Instant;
use weir_core::{CapabilityClass, SessionKey};
use weir_era::upstream_messages::ResendProof;
use weir_wire::LogLevel;

use super::asking_turn::AskingTurn;
use super::child_channel::RequestPurpose;
use super::handshake::{ChildClients, HandshakeOutcome};
use super::upstream_child::UpstreamChild;
use crate::failed_attempt::FailedAttempt;
use crate::stdio::child_channel::child_request::ChildRequest;

/// A child that is ready for calls.
#[derive(Debug)]
pub(crate) struct RunningChild {
    pub(super) child: UpstreamChild,
    pub(super) greeted: HandshakeOutcome,
    pub(super) since: Instant,
    /// The capabilities that were declared to it.
    pub(super) class: CapabilityClass,
    /// True if `roots.listChanged` was declared to it.
    pub(super) declares_roots_changes: bool,
    /// The turn of calls in a child that can ask and does not name the call.
    pub(super) turn: Arc<AskingTurn>,
    /// The time of its last use, in milliseconds of the site's clock.
    pub(super) used: Arc<AtomicU64>,
    /// The least severe log level that the server was asked for.
    pub(super) level: tokio::sync::Mutex<Option<LogLevel>>,
}

impl RunningChild {
    /// Makes the record of a child after its handshake.
    pub(super) fn new(
        child: UpstreamChild,
        greeted: HandshakeOutcome,
        clients: ChildClients,
    ) -> Self {
        if greeted.tongue.revision().is_modern() {
            child.pipe.set_modern();
        } else if clients.class != CapabilityClass::BASE {
            child
                .pipe
                .enable_questions(clients.class, clients.session, greeted.tongue.revision());
        }
        let (since, turn, class) = (Instant::now(), Arc::default(), clients.class);
        let (declares_roots_changes, used) = (clients.session.is_some(), Arc::default());
        let level = tokio::sync::Mutex::default();
        Self {
            child,
            greeted,
            since,
            class,
            declares_roots_changes,
            turn,
            used,
            level,
        }
    }

    /// Notes a call of a client's session in the child.
    pub(super) fn record_call(&self, client: Option<SessionKey>) {
        if let (Some(lists), Some(client)) = (self.child.pipe.lists.get(), client) {
            lists.serves(client);
            lists.count_call();
        }
    }

    /// Sends a request to the child.
    ///
    /// # Errors
    /// The child ended before the request was given to it.
    pub(super) async fn request(
        &self,
        id: u64,
        body: Bytes,
        purpose: RequestPurpose,
    ) -> Result<ChildRequest, FailedAttempt> {
        let sent = self.child.pipe.request(id, body, purpose).await;
        sent.map_err(|failure| FailedAttempt::new(failure).with_proof(Some(ResendProof::NotSent)))
    }
}
