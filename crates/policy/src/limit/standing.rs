//! The current state of the limits of a call: for operators that look for the reason of a refusal.
//! No budget is charged.

use std::sync::Arc;
use std::time::Duration;

use weir_core::names::{EndpointId, UpstreamId};
use weir_core::principal::Principal;

use super::refusal::{What, span};
use super::rules::{Limit, Rate, Uncounted};
use super::table::Key;
use super::{Errand, Limits, ONE, Toll};

/// The state of one limit of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its name, as in refusals and metrics.
    pub limit: Arc<str>,
    /// The allowance; for people.
    pub allows: String,
    /// The refusal that a call would get now, with its duration; for people. Absent if it would
    /// pass.
    pub refuses: Option<String>,
}

impl Limits {
    /// Every limit that applies to a call of a tool, in the order of the checks. `native` is the
    /// upstream's own name.
    pub async fn standing(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
        native: &str,
    ) -> Vec<Standing> {
        let rates = self.rates.load_full();
        let errand = Errand {
            principal,
            endpoint,
            upstream,
            tool: Some(native),
        };
        let mut found = Vec::new();
        let request = rates.of(principal, endpoint);
        let request = request.map(|limit| Toll {
            limit,
            what: What::Requests,
            of: *principal.digest(),
            cost: ONE,
        });
        let tolls: Vec<Toll<'_>> = request
            .into_iter()
            .chain(Toll::of(&rates, &errand))
            .collect();
        for Toll {
            limit,
            what,
            of,
            cost,
        } in &tolls
        {
            if let Some(rate) = &limit.rate {
                let key = Key {
                    limit: limit.mark,
                    what: *what,
                    of: *of,
                };
                let wait = self.buckets.wait(key, rate, *cost);
                let refuses = (!wait.is_zero()).then(|| format!("used up for {}", span(wait)));
                found.push(Standing {
                    limit: limit.name.clone(),
                    allows: rated(*what, rate),
                    refuses,
                });
            }
        }
        for Toll {
            limit,
            what,
            of,
            cost,
        } in &tolls
        {
            if let Some(most) = limit.daily.filter(|_| *what != What::Requests) {
                let refuses = self
                    .used_up(limit, (of, cost.get().into()), (most, rates.uncounted))
                    .await;
                found.push(Standing {
                    limit: limit.name.clone(),
                    allows: format!("{most} a day"),
                    refuses,
                });
            }
        }
        for (name, (held, waiting), caps) in
            self.places.loads(principal, upstream, &rates.concurrency)
        {
            let allows = format!(
                "{} calls at once, {} waiting for a place",
                caps.places, caps.waiting
            );
            let full = held >= caps.places && waiting >= caps.waiting;
            let refuses = full.then(|| format!("{held} run and {waiting} wait"));
            found.push(Standing {
                limit: name.into(),
                allows,
                refuses,
            });
        }
        found
    }

    async fn used_up(
        &self,
        limit: &Limit,
        (of, cost): (&[u8; 16], u64),
        (most, uncounted): (u64, Uncounted),
    ) -> Option<String> {
        match (self.quotas.used(&limit.name, of).await, uncounted) {
            (Some(used), _) => {
                (used + cost > most).then(|| format!("{used} are used since 0:00 UTC"))
            }
            (None, Uncounted::Refused) => Some("it cannot be counted now".to_owned()),
            (None, Uncounted::Allowed) => None,
        }
    }
}

pub(super) fn rated(what: What, rate: &Rate) -> String {
    let counted = match what {
        What::Requests => "requests",
        What::Calls => "calls by their cost",
        What::Tool => "calls of such tools",
        What::Upstream => "calls by their cost, of everybody",
    };
    let per: Duration = rate.per;
    format!(
        "{} {counted} in {}, {} at once",
        rate.count,
        span(per),
        rate.burst
    )
}
