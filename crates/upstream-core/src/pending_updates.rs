//! The pending updates of single resources: updates from a server that were not taken yet, each
//! resource once.
//!
//! The readers of a server's messages add updates, and its one subscription takes them.

use std::collections::{HashSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_core::upstream::{DeliverUpdate, ResourceUpdate};

/// The most resources kept by name. Further updates are taken to mean all resources.
const MAX_RESOURCES: usize = 4096;
/// The most bytes of their names.
const MAX_NAME_BYTES: usize = 1 << 20;

/// The pending updates.
#[derive(Debug, Default)]
pub struct PendingUpdates {
    waiting: Mutex<UpdateQueue>,
    added: Notify,
}

#[derive(Debug, Default)]
struct UpdateQueue {
    order: VecDeque<Arc<str>>,
    known: HashSet<Arc<str>>,
    bytes: usize,
    any: bool,
}

impl PendingUpdates {
    /// Adds the update of a resource.
    pub fn add(&self, uri: &str) {
        let mut waiting = self.waiting.lock();
        if waiting.order.len() >= MAX_RESOURCES || waiting.bytes + uri.len() > MAX_NAME_BYTES {
            waiting.any = true;
        } else if !waiting.known.contains(uri) {
            let uri: Arc<str> = uri.into();
            waiting.bytes += uri.len();
            waiting.known.insert(uri.clone());
            waiting.order.push_back(uri);
        }
        drop(waiting);
        self.added.notify_one();
    }

    /// Adds an update as it was taken from elsewhere.
    pub fn push(&self, updated: &ResourceUpdate) {
        match updated {
            ResourceUpdate::Resource(uri) => self.add(uri),
            ResourceUpdate::Any => self.add_all(),
        }
    }

    /// Adds an update of all resources.
    pub fn add_all(&self) {
        self.waiting.lock().any = true;
        self.added.notify_one();
    }

    /// Waits for the next update. For one reader. Cancel safe.
    pub async fn next(&self) -> ResourceUpdate {
        loop {
            if let Some(updated) = self.take() {
                return updated;
            }
            self.added.notified().await;
        }
    }

    /// Waits for the output, and delivers the updates that come before it. For one reader.
    pub async fn deliver_during<T>(
        &self,
        deliver: DeliverUpdate<'_>,
        output: impl Future<Output = T>,
    ) -> T {
        let mut output = pin!(output);
        loop {
            tokio::select! {
                biased;
                output = &mut output => return output,
                updated = self.next() => deliver(updated),
            }
        }
    }

    /// Takes an update that waits.
    pub fn take(&self) -> Option<ResourceUpdate> {
        let mut waiting = self.waiting.lock();
        if waiting.any {
            *waiting = UpdateQueue::default();
            return Some(ResourceUpdate::Any);
        }
        let uri = waiting.order.pop_front()?;
        waiting.known.remove(&uri);
        waiting.bytes -= uri.len();
        Some(ResourceUpdate::Resource(uri))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves D11.
    #[tokio::test]
    async fn updates_coalesce_and_too_many_mean_all() {
        let updates = PendingUpdates::default();
        ["a:1", "a:2", "a:1"]
            .iter()
            .for_each(|uri| updates.add(uri));
        assert_eq!(updates.next().await, ResourceUpdate::Resource("a:1".into()));
        assert_eq!(updates.next().await, ResourceUpdate::Resource("a:2".into()));
        (0..=MAX_RESOURCES).for_each(|n| updates.add(&n.to_string()));
        assert_eq!(updates.next().await, ResourceUpdate::Any);
        assert_eq!(updates.take(), None, "all of them were told of");
        updates.add_all();
        assert_eq!(updates.next().await, ResourceUpdate::Any);
        let long = "x".repeat(MAX_NAME_BYTES / 4);
        (0..=4).for_each(|n| updates.add(&format!("{n}{long}")));
        assert_eq!(
            updates.next().await,
            ResourceUpdate::Any,
            "long names count by their bytes"
        );
    }
}
