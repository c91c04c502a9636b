//! Daily quotas: so much in a day of UTC, counted through core's `Counters` port, so that they
//! outlive a reload and, with a shared store, are one budget for all replicas.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use weir_core::failure::Failure;
use weir_core::port::{Clock, Counters};

use super::refusal;
use super::rules::Uncounted;

/// A day of UTC.
pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// A quota that a call is under.
#[derive(Clone, Debug)]
pub(super) struct Due {
    /// The limit's name.
    pub(super) name: Arc<str>,
    /// Whose budget.
    pub(super) of: [u8; 16],
    /// How much a day.
    pub(super) most: u64,
    /// How much the call takes.
    pub(super) cost: u64,
}

/// Counts.
pub(super) struct Quotas {
    clock: Arc<dyn Clock>,
    counters: Arc<dyn Counters>,
}

impl Quotas {
    pub(super) fn new(clock: Arc<dyn Clock>, counters: Arc<dyn Counters>) -> Self {
        Self { clock, counters }
    }

    /// Takes all of it, in order. What was taken before a refusal stays taken; beyond a quota that
    /// is used up it does not matter.
    pub(super) async fn spend(&self, due: Vec<Due>, uncounted: Uncounted) -> Result<(), Failure> {
        let (day, rest) = self.today();
        for Due {
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
                    tracing::warn!(limit = &*name, %error, "a daily quota cannot be counted");
                    match uncounted {
                        Uncounted::Allowed => refusal::count(&name, "uncounted"),
                        Uncounted::Refused => return Err(refusal::uncounted(&name).because(error)),
                    }
                }
            }
        }
        Ok(())
    }

    /// How much of a quota is used today; `None` where it cannot be counted. Takes nothing.
    pub(super) async fn used(&self, name: &str, of: &[u8; 16]) -> Option<u64> {
        let (day, rest) = self.today();
        self.counters
            .add(&counter(day, of, name), 0, rest)
            .await
            .ok()
    }

    /// Which day of UTC it is, and what is left of it.
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

/// The day is part of the name, so a counter that lives longer than its day is no harm. A limit's
/// name may hold any character, so it comes last.
fn counter(day: u64, of: &[u8; 16], name: &str) -> String {
    format!("daily/{day}/{}/{name}", HEXLOWER.encode(of))
}
