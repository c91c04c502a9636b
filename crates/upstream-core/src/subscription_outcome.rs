//! The outcome of a subscription to lists or to single resources, for every transport.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use weir_core::port::{Random, doubled, half_jitter};
use weir_core::upstream::RefusedSubscriptions;
use weir_core::{Failure, FailureKind};

use crate::own_requests;
use crate::upstream_label::UpstreamLabel;

/// The first and the longest wait before a refused subscription is requested again; the wait
/// doubles.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(300);

/// The time of the next request for a subscription to lists that the server refused. The lists are
/// polled until it has one.
#[derive(Debug, Default)]
pub struct SubscriptionRetry {
    at: Option<Instant>,
    refusals: u32,
}

impl SubscriptionRetry {
    /// Notes a refusal. A server that does not know the method is not asked again.
    pub fn note(&mut self, refusal: &Failure, random: &dyn Random) {
        let ceiling = doubled(FIRST_RETRY, self.refusals, LAST_RETRY);
        self.refusals = self.refusals.saturating_add(1);
        let wait = half_jitter(ceiling, random);
        self.at = (!refusal.is_missing_method()).then(|| Instant::now() + wait);
    }

    /// Waits for the time of the next request. Cancel safe.
    pub async fn due(&self) {
        match self.at {
            Some(at) => sleep_until(at).await,
            None => pending().await,
        }
    }
}

/// Refuses the resources of `uris` that an acknowledgment left out of `held`.
pub fn refuse_unacknowledged(
    label: &UpstreamLabel,
    uris: &[Arc<str>],
    held: &BTreeSet<Arc<str>>,
) -> RefusedSubscriptions {
    refuse_others(uris, held, |_| no_updates(label))
}

/// Refuses the resources of `uris` that are not in `held`, each with the failure of its request. A
/// request without a failure was not answered in time.
pub fn refuse_failed(
    label: &UpstreamLabel,
    uris: &[Arc<str>],
    held: &BTreeSet<Arc<str>>,
    mut failures: BTreeMap<Arc<str>, Failure>,
) -> RefusedSubscriptions {
    refuse_others(uris, held, |uri| {
        let failure = failures.remove(uri);
        failure.unwrap_or_else(|| own_requests::late(label))
    })
}

/// Makes the outcome of a subscription that failed while an earlier one to `held` goes on: it is
/// about the new resources of `uris` alone.
///
/// # Errors
/// `failure`, if the earlier subscription has no resources, or some that are not wanted any more.
pub fn refuse_beside(
    label: &UpstreamLabel,
    uris: &[Arc<str>],
    held: &BTreeSet<Arc<str>>,
    failure: Failure,
) -> Result<RefusedSubscriptions, Failure> {
    if held.is_empty() || !held.iter().all(|uri| uris.contains(uri)) {
        return Err(failure);
    }
    Ok(refuse_others(uris, held, |_| {
        label.fail(failure.kind().clone(), failure.message().to_owned())
    }))
}

fn refuse_others(
    uris: &[Arc<str>],
    held: &BTreeSet<Arc<str>>,
    mut failure: impl FnMut(&Arc<str>) -> Failure,
) -> RefusedSubscriptions {
    let others = uris.iter().filter(|uri| !held.contains(*uri));
    others.map(|uri| (uri.clone(), failure(uri))).collect()
}

/// Makes the failure of a subscription that the server does not have.
pub fn no_updates(label: &UpstreamLabel) -> Failure {
    let text = "The server of this resource does not tell of its updates";
    label.fail(FailureKind::InvalidParams, text)
}

/// Makes the failure of a subscription that ended before its acknowledgment.
pub fn ended_before_acknowledgment(label: &UpstreamLabel) -> Failure {
    let text = "The upstream ended the subscription before it acknowledged it";
    label.fail(FailureKind::Unavailable, text)
}

#[cfg(test)]
mod tests {
    use weir_testkit::FixedRandom;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_server_that_does_not_know_the_method_is_not_asked_again() {
        let mut retry = SubscriptionRetry::default();
        let began = Instant::now();
        for seconds in [1, 2, 4] {
            retry.note(
                &Failure::new(FailureKind::Busy, "not now"),
                &FixedRandom(255),
            );
            let wait = retry.at.expect("it is asked again") - began;
            assert_eq!(wait.as_secs_f64().ceil(), f64::from(seconds));
        }
        retry.due().await;
        retry.note(
            &Failure::new(FailureKind::MethodNotFound, "none"),
            &FixedRandom(255),
        );
        assert_eq!(retry.at, None);
    }
}
