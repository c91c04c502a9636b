//! Change notification of a list: a counter that many streams wait on, cheap enough for tens of
//! thousands of them.
//!
//! It is not a channel: there is no message to lose, only "it moved since you looked". A waiting
//! stream costs one slot with a waker; it needs no task and allocates no memory.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// A change of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListChange {
    /// It changed: ask for it again.
    Changed,
    /// The list's endpoint is gone, and no further change will come. Ask again for the endpoint
    /// that may have taken its place.
    EndpointGone,
}

/// The announcements of changes of one list.
#[derive(Debug, Default)]
pub(super) struct ChangeBroadcast {
    epoch: AtomicU64,
    gone: AtomicBool,
    waiters: Mutex<ChangeWaiters>,
}

#[derive(Debug, Default)]
struct ChangeWaiters {
    slots: Vec<Option<Waker>>,
    free: Vec<usize>,
}

/// A receiver of announcements from now on. A clone starts at the position of the original.
#[derive(Debug)]
pub struct ChangeReceiver {
    broadcast: Arc<ChangeBroadcast>,
    seen: u64,
    slot: Option<usize>,
}

impl ChangeBroadcast {
    pub(super) fn announce(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
        self.wake();
    }

    pub(super) fn close(&self) {
        self.gone.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn watch(self: &Arc<Self>) -> ChangeReceiver {
        ChangeReceiver {
            broadcast: self.clone(),
            seen: self.epoch.load(Ordering::Acquire),
            slot: None,
        }
    }

    /// The number of receivers.
    pub(super) fn watchers(self: &Arc<Self>) -> usize {
        Arc::strong_count(self) - 1
    }

    fn wake(&self) {
        let wakers: Vec<Waker> = {
            let mut waiters = self.waiters.lock();
            waiters.slots.iter_mut().filter_map(Option::take).collect()
        };
        // Outside the lock: a woken task may come back at once.
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl ChangeReceiver {
    /// Waits for the next announcement since the last one seen. Several in between count as one.
    /// Cancel safe.
    pub async fn changed(&mut self) -> ListChange {
        poll_fn(|cx| self.poll_changed(cx)).await
    }

    /// The same for a caller that is polled itself, such as a response body.
    pub fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<ListChange> {
        if let Some(change) = self.look() {
            return Poll::Ready(change);
        }
        self.register(cx.waker());
        // An announcement between the check and the registration has woken no waker.
        self.look().map_or(Poll::Pending, Poll::Ready)
    }

    fn look(&mut self) -> Option<ListChange> {
        let epoch = self.broadcast.epoch.load(Ordering::Acquire);
        if epoch != self.seen {
            self.seen = epoch;
            return Some(ListChange::Changed);
        }
        self.broadcast
            .gone
            .load(Ordering::Acquire)
            .then_some(ListChange::EndpointGone)
    }

    fn register(&mut self, waker: &Waker) {
        let mut waiters = self.broadcast.waiters.lock();
        let slot = *self.slot.get_or_insert_with(|| waiters.take_slot());
        match &mut waiters.slots[slot] {
            Some(known) => known.clone_from(waker),
            empty => *empty = Some(waker.clone()),
        }
    }
}

impl ChangeWaiters {
    fn take_slot(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        })
    }
}

impl Clone for ChangeReceiver {
    fn clone(&self) -> Self {
        Self {
            broadcast: self.broadcast.clone(),
            seen: self.seen,
            slot: None,
        }
    }
}

impl Drop for ChangeReceiver {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let mut waiters = self.broadcast.waiters.lock();
            waiters.slots[slot] = None;
            waiters.free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct CountingWaker(AtomicUsize);
    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    // Proves D11.
    #[test]
    fn many_announcements_are_one_change_and_the_last_is_seen() {
        let broadcast = Arc::new(ChangeBroadcast::default());
        let woken = Arc::new(CountingWaker::default());
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let mut one = broadcast.watch();
        assert_eq!(one.poll_changed(&mut cx), Poll::Pending);
        assert_eq!(one.poll_changed(&mut cx), Poll::Pending);
        (0..5).for_each(|_| broadcast.announce());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        let mut two = one.clone();
        assert_eq!(one.poll_changed(&mut cx), Poll::Ready(ListChange::Changed));
        assert_eq!(one.poll_changed(&mut cx), Poll::Pending);
        assert_eq!(two.poll_changed(&mut cx), Poll::Ready(ListChange::Changed));
        broadcast.close();
        assert_eq!(
            one.poll_changed(&mut cx),
            Poll::Ready(ListChange::EndpointGone)
        );
    }

    #[test]
    fn a_waiting_stream_is_small_and_gives_its_slot_back() {
        assert!(size_of::<ChangeReceiver>() + size_of::<Option<Waker>>() + size_of::<usize>() < 64);
        let broadcast = Arc::new(ChangeBroadcast::default());
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..1000 {
            let mut changes = broadcast.watch();
            assert!(changes.poll_changed(&mut cx).is_pending());
        }
        assert_eq!(broadcast.waiters.lock().slots.len(), 1);
        assert_eq!(broadcast.watchers(), 0);
    }
}
