//! The task that makes the trips of leases to the shared store, and gives idle tokens back.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use weir_core::port::RateBucket;

use crate::redis_rates::{RedisRates, SharedLease, TripOrder};

/// The time without a request after which a lease's tokens are given back.
const IDLE: Duration = Duration::from_secs(1);
/// The time between two looks for idle leases.
const IDLE_CHECK: Duration = Duration::from_millis(500);

/// A piece of work of the task.
enum LeaseWork {
    /// The trips of an order.
    Trips(TripOrder),
    /// The return of idle tokens.
    Return(TripOrder),
}

/// Makes the ordered trips, all at once, and looks for idle leases. It never ends. Dropping it gives
/// up trips that are under way: their requests decide alone after their time limit.
pub(crate) async fn keep_leasing(rates: &RedisRates, mut orders: mpsc::Receiver<TripOrder>) {
    // The leases that got tokens and may have some. A lease is here once, so this has its bound.
    let mut held: HashMap<RateBucket, SharedLease> = HashMap::new();
    let mut works = FuturesUnordered::new();
    let mut checks = interval(IDLE_CHECK);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(order) = orders.recv() => works.push(run(rates, LeaseWork::Trips(order))),
            Some(kept) = works.next() => {
                if let Some(TripOrder { bucket, lease }) = kept {
                    held.insert(bucket, lease);
                }
            }
            _ = checks.tick() => {
                for (bucket, lease) in held.drain() {
                    works.push(run(rates, LeaseWork::Return(TripOrder { bucket, lease })));
                }
            }
        }
    }
}

/// Does one piece of work; returns the lease if it may have tokens.
async fn run(rates: &RedisRates, work: LeaseWork) -> Option<TripOrder> {
    let (order, has_tokens) = match work {
        LeaseWork::Trips(order) => {
            rates.make_trips(&order).await;
            (order, true)
        }
        LeaseWork::Return(order) => {
            let has_tokens = rates.return_idle(&order, IDLE).await;
            (order, has_tokens)
        }
    };
    has_tokens.then_some(order)
}
