//! A child that is ready for calls.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use tokio::time::Instant;
use weir_core::{CapabilityClass, SessionKey};
use weir_era::upstream_messages::ResendProof;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::session_log_level::SessionLogLevel;

use crate::asking_turn::AskingTurn;
use crate::child_channel::RequestPurpose;
use crate::child_channel::child_request::ChildRequest;
use crate::handshake::{ChildClients, HandshakeOutcome};
use crate::upstream_child::UpstreamChild;

/// A child that is ready for calls.
#[derive(Debug)]
pub(super) struct RunningChild {
    pub(super) child: UpstreamChild,
    pub(super) handshake: HandshakeOutcome,
    pub(super) since: Instant,
    /// The time of its last use, in milliseconds of the upstream's clock.
    pub(super) used: Arc<AtomicU64>,
    /// The state of a legacy session; absent for a modern child.
    pub(super) legacy: Option<LegacyChild>,
}

/// The session with a legacy child: its declarations hold for all calls. To a modern child each
/// call declares anew, and it asks in its results.
#[derive(Debug)]
pub(super) struct LegacyChild {
    /// The capabilities that were declared to it.
    pub(super) class: CapabilityClass,
    /// True if `roots.listChanged` was declared to it.
    pub(super) declares_roots_changes: bool,
    /// The turn of calls in a child that can ask and does not name the call.
    pub(super) turn: Arc<AskingTurn>,
    pub(super) level: SessionLogLevel,
}

impl RunningChild {
    /// Makes the record of a child after its handshake. The era of its calls is decided here.
    pub(super) fn new(
        child: UpstreamChild,
        handshake: HandshakeOutcome,
        clients: ChildClients,
    ) -> Self {
        let revision = handshake.dialect.revision();
        let legacy = if revision.is_modern() {
            child.channel.set_modern();
            None
        } else {
            if clients.class != CapabilityClass::BASE {
                child
                    .channel
                    .enable_questions(clients.class, clients.session, revision);
            }
            if clients.is_owned {
                child.channel.set_owned();
            }
            Some(LegacyChild {
                class: clients.class,
                declares_roots_changes: clients.session.is_some(),
                turn: Arc::default(),
                level: SessionLogLevel::default(),
            })
        };
        Self {
            child,
            handshake,
            since: Instant::now(),
            used: Arc::default(),
            legacy,
        }
    }

    /// Notes a call of a client's session in the child.
    pub(super) fn record_call(&self, client: Option<SessionKey>) {
        if let (Some(lists), Some(client)) = (self.child.channel.lists.get(), client) {
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
        let sent = self.child.channel.request(id, body, purpose).await;
        sent.map_err(|failure| FailedAttempt::new(failure).with_proof(Some(ResendProof::NotSent)))
    }
}
