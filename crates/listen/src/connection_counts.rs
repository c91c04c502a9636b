//! Counts of connections and streams that weir ended.

use opentelemetry::KeyValue;
use weir_core::telemetry::instruments;

/// Counts a stream of HTTP/2 that weir reset.
pub(super) fn count_reset_stream(reason: &'static str) {
    instruments()
        .streams_reset
        .add(1, &[KeyValue::new("reason", reason)]);
}

/// Counts a connection that weir closed or refused.
pub(super) fn count_closed(reason: &'static str) {
    instruments()
        .connections_closed
        .add(1, &[KeyValue::new("reason", reason)]);
}
