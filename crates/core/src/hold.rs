//! Memory for the parts of large results that have to be held while the results pass.
//!
//! A result of more than 64 KiB is passed on while it arrives, once its request id and its type are
//! known. Both may come last. Until then it is held, within a bound for each call and one for all;
//! without free room, reading from the upstream pauses. For a client that cannot take structured
//! content, a result is held from the end of its `content` until the structured content is known;
//! without free room, the value is left out.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::port::BoxFuture;
use crate::telemetry::instruments;

/// Bounds of held bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    /// Bytes of one call.
    pub per_call: usize,
    /// Bytes of all calls.
    pub total: usize,
}

impl Default for HoldLimits {
    fn default() -> Self {
        Self {
            per_call: 4 << 20,
            total: 64 << 20,
        }
    }
}

/// The bytes of one permit.
const PERMIT_BYTES: usize = 1 << 10;

/// The room of one process.
#[derive(Debug)]
pub struct HoldBudget(Mutex<Arc<HoldDivision>>);

/// The room as it is divided under one set of limits. Bytes that were reserved under other limits
/// are given back to those.
#[derive(Debug)]
struct HoldDivision {
    limits: HoldLimits,
    free: Arc<Semaphore>,
}

impl HoldBudget {
    /// A room with these limits.
    #[must_use]
    pub fn new(limits: HoldLimits) -> Arc<Self> {
        Arc::new(Self(Mutex::new(HoldDivision::new(limits))))
    }

    /// Divides the room by other limits from now on.
    pub fn set_limits(&self, limits: HoldLimits) {
        let mut current = self.0.lock();
        if current.limits != limits {
            *current = HoldDivision::new(limits);
        }
    }

    fn current(&self) -> Arc<HoldDivision> {
        self.0.lock().clone()
    }
}

impl HoldDivision {
    fn new(limits: HoldLimits) -> Arc<Self> {
        let total = limits.total.max(limits.per_call);
        Arc::new(Self {
            limits,
            free: Arc::new(Semaphore::new(total.div_ceil(PERMIT_BYTES))),
        })
    }

    /// The share of one part of the process.
    fn share(&self) -> Arc<Semaphore> {
        let share = (self.limits.total / 2).max(self.limits.per_call);
        Arc::new(Semaphore::new(share.div_ceil(PERMIT_BYTES)))
    }
}

/// The share of one upstream, or of the client side: at most a half, so that no share keeps all
/// others waiting.
#[derive(Debug)]
pub struct HoldShare {
    room: Arc<HoldBudget>,
    own: Mutex<(Arc<HoldDivision>, Arc<Semaphore>)>,
}

/// Room for one result. Dropping it gives the room back.
#[derive(Debug)]
pub struct HoldReservation {
    _permits: Vec<OwnedSemaphorePermit>,
    bytes: i64,
}

impl HoldShare {
    /// A share of this room, with no bytes taken.
    #[must_use]
    pub fn new(room: Arc<HoldBudget>) -> Self {
        let division = room.current();
        let own = division.share();
        Self {
            room,
            own: Mutex::new((division, own)),
        }
    }

    /// The most that is held of one result.
    #[must_use]
    pub fn per_call(&self) -> usize {
        self.room.current().limits.per_call
    }

    /// The room as it is divided now, and the own share of it.
    fn current(&self) -> (Arc<HoldDivision>, Arc<Semaphore>) {
        let division = self.room.current();
        let mut own = self.own.lock();
        if !Arc::ptr_eq(&own.0, &division) {
            let share = division.share();
            *own = (division, share);
        }
        own.clone()
    }

    /// Waits for room for all of `bytes` of a call at once, so that a call that holds some never
    /// waits for more. There always is a value: the room is not closed. Cancel safe.
    pub fn reserve(&self, bytes: usize) -> BoxFuture<'static, Option<HoldReservation>> {
        let (division, own) = self.current();
        // A call that began under larger limits gets at most the present limit.
        let bytes = bytes.min(division.limits.per_call);
        let units = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
        let free = division.free.clone();
        Box::pin(async move {
            let own = own.acquire_many_owned(units).await.ok()?;
            let room = free.acquire_many_owned(units).await.ok()?;
            Some(HoldReservation::new(vec![own, room], bytes))
        })
    }

    /// Takes room for so many bytes without waiting, for a call that may have some already; no
    /// value if there is not so much.
    #[must_use]
    pub fn try_reserve(&self, bytes: usize) -> Option<HoldReservation> {
        let (division, own) = self.current();
        let units = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).ok()?;
        let own = own.try_acquire_many_owned(units).ok()?;
        let room = division.free.clone().try_acquire_many_owned(units).ok()?;
        Some(HoldReservation::new(vec![own, room], bytes))
    }
}

impl HoldReservation {
    fn new(permits: Vec<OwnedSemaphorePermit>, bytes: usize) -> Self {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        instruments().hold_bytes.add(bytes, &[]);
        Self {
            _permits: permits,
            bytes,
        }
    }
}

impl Drop for HoldReservation {
    fn drop(&mut self) {
        instruments().hold_bytes.add(-self.bytes, &[]);
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
        let room = HoldBudget::new(HoldLimits {
            per_call: MIB,
            total: 4 * MIB,
        });
        let share = HoldShare::new(room.clone());
        let before = share.reserve(MIB).now_or_never().unwrap().unwrap();
        room.set_limits(HoldLimits {
            per_call: MIB / 2,
            total: MIB,
        });
        assert_eq!(share.per_call(), MIB / 2);
        let after = share.reserve(MIB).now_or_never().unwrap().unwrap();
        assert_eq!((before.bytes, after.bytes), (1 << 20, 1 << 19));
        assert!(
            share.reserve(MIB / 2).now_or_never().is_none(),
            "its half of less"
        );
        drop(before);
        assert!(
            share.reserve(MIB / 2).now_or_never().is_none(),
            "what was reserved before is no part of it"
        );
        drop(after);
        assert!(share.reserve(MIB / 2).now_or_never().is_some());
    }

    #[test]
    fn one_upstream_has_at_most_half_of_the_room_and_all_have_no_more_than_it() {
        let room = HoldBudget::new(HoldLimits {
            per_call: 1 << 20,
            total: 4 << 20,
        });
        let shares: Vec<_> = (0..3).map(|_| HoldShare::new(room.clone())).collect();
        let mut held: Vec<_> = (0..2)
            .map(|_| shares[0].reserve(MIB).now_or_never().unwrap().unwrap())
            .collect();
        assert!(shares[0].reserve(MIB).now_or_never().is_none(), "its half");
        held.extend((0..2).map(|_| shares[1].reserve(MIB).now_or_never().unwrap().unwrap()));
        assert!(shares[2].reserve(MIB).now_or_never().is_none(), "all of it");
        held.remove(0);
        assert!(shares[2].reserve(MIB).now_or_never().unwrap().is_some());
    }

    #[test]
    fn immediate_reservations_count_against_call_and_total_limits() {
        let room = HoldBudget::new(HoldLimits {
            per_call: MIB,
            total: 2 * MIB,
        });
        let (one, other) = (HoldShare::new(room.clone()), HoldShare::new(room));
        let parts: Vec<_> = (0..MIB / PERMIT_BYTES)
            .map(|_| one.try_reserve(PERMIT_BYTES).unwrap())
            .collect();
        assert!(one.try_reserve(1).is_none(), "its half");
        let waited = other.reserve(MIB).now_or_never().unwrap().unwrap();
        assert!(other.try_reserve(1).is_none(), "all of it");
        drop(parts);
        assert!(one.try_reserve(MIB).is_some());
        drop(waited);
    }
}
