//! The purpose of an outgoing message, with its share in the bounds of the messages that wait.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use weir_core::budget::ByteReservation;
use weir_wire::scan;

use super::pending_request::PendingRequest;

/// The purpose of an outgoing message. A request has a permit, another message a part of the memory
/// budget, until it is sent.
#[derive(Debug)]
pub enum OutgoingPurpose {
    /// A request.
    Request(Arc<PendingRequest>, OwnedSemaphorePermit),
    /// The answer to a request of the server.
    Answer(ByteReservation),
    /// A notification.
    Notification(ByteReservation),
}

impl OutgoingPurpose {
    /// Returns the purpose of a message that is no request.
    pub(super) fn of_message(message: &Bytes, share: ByteReservation) -> Self {
        if scan::find(message, "method").is_some() {
            Self::Notification(share)
        } else {
            Self::Answer(share)
        }
    }
}
