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

use super::fair_queue::{
    FairQueues, QueueAdmission, QueueCaps, QueueName, QueueParty, QueueSlot, SlotWait,
};
use super::refusal::{self, PRINCIPAL, UPSTREAM};
use super::settings::{AllowedCounter, ConcurrencyLimits};
use super::slot_usage::{LimitOwner, SlotUsage};

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
        let party = *principal.digest();
        // The anonymous principal stands for all anonymous callers: it has no share of its own.
        let own = (!principal.is_anonymous()).then(|| SlotGate {
            upstream: None,
            caps: rules.of_principal(),
        });
        let theirs = rules.of_upstream(upstream).map(|caps| SlotGate {
            upstream: Some(upstream),
            caps,
        });
        let first = own
            .as_ref()
            .map(|gate| self.principals.enter(&party, party, gate.caps));
        let second = || {
            theirs
                .as_ref()
                .map(|gate| self.upstreams.enter(upstream, party, gate.caps))
        };
        let (first, wait) = match slot_or_wait(first, own.as_ref())? {
            Ok(first) => match slot_or_wait(second(), theirs.as_ref())? {
                Ok(second) => return Ok(PermitWait::Now(permit(first, second))),
                Err(waiting) => {
                    let wait = rules.wait;
                    return Ok(PermitWait::Later(Box::pin(async move {
                        let until = Instant::now() + wait;
                        Ok(permit(
                            first,
                            Some(wait_for_slot(waiting, theirs.as_ref(), until).await?),
                        ))
                    })));
                }
            },
            Err(waiting) => (waiting, rules.wait),
        };
        Ok(PermitWait::Later(Box::pin(async move {
            let until = Instant::now() + wait;
            let first = Some(wait_for_slot(first, own.as_ref(), until).await?);
            let second = theirs
                .as_ref()
                .map(|gate| self.upstreams.enter(upstream, party, gate.caps));
            let second = match slot_or_wait(second, theirs.as_ref())? {
                Ok(second) => second,
                Err(waiting) => Some(wait_for_slot(waiting, theirs.as_ref(), until).await?),
            };
            Ok(permit(first, second))
        })))
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

/// A slot (absent if no limit applies), or else the wait for one.
type SlotOrWait<K> = Result<Option<QueueSlot<K>>, SlotWait<K>>;

fn slot_or_wait<K: QueueName>(
    turn: Option<QueueAdmission<K>>,
    gate: Option<&SlotGate<'_>>,
) -> Result<SlotOrWait<K>, Failure> {
    match turn {
        None => Ok(Ok(None)),
        Some(QueueAdmission::Now(place)) => Ok(Ok(Some(place))),
        Some(QueueAdmission::Wait(waiting)) => Ok(Err(waiting)),
        Some(QueueAdmission::Full) => Err(refused(gate, "full")),
    }
}

/// Waits for a slot until `until`.
async fn wait_for_slot<K: QueueName>(
    waiting: SlotWait<K>,
    gate: Option<&SlotGate<'_>>,
    until: Instant,
) -> Result<QueueSlot<K>, Failure> {
    let queued = QueueTimer::new(gate);
    let place = tokio::time::timeout_at(until, waiting).await;
    drop(queued);
    match place {
        Ok(Some(place)) => Ok(place),
        // The call of a principal with fewer waiting calls took its position in a full queue.
        Ok(None) => Err(refused(gate, "full")),
        Err(_) => Err(refused(gate, "waited")),
    }
}

/// The owner of the slots, for refusals and metrics.
struct SlotGate<'a> {
    /// The upstream; `None`: the call's principal.
    upstream: Option<&'a UpstreamId>,
    caps: QueueCaps,
}

fn refused(gate: Option<&SlotGate<'_>>, outcome: &'static str) -> Failure {
    let places = gate.map_or(0, |gate| gate.caps.places);
    match gate.and_then(|gate| gate.upstream) {
        Some(upstream) => refusal::busy(UPSTREAM, places, outcome).with_upstream(upstream),
        None => refusal::busy(PRINCIPAL, places, outcome),
    }
}

/// A call in a queue, for the metrics: it counts the waiting calls and records the wait.
struct QueueTimer {
    labels: Vec<KeyValue>,
    since: Instant,
}

impl QueueTimer {
    fn new(gate: Option<&SlotGate<'_>>) -> Self {
        let upstream = gate.and_then(|gate| gate.upstream);
        let name = if upstream.is_some() {
            UPSTREAM
        } else {
            PRINCIPAL
        };
        let upstream =
            upstream.map(|upstream| KeyValue::new("upstream", upstream.as_str().to_owned()));
        let labels: Vec<_> = std::iter::once(KeyValue::new("limit", name))
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
