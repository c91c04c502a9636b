//! Counters that all replicas add to.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::KeyValue;
use weir_core::port::{Clock, Fut, OutageCounting, SharedCounters, StoreError};
use weir_core::telemetry::instruments;

use crate::locking::lock;
use crate::redis_link::RedisLink;
use crate::scripts::COUNT;

/// The most counters with amounts that the store lacks. The amounts of further ones are lost.
const MAX_OWED: usize = 100_000;

/// Counters in the shared store. This replica's own counters follow them: while the store does not
/// answer, they go on from the last value that this replica has seen. The store gets the amounts of
/// that time once it answers the next addition.
pub struct RedisCounters {
    link: Arc<RedisLink>,
    namespace: String,
    local: Arc<dyn SharedCounters>,
    clock: Arc<dyn Clock>,
    owed: Mutex<HashMap<Box<str>, OwedAmount>>,
}

/// The amount that the counter in the store lacks.
struct OwedAmount {
    amount: u64,
    /// The end of the counter, by the monotonic clock.
    ends: Duration,
}

/// The owed amount of a counter on its way to the store. It is owed again if it does not arrive.
struct SentDebt<'a> {
    counters: &'a RedisCounters,
    name: &'a str,
    amount: u64,
    ttl: Duration,
}

impl Drop for SentDebt<'_> {
    fn drop(&mut self) {
        self.counters.owe(self.name, self.amount, self.ttl);
    }
}

impl RedisCounters {
    /// Counters below a namespace, over those of this replica.
    pub(crate) fn new(
        link: Arc<RedisLink>,
        namespace: String,
        local: Arc<dyn SharedCounters>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            link,
            namespace,
            local,
            clock,
            owed: Mutex::default(),
        }
    }

    async fn add_shared(&self, name: &str, amount: u64, ttl: Duration) -> Result<u64, StoreError> {
        let all = self.send(name, amount, ttl).await?;
        // Only now: a command without an answer may have run, and a large debt would count twice.
        let mut debt = SentDebt {
            counters: self,
            name,
            amount: self.take_owed(name),
            ttl,
        };
        if debt.amount == 0 {
            return Ok(all);
        }
        match self.send(name, debt.amount, ttl).await {
            Ok(all) => {
                debt.amount = 0;
                Ok(all)
            }
            Err(_) => Ok(all),
        }
    }

    async fn send(&self, name: &str, amount: u64, ttl: Duration) -> Result<u64, StoreError> {
        let mut call = COUNT.prepare_invoke();
        call.key(format!("{}:c:{name}", self.namespace))
            .arg(amount.min(i64::MAX as u64))
            .arg(ttl.as_millis().max(1).to_string());
        let limit = self.link.command_timeout();
        self.link.invoke("count", limit, &call).await
    }

    /// Adds to this replica's own counter, which then is at least `all`. Returns its value.
    async fn add_own(&self, name: &str, amount: u64, ttl: Duration, all: u64) -> u64 {
        // Without room for the counter, the value in the store is the only one.
        let own = self.local.add(name, amount, ttl, OutageCounting::Own).await;
        let own = own.unwrap_or(all);
        if own < all {
            let missing = all - own;
            let _no_room = self
                .local
                .add(name, missing, ttl, OutageCounting::Own)
                .await;
        }
        own.max(all)
    }

    fn take_owed(&self, name: &str) -> u64 {
        let now = self.clock.monotonic();
        let owed = lock(&self.owed).remove(name);
        owed.filter(|owed| owed.ends > now)
            .map_or(0, |owed| owed.amount)
    }

    fn owe(&self, name: &str, amount: u64, ttl: Duration) {
        if amount == 0 {
            return;
        }
        let now = self.clock.monotonic();
        let mut all = lock(&self.owed);
        if let Some(owed) = all.get_mut(name) {
            owed.amount = owed.amount.saturating_add(amount);
            return;
        }
        if all.len() >= MAX_OWED {
            all.retain(|_, owed| owed.ends > now);
        }
        if all.len() < MAX_OWED {
            let ends = now + ttl;
            all.insert(name.into(), OwedAmount { amount, ends });
        }
    }
}

impl SharedCounters for RedisCounters {
    fn add<'a>(
        &'a self,
        name: &'a str,
        amount: u64,
        ttl: Duration,
        in_outage: OutageCounting,
    ) -> Fut<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            match (self.add_shared(name, amount, ttl).await, in_outage) {
                (Ok(all), _) => Ok(self.add_own(name, amount, ttl, all).await),
                (Err(error), OutageCounting::Fails) => Err(error),
                (Err(_), OutageCounting::Own) => {
                    let labels = [KeyValue::new("operation", "count")];
                    instruments().store_fallbacks.add(1, &labels);
                    let own = self.local.add(name, amount, ttl, in_outage).await?;
                    self.owe(name, amount, ttl);
                    Ok(own)
                }
            }
        })
    }
}

impl fmt::Debug for RedisCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCounters").finish_non_exhaustive()
    }
}
