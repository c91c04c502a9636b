//! Counts lists whose client got a `nextCursor` and never came back: a sign that it reads page one
//! only.
//!
//! The table is bounded, so the count is a lower bound: with too many outstanding lists, further
//! ones are not followed. A client that comes back on another replica counts as gone here.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use weir_core::names::EndpointId;

const MAX_OUTSTANDING: usize = 4096;
/// A client that got a `nextCursor` and has not used it in this time is counted as gone.
const ABANDONED_AFTER: Duration = Duration::from_secs(600);

/// The outstanding cursors, by the list they belong to.
#[derive(Debug, Default)]
pub(super) struct OutstandingCursors(Mutex<HashMap<u64, (Instant, EndpointId)>>);

impl OutstandingCursors {
    /// Records that a client received a cursor of this list.
    pub(super) fn add(&self, list: u64, endpoint: &EndpointId) {
        let mut open = self.0.lock();
        if open.len() < MAX_OUTSTANDING || open.contains_key(&list) {
            open.insert(list, (Instant::now(), endpoint.clone()));
        }
    }

    /// Records that the client came back with a cursor.
    pub(super) fn remove(&self, list: u64) {
        self.0.lock().remove(&list);
    }

    /// Removes the entries of clients that are gone, and returns their endpoints.
    pub(super) fn sweep(&self) -> Vec<EndpointId> {
        let mut gone = Vec::new();
        self.0.lock().retain(|_, (since, endpoint)| {
            let keep = since.elapsed() < ABANDONED_AFTER;
            if !keep {
                gone.push(endpoint.clone());
            }
            keep
        });
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn abandoned_list_is_counted_once_and_the_table_is_bounded() {
        let (cursors, at) = (OutstandingCursors::default(), EndpointId::new("/mcp"));
        cursors.add(1, &at);
        cursors.add(2, &at);
        cursors.remove(1);
        tokio::time::advance(ABANDONED_AFTER).await;
        assert_eq!(cursors.sweep().len(), 1);
        assert_eq!(cursors.sweep(), []);
        (0..10_000).for_each(|list| cursors.add(list, &at));
        tokio::time::advance(ABANDONED_AFTER).await;
        assert_eq!(cursors.sweep().len(), MAX_OUTSTANDING);
    }
}
