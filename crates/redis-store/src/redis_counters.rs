//! Counters that all replicas add to.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use weir_core::port::{
    BoxFuture, Clock, CounterAddition, CounterValue, OutageCounting, SharedCounters, StoreError,
};
use weir_core::telemetry::instruments;

use crate::counter_table::{CounterTable, StoredValue};
use crate::link_status::CommandEffect;
use crate::redis_link::{CommandFailure, RedisLink, RunningCommand};
use crate::scripts::COUNT;

/// The command that adds to a counter.
const COUNTING: RunningCommand = RunningCommand::new("count", CommandEffect::Writes);

/// Counters in the shared store. While the store does not answer, they go on from the last value
/// that this replica has seen, and the store gets the amounts of that time once it answers the next
/// addition. It does not get those that it did not answer in time: a store that stalls adds them
/// later, and they must not count twice. A store that lost its data gets back, with each addition, the highest value that this
/// replica has seen there.
pub struct RedisCounters {
    link: Arc<RedisLink>,
    namespace: String,
    clock: Arc<dyn Clock>,
    known: CounterTable,
}

/// The owed amount of a counter on its way to the store. It stays owed if it does not arrive.
struct SentDebt<'a> {
    counters: &'a RedisCounters,
    name: &'a str,
    amount: u64,
    has_arrived: bool,
}

impl Drop for SentDebt<'_> {
    fn drop(&mut self) {
        let RedisCounters { known, clock, .. } = self.counters;
        known.settle(self.name, self.amount, self.has_arrived, clock.monotonic());
    }
}

impl RedisCounters {
    /// Counters below a namespace.
    pub(crate) fn new(link: Arc<RedisLink>, namespace: String, clock: Arc<dyn Clock>) -> Self {
        Self {
            link,
            namespace,
            clock,
            known: CounterTable::default(),
        }
    }

    async fn add_shared(
        &self,
        addition: CounterAddition<'_>,
    ) -> Result<CounterValue, CommandFailure> {
        let name = addition.name;
        // The store gets the debt afterwards: it counts already.
        let owed = self.known.owed(name, self.clock.monotonic());
        let (stored, is_added) = self
            .send(CounterAddition {
                most: addition.most.saturating_sub(owed),
                ..addition
            })
            .await?;
        // Only now: a command without an answer may have run, and a large debt would count twice.
        let mut debt = SentDebt {
            counters: self,
            name,
            amount: self.known.take_owed(name, self.clock.monotonic()),
            has_arrived: false,
        };
        let whole = CounterAddition {
            amount: debt.amount,
            most: u64::MAX,
            ..addition
        };
        let stored = match debt.amount {
            0 => stored,
            _ => match self.send(whole).await {
                Ok((later, _)) => {
                    debt.has_arrived = true;
                    later
                }
                Err(failure) => {
                    debt.has_arrived = failure.may_run_later();
                    stored
                }
            },
        };
        drop(debt);
        let value = self.known.follow(name, stored, self.clock.monotonic());
        Ok(CounterValue { value, is_added })
    }

    /// Returns the value in the store, and if the amount was added.
    async fn send(
        &self,
        addition: CounterAddition<'_>,
    ) -> Result<(StoredValue, bool), CommandFailure> {
        let begun = self.clock.monotonic();
        let mut call = COUNT.prepare_invoke();
        call.key(format!("{}:c:{}", self.namespace, addition.name))
            .arg(addition.amount.min(i64::MAX as u64))
            .arg(addition.ttl.as_millis().max(1).to_string())
            .arg(self.known.seen(addition.name, begun))
            .arg(addition.most.min(i64::MAX as u64));
        let limit = self.link.command_timeout();
        let (value, left, is_added): (u64, u64, bool) =
            self.link.run_script(COUNTING, limit, &call).await?;
        // Not later than in the store, or a counter would outlive its end there.
        let ends = begun + Duration::from_millis(left);
        Ok((StoredValue { value, ends }, is_added))
    }
}

impl SharedCounters for RedisCounters {
    fn add<'a>(
        &'a self,
        addition: CounterAddition<'a>,
        in_outage: OutageCounting,
    ) -> BoxFuture<'a, Result<CounterValue, StoreError>> {
        Box::pin(async move {
            match (self.add_shared(addition).await, in_outage) {
                (Ok(counted), _) => Ok(counted),
                (Err(failure), OutageCounting::Fails) => Err(failure.into()),
                (Err(failure), OutageCounting::Own) => {
                    let labels = [KeyValue::new("operation", COUNTING.operation)];
                    instruments().store_fallbacks.add(1, &labels);
                    let now = self.clock.monotonic();
                    let is_owed = !failure.may_run_later();
                    self.known.add_alone(addition, is_owed, now)
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
