//! The subscribers of one upstream's resources, and the subscriptions that the server has consented
//! to.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use opentelemetry::KeyValue;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use weir_core::catalog_item::CatalogItem;
use weir_core::failure::Failure;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::principal::Principal;
use weir_core::resource_uri::containing_uris;
use weir_core::telemetry::instruments;
use weir_core::upstream::RefusedSubscriptions;

use crate::resource_updates::update_inbox::UpdateInbox;

/// A client's subscription to one resource.
#[derive(Clone, Debug)]
pub struct ResourceSubscriber {
    /// The principal of the client.
    pub principal: Principal,
    /// The endpoint that the client uses.
    pub endpoint: EndpointId,
    /// The resource.
    pub item: CatalogItem,
    /// The client's own URI for it: that of the endpoint's list, or the server's. Updates have it.
    pub uri: Arc<str>,
    /// The updates that wait for the client.
    pub inbox: UpdateInbox,
}

/// Receives the server's consent or refusal; absent if it consented already.
pub(super) type ConsentReceiver = Option<oneshot::Receiver<Result<(), Failure>>>;

/// The tables by upstream; a table without subscribers is removed.
#[derive(Default)]
pub(crate) struct SubscriptionTables(Mutex<HashMap<UpstreamId, Arc<SubscriptionTable>>>);

/// The table of one upstream.
pub(super) struct SubscriptionTable {
    pub(super) upstream: UpstreamId,
    /// Notified when the wanted subscriptions changed.
    pub(super) wanted_changed: Notify,
    state: Mutex<SubscriptionTableState>,
}

#[derive(Default)]
struct SubscriptionTableState {
    /// By the server's own URIs. Bounded by the clients' subscriptions.
    wanted: HashMap<Arc<str>, WantedResource>,
    next: u64,
    /// True if the server does not know the wanted subscriptions yet.
    changed: bool,
}

#[derive(Default)]
struct WantedResource {
    subscribers: Vec<(u64, ResourceSubscriber)>,
    /// True once the server consented, until its stream is lost or it refuses the resource.
    is_consented: bool,
    /// True once the server consented for the first time: clients rely on the subscription.
    was_consented: bool,
    consent_senders: Vec<oneshot::Sender<Result<(), Failure>>>,
}

impl SubscriptionTables {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<UpstreamId, Arc<SubscriptionTable>>> {
        self.0.lock()
    }

    /// Removes a table that has no subscribers; true if it did.
    pub(super) fn remove_if_empty(&self, table: &Arc<SubscriptionTable>) -> bool {
        let mut tables = self.lock();
        let empty = table.is_empty();
        if empty
            && tables
                .get(&table.upstream)
                .is_some_and(|known| Arc::ptr_eq(known, table))
        {
            tables.remove(&table.upstream);
        }
        empty
    }
}

impl SubscriptionTable {
    pub(super) fn new(upstream: UpstreamId) -> Self {
        Self {
            upstream,
            wanted_changed: Notify::new(),
            state: Mutex::default(),
        }
    }

    /// Adds a client. Returns its number, and the server's consent as soon as that is known.
    pub(super) fn enter(&self, subscriber: ResourceSubscriber) -> (u64, ConsentReceiver) {
        let mut state = self.state.lock();
        state.next += 1;
        let nth = state.next;
        let wanted = state
            .wanted
            .entry(subscriber.item.tool.native.clone())
            .or_default();
        wanted.subscribers.push((nth, subscriber));
        let consent = (!wanted.is_consented).then(|| {
            let (sender, consent) = oneshot::channel();
            wanted.consent_senders.push(sender);
            consent
        });
        if consent.is_some() {
            state.changed = true;
            self.wanted_changed.notify_one();
        }
        instruments().subscriptions.add(1, &[self.label()]);
        (nth, consent)
    }

    pub(super) fn leave(&self, native: &Arc<str>, nth: u64) {
        let mut state = self.state.lock();
        let Some(wanted) = state.wanted.get_mut(native) else {
            return;
        };
        wanted.subscribers.retain(|(own, _)| *own != nth);
        if wanted.subscribers.is_empty() {
            state.wanted.remove(native);
            state.changed = true;
            self.wanted_changed.notify_one();
        }
        instruments().subscriptions.add(-1, &[self.label()]);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().wanted.is_empty()
    }

    /// The wanted resources, in order, if they changed since the last time.
    pub(super) fn take_wanted(&self) -> Option<Vec<Arc<str>>> {
        let mut state = self.state.lock();
        if !std::mem::take(&mut state.changed) {
            return None;
        }
        let mut wanted: Vec<_> = state.wanted.keys().cloned().collect();
        wanted.sort_unstable();
        Some(wanted)
    }

    /// Records the server's consent to all of `wanted` but `refused`. Returns the subscribers whose
    /// subscription is restored: they may have missed updates.
    pub(super) fn record_consent(
        &self,
        wanted: &[Arc<str>],
        mut refused: RefusedSubscriptions,
    ) -> Vec<ResourceSubscriber> {
        let mut restored = Vec::new();
        let mut state = self.state.lock();
        for uri in wanted {
            let refusal = refused
                .iter()
                .position(|(own, _)| own == uri)
                .map(|at| refused.swap_remove(at).1);
            let Some(own) = state.wanted.get_mut(uri) else {
                continue;
            };
            let was_interrupted = own.was_consented && !own.is_consented;
            own.is_consented = refusal.is_none();
            own.was_consented |= own.is_consented;
            if own.is_consented && was_interrupted {
                restored.extend(own.subscribers.iter().map(|(_, own)| own.clone()));
            }
            for told in own.consent_senders.drain(..) {
                // The waiting client may have gone.
                let _gone = told.send(
                    refusal
                        .as_ref()
                        .map_or(Ok(()), |refusal| Err(again(refusal))),
                );
            }
        }
        restored
    }

    /// True if the server refuses a resource that it consented to before.
    pub(super) fn is_interrupted(&self) -> bool {
        let state = self.state.lock();
        let mut all = state.wanted.values();
        all.any(|own| own.was_consented && !own.is_consented)
    }

    /// All subscriptions have to be sent again.
    pub(super) fn send_again(&self) {
        self.state.lock().changed = true;
    }

    /// The stream to the server is lost, or could not be opened: waiting clients get the failure,
    /// and all subscriptions have to be sent again.
    pub(super) fn record_loss(&self, failure: &Failure) {
        let mut state = self.state.lock();
        state.changed = true;
        for own in state.wanted.values_mut() {
            own.is_consented = false;
            for told in own.consent_senders.drain(..) {
                let _gone = told.send(Err(again(failure)));
            }
        }
    }

    /// The subscribers of an updated URI, and of the resources that it may be a part of.
    pub(super) fn subscribers_of(&self, uri: &str) -> Vec<ResourceSubscriber> {
        let state = self.state.lock();
        let mut found: Vec<_> = containing_uris(uri)
            .filter_map(|whole| state.wanted.get(whole))
            .collect();
        if found.is_empty() && state.wanted.len() == 1 {
            // A server may name parts as it likes, and there is only one resource that it can mean.
            found.extend(state.wanted.values());
        }
        found
            .iter()
            .flat_map(|wanted| &wanted.subscribers)
            .map(|(_, subscriber)| subscriber.clone())
            .collect()
    }

    /// All subscribers.
    pub(super) fn all(&self) -> Vec<ResourceSubscriber> {
        let state = self.state.lock();
        state
            .wanted
            .values()
            .flat_map(|wanted| &wanted.subscribers)
            .map(|(_, subscriber)| subscriber.clone())
            .collect()
    }

    pub(super) fn label(&self) -> KeyValue {
        KeyValue::new("upstream", self.upstream.as_str().to_owned())
    }
}

impl fmt::Debug for SubscriptionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Table({} of {})",
            self.state.lock().wanted.len(),
            self.upstream
        )
    }
}

/// A copy of the failure for one more waiting client.
fn again(failure: &Failure) -> Failure {
    let mut copy = Failure::new(failure.kind().clone(), failure.message().to_owned());
    if let Some(upstream) = failure.upstream() {
        copy = copy.with_upstream(upstream);
    }
    if let Some(wait) = failure.retry_delay() {
        copy = copy.retry_after(wait);
    }
    copy
}
