//! Daily quotas: a number of calls in a day of UTC, counted through core's `SharedCounters` port.
//! So they outlive a reload and, with a shared store, are one budget for all replicas.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use weir_core::failure::Failure;
use weir_core::port::{Clock, SharedCounters};

use super::refusal;
use super::settings::{DAY, UncountedQuota};

/// The charge of a call against a daily quota.
#[derive(Clone, Debug)]
pub(super) struct QuotaCharge {
    /// The limit's name.
    pub(super) name: Arc<str>,
    /// The owner of the budget.
    pub(super) of: [u8; 16],
    /// The quota of a day.
    pub(super) most: u64,
    /// The cost of the call.
    pub(super) cost: u64,
}

/// The counting of daily quotas.
pub(super) struct DailyQuotas {
    clock: Arc<dyn Clock>,
    counters: Arc<dyn SharedCounters>,
}

impl DailyQuotas {
    pub(super) fn new(clock: Arc<dyn Clock>, counters: Arc<dyn SharedCounters>) -> Self {
        Self { clock, counters }
    }

    /// Charges all of them, in order. A charge before a refusal is not refunded: beyond an
    /// exhausted quota it does not matter.
    pub(super) async fn spend(
        &self,
        due: Vec<QuotaCharge>,
        uncounted: UncountedQuota,
    ) -> Result<(), Failure> {
        let (day, rest) = self.today();
        for QuotaCharge {
            name,
            of,
            most,
            cost,
        } in due
        {
            match self
                .counters
                .add(&counter(day, &of, &name), cost, rest)
                .await
            {
                Ok(used) if used > most => return Err(refusal::quota(&name, most, rest)),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(limit = &*name, %error, "daily quota counter unavailable");
                    match uncounted {
                        UncountedQuota::Allowed => refusal::count(&name, "uncounted"),
                        UncountedQuota::Refused => {
                            return Err(refusal::uncounted(&name).because(error));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The used part of today's quota; `None` if it cannot be counted. Charges no cost.
    pub(super) async fn used(&self, name: &str, of: &[u8; 16]) -> Option<u64> {
        let (day, rest) = self.today();
        self.counters
            .add(&counter(day, of, name), 0, rest)
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

/// The name of a counter. The day is part of it, so a counter that lives longer than its day is no
/// harm. A limit's name may hold any character, so it comes last.
fn counter(day: u64, of: &[u8; 16], name: &str) -> String {
    format!("daily/{day}/{}/{name}", HEXLOWER.encode(of))
}
