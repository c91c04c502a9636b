//! Rates, daily quotas and concurrency limits, behind core's [`Limiter`].
//!
//! A request pays at three points: its address before authentication, its principal before its body
//! is read, and each call by its cost, once its tool is known. A principal's own limits come before
//! shared ones, so that a refused caller takes no budget from the others. A charge before a refusal
//! is not refunded.
//!
//! It counts for this replica alone, except for daily quotas, counted through the `SharedCounters`
//! port.

mod bucket_table;
mod daily_quota;
mod fair_queue;
mod limit_overview;
mod limit_status;
mod refusal;
mod settings;
mod slot_usage;
mod slots;

pub use limit_overview::ExhaustedBudget;
pub use limit_status::LimitStatus;
pub use settings::{
    ConcurrencyLimits, LimitSettings, Rate, RateLimit, ToolLimit, ToolPattern, UncountedQuota,
};
pub use slot_usage::{LimitOwner, SlotUsage};

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use weir_core::call::Call;
use weir_core::catalog_item::CatalogItem;
use weir_core::failure::Failure;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::{Clock, Limiter, PermitWait, SharedCounters};
use weir_core::principal::Principal;
use weir_core::tool::Tool;
use weir_core::upstream::ListKind;

use bucket_table::{BucketKey, BucketTable};
use daily_quota::{DailyQuotas, QuotaCharge};
use refusal::RateUnit;
use slots::ConcurrencySlots;

/// Addresses with a bucket: 8 MiB at most.
const ADDRESSES: usize = 1 << 16;
/// Buckets of principals (each has one for every limit that holds for it) and of upstreams: 16 MiB
/// at most.
const BUCKETS: usize = 1 << 17;
/// The owner of the buckets that all principals share.
const SHARED_OWNER: [u8; 16] = [0; 16];
const ONE: NonZeroU32 = NonZeroU32::MIN;

/// The limiter. Its limits can be replaced while it works; the counts of a limit that stays the
/// same, in name and numbers, continue.
pub struct PolicyLimiter {
    rates: ArcSwap<LimitSettings>,
    addresses: BucketTable,
    buckets: BucketTable,
    quotas: DailyQuotas,
    places: ConcurrencySlots,
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
            buckets: BucketTable::new(buckets, clock.clone()),
            quotas: DailyQuotas::new(clock, counters),
            places: ConcurrencySlots::default(),
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

    /// Charges a call to every rate that applies; returns the daily quotas that apply.
    fn charge(
        &self,
        rates: &LimitSettings,
        errand: &LimitedCall<'_>,
    ) -> Result<Vec<QuotaCharge>, Failure> {
        let mut quotas = Vec::new();
        for LimitCharge {
            limit,
            what,
            owner: of,
            cost,
        } in LimitCharge::of(rates, errand)
        {
            charge_rate(&self.buckets, limit, what, of, cost).map_err(|failure| match what {
                RateUnit::Upstream => failure.with_upstream(errand.upstream),
                RateUnit::Requests | RateUnit::Calls | RateUnit::Tool => failure,
            })?;
            quotas.extend(limit.daily.map(|most| QuotaCharge {
                name: limit.name.clone(),
                of,
                most,
                cost: cost.get().into(),
            }));
        }
        Ok(quotas)
    }

    fn admit<'a>(&'a self, errand: LimitedCall<'a>) -> Result<PermitWait<'a>, Failure> {
        let rates = self.rates.load();
        let due = self.charge(&rates, &errand)?;
        let LimitedCall {
            principal,
            upstream,
            ..
        } = errand;
        if due.is_empty() {
            return self.places.enter(principal, upstream, &rates.concurrency);
        }
        let rates = Guard::into_inner(rates);
        Ok(PermitWait::Later(Box::pin(async move {
            self.quotas.spend(due, rates.uncounted).await?;
            match self.places.enter(principal, upstream, &rates.concurrency)? {
                PermitWait::Now(permit) => Ok(permit),
                PermitWait::Later(turn) => turn.await,
            }
        })))
    }
}

/// The facts of a call that a limiter needs.
#[derive(Clone, Copy)]
struct LimitedCall<'a> {
    principal: &'a Principal,
    endpoint: &'a EndpointId,
    upstream: &'a UpstreamId,
    /// The own name of a tool, or of a method that no revision knows; absent for a prompt or
    /// resource.
    tool: Option<&'a str>,
}

/// The charge of a call against one limit.
#[derive(Clone, Copy)]
struct LimitCharge<'a> {
    limit: &'a RateLimit,
    what: RateUnit,
    /// The owner of the budget.
    owner: [u8; 16],
    cost: NonZeroU32,
}

impl<'a> LimitCharge<'a> {
    /// All charges of a call, the principal's own first.
    fn of(rates: &'a LimitSettings, errand: &LimitedCall<'_>) -> impl Iterator<Item = Self> {
        let LimitedCall {
            principal,
            endpoint,
            upstream,
            tool,
        } = *errand;
        let tool = tool.and_then(|native| {
            rates
                .tools
                .iter()
                .find(|tool| tool.pattern.matches(upstream, native))
        });
        let cost = tool.map_or(ONE, |tool| tool.cost);
        let own = rates.of(principal, endpoint);
        let own = own.map(|limit| Self {
            limit,
            what: RateUnit::Calls,
            owner: *principal.digest(),
            cost,
        });
        let tools = tool.map(|tool| {
            let of = if tool.shared {
                SHARED_OWNER
            } else {
                *principal.digest()
            };
            Self {
                limit: &tool.limit,
                what: RateUnit::Tool,
                owner: of,
                cost: ONE,
            }
        });
        let theirs = rates.upstreams.get(upstream);
        let theirs = theirs.map(|limit| Self {
            limit,
            what: RateUnit::Upstream,
            owner: SHARED_OWNER,
            cost,
        });
        [own, tools, theirs].into_iter().flatten()
    }
}

/// Takes `cost` from the bucket of `owner` under a limit's rate, if the limit has one.
fn charge_rate(
    table: &BucketTable,
    limit: &RateLimit,
    what: RateUnit,
    owner: [u8; 16],
    cost: NonZeroU32,
) -> Result<(), Failure> {
    let Some(rate) = &limit.rate else {
        return Ok(());
    };
    let key = BucketKey {
        limit: limit.digest,
        what,
        of: owner,
    };
    table
        .take(key, rate, cost)
        .map_err(|wait| refusal::rate(&limit.name, rate, what, wait))?;
    limit.count_allowed();
    Ok(())
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
        charge_rate(
            &self.addresses,
            limit,
            RateUnit::Requests,
            address_network(peer),
            ONE,
        )
    }

    fn admit_request(&self, principal: &Principal, endpoint: &EndpointId) -> Result<(), Failure> {
        let rates = self.rates.load();
        let Some(limit) = rates.of(principal, endpoint) else {
            return Ok(());
        };
        charge_rate(
            &self.buckets,
            limit,
            RateUnit::Requests,
            *principal.digest(),
            ONE,
        )
    }

    fn admit_call<'a>(
        &'a self,
        principal: &'a Principal,
        call: &'a Call,
        item: &'a CatalogItem,
    ) -> Result<PermitWait<'a>, Failure> {
        let Tool {
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
}

impl fmt::Debug for PolicyLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Limits").field(&self.rates.load()).finish()
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
