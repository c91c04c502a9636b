//! Rates that all replicas share: buckets of tokens in the shared store, and leases of them here.
//!
//! A request takes a token of its bucket's lease, without a trip. The next lease is fetched in the
//! background before this one is used up; a request waits only if there is no token and no fresh
//! refusal. While the store does not answer, this replica's own share of the rate decides.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use opentelemetry::KeyValue;
use opentelemetry::metrics::BoundCounter;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use weir_core::port::{BoxFuture, Clock, Rate, RateBucket, RateDecision, SharedRates, StoreError};
use weir_core::telemetry::instruments;
use weir_store::{LeasePlan, StoreOutage};

use crate::rate_commands::RateCommands;
use crate::redis_link::BACKGROUND_TIMEOUT;
use crate::replica_registry::ReplicaRegistry;
use crate::token_lease::{LeaseAnswer, LeaseDecision, TokenLease, TripPurpose};

/// Leases at once: 32 MiB at most. Beyond, the one used least makes room; its tokens are lost.
const MAX_LEASES: usize = 1 << 17;
/// Orders of trips that wait for their task. It takes all of them each time that it runs.
const MAX_ORDERS: usize = 4096;
/// Commands at once that give tokens back at the end.
const RETURNS_AT_ONCE: usize = 64;

/// The lease of one bucket.
pub(crate) type SharedLease = Arc<Mutex<TokenLease>>;

/// A trip to the store that a lease needs.
pub(crate) struct TripOrder {
    pub(crate) bucket: RateBucket,
    pub(crate) lease: SharedLease,
}

/// Rates in the shared store, at most 131,072 of them with a lease.
pub struct RedisRates {
    commands: RateCommands,
    registry: Arc<ReplicaRegistry>,
    clock: Arc<dyn Clock>,
    leases: Cache<RateBucket, SharedLease>,
    /// At most one order of each lease.
    orders: mpsc::Sender<TripOrder>,
    outage: StoreOutage,
    fallbacks: OnceLock<BoundCounter<u64>>,
}

impl RedisRates {
    /// Rates without leases, and the orders of trips for the task that makes them.
    pub(crate) fn new(
        commands: RateCommands,
        registry: Arc<ReplicaRegistry>,
        clock: Arc<dyn Clock>,
    ) -> (Self, mpsc::Receiver<TripOrder>) {
        let (orders, receiver) = mpsc::channel(MAX_ORDERS);
        let rates = Self {
            commands,
            registry,
            clock,
            leases: Cache::new(MAX_LEASES),
            orders,
            outage: StoreOutage::default(),
            fallbacks: OnceLock::new(),
        };
        (rates, receiver)
    }

    /// Makes the trips of an order, until no request needs a further one.
    pub(crate) async fn make_trips(&self, order: &TripOrder) {
        let rate = order.lease.lock().rate();
        loop {
            let plan = LeasePlan::of(&rate, self.replicas());
            let purpose = if self.outage.is_on() {
                TripPurpose::Look
            } else {
                TripPurpose::Tokens
            };
            let begun = self.clock.monotonic();
            let Some(demand) = order.lease.lock().begin_trip(&plan, purpose, begun) else {
                return;
            };
            let outcome = self.commands.take(&order.bucket, &rate, demand).await;
            let now = self.clock.monotonic();
            match outcome {
                Ok(reply) => {
                    self.outage.end();
                    let needs_more = order.lease.lock().finish_trip(demand, reply, &plan, now);
                    if !needs_more {
                        return;
                    }
                }
                Err(_) => {
                    self.outage.begin(now);
                    self.end_failed_trip(&order.lease);
                    return;
                }
            }
        }
    }

    /// Gives back the tokens of a lease that was not used for this long. Returns false if it has none
    /// left.
    pub(crate) async fn return_idle(&self, order: &TripOrder, idle: Duration) -> bool {
        let (rate, tokens, has_more) = {
            let mut lease = order.lease.lock();
            let before = self.clock.monotonic().saturating_sub(idle);
            let tokens = lease.give_up_idle(before);
            (lease.rate(), tokens, lease.has_tokens())
        };
        if tokens > 0 {
            // The rate fills the bucket if the store does not get them.
            let given = self.commands.give_back(&order.bucket, &rate, tokens);
            let _: Result<(), StoreError> = given.await;
        }
        has_more
    }

    /// Gives back the tokens of all leases, within a limited time.
    pub(crate) async fn return_all(&self) {
        let held = self.leases.iter().filter_map(|(bucket, lease)| {
            let has_tokens = lease.lock().has_tokens();
            has_tokens.then_some(TripOrder { bucket, lease })
        });
        let held: Vec<_> = held.collect();
        let returned = stream::iter(&held).for_each_concurrent(RETURNS_AT_ONCE, |order| async {
            self.return_idle(order, Duration::ZERO).await;
        });
        // The rate fills the buckets if the store does not get them.
        let _ = timeout(BACKGROUND_TIMEOUT, returned).await;
    }

    /// Gives tokens back that this replica does not have in a lease.
    #[cfg(test)]
    pub(crate) async fn give_back(
        &self,
        bucket: &RateBucket,
        rate: &Rate,
        tokens: u32,
    ) -> Result<(), StoreError> {
        self.commands.give_back(bucket, rate, tokens).await
    }

    /// Reports if requests are decided without the store, because it did not answer.
    #[cfg(test)]
    pub(crate) fn decides_alone(&self) -> bool {
        self.outage.is_on()
    }

    /// Reports if a bucket has tokens here.
    #[cfg(test)]
    pub(crate) fn has_tokens(&self, bucket: &RateBucket) -> bool {
        let lease = self.leases.peek(bucket);
        lease.is_some_and(|lease| lease.lock().has_tokens())
    }

    /// The number of replicas that divide a rate.
    fn replicas(&self) -> usize {
        self.registry.count_live()
    }

    fn lease(&self, bucket: RateBucket, rate: &Rate) -> SharedLease {
        let make =
            || Ok::<_, std::convert::Infallible>(Arc::new(Mutex::new(TokenLease::new(*rate))));
        match self.leases.get_or_insert_with(&bucket, make) {
            Ok(lease) => lease,
            Err(never) => match never {},
        }
    }

    /// Orders a trip that a lease has reserved.
    fn send(&self, bucket: RateBucket, lease: &SharedLease) {
        let order = TripOrder {
            bucket,
            lease: lease.clone(),
        };
        // Too many orders wait, or the trips have ended with the store's tasks.
        if self.orders.try_send(order).is_err() {
            self.outage.begin(self.clock.monotonic());
            self.end_failed_trip(lease);
        }
    }

    fn end_failed_trip(&self, lease: &SharedLease) {
        let (replicas, now) = (self.replicas(), self.clock.monotonic());
        let decided = lease.lock().fail_trip(replicas, now);
        self.count_fallbacks(decided);
    }

    /// The decision while the store does not answer. One request in a while has a trip look if it
    /// answers again, and does not wait for it.
    fn take_alone(
        &self,
        bucket: RateBucket,
        lease: &SharedLease,
        cost: NonZeroU32,
    ) -> LeaseDecision {
        let (replicas, now) = (self.replicas(), self.clock.monotonic());
        let (decision, probes) = {
            let mut lease = lease.lock();
            let decision = lease.take_alone(cost, replicas, now);
            (decision, self.outage.claim_probe(now) && lease.order_trip())
        };
        if probes {
            self.send(bucket, lease);
        }
        self.count_fallbacks(1);
        decision
    }

    /// The decision on a waiting request: that of its trip, or of this replica's own share once the
    /// time limit is over.
    async fn await_decision(
        &self,
        lease: SharedLease,
        cost: NonZeroU32,
        mut receiver: oneshot::Receiver<LeaseDecision>,
    ) -> LeaseDecision {
        if let Ok(Ok(decision)) = timeout(self.commands.timeout(), &mut receiver).await {
            return decision;
        }
        receiver.close();
        // It may have come in the last moment.
        if let Ok(decision) = receiver.try_recv() {
            return decision;
        }
        // The next requests need not wait, too. A trip that still succeeds ends the outage.
        let (replicas, now) = (self.replicas(), self.clock.monotonic());
        self.outage.begin(now);
        self.count_fallbacks(1);
        lease.lock().take_unanswered(cost, replicas, now)
    }

    fn count_fallbacks(&self, count: u64) {
        let bind = || {
            let labels = [KeyValue::new("operation", "take_tokens")];
            instruments().store_fallbacks.bind(&labels)
        };
        self.fallbacks.get_or_init(bind).add(count);
    }
}

impl SharedRates for RedisRates {
    fn take(
        &self,
        bucket: RateBucket,
        rate: &Rate,
        cost: NonZeroU32,
    ) -> RateDecision<'_, Duration> {
        let lease = self.lease(bucket, rate);
        let now = self.clock.monotonic();
        let is_away = self.outage.is_on();
        let mut held = lease.lock();
        let (needs_trip, charge) = match held.take(cost, now) {
            LeaseAnswer::Taken => return RateDecision::Now(Ok(())),
            LeaseAnswer::Refused(wait) => return RateDecision::Now(Err(wait)),
            LeaseAnswer::TakenLow => (!is_away && held.order_trip(), RateDecision::Now(Ok(()))),
            LeaseAnswer::Unknown if is_away => {
                drop(held);
                return RateDecision::Now(self.take_alone(bucket, &lease, cost));
            }
            LeaseAnswer::Unknown => {
                let receiver = held.enqueue(cost);
                let decision = self.await_decision(lease.clone(), cost, receiver);
                (held.order_trip(), RateDecision::Later(Box::pin(decision)))
            }
        };
        drop(held);
        if needs_trip {
            self.send(bucket, &lease);
        }
        charge
    }

    fn wait(&self, bucket: RateBucket, rate: Rate, cost: NonZeroU32) -> BoxFuture<'_, Duration> {
        Box::pin(async move {
            let lease = self.leases.peek(&bucket);
            let now = self.clock.monotonic();
            let known = lease.as_ref().map(|lease| lease.lock().look(cost, now));
            match known {
                Some(LeaseAnswer::Taken | LeaseAnswer::TakenLow) => return Duration::ZERO,
                Some(LeaseAnswer::Refused(wait)) => return wait,
                Some(LeaseAnswer::Unknown) | None => {}
            }
            let bounded = cost.min(rate.burst).get();
            if let Ok(wait) = self.commands.peek(&bucket, &rate, bounded).await {
                return wait;
            }
            let replicas = self.replicas();
            lease.map_or(Duration::ZERO, |lease| {
                lease.lock().wait_alone(cost, replicas, now)
            })
        })
    }

    fn refusing(&self) -> Vec<(RateBucket, Duration)> {
        let now = self.clock.monotonic();
        let one = |(bucket, lease): (RateBucket, SharedLease)| match lease
            .lock()
            .look(NonZeroU32::MIN, now)
        {
            LeaseAnswer::Refused(wait) => Some((bucket, wait)),
            LeaseAnswer::Taken | LeaseAnswer::TakenLow | LeaseAnswer::Unknown => None,
        };
        self.leases.iter().filter_map(one).collect()
    }
}

impl fmt::Debug for RedisRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRates").finish_non_exhaustive()
    }
}
