//! Updates of single resources from a child, by subscriptions over its channel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use weir_core::port::BoxFuture;
use weir_core::upstream::{
    DeliverUpdate, OutboundCall, RefusedSubscriptions, ResourceUpdate, ResourceUpdates,
    TaskNotifications,
};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_era::lower;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::list_page;
use weir_upstream_core::subscription_outcome::{self, SubscriptionAnswer};
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::Message;
use weir_wire::method::Method;

use crate::child_channel::child_request::ChildRequest;
use crate::child_subscriptions::SubscriptionHolder;
use crate::running_child::RunningChild;
use crate::stdio_call;
use crate::stdio_watch::subscribe;

/// The most subscription requests at the same time.
const MAX_REQUESTS_AT_ONCE: usize = 8;

/// A holder of subscriptions to resources of a stdio server. Several may hold those of one child.
pub(crate) struct StdioUpdates {
    context: Arc<UpstreamContext>,
    running: Arc<RunningChild>,
    holder: Arc<SubscriptionHolder>,
    /// The subscription at a modern server. Dropping it ends it.
    listening: Option<ChildRequest>,
}

impl StdioUpdates {
    /// # Errors
    /// The server sends no updates.
    pub(crate) fn open(
        context: Arc<UpstreamContext>,
        running: Arc<RunningChild>,
    ) -> Result<Self, FailedAttempt> {
        if !running.handshake.about.subscribes {
            return Err(subscription_outcome::no_updates(&context.label).into());
        }
        let holder = running.child.channel.subscriptions.add_holder();
        Ok(Self {
            context,
            running,
            holder,
            listening: None,
        })
    }

    /// Subscribes at a legacy server to the resources without a holder, and ends the subscriptions
    /// that have no further one.
    async fn subscribe(&self, uris: &[Arc<str>]) -> Result<RefusedSubscriptions, Failure> {
        let child = &self.running.child.channel.subscriptions;
        let _turn = child.turn.lock().await;
        let (known, new): (Vec<_>, Vec<_>) = uris.iter().partition(|uri| child.is_held(uri));
        known
            .into_iter()
            .for_each(|uri| self.holder.add(uri.clone()));
        let ask = |uri: Arc<str>| async move {
            let outcome = ask(
                &self.context,
                &self.running,
                Method::ResourcesSubscribe,
                &uri,
            )
            .await;
            if matches!(outcome, Ok(None)) {
                self.holder.add(uri.clone());
            }
            (uri, outcome)
        };
        // The other requests for subscriptions wait meanwhile, so that one resource which the server
        // hangs on must not hold up all.
        let time = self.context.own_requests.deadlines.list;
        let outcomes: Vec<_> = stream::iter(new.into_iter().cloned())
            .map(ask)
            .buffer_unordered(MAX_REQUESTS_AT_ONCE)
            .take_until(tokio::time::sleep(time))
            .collect()
            .await;
        let mut failures = BTreeMap::new();
        for (uri, outcome) in outcomes {
            if let Some(failure) = outcome? {
                failures.insert(uri, failure);
            }
        }
        let held = uris.iter().filter(|uri| self.holder.holds(uri));
        let held: BTreeSet<_> = held.cloned().collect();
        let ended = self.holder.replace(held.clone());
        let ending = unsubscribe(&self.context, &self.running, ended);
        match tokio::time::timeout(time, ending).await {
            Ok(outcome) => outcome?,
            // Further updates of the resources are ignored.
            Err(_) => self.context.label.count_dropped("unsubscribe_refused"),
        }
        let label = &self.context.label;
        Ok(subscription_outcome::refuse_failed(
            label, uris, &held, failures,
        ))
    }

    async fn replace_subscription(
        &mut self,
        uris: &[Arc<str>],
    ) -> Result<RefusedSubscriptions, Failure> {
        if uris.is_empty() {
            self.holder.replace(BTreeSet::new());
            self.listening = None;
            return Ok(Vec::new());
        }
        let listening = subscribe(
            &self.running,
            CapabilityClass::BASE,
            list_page::updates_filter(uris),
        );
        let label = &self.context.label;
        let answer = listening.await.map_err(|attempt| attempt.failure);
        match answer.and_then(SubscriptionAnswer::opened) {
            Ok((request, params)) => {
                let held = list_page::acknowledged_of(uris, &params);
                self.holder.replace(held.clone());
                // The previous subscription ends only now, so that no update is missed in between.
                self.listening = (!held.is_empty()).then_some(request);
                Ok(subscription_outcome::refuse_unacknowledged(
                    label, uris, &held,
                ))
            }
            // The previous subscription goes on.
            Err(failure) => {
                subscription_outcome::refuse_beside(label, uris, &self.holder.held(), failure)
            }
        }
    }
}

impl Drop for StdioUpdates {
    fn drop(&mut self) {
        let ended = self.holder.replace(BTreeSet::new());
        let is_over = self.running.child.channel.closed().is_cancelled();
        if ended.is_empty() || is_over || self.running.legacy.is_none() {
            return;
        }
        let (context, running) = (self.context.clone(), self.running.clone());
        self.context.tasks.spawn(async move {
            let _turn = running.child.channel.subscriptions.turn.lock().await;
            // A child that does not answer is found out by calls.
            let _unanswered = unsubscribe(&context, &running, ended).await;
        });
    }
}

/// Sends a legacy server a request about one resource. Returns the failure of this request alone.
async fn ask(
    context: &UpstreamContext,
    running: &RunningChild,
    method: Method,
    uri: &str,
) -> Result<Option<Failure>, Failure> {
    let uri = lower::json(uri);
    let class = CapabilityClass::BASE;
    let outcome = stdio_call::request(context, running, class, method, &[("uri", &uri)]).await;
    match outcome {
        Ok(_) => Ok(None),
        Err(attempt) if attempt.is_server_lost() => Err(attempt.failure),
        Err(attempt) => Ok(Some(attempt.failure)),
    }
}

/// Ends the subscriptions of a legacy server to these resources, but those with another holder, and
/// those of a child that belongs to another process. The caller has the turn.
async fn unsubscribe(
    context: &UpstreamContext,
    running: &RunningChild,
    ended: BTreeSet<Arc<str>>,
) -> Result<(), Failure> {
    let channel = &running.child.channel;
    for uri in ended {
        if channel.is_handed_over() || channel.subscriptions.is_held(&uri) {
            continue;
        }
        let refusal = ask(context, running, Method::ResourcesUnsubscribe, &uri).await?;
        if refusal.is_some() {
            context.label.count_dropped("unsubscribe_refused");
        }
    }
    Ok(())
}

/// Subscribes to the status of the task that a call is about; absent if the child has no such
/// subscription.
pub(crate) async fn follow_task(
    context: &UpstreamContext,
    running: Arc<RunningChild>,
    outbound: &OutboundCall,
) -> Option<TaskNotifications> {
    let dialect = running.handshake.dialect;
    if running.legacy.is_some() {
        return None;
    }
    let class = outbound
        .call
        .capabilities
        .class
        .cut(context.permissions.carries(dialect));
    let (request, params) = subscribe(&running, class, list_page::task_filter(&outbound.native))
        .await
        .ok()?
        .opened()
        .ok()?;
    if !list_page::acknowledges_task(&params, &outbound.native) {
        return None;
    }
    // Kept with it, so that the process counts as in use.
    let updates = stream::unfold((request, running), |(mut request, running)| async move {
        loop {
            match std::future::poll_fn(|cx| request.poll_message(cx)).await? {
                Message::Notification(notification)
                    if notification.method.known() == Some(Method::Tasks) =>
                {
                    return Some(((), (request, running)));
                }
                Message::Response(_) => {
                    request.end();
                    return None;
                }
                Message::Notification(_) | Message::Request(_) => {}
            }
        }
    });
    Some(Box::pin(updates))
}

impl ResourceUpdates for StdioUpdates {
    fn set_subscriptions<'a>(
        &'a mut self,
        uris: &'a [Arc<str>],
        deliver: DeliverUpdate<'a>,
    ) -> BoxFuture<'a, Result<RefusedSubscriptions, Failure>> {
        let holder = self.holder.clone();
        let changing = async move {
            match self.running.legacy {
                Some(_) => self.subscribe(uris).await,
                None => self.replace_subscription(uris).await,
            }
        };
        Box::pin(async move { holder.pending.deliver_during(deliver, changing).await })
    }

    fn next_update(&mut self) -> BoxFuture<'_, Result<ResourceUpdate, Failure>> {
        Box::pin(async move {
            let channel = &self.running.child.channel;
            let over = channel.closed();
            tokio::select! {
                biased;
                updated = self.holder.pending.next() => Ok(updated),
                () = over.cancelled() => Err(self.context.label.fail(FailureKind::Unavailable, "The upstream ended")),
                () = ChildRequest::wait_for_end(self.listening.as_mut()) => Err(self.context.label.fail(FailureKind::Unavailable, "The upstream ended the subscription")),
            }
        })
    }
}
