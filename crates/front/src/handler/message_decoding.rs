//! Messages of clients from their bytes, within the limits of the config.

use bytes::Bytes;
use weir_layers::request::request_context::HttpRequestContext;
use weir_wire::{IncomingMessage, JsonLimits, MessageError};

/// Scans and decodes a message.
///
/// # Errors
///
/// The message is malformed, or beyond a limit.
pub(crate) fn decode(
    context: &HttpRequestContext,
    body: Bytes,
) -> Result<IncomingMessage, MessageError> {
    let limits = JsonLimits {
        max_batch: context.limits().batch_items,
        ..JsonLimits::default()
    };
    IncomingMessage::parse(body, &limits)
}
