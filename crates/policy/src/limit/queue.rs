//! Places for calls in flight, and fair queues before them.
//!
//! A queue belongs to one thing that has places: an upstream, or a principal. In it every party (a
//! principal) has a line of its own, and a place that becomes free goes to the lines in turn:
//! whoever has a hundred calls waiting waits for the others, not they for him. A full queue refuses
//! whoever has the longest line. Whoever stops waiting leaves no trace.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use weir_core::fast::{FastMap, FastState};

/// Who waits: a principal's digest.
pub(super) type Party = [u8; 16];

/// Enough that calls of different parties seldom meet at one lock.
const SHARDS: usize = 16;

/// The queues of many things, by their names. Only those with a call in flight are kept, so the
/// calls in flight bound them.
pub(super) struct Queues<K: Name>(Arc<Inner<K>>);

struct Inner<K: Name> {
    shards: [Mutex<FastMap<K, Queue<K>>>; SHARDS],
    hasher: FastState,
}

/// How many at once, and how many may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caps {
    pub(super) places: usize,
    pub(super) waiting: usize,
}

/// What an arrival gets.
pub(super) enum Turn<K: Name> {
    /// A place.
    Now(Place<K>),
    /// A place in the queue.
    Wait(Waiting<K>),
    /// Nothing: the queue is full.
    Full,
}

/// What has queues of its own.
pub(super) trait Name: Clone + Eq + Hash + Send + Sync + Unpin + 'static {}
impl<K: Clone + Eq + Hash + Send + Sync + Unpin + 'static> Name for K {}

impl<K: Name> Queues<K> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            shards: Default::default(),
            hasher: FastState::default(),
        }))
    }

    /// Takes a place of `name` for `party`, or one in its queue. The caps are those of now: a
    /// reload changes them.
    pub(super) fn enter(&self, name: &K, party: Party, caps: Caps) -> Turn<K> {
        let mut shard = self.0.shard(name);
        let queue = shard.entry(name.clone()).or_default();
        queue.places = caps.places;
        if queue.waiting == 0 && queue.held < caps.places {
            queue.held += 1;
            return Turn::Now(Place {
                inner: Some(self.0.clone()),
                name: name.clone(),
            });
        }
        let turned_away = if queue.waiting < caps.waiting {
            None
        } else {
            match queue.make_room(&party) {
                Some(waiter) => Some(waiter),
                None => return Turn::Full,
            }
        };
        let (give, given) = oneshot::channel();
        let number = queue.line_up(party, give);
        // There may be free places: the last reload may have brought them.
        let next = queue.next(|| Place {
            inner: Some(self.0.clone()),
            name: name.clone(),
        });
        drop(shard);
        hand_out(next);
        // Without a word its receiver knows that it was turned away.
        drop(turned_away);
        Turn::Wait(Waiting {
            inner: self.0.clone(),
            name: name.clone(),
            party,
            number,
            given,
        })
    }

    /// How many places of `name` are taken, and how many wait for one.
    pub(super) fn load(&self, name: &K) -> (usize, usize) {
        self.0
            .shard(name)
            .get(name)
            .map(|queue| (queue.held, queue.waiting))
            .unwrap_or_default()
    }

    /// The same of everything that has calls in flight or waiting.
    pub(super) fn loads(&self) -> Vec<(K, (usize, usize))> {
        let of = |shard: &Mutex<FastMap<K, Queue<K>>>| -> Vec<_> {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard
                .iter()
                .map(|(name, queue)| (name.clone(), (queue.held, queue.waiting)))
                .collect()
        };
        self.0.shards.iter().flat_map(of).collect()
    }

    /// How many things have calls in flight or waiting.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0
            .shards
            .iter()
            .map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len())
            .sum()
    }
}

impl<K: Name> Inner<K> {
    fn shard(&self, name: &K) -> MutexGuard<'_, FastMap<K, Queue<K>>> {
        let at = self.hasher.hash_one(name) as usize % SHARDS;
        self.shards[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thing's places and lines.
struct Queue<K: Name> {
    places: usize,
    held: usize,
    waiting: usize,
    /// Parties with a line, in the order of their turns.
    turns: VecDeque<Party>,
    lines: FastMap<Party, VecDeque<Waiter<K>>>,
    numbers: u64,
}

struct Waiter<K: Name> {
    number: u64,
    give: oneshot::Sender<Place<K>>,
}

impl<K: Name> Default for Queue<K> {
    fn default() -> Self {
        Self {
            places: 0,
            held: 0,
            waiting: 0,
            turns: VecDeque::new(),
            lines: FastMap::default(),
            numbers: 0,
        }
    }
}

/// Places on their way to those who waited for them. To be handed out when no lock is held: whoever
/// is gone by then drops the place, which takes the lock.
type Given<K> = Vec<(Waiter<K>, Place<K>)>;

fn hand_out<K: Name>(given: Given<K>) {
    for (waiter, place) in given {
        // One that is not taken is dropped, and so free again.
        let _untaken = waiter.give.send(place);
    }
}

impl<K: Name> Queue<K> {
    fn line_up(&mut self, party: Party, give: oneshot::Sender<Place<K>>) -> u64 {
        self.numbers += 1;
        let line = match self.lines.entry(party) {
            Entry::Occupied(line) => line.into_mut(),
            Entry::Vacant(empty) => {
                self.turns.push_back(party);
                empty.insert(VecDeque::new())
            }
        };
        line.push_back(Waiter {
            number: self.numbers,
            give,
        });
        self.waiting += 1;
        self.numbers
    }

    /// Gives free places to the lines in turn.
    fn next(&mut self, make: impl Fn() -> Place<K>) -> Given<K> {
        let mut given = Vec::new();
        while self.held < self.places
            && let Some(party) = self.turns.pop_front()
        {
            let Some(line) = self.lines.get_mut(&party) else {
                continue;
            };
            if let Some(waiter) = line.pop_front() {
                self.waiting -= 1;
                self.held += 1;
                given.push((waiter, make()));
            }
            if line.is_empty() {
                self.lines.remove(&party);
            } else {
                self.turns.push_back(party);
            }
        }
        given
    }

    /// Turns the last of the longest line away, if that line is longer than `party`'s would be.
    fn make_room(&mut self, party: &Party) -> Option<Waiter<K>> {
        let own = self.lines.get(party).map_or(0, VecDeque::len);
        let (longest, length) = self
            .lines
            .iter()
            .map(|(party, line)| (*party, line.len()))
            .max_by_key(|(_, len)| *len)?;
        if length <= own + 1 {
            return None;
        }
        self.waiting -= 1;
        self.lines.get_mut(&longest)?.pop_back()
    }

    /// Takes out one that waits no longer.
    fn leave(&mut self, party: &Party, number: u64) -> Option<Waiter<K>> {
        let line = self.lines.get_mut(party)?;
        // Numbers rise along a line.
        let at = line
            .binary_search_by_key(&number, |waiter| waiter.number)
            .ok()?;
        let waiter = line.remove(at);
        if line.is_empty() {
            self.lines.remove(party);
            self.turns.retain(|turn| turn != party);
        }
        self.waiting -= 1;
        waiter
    }

    fn is_idle(&self) -> bool {
        self.held == 0 && self.waiting == 0
    }
}

/// A place, free again when it is dropped.
pub(super) struct Place<K: Name> {
    inner: Option<Arc<Inner<K>>>,
    name: K,
}

impl<K: Name> Drop for Place<K> {
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
        let next = queue.next(|| Self {
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

/// A place in a queue. Gives a place, or `None` where it was turned away for a shorter line.
/// Dropping it leaves the queue; a place that was just given goes on to the next.
pub(super) struct Waiting<K: Name> {
    inner: Arc<Inner<K>>,
    name: K,
    party: Party,
    number: u64,
    given: oneshot::Receiver<Place<K>>,
}

impl<K: Name> Future for Waiting<K> {
    type Output = Option<Place<K>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Place<K>>> {
        Pin::new(&mut self.given).poll(cx).map(Result::ok)
    }
}

impl<K: Name> Drop for Waiting<K> {
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
