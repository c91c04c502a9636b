//! The outcome of a subscription to lists or to single resources, for every transport.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use weir_core::upstream::RefusedSubscriptions;
use weir_core::{Failure, FailureKind};
use weir_wire::Message;
use weir_wire::method::Method;

use crate::failed_attempt::FailedAttempt;
use crate::own_requests::{self, OwnRequestLimits};
use crate::upstream_context::UpstreamContext;
use crate::upstream_label::UpstreamLabel;

/// The longest wait for the acknowledgment of a subscription.
const ACKNOWLEDGMENT_TIME: Duration = Duration::from_secs(10);

/// The answer of a modern server to a request for a subscription.
#[derive(Debug)]
pub enum SubscriptionAnswer<S> {
    /// The open subscription, and the `params` of its acknowledgment.
    Open(S, Bytes),
    /// The server has no subscription for weir, or none now.
    Refused(Failure),
}

impl<S> SubscriptionAnswer<S> {
    /// Returns the open subscription, and the `params` of its acknowledgment.
    ///
    /// # Errors
    /// The refusal.
    pub fn opened(self) -> Result<(S, Bytes), Failure> {
        match self {
            Self::Open(subscription, params) => Ok((subscription, params)),
            Self::Refused(failure) => Err(failure),
        }
    }
}

/// A message of a modern server before a subscription is open.
#[derive(Debug)]
pub enum SubscriptionMessage {
    /// The acknowledgment, with its `params`.
    Acknowledged(Bytes),
    /// The response: the subscription is refused, or has ended already.
    Refused(Failure),
    /// A message that decides nothing.
    Other,
}

/// Classifies a message that answers a request for a subscription.
pub fn classify(context: &UpstreamContext, message: Message) -> SubscriptionMessage {
    match message {
        Message::Notification(notification)
            if notification.method.known() == Some(Method::SubscriptionsAcknowledged) =>
        {
            SubscriptionMessage::Acknowledged(notification.params.unwrap_or_default())
        }
        Message::Response(response) => SubscriptionMessage::Refused(match response.outcome {
            Err(error) => context.permissions.call_failure(&error),
            Ok(_) => ended_before_acknowledgment(&context.label),
        }),
        Message::Notification(_) | Message::Request(_) => SubscriptionMessage::Other,
    }
}

/// Requests a subscription. A server that does not acknowledge it in time refuses it: its lists may
/// be there.
///
/// # Errors
/// The request's own.
pub async fn within_deadline<S>(
    limits: &OwnRequestLimits,
    request: impl Future<Output = Result<SubscriptionAnswer<S>, FailedAttempt>>,
) -> Result<SubscriptionAnswer<S>, FailedAttempt> {
    let limit = limits.deadlines.list.min(ACKNOWLEDGMENT_TIME);
    match timeout(limit, request).await {
        Ok(outcome) => outcome.map_err(own_requests::reword_loss),
        Err(_) => Ok(SubscriptionAnswer::Refused(own_requests::late(
            &limits.label,
        ))),
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
