//! Daily quotas: a number of calls in a day of UTC, counted through core's `SharedCounters` port.
//! So they outlive a reload and, with a shared store, are one budget for all replicas.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use parking_lot::{Mutex, MutexGuard};
use weir_core::failure::Failure;
use weir_core::port::{
    Clock, CounterAddition, CounterValue, OutageCounting, RateUnit, SharedCounters, StoreError,
};

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

/// A day of UTC, as it was when a call came.
#[derive(Clone, Copy)]
struct QuotaDay {
    /// The number of days since 1970.
    number: u64,
    /// The time left of it.
    rest: Duration,
}

impl QuotaCharge {
    fn refusal(&self, used: u64, wait: Duration) -> Failure {
        refusal::quota(&self.budget.limit, self.most, used, self.cost, wait)
    }
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

    /// Refuses a call that one of its quotas would refuse now. Charges no cost. A quota that cannot
    /// be counted refuses nothing here.
    pub(super) async fn check(
        &self,
        due: &[QuotaCharge],
        uncounted: UncountedQuota,
    ) -> Result<(), Failure> {
        let today = self.today();
        for charge in due {
            let counted = self.add(charge, 0, today, uncounted).await;
            if let Ok(CounterValue { value, .. }) = counted
                && value.saturating_add(charge.cost) > charge.most
            {
                return Err(charge.refusal(value, today.rest));
            }
        }
        Ok(())
    }

    /// Charges all of them, in order, or none: a refused charge is not made, and the quotas behind
    /// the first one are checked before it is charged. Only a call that another one overtakes
    /// between the check and the charges is refused with some of them made. They are not given
    /// back, because replicas restore a counter that is lower than the value that they have seen.
    pub(super) async fn spend(
        &self,
        due: &[QuotaCharge],
        uncounted: UncountedQuota,
    ) -> Result<(), Failure> {
        self.check(due.get(1..).unwrap_or_default(), uncounted)
            .await?;
        let today = self.today();
        for charge in due {
            let QuotaCharge {
                budget,
                most,
                cost,
                decides_alone,
            } = charge;
            let name = &budget.limit;
            match self.add(charge, *cost, today, uncounted).await {
                Ok(CounterValue { value, is_added }) => {
                    if value >= *most {
                        let number = today.number;
                        self.exhausted(number).keep(number, budget, value);
                    }
                    if !is_added {
                        return Err(charge.refusal(value, today.rest));
                    }
                    if *decides_alone {
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
        let QuotaDay { number: day, rest } = self.today();
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
    pub(super) async fn used(&self, charge: &QuotaCharge) -> Option<u64> {
        let added = self.add(charge, 0, self.today(), UncountedQuota::Allowed);
        let counted = added.await;
        counted.ok().map(|counted| counted.value)
    }

    /// Adds an amount to the counter of a day, unless it would exceed the quota.
    async fn add(
        &self,
        charge: &QuotaCharge,
        amount: u64,
        today: QuotaDay,
        uncounted: UncountedQuota,
    ) -> Result<CounterValue, StoreError> {
        let QuotaCharge { budget, most, .. } = charge;
        let in_outage = match uncounted {
            UncountedQuota::Allowed => OutageCounting::Own,
            UncountedQuota::Refused => OutageCounting::Fails,
        };
        let addition = CounterAddition {
            name: &counter(today.number, &budget.owner, &budget.limit),
            amount,
            most: *most,
            ttl: today.rest,
        };
        self.counters.add(addition, in_outage).await
    }

    /// Today's day of UTC.
    fn today(&self) -> QuotaDay {
        let now = self
            .clock
            .wall()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let number = now.as_secs() / DAY.as_secs();
        QuotaDay {
            number,
            rest: DAY - (now - DAY * u32::try_from(number).unwrap_or(0)),
        }
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
