//! The rounds of a write-behind: writes that wait are sent together, and a failed one again.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::time::sleep;
use weir_core::port::{Random, StoreError};

use crate::pauses::{STORE_BACKOFF, next_pause};

/// Writes of one round, and the pause after a round: 5,000 writes a second at most, so that a store
/// that comes back is not overrun by all replicas. Changes of one thing within the pause are one
/// write.
pub(crate) const ROUND_SIZE: usize = 100;
const ROUND_PAUSE: Duration = Duration::from_millis(20);

/// A queue of writes to the shared store.
pub(crate) trait WriteRounds: Sync {
    /// One write.
    type Write: Send + Sync;

    /// Takes up to [`ROUND_SIZE`] writes from the queue.
    fn take_round(&self) -> Vec<Self::Write>;

    /// Sends one of them.
    fn write(&self, write: &Self::Write) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Ends the round. Its failed writes are queued again.
    fn end_round(&self, failed: Vec<Self::Write>);

    /// Waits while the queue is empty.
    fn wait_queued(&self) -> impl Future<Output = ()> + Send;
}

/// Sends the queued writes. It never ends.
pub(crate) async fn keep_writing(queue: &impl WriteRounds, random: &dyn Random) {
    let mut backoff = STORE_BACKOFF;
    loop {
        let round = queue.take_round();
        if round.is_empty() {
            queue.wait_queued().await;
            continue;
        }
        let writes = round.into_iter().map(|write| async move {
            let outcome = queue.write(&write).await;
            outcome.err().map(|_| write)
        });
        let outcomes = stream::iter(writes).buffer_unordered(ROUND_SIZE);
        let failed: Vec<_> = outcomes.filter_map(std::future::ready).collect().await;
        let is_done = failed.is_empty();
        queue.end_round(failed);
        if is_done {
            backoff.reset();
            sleep(ROUND_PAUSE).await;
        } else {
            sleep(next_pause(&mut backoff, random)).await;
        }
    }
}
