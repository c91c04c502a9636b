//! The charges of a request or call: the limits that apply to it, and the buckets that pay.

use std::num::NonZeroU32;
use std::time::Duration;

use weir_core::failure::Failure;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::{Rate, RateBucket, RateUnit};
use weir_core::principal::Principal;

use crate::limit::daily_quota::{QuotaBudget, QuotaCharge};
use crate::limit::refusal;
use crate::limit::settings::{LimitSettings, RateLimit};

/// The owner of the buckets that all principals share.
pub(super) const SHARED_OWNER: [u8; 16] = [0; 16];
/// The cost of a request, and of a call of a tool without a cost.
pub(super) const ONE: NonZeroU32 = NonZeroU32::MIN;

/// The facts of a call that a limiter needs.
#[derive(Clone, Copy)]
pub(super) struct LimitedCall<'a> {
    pub(super) principal: &'a Principal,
    pub(super) endpoint: &'a EndpointId,
    pub(super) upstream: &'a UpstreamId,
    /// The own name of a tool, or of a method that no revision knows; absent for a prompt or
    /// resource.
    pub(super) tool: Option<&'a str>,
}

/// The charge of a request or call against one limit.
#[derive(Clone, Copy)]
pub(super) struct LimitCharge<'a> {
    pub(super) limit: &'a RateLimit,
    pub(super) unit: RateUnit,
    /// The owner of the budget.
    pub(super) owner: [u8; 16],
    pub(super) cost: NonZeroU32,
}

/// All charges of a call, the principal's own first; then its tool's, and its upstream's.
pub(super) type CallCharges<'a> = [Option<LimitCharge<'a>>; 3];

impl<'a> LimitCharge<'a> {
    /// The charge of a request.
    pub(super) fn of_request(limit: &'a RateLimit, owner: [u8; 16]) -> Self {
        Self {
            limit,
            unit: RateUnit::Requests,
            owner,
            cost: ONE,
        }
    }

    /// All charges of a call.
    pub(super) fn of_call(rates: &'a LimitSettings, call: &LimitedCall<'_>) -> CallCharges<'a> {
        let LimitedCall {
            principal,
            endpoint,
            upstream,
            tool,
        } = *call;
        let tool = tool.and_then(|native| {
            rates
                .tools
                .iter()
                .find(|tool| tool.pattern.matches(upstream, native))
        });
        let cost = tool.map_or(ONE, |tool| tool.cost);
        let own = rates.of(principal, endpoint).map(|limit| Self {
            limit,
            unit: RateUnit::Calls,
            owner: *principal.digest(),
            cost,
        });
        let of_tool = tool.map(|tool| Self {
            limit: &tool.limit,
            unit: RateUnit::Tool,
            owner: if tool.shared {
                SHARED_OWNER
            } else {
                *principal.digest()
            },
            cost: ONE,
        });
        let of_upstream = rates.upstreams.get(upstream).map(|limit| Self {
            limit,
            unit: RateUnit::Upstream,
            owner: SHARED_OWNER,
            cost,
        });
        [own, of_tool, of_upstream]
    }

    /// The rate and the bucket that pays; `None` without a rate.
    pub(super) fn bucket(&self) -> Option<(RateBucket, &'a Rate)> {
        let bucket = RateBucket {
            limit: self.limit.digest,
            unit: self.unit,
            owner: self.owner,
        };
        self.limit.rate.as_ref().map(|rate| (bucket, rate))
    }

    /// The charge against the daily quota, if the limit has one.
    pub(super) fn quota(&self) -> Option<QuotaCharge> {
        self.limit.daily.map(|most| QuotaCharge {
            budget: QuotaBudget {
                limit: self.limit.name.clone(),
                unit: self.unit,
                owner: self.owner,
            },
            most,
            cost: self.cost.get().into(),
            decides_alone: self.limit.rate.is_none(),
        })
    }

    /// Counts the decision on this charge. A limit without a rate decides nothing here: its quota
    /// is charged later.
    ///
    /// # Errors
    /// The charge was refused.
    pub(super) fn settle(&self, decision: Result<(), Duration>) -> Result<(), Failure> {
        let Some(rate) = &self.limit.rate else {
            return Ok(());
        };
        let refused = |wait: Duration| refusal::rate(&self.limit.name, rate, self.unit, wait);
        decision.map_err(refused)?;
        self.limit.count_allowed();
        Ok(())
    }
}
