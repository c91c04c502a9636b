//! The current state of the limits of a call: for operators that look for the reason of a refusal.
//! No budget is charged.

use std::sync::Arc;
use std::time::Duration;

use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::{Rate, RateUnit};
use weir_core::principal::Principal;

use crate::limit::PolicyLimiter;
use crate::limit::daily_quota::QuotaCharge;
use crate::limit::limit_charge::{LimitCharge, LimitedCall};
use crate::limit::refusal::span;
use crate::limit::settings::UncountedQuota;

/// The state of one limit of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitStatus {
    /// Its name, as in refusals and metrics.
    pub limit: Arc<str>,
    /// The allowance; for people.
    pub allows: String,
    /// The refusal that a call would get now, with its duration; for people. Absent if it would
    /// pass.
    pub refuses: Option<String>,
}

impl PolicyLimiter {
    /// Every limit that applies to a call of a tool: rates, quotas and slots. `native` is the
    /// upstream's own name.
    pub async fn limit_status(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
        native: &str,
    ) -> Vec<LimitStatus> {
        let rates = self.rates.load_full();
        let call = LimitedCall {
            principal,
            endpoint,
            upstream,
            tool: Some(native),
        };
        let mut found = Vec::new();
        let request = rates
            .of(principal, endpoint)
            .map(|limit| LimitCharge::of_request(limit, *principal.digest()));
        let charges: Vec<LimitCharge<'_>> = request
            .into_iter()
            .chain(LimitCharge::of_call(&rates, &call).into_iter().flatten())
            .collect();
        for charge in &charges {
            if let Some(rate) = &charge.limit.rate {
                let wait = self.buckets.wait(charge).await;
                let refuses = (!wait.is_zero()).then(|| format!("used up for {}", span(wait)));
                found.push(LimitStatus {
                    limit: charge.limit.name.clone(),
                    allows: rate_text(charge.unit, rate),
                    refuses,
                });
            }
        }
        for charge in &charges {
            if let Some(quota) = charge.quota().filter(|_| charge.unit != RateUnit::Requests) {
                let refuses = self.quota_refusal(&quota, rates.uncounted).await;
                found.push(LimitStatus {
                    limit: charge.limit.name.clone(),
                    allows: quota_text(quota.most),
                    refuses,
                });
            }
        }
        for (name, (held, waiting), caps) in
            self.slots.loads(principal, upstream, &rates.concurrency)
        {
            let allows = format!("{} calls at once, {} queued", caps.places, caps.waiting);
            let full = held >= caps.places && waiting >= caps.waiting;
            let refuses = full.then(|| format!("{held} running, {waiting} queued"));
            found.push(LimitStatus {
                limit: name.into(),
                allows,
                refuses,
            });
        }
        found
    }

    /// Returns the reason why a daily quota would refuse the charge; `None` if it passes.
    async fn quota_refusal(
        &self,
        charge: &QuotaCharge,
        uncounted: UncountedQuota,
    ) -> Option<String> {
        match (self.quotas.used(charge).await, uncounted) {
            (Some(used), _) => (used.saturating_add(charge.cost) > charge.most)
                .then(|| format!("{used} are used since 0:00 UTC")),
            (None, UncountedQuota::Refused) => Some("it cannot be counted now".to_owned()),
            (None, UncountedQuota::Allowed) => None,
        }
    }
}

pub(super) fn quota_text(most: u64) -> String {
    format!("{most} a day")
}

pub(super) fn rate_text(unit: RateUnit, rate: &Rate) -> String {
    let counted = match unit {
        RateUnit::Requests => "requests",
        RateUnit::Calls => "calls by their cost",
        RateUnit::Tool => "calls of such tools",
        RateUnit::Upstream => "calls by their cost, of all principals",
    };
    let per: Duration = rate.per;
    format!(
        "{} {counted} in {}, {} at once",
        rate.count,
        span(per),
        rate.burst
    )
}
