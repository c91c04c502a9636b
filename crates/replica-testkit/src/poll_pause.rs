//! Looks at another process until it has done something.

use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Sleeps until the next look at another process.
#[expect(
    clippy::disallowed_methods,
    reason = "another process is polled: there is no event to wait on"
)]
pub(crate) fn pause() {
    std::thread::sleep(POLL_INTERVAL);
}

/// Waits until `is_true`.
///
/// # Panics
/// With `otherwise`, if that takes longer than `limit`.
pub(crate) fn wait_until(limit: Duration, otherwise: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < limit, "{otherwise}");
        pause();
    }
}
