//! The purpose of an outgoing message, with its share in the bounds of the messages that wait.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use weir_core::budget::ByteReservation;

use crate::child_channel::pending_child_request::PendingChildRequest;

/// The purpose of an outgoing message. A request has a permit, another message a part of the memory
/// budget, until it is sent.
#[derive(Debug)]
pub enum OutgoingPurpose {
    /// A request.
    Request(Arc<PendingChildRequest>, OwnedSemaphorePermit),
    /// A message without a response: an answer or a notification.
    OneWay(ByteReservation),
}
