//! Daily quotas: a number of calls in a day of UTC, counted through core's `SharedCounters` port.
//! So they outlive a reload and, with a shared store, are one budget for all replicas.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use parking_lot::{Mutex, MutexGuard};
use weir_core::failure::Failure;
use weir_core::port::{Clock, OutageCounting, RateUnit, SharedCounters};

use crate::limit::refusal;
use crate::limit::settings::{DAY, UncountedQuota};

/// The most exhausted budgets that are kept for operators: 8 MiB at most.
const MAX_EXHAUSTED: usize = 1 << 16;

/// The budget of one owner under a daily quota.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct QuotaBudget {
    /// The limit's name.
    pub(super) limit: Arc<str>,
    /// The unit of the limit.
    pub(super) unit: RateUnit,
    /// The owner of the budget.
    pub(super) owner: [u8; 16],
}

/// The charge of a call against a daily quota.
#[derive(Clone, Debug)]
pub(super) struct QuotaCharge {
    pub(super) budget: QuotaBudget,
    /// The quota of a day.
    pub(super) most: u64,
    /// The cost of the call.
    pub(super) cost: u64,
    /// True if the limit has no rate, so that the quota alone decides.
    pub(super) decides_alone: bool,
}

/// The counting of daily quotas.
pub(super) struct DailyQuotas {
    clock: Arc<dyn Clock>,
    counters: Arc<dyn SharedCounters>,
    exhausted: Mutex<ExhaustedQuotas>,
}

/// The budgets without a rest, of one day. The counters cannot be listed, so these are the budgets
/// that calls to this process have met.
#[derive(Default)]
struct ExhaustedQuotas {
    day: u64,
    /// The used part of each.
    used: HashMap<QuotaBudget, u64>,
}

impl DailyQuotas {
    pub(super) fn new(clock: Arc<dyn Clock>, counters: Arc<dyn SharedCounters>) -> Self {
        Self {
            clock,
            counters,
            exhausted: Mutex::default(),
        }
    }

    /// Charges all of them, in order. A charge before a refusal is not refunded: beyond an
    /// exhausted quota it does not matter.
    pub(super) async fn spend(
        &self,
        due: Vec<QuotaCharge>,
        uncounted: UncountedQuota,
    ) -> Result<(), Failure> {
        let (day, rest) = self.today();
        let in_outage = match uncounted {
            UncountedQuota::Allowed => OutageCounting::Own,
            UncountedQuota::Refused => OutageCounting::Fails,
        };
        for QuotaCharge {
            budget,
            most,
            cost,
            decides_alone,
        } in due
        {
            let name = &budget.limit;
            let counted = self
                .counters
                .add(&counter(day, &budget.owner, name), cost, rest, in_outage)
                .await;
            match counted {
                Ok(used) => {
                    if used >= most {
                        self.exhausted(day).keep(day, &budget, used);
                    }
                    if used > most {
                        return Err(refusal::quota(&budget.limit, most, rest));
                    }
                    if decides_alone {
                        refusal::count(name, "allowed");
                    }
                }
                Err(error) => {
                    tracing::warn!(limit = &**name, %error, "daily quota counter unavailable");
                    match uncounted {
                        UncountedQuota::Allowed => refusal::count(name, "uncounted"),
                        UncountedQuota::Refused => {
                            return Err(refusal::uncounted(name).because(error));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The budgets that today's calls to this process found exhausted, with their used part, and
    /// the time until all are full again.
    pub(super) fn exhausted_today(&self) -> (Vec<(QuotaBudget, u64)>, Duration) {
        let (day, rest) = self.today();
        let exhausted = self.exhausted(day);
        let budgets = exhausted.used.iter();
        let found = budgets.map(|(budget, &used)| (budget.clone(), used));
        (found.collect(), rest)
    }

    /// The exhausted budgets of this day, or of a later one that has begun meanwhile. Those of an
    /// earlier day are dropped.
    fn exhausted(&self, day: u64) -> MutexGuard<'_, ExhaustedQuotas> {
        let mut exhausted = self.exhausted.lock();
        if exhausted.day < day {
            *exhausted = ExhaustedQuotas {
                day,
                used: HashMap::new(),
            };
        }
        exhausted
    }

    /// The used part of today's quota; `None` if it cannot be counted. Charges no cost.
    pub(super) async fn used(&self, name: &str, of: &[u8; 16]) -> Option<u64> {
        let (day, rest) = self.today();
        self.counters
            .add(&counter(day, of, name), 0, rest, OutageCounting::Own)
            .await
            .ok()
    }

    /// The number of today's day of UTC, and the time left of it.
    fn today(&self) -> (u64, Duration) {
        let now = self
            .clock
            .wall()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let day = now.as_secs() / DAY.as_secs();
        (day, DAY - (now - DAY * u32::try_from(day).unwrap_or(0)))
    }
}

impl ExhaustedQuotas {
    /// Keeps a budget of this day, unless a later day has begun meanwhile.
    fn keep(&mut self, day: u64, budget: &QuotaBudget, used: u64) {
        let has_room = self.used.len() < MAX_EXHAUSTED || self.used.contains_key(budget);
        if day == self.day && has_room {
            self.used.insert(budget.clone(), used);
        }
    }
}

/// The name of a counter. The day is part of it, so a counter that lives longer than its day is no
/// harm. A limit's name may hold any character, so it comes last.
fn counter(day: u64, of: &[u8; 16], name: &str) -> String {
    format!("daily/{day}/{}/{name}", HEXLOWER.encode(of))
}
