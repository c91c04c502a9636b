//! The pause between two looks at another process.

use std::time::Duration;

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Sleeps until the next look at another process.
#[expect(
    clippy::disallowed_methods,
    reason = "another process is polled: there is no event to wait on"
)]
pub(crate) fn pause() {
    std::thread::sleep(POLL_INTERVAL);
}
