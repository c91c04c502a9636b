//! The handlers of both eras: a whole request is decoded, its era is decided once, and it is lifted.

mod client_response;
pub(crate) mod forwarding;
pub(crate) mod legacy;
mod legacy_batch;
mod legacy_notification;
mod legacy_session;
pub(crate) mod mcp_service;
mod message_decoding;
pub(crate) mod modern;
pub(crate) mod sse_transport;
