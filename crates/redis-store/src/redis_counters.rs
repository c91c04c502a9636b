//! Counters that all replicas add to.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use weir_core::port::{Fut, SharedCounters, StoreError};
use weir_core::telemetry::instruments;

use crate::redis_link::RedisLink;
use crate::scripts::COUNT;

/// Counters in the shared store. While it does not answer, the counters of this replica alone are
/// used. The latter count all the time, so that they know the share of this replica then.
pub struct RedisCounters {
    link: Arc<RedisLink>,
    namespace: String,
    local: Arc<dyn SharedCounters>,
}

impl RedisCounters {
    /// Counters below a namespace, over those of this replica.
    pub(crate) fn new(
        link: Arc<RedisLink>,
        namespace: String,
        local: Arc<dyn SharedCounters>,
    ) -> Self {
        Self {
            link,
            namespace,
            local,
        }
    }

    async fn add_shared(&self, name: &str, amount: u64, ttl: Duration) -> Result<u64, StoreError> {
        let mut call = COUNT.prepare_invoke();
        call.key(format!("{}:c:{name}", self.namespace))
            .arg(amount.min(i64::MAX as u64))
            .arg(ttl.as_millis().max(1).to_string());
        let limit = self.link.command_timeout();
        self.link.invoke("count", limit, &call).await
    }
}

impl SharedCounters for RedisCounters {
    fn add<'a>(
        &'a self,
        name: &'a str,
        amount: u64,
        ttl: Duration,
    ) -> Fut<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            let own = self.local.add(name, amount, ttl).await;
            match self.add_shared(name, amount, ttl).await {
                Ok(all) => Ok(all),
                Err(_) => {
                    let labels = [KeyValue::new("operation", "count")];
                    instruments().store_fallbacks.add(1, &labels);
                    own
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
