//! All limits at once, for operators that look for the callers being refused now. No budget is
//! charged.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use weir_core::port::{Rate, RateUnit};

use crate::limit::PolicyLimiter;
use crate::limit::daily_quota::QuotaBudget;
use crate::limit::limit_charge::{ONE, SHARED_OWNER};
use crate::limit::limit_status::{quota_text, rate_text};
use crate::limit::settings::{LimitSettings, RateLimit};
use crate::limit::slot_usage::{LimitOwner, SlotUsage};

/// A limit that would refuse a request or call now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExhaustedBudget {
    /// Its name, as in refusals and metrics.
    pub limit: Arc<str>,
    /// The owner of the exhausted budget.
    pub owner: LimitOwner,
    /// The allowance; for people.
    pub allows: String,
    /// The time until the next one passes.
    pub wait: Duration,
}

impl PolicyLimiter {
    /// The rates and daily quotas that refuse now, the longest wait first. Of daily quotas those
    /// that today's calls to this process have met.
    #[must_use]
    pub fn exhausted_budgets(&self) -> Vec<ExhaustedBudget> {
        let rates = self.rates.load_full();
        let mut found = Vec::new();
        if let Some((limit, rate)) = rates
            .address
            .as_ref()
            .and_then(|limit| Some((limit, limit.rate()?)))
        {
            let those = self
                .addresses
                .refusing(ONE, |bucket| (bucket.limit == limit.digest).then_some(rate));
            found.extend(those.into_iter().map(|(bucket, wait)| ExhaustedBudget {
                limit: limit.name.clone(),
                owner: LimitOwner::Network(network(&bucket.owner)),
                allows: rate_text(bucket.unit, rate),
                wait,
            }));
        }
        let known: HashMap<u64, (&RateLimit, &Rate)> = rates
            .all_but_address()
            .filter_map(|limit| Some((limit.digest, (limit, limit.rate()?))))
            .collect();
        let those = self
            .buckets
            .refusing(|bucket| known.get(&bucket.limit).map(|(_, rate)| *rate));
        found.extend(those.into_iter().filter_map(|(key, wait)| {
            let (limit, rate) = known.get(&key.limit)?;
            Some(ExhaustedBudget {
                limit: limit.name.clone(),
                owner: owner_of(&rates, limit, key.unit, key.owner),
                allows: rate_text(key.unit, rate),
                wait,
            })
        }));
        found.extend(self.exhausted_quotas(&rates));
        found.sort_by_key(|budget| std::cmp::Reverse(budget.wait));
        found
    }

    fn exhausted_quotas(&self, rates: &LimitSettings) -> Vec<ExhaustedBudget> {
        let (those, wait) = self.quotas.exhausted_today();
        let quotas: HashMap<&str, (&RateLimit, u64)> = rates
            .all_but_address()
            .filter_map(|limit| Some((&*limit.name, (limit, limit.daily?))))
            .collect();
        let refusing = |(budget, used): (QuotaBudget, u64)| {
            let &(limit, most) = quotas.get(&*budget.limit)?;
            // A reload may have raised the quota.
            (used >= most).then(|| ExhaustedBudget {
                limit: limit.name.clone(),
                owner: owner_of(rates, limit, budget.unit, budget.owner),
                allows: quota_text(most),
                wait,
            })
        };
        those.into_iter().filter_map(refusing).collect()
    }

    /// The owners with calls in flight or waiting: the most first.
    #[must_use]
    pub fn slot_usage(&self) -> Vec<SlotUsage> {
        let rules = self.rates.load_full();
        let mut found = self.slots.usage(&rules.concurrency);
        found.sort_by_key(|usage| std::cmp::Reverse((usage.waiting, usage.held)));
        found
    }
}

/// The owner of a budget under a limit.
fn owner_of(
    rates: &LimitSettings,
    limit: &RateLimit,
    unit: RateUnit,
    owner: [u8; 16],
) -> LimitOwner {
    match unit {
        RateUnit::Upstream => rates
            .upstreams
            .iter()
            .find(|(_, other)| other.digest == limit.digest)
            .map_or(LimitOwner::Everybody, |(id, _)| {
                LimitOwner::Upstream(id.to_string())
            }),
        RateUnit::Requests | RateUnit::Calls | RateUnit::Tool if owner == SHARED_OWNER => {
            LimitOwner::Everybody
        }
        RateUnit::Requests | RateUnit::Calls | RateUnit::Tool => LimitOwner::Principal(owner),
    }
}

/// The network of an address bucket; see [`super::address_network`].
fn network(of: &[u8; 16]) -> String {
    if of[..2] == [0, 4] {
        return format!("{}/24", Ipv4Addr::new(of[2], of[3], of[4], 0));
    }
    format!("{}/64", Ipv6Addr::from(*of))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::address_network;
    use super::*;

    #[test]
    fn a_network_is_named_as_it_is_counted() {
        for (address, expected) in [
            ("192.0.2.77", "192.0.2.0/24"),
            ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
            ("10.0.0.1", "10.0.0.0/24"),
        ] {
            let address: IpAddr = address.parse().unwrap_or_else(|_| panic!("{address}"));
            assert_eq!(network(&address_network(address)), expected);
        }
    }
}
