//! The failures of the limiter: the limit's name, and the time to retry, in words a model can act
//! on.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use weir_core::failure::{Failure, FailureKind, LimitReached};
use weir_core::port::{Rate, RateUnit};
use weir_core::telemetry::instruments;

use crate::limit::settings::DAY;

/// The rate is exceeded; a retry after `wait` will pass.
pub(super) fn rate(name: &Arc<str>, rate: &Rate, what: RateUnit, wait: Duration) -> Failure {
    count(name, "refused");
    let counted = match what {
        RateUnit::Requests => "requests",
        RateUnit::Calls => "calls (by their cost)",
        RateUnit::Tool => "calls of such tools",
        RateUnit::Upstream => "calls (by their cost) of this server",
    };
    let (most, burst) = (rate.count, rate.burst);
    let (per, wait_text) = (span(rate.per), span(wait));
    let text = format!(
        "Rate limit `{name}` reached ({counted}): at most {most} in {per}, {burst} at once. Wait {wait_text} before trying again"
    );
    let limited = LimitReached {
        policy: name.clone(),
        limit: rate.count.get().into(),
        window: rate.per,
        quota: false,
    };
    Failure::new(FailureKind::Limit, text)
        .retry_after(wait)
        .limited_by(limited)
}

/// The rest of the daily quota is less than the call's cost; the next day begins in `wait`.
pub(super) fn quota(name: &Arc<str>, most: u64, used: u64, cost: u64, wait: Duration) -> Failure {
    count(name, "quota");
    let state = match most.saturating_sub(used) {
        0 => "is used up".to_owned(),
        rest => format!("has {rest} left, and this call costs {cost}"),
    };
    let text = format!(
        "Daily quota `{name}` {state}: {most} a day, counted again from 0:00 UTC, in {}. Do not try again before then",
        span(wait),
    );
    let limited = LimitReached {
        policy: name.clone(),
        limit: most,
        window: DAY,
        quota: true,
    };
    Failure::new(FailureKind::Limit, text)
        .retry_after(wait)
        .limited_by(limited)
}

/// The quota cannot be counted, and the operator refuses uncounted calls.
pub(super) fn uncounted(name: &Arc<str>) -> Failure {
    count(name, "uncountable");
    let text = format!(
        "Daily quota `{name}` cannot be counted now, and nothing goes uncounted: try again in a minute"
    );
    Failure::new(FailureKind::Busy, text).retry_after(Duration::from_secs(60))
}

/// Too many calls at once: `most` are in flight, and the queue is full or the wait was too long.
pub(super) fn busy(name: &'static str, most: usize, outcome: &'static str) -> Failure {
    let is_own = name == PRINCIPAL;
    let whose = if is_own { "of yours" } else { "of this server" };
    let name = Arc::from(name);
    count(&name, outcome);
    let text = format!(
        "Too many calls {whose} are running ({most} at once is the most): let some end, then try again"
    );
    let limited = LimitReached {
        policy: name,
        limit: most as u64,
        window: Duration::ZERO,
        quota: false,
    };
    let failure = Failure::new(FailureKind::Busy, text)
        .retry_after(Duration::from_secs(1))
        .limited_by(limited);
    if is_own { failure.own_limit() } else { failure }
}

/// The name of the cap of a principal's calls.
pub(super) const PRINCIPAL: &str = "concurrency:principal";
/// The name of the cap of an upstream's calls.
pub(super) const UPSTREAM: &str = "concurrency:upstream";

/// Counts a decision of a limit. Names come from the config.
pub(super) fn count(name: &Arc<str>, outcome: &'static str) {
    let labels = [
        KeyValue::new("limit", name.clone()),
        KeyValue::new("outcome", outcome),
    ];
    instruments().limit_decisions.add(1, &labels);
}

/// A time in a natural unit, rounded up, so that waiting that long is long enough.
pub(super) fn span(time: Duration) -> String {
    let seconds = time.as_millis().div_ceil(1000).max(1);
    match seconds {
        1..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up() {
        for (millis, text) in [
            (0, "1 s"),
            (1001, "2 s"),
            (119_000, "119 s"),
            (120_001, "3 min"),
            (7_200_001, "3 h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }
}
