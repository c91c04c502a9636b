//! The rate of walks over lists of sessions at one upstream.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Walks a second at one upstream.
const WALKS_PER_SECOND: u32 = 10;
/// The longest wait for a turn.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The turns of walks at one upstream: up to ten at once, then one each tenth of a second.
#[derive(Debug, Default)]
pub struct WalkPace(Mutex<Option<Instant>>);

impl WalkPace {
    /// Waits for a turn; false if the wait would be longer than a second. Cancel safe: an unused turn
    /// passes.
    pub async fn wait_turn(&self) -> bool {
        let interval = Duration::from_secs(1) / WALKS_PER_SECOND;
        let now = Instant::now();
        let wait = {
            let mut next = self.0.lock();
            // The time of using up the whole second's walks.
            let paid = next.map_or(now, |next| next.max(now)) + interval;
            let wait = paid.saturating_duration_since(now + interval * WALKS_PER_SECOND);
            if wait > MAX_WAIT {
                return false;
            }
            *next = Some(paid);
            wait
        };
        tokio::time::sleep(wait).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ten_walks_a_second_run_and_longer_waits_are_refused() {
        let pace = WalkPace::default();
        let began = Instant::now();
        for _ in 0..10 {
            assert!(pace.wait_turn().await);
        }
        assert!(began.elapsed() < Duration::from_millis(10));
        for _ in 0..10 {
            assert!(pace.wait_turn().await);
        }
        assert!(began.elapsed() >= Duration::from_millis(990));
        let mut at_once: Vec<_> = (0..30).map(|_| Box::pin(pace.wait_turn())).collect();
        let turns = futures_util::future::join_all(at_once.iter_mut()).await;
        assert_eq!(turns.iter().filter(|has_turn| **has_turn).count(), 10);
    }
}
