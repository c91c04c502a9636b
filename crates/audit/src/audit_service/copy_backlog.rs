//! The bound on copies of records that wait for a sink, and the count of dropped ones.

use opentelemetry::KeyValue;
use weir_core::telemetry::instruments;

/// The most records that wait for a slow reader; at a kilobyte each, a few megabytes.
pub(super) const BACKLOG: usize = 4096;

/// Counts records that a sink dropped. A sink that starts counts 0: an alert on the counter must see
/// its first event as an increase.
pub(super) fn dropped(sink: &'static str, count: u64) {
    instruments()
        .audit_dropped
        .add(count, &[KeyValue::new("sink", sink)]);
}
