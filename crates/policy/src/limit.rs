//! Rates, daily quotas and concurrency limits, behind core's [`Limiter`].
//!
//! A request pays at three points: its address before authentication, its principal before its body
//! is read, and each call by its cost, once its tool is known. A principal's own limits come before
//! shared ones, so that a refused caller takes no budget from the others. The charge of a rate before
//! a refusal is not refunded; a daily quota is charged last, once the call has its slots.
//!
//! Replicas that share a store share the rates through the port `SharedRates`, and daily quotas
//! through `SharedCounters`. Slots are of this replica alone, and so is the rate of an address: it
//! is charged before authentication, and a flood of unknown senders must not reach the store.

mod bucket_table;
mod daily_quota;
mod fair_queue;
mod limit_charge;
mod limit_overview;
mod limit_status;
mod rate_buckets;
mod refusal;
mod settings;
mod slot_usage;
mod slots;

pub use limit_overview::ExhaustedBudget;
pub use limit_status::LimitStatus;
pub use settings::{
    ConcurrencyLimits, LimitSettings, RateLimit, ToolLimit, ToolPattern, UncountedQuota,
};
pub use slot_usage::{LimitOwner, SlotUsage};

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use weir_core::call::Call;
use weir_core::catalog_item::CatalogItem;
use weir_core::failure::Failure;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::{
    BoxFuture, CallPermit, Clock, Limiter, PermitWait, RateDecision, RateUnit, SharedCounters,
    SharedRates,
};
use weir_core::principal::Principal;
use weir_core::server_item::ServerItem;
use weir_core::upstream::ListKind;

use bucket_table::BucketTable;
use daily_quota::DailyQuotas;
use limit_charge::{CallCharges, LimitCharge, LimitedCall};
use rate_buckets::RateBuckets;
use slots::ConcurrencySlots;

/// Addresses with a bucket: 8 MiB at most.
const ADDRESSES: usize = 1 << 16;
/// Buckets of principals (each has one for every limit that holds for it) and of upstreams: 16 MiB
/// at most.
const BUCKETS: usize = 1 << 17;

/// The limiter. Its limits can be replaced while it works; the counts of a limit that stays the
/// same, in name and numbers, continue.
pub struct PolicyLimiter {
    rates: ArcSwap<LimitSettings>,
    addresses: BucketTable,
    buckets: RateBuckets,
    quotas: DailyQuotas,
    slots: ConcurrencySlots,
}

impl PolicyLimiter {
    /// A limiter that takes the time from `clock` and counts daily quotas in `counters`.
    #[must_use]
    pub fn new(
        rates: LimitSettings,
        clock: Arc<dyn Clock>,
        counters: Arc<dyn SharedCounters>,
    ) -> Self {
        Self::with_capacities(rates, ADDRESSES, BUCKETS, clock, counters)
    }

    /// Charges the rates of principals, tools and upstreams to buckets that all replicas share.
    #[must_use]
    pub fn with_shared_rates(mut self, shared: Arc<dyn SharedRates>) -> Self {
        self.buckets.share(shared);
        self
    }

    /// Returns a limiter with tables of so many addresses and buckets.
    fn with_capacities(
        rates: LimitSettings,
        addresses: usize,
        buckets: usize,
        clock: Arc<dyn Clock>,
        counters: Arc<dyn SharedCounters>,
    ) -> Self {
        Self {
            rates: ArcSwap::from_pointee(rates),
            addresses: BucketTable::new(addresses, clock.clone()),
            buckets: RateBuckets::new(buckets, clock.clone()),
            quotas: DailyQuotas::new(clock, counters),
            slots: ConcurrencySlots::default(),
        }
    }

    /// Initializes the decision counters of every limit with 0. To be called once the instruments
    /// are installed.
    pub fn start_at_zero(&self) {
        self.rates.load().start_at_zero();
    }

    /// Replaces the limits. Calls that wait for a slot keep their position, and their maximal wait.
    pub fn replace(&self, rates: LimitSettings) {
        rates.start_at_zero();
        self.rates.store(Arc::new(rates));
    }

    /// Makes the charges of a call from this index on. Returns the first one whose decision needs a
    /// wait; those behind it are not made yet.
    fn charge_from<'a>(
        &'a self,
        index: usize,
        charges: &CallCharges<'_>,
        call: &LimitedCall<'_>,
    ) -> Result<Option<PendingCharge<'a>>, Failure> {
        for (index, charge) in charges.iter().enumerate().skip(index) {
            let Some(charge) = charge else {
                continue;
            };
            match self.buckets.charge(charge) {
                RateDecision::Now(decision) => settle(charge, call, decision)?,
                RateDecision::Later(decision) => {
                    return Ok(Some(PendingCharge { index, decision }));
                }
            }
        }
        Ok(None)
    }

    fn admit<'a>(&'a self, call: LimitedCall<'a>) -> Result<PermitWait<'a>, Failure> {
        let rates = self.rates.load();
        let charges = LimitCharge::of_call(&rates, &call);
        let pending = self.charge_from(0, &charges, &call)?;
        let has_quota = charges
            .iter()
            .flatten()
            .any(|charge| charge.limit.daily.is_some());
        if pending.is_none() && !has_quota {
            return self
                .slots
                .enter(call.principal, call.upstream, &rates.concurrency);
        }
        let rates = Guard::into_inner(rates);
        Ok(PermitWait::Later(Box::pin(
            self.admit_later(call, rates, pending),
        )))
    }

    /// Takes the slots of a call without a charge.
    fn enter<'a>(
        &'a self,
        principal: &'a Principal,
        upstream: &'a UpstreamId,
    ) -> Result<PermitWait<'a>, Failure> {
        let rates = self.rates.load();
        self.slots.enter(principal, upstream, &rates.concurrency)
    }

    /// Makes the charges from a pending one on, waits for the slots, and takes the daily quotas. The
    /// quotas count calls that run, so a call that gets no slot takes nothing from them; a call that
    /// they would refuse does not wait for a slot.
    async fn admit_later<'a>(
        &'a self,
        call: LimitedCall<'a>,
        rates: Arc<LimitSettings>,
        mut pending: Option<PendingCharge<'a>>,
    ) -> Result<CallPermit, Failure> {
        let charges = LimitCharge::of_call(&rates, &call);
        while let Some(PendingCharge { index, decision }) = pending {
            let decision = decision.await;
            if let Some(charge) = &charges[index] {
                settle(charge, &call, decision)?;
            }
            pending = self.charge_from(index + 1, &charges, &call)?;
        }
        let quotas = charges.iter().flatten().filter_map(LimitCharge::quota);
        let due: Vec<_> = quotas.collect();
        let permit = match self
            .slots
            .enter(call.principal, call.upstream, &rates.concurrency)?
        {
            PermitWait::Now(permit) => permit,
            PermitWait::Later(turn) => {
                self.quotas.check(&due, rates.uncounted).await?;
                turn.await?
            }
        };
        self.quotas.spend(&due, rates.uncounted).await?;
        Ok(permit)
    }
}

/// A charge of a call whose decision needs a wait.
struct PendingCharge<'a> {
    /// Its place among the charges.
    index: usize,
    decision: BoxFuture<'a, Result<(), Duration>>,
}

/// Counts the decision on a charge of a call. A refusal by an upstream's limit names the upstream.
fn settle(
    charge: &LimitCharge<'_>,
    call: &LimitedCall<'_>,
    decision: Result<(), Duration>,
) -> Result<(), Failure> {
    charge
        .settle(decision)
        .map_err(|failure| match charge.unit {
            RateUnit::Upstream => failure.with_upstream(call.upstream),
            RateUnit::Requests | RateUnit::Calls | RateUnit::Tool => failure,
        })
}

impl Limiter for PolicyLimiter {
    fn admit_address(&self, peer: IpAddr) -> Result<(), Failure> {
        let rates = self.rates.load();
        let Some(limit) = &rates.address else {
            return Ok(());
        };
        let peer = peer.to_canonical();
        // Programs on this machine share one address.
        if peer.is_loopback() {
            return Ok(());
        }
        let charge = LimitCharge::of_request(limit, address_network(peer));
        match charge.bucket() {
            Some((bucket, rate)) => charge.settle(self.addresses.take(bucket, rate, charge.cost)),
            None => Ok(()),
        }
    }

    fn admit_request<'a>(
        &'a self,
        principal: &'a Principal,
        endpoint: &'a EndpointId,
    ) -> RateDecision<'a, Failure> {
        let rates = self.rates.load();
        let Some(limit) = rates.of(principal, endpoint) else {
            return RateDecision::Now(Ok(()));
        };
        let charge = LimitCharge::of_request(limit, *principal.digest());
        let decision = match self.buckets.charge(&charge) {
            RateDecision::Now(decision) => return RateDecision::Now(charge.settle(decision)),
            RateDecision::Later(decision) => decision,
        };
        let limit = limit.clone();
        RateDecision::Later(Box::pin(async move {
            let decision = decision.await;
            LimitCharge::of_request(&limit, *principal.digest()).settle(decision)
        }))
    }

    fn admit_call<'a>(
        &'a self,
        principal: &'a Principal,
        call: &'a Call,
        item: &'a CatalogItem,
    ) -> Result<PermitWait<'a>, Failure> {
        let ServerItem {
            upstream,
            native,
            kind,
            ..
        } = &*item.tool;
        // A method that no revision knows is limited by its name, like a tool.
        let is_named = matches!(kind, ListKind::Tools) || call.extension.is_some();
        let tool = is_named.then_some(&**native);
        self.admit(LimitedCall {
            principal,
            endpoint: &call.endpoint,
            upstream,
            tool,
        })
    }

    fn admit_continuation<'a>(
        &'a self,
        principal: &'a Principal,
        item: &'a CatalogItem,
    ) -> Result<PermitWait<'a>, Failure> {
        self.enter(principal, &item.tool.upstream)
    }
}

impl fmt::Debug for PolicyLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PolicyLimiter")
            .field(&self.rates.load())
            .finish()
    }
}

/// The network that one client usually has to itself: a client with one address of it can have the
/// others too.
fn address_network(address: IpAddr) -> [u8; 16] {
    let mut prefix = [0; 16];
    match address {
        IpAddr::V4(address) => {
            // Distinct from every IPv6 network: ::/8 is reserved by the IETF.
            prefix[1] = 4;
            prefix[2..5].copy_from_slice(&address.octets()[..3]);
        }
        IpAddr::V6(address) => prefix[..8].copy_from_slice(&address.octets()[..8]),
    }
    prefix
}

#[cfg(test)]
mod tests;
