//! Concurrency slots for calls in flight, and fair queues before them.
//!
//! A queue belongs to an upstream or to a principal. In it every party (a principal) has a
//! sub-queue, and a free slot goes to the sub-queues in turn: a party with a hundred waiting calls
//! does not delay the others. A full queue refuses the party with the longest sub-queue. A call
//! that stops waiting leaves no trace.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use weir_core::fast::{FastMap, FastState};

/// A party in a queue: a principal's digest.
pub(super) type QueueParty = [u8; 16];

/// Enough that calls of different parties seldom contend for one lock.
const SHARDS: usize = 16;

/// The queues of all owners, by their names. Only those with a call in flight are kept, so the
/// calls in flight bound them.
pub(super) struct FairQueues<K: QueueName>(Arc<FairQueuesInner<K>>);

struct FairQueuesInner<K: QueueName> {
    shards: [Mutex<FastMap<K, FairQueue<K>>>; SHARDS],
    hasher: FastState,
    /// The number of the last call that began to wait. It is not the queue's own: an evicted call
    /// can outlive its queue here, and must not take the position of a call in a later one.
    last_number: AtomicU64,
}

/// The number of slots, and of calls that may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueCaps {
    pub(super) places: usize,
    pub(super) waiting: usize,
}

/// The result of an arrival.
pub(super) enum QueueAdmission<K: QueueName> {
    /// A slot.
    Now(QueueSlot<K>),
    /// A position in the queue.
    Wait(SlotWait<K>),
    /// A refusal: the queue is full.
    Full,
}

/// The key of a queue.
pub(super) trait QueueName: Clone + Eq + Hash + Send + Sync + Unpin + 'static {}
impl<K: Clone + Eq + Hash + Send + Sync + Unpin + 'static> QueueName for K {}

impl<K: QueueName> FairQueues<K> {
    pub(super) fn new() -> Self {
        Self(Arc::new(FairQueuesInner {
            shards: Default::default(),
            hasher: FastState::default(),
            last_number: AtomicU64::new(0),
        }))
    }

    /// Takes a slot of `name` for `party`, or a position in its queue. The caps are the current
    /// ones: a reload changes them.
    pub(super) fn enter(&self, name: &K, party: QueueParty, caps: QueueCaps) -> QueueAdmission<K> {
        let mut shard = self.0.shard(name);
        let queue = shard.entry(name.clone()).or_default();
        queue.places = caps.places;
        if queue.waiting == 0 && queue.held < caps.places {
            queue.held += 1;
            return QueueAdmission::Now(QueueSlot {
                inner: Some(self.0.clone()),
                name: name.clone(),
            });
        }
        let turned_away = if queue.waiting < caps.waiting {
            None
        } else {
            match queue.make_room(&party) {
                Some(waiter) => Some(waiter),
                None => return QueueAdmission::Full,
            }
        };
        let (give, given) = oneshot::channel();
        // Taken under the lock, so that numbers rise along a sub-queue.
        let number = self.0.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        queue.enqueue(party, QueuedCall { number, give });
        // There may be free slots, if the last reload added some.
        let next = queue.grant_free_slots(|| QueueSlot {
            inner: Some(self.0.clone()),
            name: name.clone(),
        });
        drop(shard);
        hand_out(next);
        // A dropped sender informs its receiver of the eviction.
        drop(turned_away);
        QueueAdmission::Wait(SlotWait {
            inner: self.0.clone(),
            name: name.clone(),
            party,
            number,
            given,
        })
    }

    /// The number of taken slots of `name`, and of calls that wait for one.
    pub(super) fn load(&self, name: &K) -> (usize, usize) {
        self.0
            .shard(name)
            .get(name)
            .map(|queue| (queue.held, queue.waiting))
            .unwrap_or_default()
    }

    /// The same for all owners with calls in flight or waiting.
    pub(super) fn loads(&self) -> Vec<(K, (usize, usize))> {
        let of = |shard: &Mutex<FastMap<K, FairQueue<K>>>| -> Vec<_> {
            let shard = shard.lock();
            shard
                .iter()
                .map(|(name, queue)| (name.clone(), (queue.held, queue.waiting)))
                .collect()
        };
        self.0.shards.iter().flat_map(of).collect()
    }

    /// The number of owners with calls in flight or waiting.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

impl<K: QueueName> FairQueuesInner<K> {
    fn shard(&self, name: &K) -> MutexGuard<'_, FastMap<K, FairQueue<K>>> {
        let at = self.hasher.hash_one(name) as usize % SHARDS;
        self.shards[at].lock()
    }
}

/// The slots and sub-queues of one owner.
struct FairQueue<K: QueueName> {
    places: usize,
    held: usize,
    waiting: usize,
    /// Parties with a sub-queue, in the order of their turns.
    turns: VecDeque<QueueParty>,
    subqueues: FastMap<QueueParty, VecDeque<QueuedCall<K>>>,
}

struct QueuedCall<K: QueueName> {
    number: u64,
    give: oneshot::Sender<QueueSlot<K>>,
}

impl<K: QueueName> Default for FairQueue<K> {
    fn default() -> Self {
        Self {
            places: 0,
            held: 0,
            waiting: 0,
            turns: VecDeque::new(),
            subqueues: FastMap::default(),
        }
    }
}

/// Slots with the calls that waited for them. To be handed out without a lock held: a receiver that
/// is gone by then drops the slot, and the drop takes the lock.
type GrantedSlots<K> = Vec<(QueuedCall<K>, QueueSlot<K>)>;

fn hand_out<K: QueueName>(given: GrantedSlots<K>) {
    for (waiter, place) in given {
        // An untaken slot is dropped, and so free again.
        let _untaken = waiter.give.send(place);
    }
}

impl<K: QueueName> FairQueue<K> {
    fn enqueue(&mut self, party: QueueParty, call: QueuedCall<K>) {
        let line = match self.subqueues.entry(party) {
            Entry::Occupied(line) => line.into_mut(),
            Entry::Vacant(empty) => {
                self.turns.push_back(party);
                empty.insert(VecDeque::new())
            }
        };
        line.push_back(call);
        self.waiting += 1;
    }

    /// Gives free slots to the sub-queues in turn.
    fn grant_free_slots(&mut self, make: impl Fn() -> QueueSlot<K>) -> GrantedSlots<K> {
        let mut given = Vec::new();
        while self.held < self.places
            && let Some(party) = self.turns.pop_front()
        {
            let Some(line) = self.subqueues.get_mut(&party) else {
                continue;
            };
            if let Some(waiter) = line.pop_front() {
                self.waiting -= 1;
                self.held += 1;
                given.push((waiter, make()));
            }
            if line.is_empty() {
                self.subqueues.remove(&party);
            } else {
                self.turns.push_back(party);
            }
        }
        given
    }

    /// Evicts the last call of the longest sub-queue, if that is longer than `party`'s would be.
    fn make_room(&mut self, party: &QueueParty) -> Option<QueuedCall<K>> {
        let own = self.subqueues.get(party).map_or(0, VecDeque::len);
        let (longest, length) = self
            .subqueues
            .iter()
            .map(|(party, line)| (*party, line.len()))
            .max_by_key(|(_, len)| *len)?;
        if length <= own + 1 {
            return None;
        }
        self.waiting -= 1;
        self.subqueues.get_mut(&longest)?.pop_back()
    }

    /// Removes a call that waits no longer.
    fn leave(&mut self, party: &QueueParty, number: u64) -> Option<QueuedCall<K>> {
        let line = self.subqueues.get_mut(party)?;
        // Numbers rise along a sub-queue.
        let at = line
            .binary_search_by_key(&number, |waiter| waiter.number)
            .ok()?;
        let waiter = line.remove(at);
        if line.is_empty() {
            self.subqueues.remove(party);
            self.turns.retain(|turn| turn != party);
        }
        self.waiting -= 1;
        waiter
    }

    fn is_idle(&self) -> bool {
        self.held == 0 && self.waiting == 0
    }
}

/// A slot, free again on drop.
pub(super) struct QueueSlot<K: QueueName> {
    inner: Option<Arc<FairQueuesInner<K>>>,
    name: K,
}

impl<K: QueueName> Drop for QueueSlot<K> {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else {
            return;
        };
        let mut shard = inner.shard(&self.name);
        let Entry::Occupied(mut entry) = shard.entry(self.name.clone()) else {
            return;
        };
        let queue = entry.get_mut();
        queue.held -= 1;
        let next = queue.grant_free_slots(|| Self {
            inner: Some(inner.clone()),
            name: self.name.clone(),
        });
        if queue.is_idle() {
            entry.remove();
        }
        drop(shard);
        hand_out(next);
    }
}

/// A position in a queue. Resolves to a slot, or to `None` if it was evicted for a shorter
/// sub-queue. Dropping it leaves the queue; a slot that was just given goes to the next call.
pub(super) struct SlotWait<K: QueueName> {
    inner: Arc<FairQueuesInner<K>>,
    name: K,
    party: QueueParty,
    number: u64,
    given: oneshot::Receiver<QueueSlot<K>>,
}

impl<K: QueueName> Future for SlotWait<K> {
    type Output = Option<QueueSlot<K>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<QueueSlot<K>>> {
        Pin::new(&mut self.given).poll(cx).map(Result::ok)
    }
}

impl<K: QueueName> Drop for SlotWait<K> {
    fn drop(&mut self) {
        let mut shard = self.inner.shard(&self.name);
        let Entry::Occupied(mut entry) = shard.entry(self.name.clone()) else {
            return;
        };
        let gone = entry.get_mut().leave(&self.party, self.number);
        if entry.get().is_idle() {
            entry.remove();
        }
        drop(shard);
        drop(gone);
    }
}

#[cfg(test)]
mod tests;
