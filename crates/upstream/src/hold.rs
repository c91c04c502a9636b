//! Memory for large results whose owner or type is not known yet.
//!
//! A result of more than 64 KiB is passed on while it arrives, once it is known whose answer it is and of which type. Both may come
//! last. Until then it is held, within a bound for each call and one for all; where there is no room the upstream is not read on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_core::port::Fut;
use weir_core::telemetry::instruments;

/// Bounds of what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    /// Bytes of one call.
    pub per_call: usize,
    /// Bytes of all calls.
    pub total: usize,
}

impl Default for HoldLimits {
    fn default() -> Self {
        Self { per_call: 4 << 20, total: 64 << 20 }
    }
}

/// What one permit stands for.
const UNIT: usize = 1 << 10;

/// The room of all upstreams.
#[derive(Debug)]
pub(crate) struct HoldRoom(Mutex<Arc<Division>>);

/// The room as it is divided under one set of limits. What was reserved under others is given back to theirs.
#[derive(Debug)]
struct Division {
    limits: HoldLimits,
    free: Arc<Semaphore>,
}

impl HoldRoom {
    pub(crate) fn new(limits: HoldLimits) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Division::new(limits))))
    }

    /// Divides the room by other limits from now on.
    pub(crate) fn set_limits(&self, limits: HoldLimits) {
        let mut current = self.lock();
        if current.limits != limits {
            *current = Division::new(limits);
        }
    }

    fn current(&self) -> Arc<Division> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Division>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Division {
    fn new(limits: HoldLimits) -> Arc<Self> {
        let total = limits.total.max(limits.per_call);
        Arc::new(Self { limits, free: Arc::new(Semaphore::new(total.div_ceil(UNIT))) })
    }

    /// The share of one upstream.
    fn share(&self) -> Arc<Semaphore> {
        let share = (self.limits.total / 2).max(self.limits.per_call);
        Arc::new(Semaphore::new(share.div_ceil(UNIT)))
    }
}

/// One upstream's share of the room: at most a half, so that no upstream keeps all others waiting.
#[derive(Debug)]
pub(crate) struct HoldShare {
    room: Arc<HoldRoom>,
    own: Mutex<(Arc<Division>, Arc<Semaphore>)>,
}

/// Room for one result. Dropping it gives the room back.
#[derive(Debug)]
pub(crate) struct Reservation {
    _own: OwnedSemaphorePermit,
    _room: OwnedSemaphorePermit,
    bytes: i64,
}

impl HoldShare {
    pub(crate) fn new(room: Arc<HoldRoom>) -> Self {
        let division = room.current();
        let own = division.share();
        Self { room, own: Mutex::new((division, own)) }
    }

    /// The most that is held of one result.
    pub(crate) fn per_call(&self) -> usize {
        self.room.current().limits.per_call
    }

    /// The room as it is divided now, and this upstream's share of it.
    fn current(&self) -> (Arc<Division>, Arc<Semaphore>) {
        let division = self.room.current();
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&own.0, &division) {
            let share = division.share();
            *own = (division, share);
        }
        own.clone()
    }

    /// Waits for room for so many bytes of a call at once, so that whoever has some never waits for more. `None` never comes:
    /// the room is not closed.
    pub(crate) fn reserve(&self, bytes: usize) -> Fut<'static, Option<Reservation>> {
        let (division, own) = self.current();
        // A call that began under larger limits has all there is.
        let bytes = bytes.min(division.limits.per_call);
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let free = division.free.clone();
        Box::pin(async move {
            let own = own.acquire_many_owned(units).await.ok()?;
            let room = free.acquire_many_owned(units).await.ok()?;
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            instruments().hold_bytes.add(bytes, &[]);
            Some(Reservation { _own: own, _room: room, bytes })
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        instruments().hold_bytes.add(-self.bytes, &[]);
    }
}

/// How much is allocated at once: what is held takes no more memory than it has bytes, whatever the pieces it came in.
const BLOCK: usize = 64 << 10;

/// Held bytes.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    full: VecDeque<Bytes>,
    last: BytesMut,
    size: usize,
}

impl Blocks {
    pub(crate) fn len(&self) -> usize {
        self.size
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        self.size += bytes.len();
        while !bytes.is_empty() {
            if self.last.capacity() == 0 {
                self.last = BytesMut::with_capacity(BLOCK);
            }
            let now = bytes.len().min(BLOCK - self.last.len());
            self.last.extend_from_slice(&bytes[..now]);
            bytes = &bytes[now..];
            if self.last.len() == BLOCK {
                self.full.push_back(std::mem::take(&mut self.last).freeze());
            }
        }
    }

    /// The first bytes, a block at most.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let block = self.full.pop_front().or_else(|| {
            let last = std::mem::take(&mut self.last).freeze();
            Some(last).filter(|last| !last.is_empty())
        })?;
        self.size -= block.len();
        Some(block)
    }

    /// All of it, and `rest` behind it.
    pub(crate) fn join(mut self, rest: &[u8]) -> Bytes {
        let mut all = BytesMut::with_capacity(self.size + rest.len());
        while let Some(block) = self.pop() {
            all.extend_from_slice(&block);
        }
        all.extend_from_slice(rest);
        all.freeze()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use futures_util::FutureExt as _;

    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn other_limits_hold_from_the_next_result_on() {
        let room = HoldRoom::new(HoldLimits { per_call: MIB, total: 4 * MIB });
        let share = HoldShare::new(room.clone());
        let before = share.reserve(MIB).now_or_never().unwrap().unwrap();
        room.set_limits(HoldLimits { per_call: MIB / 2, total: MIB });
        assert_eq!(share.per_call(), MIB / 2);
        let after = share.reserve(MIB).now_or_never().unwrap().unwrap();
        assert_eq!((before.bytes, after.bytes), (1 << 20, 1 << 19));
        assert!(share.reserve(MIB / 2).now_or_never().is_none(), "its half of less");
        drop(before);
        assert!(share.reserve(MIB / 2).now_or_never().is_none(), "what was reserved before is no part of it");
        drop(after);
        assert!(share.reserve(MIB / 2).now_or_never().is_some());
    }

    #[test]
    fn one_upstream_has_at_most_half_of_the_room_and_all_have_no_more_than_it() {
        let room = HoldRoom::new(HoldLimits { per_call: 1 << 20, total: 4 << 20 });
        let shares: Vec<_> = (0..3).map(|_| HoldShare::new(room.clone())).collect();
        let mut held: Vec<_> = (0..2).map(|_| shares[0].reserve(MIB).now_or_never().unwrap().unwrap()).collect();
        assert!(shares[0].reserve(MIB).now_or_never().is_none(), "its half");
        held.extend((0..2).map(|_| shares[1].reserve(MIB).now_or_never().unwrap().unwrap()));
        assert!(shares[2].reserve(MIB).now_or_never().is_none(), "all of it");
        held.remove(0);
        assert!(shares[2].reserve(MIB).now_or_never().unwrap().is_some());
    }

    #[test]
    fn bytes_are_held_in_blocks_whatever_they_came_in() {
        let text: Vec<u8> = (0..200_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        for size in [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, text.len()] {
            let mut blocks = Blocks::default();
            text.chunks(size).for_each(|piece| blocks.push(piece));
            assert_eq!(blocks.len(), text.len());
            assert_eq!(blocks.full.len(), text.len() / BLOCK);
            assert_eq!(blocks.join(b"}"), [&text[..], b"}"].concat(), "{size}");
        }
    }
}
