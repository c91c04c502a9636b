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

    /// Removes the entries older than `age`, and returns their endpoints.
    pub(super) fn sweep(&self, age: Duration) -> Vec<EndpointId> {
        let mut gone = Vec::new();
        self.0.lock().retain(|_, (since, endpoint)| {
            let keep = since.elapsed() < age;
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
        let (cursors, at, age) = (
            OutstandingCursors::default(),
            EndpointId::new("/mcp"),
            Duration::from_secs(600),
        );
        cursors.add(1, &at);
        cursors.add(2, &at);
        cursors.remove(1);
        tokio::time::advance(age).await;
        assert_eq!(cursors.sweep(age).len(), 1);
        assert_eq!(cursors.sweep(age), []);
        (0..10_000).for_each(|list| cursors.add(list, &at));
        tokio::time::advance(age).await;
        assert_eq!(cursors.sweep(age).len(), MAX_OUTSTANDING);
    }
}
