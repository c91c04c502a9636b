//! Parked calls in memory: each is held until it is taken, or its time is over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use weir_core::failure::{Failure, FailureKind};
use weir_core::parked::{ParkedCall, ParkedCallDetails, SharedParkedReply};
use weir_core::port::{CallParking, Clock, Random, random_id};
use weir_core::telemetry::instruments;
use weir_core::{ParkedId, Principal};

use crate::store_operation::StoreOperation;

static PARK: StoreOperation = StoreOperation::new("parking", "park");
static TAKE: StoreOperation = StoreOperation::new("parking", "take");

/// The limits of parked calls, and their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParkingCaps {
    /// Of all principals. Each call holds a connection to its upstream, and a permit among its
    /// calls in flight.
    pub total: usize,
    /// Of one principal. All anonymous callers share one principal, so only the total binds it.
    pub per_principal: usize,
    /// The time until its client must return.
    pub time: Duration,
}

impl Default for ParkingCaps {
    fn default() -> Self {
        Self {
            total: 1000,
            per_principal: 16,
            time: Duration::from_secs(600),
        }
    }
}

/// Parked calls of one process.
pub struct MemoryParking {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    /// The generation of this process, in the names of its calls.
    generation: u32,
    parked: Mutex<ParkedCalls>,
}

struct ParkedCalls {
    caps: ParkingCaps,
    calls: HashMap<(Principal, ParkedId), ParkedEntry>,
    /// The number of calls parked so far.
    last: u64,
}

struct ParkedEntry {
    call: SharedParkedReply,
    details: ParkedCallDetails,
    number: u64,
    since: Duration,
    until: Duration,
}

impl MemoryParking {
    /// An empty store of parked calls.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>, caps: ParkingCaps) -> Self {
        Self {
            clock,
            random,
            generation: 0,
            parked: Mutex::new(ParkedCalls {
                caps,
                calls: HashMap::new(),
                last: 0,
            }),
        }
    }

    /// The same store, in the process of this generation.
    #[must_use]
    pub fn of_generation(self, generation: u32) -> Self {
        Self { generation, ..self }
    }

    /// Changes the caps for later calls; calls that are parked already stay.
    pub fn set_caps(&self, caps: ParkingCaps) {
        self.parked.lock().caps = caps;
    }

    fn park_now(
        &self,
        details: ParkedCallDetails,
        again: Option<ParkedId>,
        call: SharedParkedReply,
    ) -> Result<ParkedId, Failure> {
        self.sweep();
        let principal = &details.principal;
        let fresh = || ParkedId::new(self.generation, random_id(&*self.random));
        let id = again.unwrap_or_else(fresh);
        let mut parked = self.parked.lock();
        let own = || {
            parked
                .calls
                .keys()
                .filter(|(owner, _)| owner == principal)
                .count()
        };
        let is_full = parked.calls.len() >= parked.caps.total;
        if is_full || (!principal.is_anonymous() && own() >= parked.caps.per_principal) {
            drop(parked);
            let text = "Too many calls wait for input: answer one, or try again later";
            let failure = Failure::new(FailureKind::Busy, text);
            return Err(if is_full {
                failure
            } else {
                failure.own_limit()
            });
        }
        let since = self.clock.monotonic();
        let until = since + parked.caps.time;
        parked.last += 1;
        let number = parked.last;
        parked.calls.insert(
            (principal.clone(), id),
            ParkedEntry {
                call,
                details,
                number,
                since,
                until,
            },
        );
        count_parked(1);
        Ok(id)
    }

    fn take_now(&self, principal: &Principal, id: ParkedId) -> Option<SharedParkedReply> {
        self.sweep();
        let entry = self.parked.lock().calls.remove(&(principal.clone(), id))?;
        count_parked(-1);
        Some(entry.call)
    }

    fn drop_matching(&self, which: impl Fn(&ParkedEntry) -> bool) -> usize {
        let those: Vec<_> = self
            .parked
            .lock()
            .calls
            .extract_if(|_, entry| which(entry))
            .collect();
        // Dropped without the lock.
        count_parked(-those.len().cast_signed());
        those.len()
    }
}

impl CallParking for MemoryParking {
    fn park(
        &self,
        details: ParkedCallDetails,
        again: Option<ParkedId>,
        parked: SharedParkedReply,
    ) -> Result<ParkedId, Failure> {
        PARK.time(|| self.park_now(details, again, parked))
    }

    fn take(&self, principal: &Principal, id: ParkedId) -> Option<SharedParkedReply> {
        TAKE.time(|| self.take_now(principal, id))
    }

    fn is_parked(&self, principal: &Principal, id: ParkedId) -> bool {
        let now = self.clock.monotonic();
        self.parked
            .lock()
            .calls
            .get(&(principal.clone(), id))
            .is_some_and(|entry| entry.until > now)
    }

    fn sweep(&self) {
        let now = self.clock.monotonic();
        self.drop_matching(|entry| entry.until <= now);
    }

    fn waiting(&self) -> Vec<ParkedCall> {
        self.sweep();
        let now = self.clock.monotonic();
        let seen = |entry: &ParkedEntry| ParkedCall {
            number: entry.number,
            details: entry.details.clone(),
            age: now.saturating_sub(entry.since),
            left: entry.until.saturating_sub(now),
        };
        let mut all: Vec<_> = self.parked.lock().calls.values().map(seen).collect();
        all.sort_by_key(|call| call.number);
        all
    }

    fn stop(&self, which: &dyn Fn(u64, &ParkedCallDetails) -> bool) -> usize {
        self.drop_matching(|entry| which(entry.number, &entry.details))
    }
}

fn count_parked(change: isize) {
    if change != 0 {
        instruments().parked.add(change as i64, &[]);
    }
}

impl std::fmt::Debug for MemoryParking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryParking({} calls)", self.parked.lock().calls.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_core::call::RequestName;
    use weir_core::names::{EndpointId, UpstreamId};
    use weir_core::{ParkedReply, Reply};

    use weir_testkit::{FakeClock, FakeRandom};

    use super::*;
    use crate::fake::principal;

    fn call() -> SharedParkedReply {
        let parked = ParkedReply::new(Reply::ended(Failure::internal("over")));
        Arc::new(Mutex::new(Some(parked)))
    }

    fn of(principal: &Principal) -> ParkedCallDetails {
        ParkedCallDetails {
            principal: principal.clone(),
            request: RequestName::from_bits(7),
            endpoint: EndpointId::new("/mcp"),
            upstream: UpstreamId::new("u").unwrap(),
            method: "tools/call",
            exposed: "u__t".into(),
            questions: vec!["elicitation/create"],
        }
    }

    fn parking(total: usize, per_principal: usize) -> (Arc<FakeClock>, MemoryParking) {
        let clock = Arc::new(FakeClock::default());
        let caps = ParkingCaps {
            total,
            per_principal,
            time: Duration::from_secs(60),
        };
        (
            clock.clone(),
            MemoryParking::new(clock, Arc::new(FakeRandom::new(1)), caps),
        )
    }

    // Proves R174, R175.
    #[tokio::test]
    async fn a_call_is_taken_once_in_time_and_by_its_own_principal() {
        let (clock, parking) = parking(10, 10);
        let (ada, bob) = (principal("ada"), principal("bob"));
        let (first, second) = (
            parking.park(of(&ada), None, call()).unwrap(),
            parking.park(of(&ada), None, call()).unwrap(),
        );
        let seen = |principal, id| parking.is_parked(principal, id);
        assert!(seen(&ada, first) && !seen(&bob, first));
        assert!(parking.take(&bob, first).is_none());
        assert!(parking.take(&ada, first).is_some());
        assert!(parking.take(&ada, first).is_none());
        assert!(!seen(&ada, first) && seen(&ada, second));
        clock.advance(Duration::from_secs(60));
        assert!(!seen(&ada, second), "too late");
        assert!(parking.take(&ada, second).is_none(), "too late");
    }

    #[tokio::test]
    async fn parked_calls_are_bounded_by_principal_and_overall() {
        let (clock, parking) = parking(3, 2);
        let (ada, bob, all) = (principal("ada"), principal("bob"), principal(""));
        for _ in 0..2 {
            parking.park(of(&ada), None, call()).unwrap();
        }
        let own = parking.park(of(&ada), None, call()).unwrap_err();
        assert_eq!((own.reason(), own.is_own_limit()), ("busy", true));
        parking.park(of(&bob), None, call()).unwrap();
        let shared = parking.park(of(&all), None, call()).unwrap_err();
        assert_eq!((shared.reason(), shared.is_own_limit()), ("busy", false));
        clock.advance(Duration::from_secs(61));
        for _ in 0..3 {
            parking.park(of(&all), None, call()).unwrap();
        }
    }

    #[tokio::test]
    async fn operators_list_parked_calls_oldest_first_and_drop_them() {
        let (clock, parking) = parking(10, 10);
        let (ada, bob) = (principal("ada"), principal("bob"));
        let first = parking.park(of(&ada), None, call()).unwrap();
        clock.advance(Duration::from_secs(20));
        parking.park(of(&bob), None, call()).unwrap();
        let seen = parking.waiting();
        let times: Vec<_> = seen
            .iter()
            .map(|call| (call.age.as_secs(), call.left.as_secs()))
            .collect();
        assert_eq!(times, [(20, 40), (0, 60)]);
        assert_eq!(parking.stop(&|number, _| number == seen[0].number), 1);
        assert!(parking.take(&ada, first).is_none(), "it is gone");
        assert_eq!(parking.stop(&|_, details| details.principal == ada), 0);
        assert_eq!(parking.waiting().len(), 1);
        clock.advance(Duration::from_secs(60));
        assert!(parking.waiting().is_empty(), "over");
    }
}
