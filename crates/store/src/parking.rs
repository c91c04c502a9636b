//! Parked calls in memory: each is held until it is taken, or its time is over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use weir_core::failure::{Failure, FailureKind};
use weir_core::port::{Clock, Parking, Random, random_id};
use weir_core::telemetry::{Operation, instruments};
use weir_core::{Parked, ParkedId, Principal};

use crate::lock;

static PARK: Operation = Operation::new("parking", "park");
static TAKE: Operation = Operation::new("parking", "take");

/// How many calls may be parked, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParkingCaps {
    /// Altogether. Each holds a connection to its upstream, and a place among its calls in flight.
    pub total: usize,
    /// Of one principal. The anonymous one is everybody, so only the total binds it.
    pub per_principal: usize,
    /// Until its client comes back.
    pub time: Duration,
}

impl Default for ParkingCaps {
    fn default() -> Self {
        Self { total: 1000, per_principal: 16, time: Duration::from_secs(600) }
    }
}

/// Parked calls of one process.
pub struct MemoryParking {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    lot: Mutex<Lot>,
}

struct Lot {
    caps: ParkingCaps,
    calls: HashMap<(Principal, ParkedId), Place>,
}

struct Place {
    call: Parked,
    until: Duration,
}

impl MemoryParking {
    /// An empty one.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>, caps: ParkingCaps) -> Self {
        Self { clock, random, lot: Mutex::new(Lot { caps, calls: HashMap::new() }) }
    }

    /// Goes by other caps from now on; calls that are there stay.
    pub fn limit(&self, caps: ParkingCaps) {
        self.lock().caps = caps;
    }

    fn park_now(&self, principal: &Principal, again: Option<ParkedId>, parked: Parked) -> Result<ParkedId, Failure> {
        self.sweep();
        let id = again.unwrap_or_else(|| ParkedId(random_id(&*self.random)));
        let mut lot = self.lock();
        let own = || lot.calls.keys().filter(|(owner, _)| owner == principal).count();
        let full = lot.calls.len() >= lot.caps.total || (!principal.is_anonymous() && own() >= lot.caps.per_principal);
        if full {
            drop(lot);
            let text = "Too many calls wait for input: answer one, or try again later";
            return Err(Failure::new(FailureKind::Busy, text));
        }
        let until = self.clock.monotonic() + lot.caps.time;
        lot.calls.insert((principal.clone(), id), Place { call: parked, until });
        count(1);
        Ok(id)
    }

    fn take_now(&self, principal: &Principal, id: ParkedId) -> Option<Parked> {
        self.sweep();
        let place = self.lock().calls.remove(&(principal.clone(), id))?;
        count(-1);
        Some(place.call)
    }

    fn lock(&self) -> MutexGuard<'_, Lot> {
        lock(&self.lot)
    }
}

impl Parking for MemoryParking {
    fn park(&self, principal: &Principal, again: Option<ParkedId>, parked: Parked) -> Result<ParkedId, Failure> {
        PARK.time(|| self.park_now(principal, again, parked))
    }

    fn take(&self, principal: &Principal, id: ParkedId) -> Option<Parked> {
        TAKE.time(|| self.take_now(principal, id))
    }

    fn sweep(&self) {
        let now = self.clock.monotonic();
        let over: Vec<_> = self.lock().calls.extract_if(|_, place| place.until <= now).collect();
        // Dropped outside of the lock.
        count(-over.len().cast_signed());
    }
}

fn count(change: isize) {
    if change != 0 {
        instruments().parked.add(change as i64, &[]);
    }
}

impl std::fmt::Debug for MemoryParking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryParking({} calls)", self.lock().calls.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_core::Reply;

    use super::*;
    use crate::fake::{FakeClock, FakeRandom, principal};

    fn call() -> Parked {
        Parked::new(Reply::ended(Failure::internal("over")))
    }

    fn parking(total: usize, per_principal: usize) -> (Arc<FakeClock>, MemoryParking) {
        let clock = Arc::new(FakeClock::default());
        let caps = ParkingCaps { total, per_principal, time: Duration::from_secs(60) };
        (clock.clone(), MemoryParking::new(clock, Arc::new(FakeRandom::default()), caps))
    }

    #[tokio::test]
    async fn r174_r175_a_call_is_taken_once_in_time_and_by_its_own_principal() {
        let (clock, parking) = parking(10, 10);
        let (ada, bob) = (principal("ada").await, principal("bob").await);
        let (first, second) = (parking.park(&ada, None, call()).unwrap(), parking.park(&ada, None, call()).unwrap());
        assert!(parking.take(&bob, first).is_none());
        assert!(parking.take(&ada, first).is_some());
        assert!(parking.take(&ada, first).is_none());
        clock.advance(Duration::from_secs(60));
        assert!(parking.take(&ada, second).is_none(), "too late");
    }

    #[tokio::test]
    async fn what_is_parked_is_bounded_by_principal_and_altogether() {
        let (clock, parking) = parking(3, 2);
        let (ada, bob, all) = (principal("ada").await, principal("bob").await, principal("").await);
        for _ in 0..2 {
            parking.park(&ada, None, call()).unwrap();
        }
        assert_eq!(parking.park(&ada, None, call()).unwrap_err().reason(), "busy");
        parking.park(&bob, None, call()).unwrap();
        assert_eq!(parking.park(&all, None, call()).unwrap_err().reason(), "busy");
        clock.advance(Duration::from_secs(61));
        for _ in 0..3 {
            parking.park(&all, None, call()).unwrap();
        }
    }
}
