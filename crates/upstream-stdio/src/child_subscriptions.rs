//! The subscriptions to single resources at one child, by their holders.
//!
//! A child that serves several replicas has a holder for each of them. Several may subscribe to the
//! same resource, of which a legacy child knows one subscription.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use weir_core::resource_uri::containing_uris;
use weir_upstream_core::pending_updates::PendingUpdates;

/// The holders of subscriptions at one child.
#[derive(Debug, Default)]
pub(crate) struct ChildSubscriptions {
    holders: Mutex<Vec<Weak<SubscriptionHolder>>>,
    /// Held for requests of a legacy child's subscriptions: they are sent one after another, and
    /// each sees the outcome of the one before.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

/// A holder of subscriptions. They end for it when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct SubscriptionHolder {
    uris: Mutex<BTreeSet<Arc<str>>>,
    /// The pending updates for this holder.
    pub(crate) pending: PendingUpdates,
}

impl ChildSubscriptions {
    /// Adds a holder without subscriptions.
    pub(crate) fn add_holder(&self) -> Arc<SubscriptionHolder> {
        let holder = Arc::<SubscriptionHolder>::default();
        let mut holders = self.holders.lock();
        holders.retain(|known| known.strong_count() > 0);
        holders.push(Arc::downgrade(&holder));
        holder
    }

    /// Returns true if a holder is subscribed to this resource.
    pub(crate) fn is_held(&self, uri: &str) -> bool {
        self.holders().iter().any(|holder| holder.holds(uri))
    }

    /// Adds an update to the holders that are subscribed to the resource, or to one that it may be
    /// a part of; to all holders if there are no such ones, because a server may name parts as it
    /// likes.
    pub(crate) fn dispatch_update(&self, uri: &str) {
        let (subscribed, others): (Vec<_>, Vec<_>) = self
            .holders()
            .into_iter()
            .partition(|holder| containing_uris(uri).any(|whole| holder.holds(whole)));
        let receivers = if subscribed.is_empty() {
            others
        } else {
            subscribed
        };
        receivers.iter().for_each(|holder| holder.pending.add(uri));
    }

    fn holders(&self) -> Vec<Arc<SubscriptionHolder>> {
        self.holders
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }
}

impl SubscriptionHolder {
    /// Returns true if this holder is subscribed to this resource.
    pub(crate) fn holds(&self, uri: &str) -> bool {
        self.uris.lock().contains(uri)
    }

    /// Returns the subscriptions.
    pub(crate) fn held(&self) -> BTreeSet<Arc<str>> {
        self.uris.lock().clone()
    }

    /// Records a subscription.
    pub(crate) fn add(&self, uri: Arc<str>) {
        self.uris.lock().insert(uri);
    }

    /// Replaces all subscriptions by these, and returns those that ended.
    pub(crate) fn replace(&self, uris: BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
        let mut held = self.uris.lock();
        let before = std::mem::replace(&mut *held, uris);
        before.difference(&held).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;
    use weir_core::upstream::ResourceUpdate;

    use super::*;

    /// Returns the pending updates of a holder.
    async fn pending(holder: &SubscriptionHolder) -> Vec<String> {
        let mut updates = Vec::new();
        // A pending update is there at once.
        while let Ok(ResourceUpdate::Resource(uri)) =
            timeout(std::time::Duration::ZERO, holder.pending.next()).await
        {
            updates.push(uri.to_string());
        }
        updates
    }

    #[tokio::test(start_paused = true)]
    async fn update_reaches_each_holder_of_its_resource_and_no_other() {
        let child = ChildSubscriptions::default();
        let [one, two, three] = [(); 3].map(|()| child.add_holder());
        one.add("a://x".into());
        two.add("a://x".into());
        three.add("a://y".into());
        child.dispatch_update("a://x");
        child.dispatch_update("a://x/part");
        child.dispatch_update("a://y");
        assert_eq!(pending(&one).await, ["a://x", "a://x/part"]);
        assert_eq!(pending(&two).await, ["a://x", "a://x/part"]);
        assert_eq!(pending(&three).await, ["a://y"]);
        child.dispatch_update("a://other");
        for holder in [&one, &two, &three] {
            assert_eq!(pending(holder).await, ["a://other"]);
        }
    }

    #[test]
    fn resource_is_held_until_its_last_holder_ends() {
        let child = ChildSubscriptions::default();
        let [one, two] = [(); 2].map(|()| child.add_holder());
        for holder in [&one, &two] {
            holder.add("a://x".into());
        }
        let ended = one.replace(BTreeSet::new());
        assert_eq!(ended, BTreeSet::from(["a://x".into()]));
        assert!(child.is_held("a://x"));
        drop(two);
        assert!(!child.is_held("a://x"));
    }
}
