//! The slots of introspection requests, by the network of the client. A network may have as many
//! requests in flight as are free, so that one network has at most half and leaves some for the
//! others. The same holds for the requests that wait for a slot.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use weir_core::network::SenderNetwork;

/// The most introspection requests in flight.
pub(super) const MAX_IN_FLIGHT: usize = 128;
/// The most requests that wait for a slot; for further ones, clients get "unavailable".
pub(super) const MAX_WAITING: usize = 1024;

/// Introspection requests in flight, and those that wait.
#[derive(Default)]
pub(super) struct IntrospectionSlots(Mutex<SlotTable>);

#[derive(Default)]
struct SlotTable {
    in_flight: HashMap<SenderNetwork, usize>,
    /// In the order of their arrival.
    waiting: VecDeque<SlotWaiter>,
}

struct SlotWaiter {
    network: SenderNetwork,
    granted: oneshot::Sender<IntrospectionSlot>,
}

/// The answer to [`IntrospectionSlots::begin`].
pub(super) enum SlotRequest {
    Granted(IntrospectionSlot),
    /// Gets a slot as soon as one is free. Dropping it gives up the place.
    Waiting(oneshot::Receiver<IntrospectionSlot>),
    /// Too many wait.
    Refused,
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct IntrospectionSlot {
    slots: Arc<IntrospectionSlots>,
    network: SenderNetwork,
}

impl IntrospectionSlots {
    /// Begins a request, if fewer of this network are in flight than are free; else it waits, if
    /// fewer of this network wait than may still wait.
    pub(super) fn begin(self: &Arc<Self>, network: SenderNetwork) -> SlotRequest {
        let mut table = self.0.lock();
        table.waiting.retain(|waiter| !waiter.granted.is_closed());
        let is_of_network = |waiter: &&SlotWaiter| waiter.network == network;
        let waiting = table.waiting.iter().filter(is_of_network).count();
        if waiting == 0 && table.take(network) {
            return SlotRequest::Granted(self.slot(network));
        }
        if waiting >= MAX_WAITING - table.waiting.len() {
            return SlotRequest::Refused;
        }
        let (granted, slot) = oneshot::channel();
        table.waiting.push_back(SlotWaiter { network, granted });
        SlotRequest::Waiting(slot)
    }

    /// Ends a request, and begins those that waited and may begin now.
    fn end(self: &Arc<Self>, network: SenderNetwork) {
        let mut begun = Vec::new();
        let mut table = self.0.lock();
        table.release(network);
        while let Some(waiter) = table.next_waiter() {
            begun.push(waiter);
        }
        drop(table);
        for waiter in begun {
            // Without its waiter the slot is dropped, which ends it.
            let _ = waiter.granted.send(self.slot(waiter.network));
        }
    }

    fn slot(self: &Arc<Self>, network: SenderNetwork) -> IntrospectionSlot {
        IntrospectionSlot {
            slots: self.clone(),
            network,
        }
    }
}

impl SlotTable {
    /// Takes a slot for a network, if fewer of it are in flight than are free.
    fn take(&mut self, network: SenderNetwork) -> bool {
        let free = MAX_IN_FLIGHT - self.in_flight.values().sum::<usize>();
        let own = self.in_flight.get(&network).copied().unwrap_or_default();
        if own < free {
            self.in_flight.insert(network, own + 1);
        }
        own < free
    }

    fn release(&mut self, network: SenderNetwork) {
        if let Some(own) = self.in_flight.get_mut(&network) {
            *own -= 1;
            if *own == 0 {
                self.in_flight.remove(&network);
            }
        }
    }

    /// Takes a slot for the first of those that wait whose network may have one.
    fn next_waiter(&mut self) -> Option<SlotWaiter> {
        self.waiting.retain(|waiter| !waiter.granted.is_closed());
        let mut refused = Vec::new();
        for at in 0..self.waiting.len() {
            let network = self.waiting[at].network;
            if refused.contains(&network) {
                continue;
            }
            if self.take(network) {
                return self.waiting.remove(at);
            }
            refused.push(network);
        }
        None
    }
}

impl Drop for IntrospectionSlot {
    fn drop(&mut self) {
        self.slots.end(self.network);
    }
}

impl std::fmt::Debug for IntrospectionSlots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IntrospectionSlots").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(n: u8) -> SenderNetwork {
        SenderNetwork::of([192, 0, n, 1].into())
    }

    /// All slots that a network gets without a wait, and the place of the first that waits.
    fn fill(
        slots: &Arc<IntrospectionSlots>,
        n: u8,
    ) -> (
        Vec<IntrospectionSlot>,
        Option<oneshot::Receiver<IntrospectionSlot>>,
    ) {
        let mut held = Vec::new();
        loop {
            match slots.begin(network(n)) {
                SlotRequest::Granted(slot) => held.push(slot),
                SlotRequest::Waiting(place) => return (held, Some(place)),
                SlotRequest::Refused => return (held, None),
            }
        }
    }

    #[test]
    fn one_network_has_at_most_half_of_the_slots() {
        let slots = Arc::new(IntrospectionSlots::default());
        let (first, _) = fill(&slots, 0);
        assert_eq!(first.len(), MAX_IN_FLIGHT / 2);
        let others: Vec<_> = (1..=5).map(|n| slots.begin(network(n))).collect();
        assert!(
            others
                .iter()
                .all(|other| matches!(other, SlotRequest::Granted(_))),
            "the others have what is free"
        );
        assert!(matches!(slots.begin(network(0)), SlotRequest::Waiting(_)));
        drop((first, others));
        assert!(slots.0.lock().in_flight.is_empty());
        let held: Vec<_> = (0..5).map(|n| fill(&slots, n).0).collect();
        assert!(held.iter().map(Vec::len).sum::<usize>() < MAX_IN_FLIGHT);
        assert!(
            matches!(slots.begin(network(5)), SlotRequest::Granted(_)),
            "a sixth finds room where five take all that they can"
        );
    }

    #[test]
    fn freed_slot_goes_to_the_first_waiter_whose_network_may_have_it() {
        let slots = Arc::new(IntrospectionSlots::default());
        let (mut first, gone) = fill(&slots, 0);
        let SlotRequest::Waiting(mut place) = slots.begin(network(0)) else {
            panic!("its network has no more");
        };
        drop(gone);
        assert!(place.try_recv().is_err(), "no slot is free");
        first.pop();
        let slot = place.try_recv().expect("the slot of the one that ended");
        assert!(matches!(slots.begin(network(0)), SlotRequest::Waiting(_)));
        drop((first, slot));
        assert!(slots.0.lock().in_flight.is_empty());
    }

    #[test]
    fn one_network_has_at_most_half_of_the_places_to_wait() {
        let slots = Arc::new(IntrospectionSlots::default());
        let (_held, place) = fill(&slots, 0);
        let mut places: Vec<_> = place.into_iter().collect();
        while let SlotRequest::Waiting(place) = slots.begin(network(0)) {
            places.push(place);
        }
        assert_eq!(places.len(), MAX_WAITING / 2);
        let (_held, other) = fill(&slots, 1);
        assert!(other.is_some(), "another network waits beside it");
        places.clear();
        assert!(matches!(slots.begin(network(0)), SlotRequest::Waiting(_)));
    }
}
