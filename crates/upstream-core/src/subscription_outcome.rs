//! The outcome of a change of subscriptions to single resources, for every transport.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_core::upstream::RefusedSubscriptions;
use weir_core::{Failure, FailureKind};

use crate::own_requests;
use crate::upstream_label::UpstreamLabel;

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
