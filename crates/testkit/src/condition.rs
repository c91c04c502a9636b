//! Waiting for a condition.

use std::time::Duration;

use tokio::time::Instant;

/// The pause between two checks.
const CHECK_PAUSE: Duration = Duration::from_millis(5);

/// Waits until `condition` holds. It is checked again and again, for states that report no change.
///
/// # Panics
/// It does not hold after `limit`; the panic shows `name`.
pub async fn wait_for_condition(name: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < limit, "not within {limit:?}: {name}");
        tokio::time::sleep(CHECK_PAUSE).await;
    }
}
