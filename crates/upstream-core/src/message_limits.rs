//! The bounds of the messages of servers.

use weir_wire::JsonLimits;

/// Returns the bounds of a server's message: as deep as any, with room for long lists and batches.
pub fn message_limits() -> JsonLimits {
    JsonLimits {
        max_batch: 1000,
        ..JsonLimits::upstream()
    }
}
