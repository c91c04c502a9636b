//! The concurrency slots of a call: one among its principal's calls, one among its upstream's.
//!
//! The principal's slot comes first: a call that waits for its upstream counts as one of its
//! principal's, so that no principal fills an upstream's queue with more than those.

use std::sync::LazyLock;
use std::time::Duration;

use opentelemetry::KeyValue;
use tokio::time::Instant;
use weir_core::failure::Failure;
use weir_core::names::UpstreamId;
use weir_core::port::{CallPermit, PermitWait};
use weir_core::principal::Principal;
use weir_core::telemetry::instruments;

use crate::limit::fair_queue::{
    FairQueues, QueueAdmission, QueueCaps, QueueName, QueueParty, QueueSlot, SlotWait,
};
use crate::limit::refusal::{self, PRINCIPAL, UPSTREAM};
use crate::limit::settings::{AllowedCounter, ConcurrencyLimits};
use crate::limit::slot_usage::{LimitOwner, SlotUsage};

impl ConcurrencyLimits {
    fn of_principal(&self) -> QueueCaps {
        QueueCaps {
            places: self.principal,
            waiting: self.queue,
        }
    }

    fn of_upstream(&self, upstream: &UpstreamId) -> Option<QueueCaps> {
        self.upstreams.get(upstream).map(|places| QueueCaps {
            places: *places,
            waiting: self.upstream_queue,
        })
    }
}

/// All concurrency slots.
pub(super) struct ConcurrencySlots {
    principals: FairQueues<QueueParty>,
    upstreams: FairQueues<UpstreamId>,
}

impl Default for ConcurrencySlots {
    fn default() -> Self {
        Self {
            principals: FairQueues::new(),
            upstreams: FairQueues::new(),
        }
    }
}

impl ConcurrencySlots {
    /// The slots that a call needs: the limit's name, the number taken, the number of waiting
    /// calls, and the caps of both.
    pub(super) fn loads(
        &self,
        principal: &Principal,
        upstream: &UpstreamId,
        rules: &ConcurrencyLimits,
    ) -> impl Iterator<Item = (&'static str, (usize, usize), QueueCaps)> {
        let own = (!principal.is_anonymous()).then(|| {
            (
                PRINCIPAL,
                self.principals.load(principal.digest()),
                rules.of_principal(),
            )
        });
        let theirs = rules
            .of_upstream(upstream)
            .map(|caps| (UPSTREAM, self.upstreams.load(upstream), caps));
        own.into_iter().chain(theirs)
    }

    /// The use of slots by principals and upstreams.
    pub(super) fn usage(&self, rules: &ConcurrencyLimits) -> Vec<SlotUsage> {
        let own = self
            .principals
            .loads()
            .into_iter()
            .map(|(party, (held, waiting))| SlotUsage {
                owner: LimitOwner::Principal(party),
                held,
                waiting,
                most: rules.principal,
            });
        let theirs = self
            .upstreams
            .loads()
            .into_iter()
            .map(|(upstream, (held, waiting))| {
                let most = rules.upstreams.get(&upstream).copied().unwrap_or(held);
                SlotUsage {
                    owner: LimitOwner::Upstream(upstream.to_string()),
                    held,
                    waiting,
                    most,
                }
            });
        own.chain(theirs).collect()
    }

    /// Takes both slots, at once or after a wait.
    pub(super) fn enter<'a>(
        &'a self,
        principal: &'a Principal,
        upstream: &'a UpstreamId,
        rules: &ConcurrencyLimits,
    ) -> Result<PermitWait<'a>, Failure> {
        let party = principal.digest();
        // The anonymous principal stands for all anonymous callers: it has no share of its own.
        let own = (!principal.is_anonymous()).then(|| SlotLimit {
            queues: &self.principals,
            name: party,
            party: *party,
            caps: rules.of_principal(),
            upstream: None,
        });
        let theirs = rules.of_upstream(upstream).map(|caps| SlotLimit {
            queues: &self.upstreams,
            name: upstream,
            party: *party,
            caps,
            upstream: Some(upstream),
        });
        let wait = rules.wait;
        let first = match EnteredSlot::enter(own)? {
            EnteredSlot::Taken(first) => first,
            waiting @ EnteredSlot::Waiting(..) => {
                return Ok(PermitWait::Later(Box::pin(async move {
                    let until = Instant::now() + wait;
                    let first = waiting.wait(until).await?;
                    let second = EnteredSlot::enter(theirs)?.wait(until).await?;
                    Ok(permit(first, second))
                })));
            }
        };
        match EnteredSlot::enter(theirs)? {
            EnteredSlot::Taken(second) => Ok(PermitWait::Now(permit(first, second))),
            waiting @ EnteredSlot::Waiting(..) => Ok(PermitWait::Later(Box::pin(async move {
                let second = waiting.wait(Instant::now() + wait).await?;
                Ok(permit(first, second))
            }))),
        }
    }
}

static PRINCIPAL_ALLOWED: LazyLock<AllowedCounter> = LazyLock::new(AllowedCounter::default);
static UPSTREAM_ALLOWED: LazyLock<AllowedCounter> = LazyLock::new(AllowedCounter::default);

fn permit(
    first: Option<QueueSlot<QueueParty>>,
    second: Option<QueueSlot<UpstreamId>>,
) -> CallPermit {
    if first.is_some() {
        PRINCIPAL_ALLOWED.count_one(PRINCIPAL);
    }
    if second.is_some() {
        UPSTREAM_ALLOWED.count_one(UPSTREAM);
    }
    match (first, second) {
        (None, None) => CallPermit::free(),
        both => CallPermit::holding(both),
    }
}

/// A limit of a call: the slots of its principal, or those of its upstream.
struct SlotLimit<'a, K: QueueName> {
    queues: &'a FairQueues<K>,
    name: &'a K,
    /// The call's principal, which waits in the queue.
    party: QueueParty,
    caps: QueueCaps,
    /// The upstream with the slots; `None`: the call's principal has them.
    upstream: Option<&'a UpstreamId>,
}

impl<K: QueueName> SlotLimit<'_, K> {
    fn refused(&self, outcome: &'static str) -> Failure {
        let failure = refusal::busy(self.limit_name(), self.caps.places, outcome);
        match self.upstream {
            Some(upstream) => failure.with_upstream(upstream),
            None => failure,
        }
    }

    fn limit_name(&self) -> &'static str {
        if self.upstream.is_some() {
            UPSTREAM
        } else {
            PRINCIPAL
        }
    }
}

/// A slot (absent if no limit applies), or else the wait for one.
enum EnteredSlot<'a, K: QueueName> {
    Taken(Option<QueueSlot<K>>),
    Waiting(SlotWait<K>, SlotLimit<'a, K>),
}

impl<'a, K: QueueName> EnteredSlot<'a, K> {
    fn enter(limit: Option<SlotLimit<'a, K>>) -> Result<Self, Failure> {
        let Some(limit) = limit else {
            return Ok(Self::Taken(None));
        };
        match limit.queues.enter(limit.name, limit.party, limit.caps) {
            QueueAdmission::Now(slot) => Ok(Self::Taken(Some(slot))),
            QueueAdmission::Wait(waiting) => Ok(Self::Waiting(waiting, limit)),
            QueueAdmission::Full => Err(limit.refused("full")),
        }
    }

    /// Waits for a slot until `until`.
    async fn wait(self, until: Instant) -> Result<Option<QueueSlot<K>>, Failure> {
        let (waiting, limit) = match self {
            Self::Taken(slot) => return Ok(slot),
            Self::Waiting(waiting, limit) => (waiting, limit),
        };
        let queued = QueueTimer::new(&limit);
        let slot = tokio::time::timeout_at(until, waiting).await;
        drop(queued);
        match slot {
            Ok(Some(slot)) => Ok(Some(slot)),
            // The call of a principal with fewer waiting calls took its position in a full queue.
            Ok(None) => Err(limit.refused("full")),
            Err(_) => Err(limit.refused("waited")),
        }
    }
}

/// A call in a queue, for the metrics: it counts the waiting calls and records the wait.
struct QueueTimer {
    labels: Vec<KeyValue>,
    since: Instant,
}

impl QueueTimer {
    fn new<K: QueueName>(limit: &SlotLimit<'_, K>) -> Self {
        let upstream = limit
            .upstream
            .map(|upstream| KeyValue::new("upstream", upstream.as_str().to_owned()));
        let labels: Vec<_> = std::iter::once(KeyValue::new("limit", limit.limit_name()))
            .chain(upstream)
            .collect();
        instruments().limit_queue.add(1, &labels);
        Self {
            labels,
            since: Instant::now(),
        }
    }
}

impl Drop for QueueTimer {
    fn drop(&mut self) {
        let waited: Duration = self.since.elapsed();
        instruments().limit_queue.add(-1, &self.labels);
        instruments()
            .limit_wait
            .record(waited.as_secs_f64(), &self.labels);
    }
}
