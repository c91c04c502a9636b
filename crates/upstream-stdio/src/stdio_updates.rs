//! Updates of single resources from a child, by subscriptions over its channel.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::stream;
use weir_core::port::Fut;
use weir_core::upstream::{
    OutboundCall, RefusedSubscriptions, ResourceUpdate, ResourceUpdates, TaskNotifications,
};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_era::lower;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::list_page;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_upstream_core::upstream_label::UpstreamLabel;
use weir_wire::Message;
use weir_wire::method::Method;

use super::running_child::RunningChild;
use super::stdio_call;
use super::stdio_watch::subscribe;
use crate::child_channel::child_request::ChildRequest;

/// The subscriptions to resources of a stdio server.
pub(crate) struct StdioUpdates {
    site: Arc<UpstreamContext>,
    running: Arc<RunningChild>,
    line: StdioSubscriptions,
}

enum StdioSubscriptions {
    /// The subscribed resources.
    Legacy(BTreeSet<Arc<str>>),
    /// The subscription. Dropping it ends it.
    Modern(Option<ChildRequest>),
}

impl StdioUpdates {
    /// # Errors
    /// The server sends no updates.
    pub(crate) fn open(
        site: Arc<UpstreamContext>,
        running: Arc<RunningChild>,
    ) -> Result<Self, FailedAttempt> {
        if !running.greeted.about.subscribes {
            return Err(refusal(&site.label).into());
        }
        let line = if running.legacy.is_none() {
            StdioSubscriptions::Modern(None)
        } else {
            StdioSubscriptions::Legacy(BTreeSet::new())
        };
        Ok(Self {
            site,
            running,
            line,
        })
    }

    /// Sends a legacy server a request about one resource. Returns its error, if it refuses.
    async fn ask(&self, method: Method, uri: &str) -> Result<Option<Failure>, Failure> {
        let uri = lower::json(uri);
        let asked = stdio_call::request(
            &self.site,
            &self.running,
            CapabilityClass::BASE,
            method,
            &[("uri", &uri)],
        )
        .await;
        match asked.map_err(|refusal| refusal.failure) {
            Ok(_) => Ok(None),
            Err(failure) if matches!(failure.kind(), FailureKind::Upstream(_)) => Ok(Some(failure)),
            Err(failure) => Err(failure),
        }
    }

    async fn subscribe(&mut self, uris: &[Arc<str>]) -> Result<RefusedSubscriptions, Failure> {
        let StdioSubscriptions::Legacy(held) = &mut self.line else {
            return Err(Failure::internal("a modern line subscribes"));
        };
        let (mut held, mut refused) = (std::mem::take(held), Vec::new());
        for uri in uris {
            if !held.contains(uri) {
                match self.ask(Method::ResourcesSubscribe, uri).await? {
                    None => drop(held.insert(uri.clone())),
                    Some(failure) => refused.push((uri.clone(), failure)),
                }
            }
        }
        let is_given = self.running.child.pipe.is_handed_over();
        let gone: Vec<_> = held
            .iter()
            .filter(|uri| !uris.contains(uri) && !is_given)
            .cloned()
            .collect();
        for uri in gone {
            if self
                .ask(Method::ResourcesUnsubscribe, &uri)
                .await?
                .is_some()
            {
                self.site.label.count_dropped("unsubscribe_refused");
            }
            held.remove(&uri);
        }
        self.line = StdioSubscriptions::Legacy(held);
        Ok(refused)
    }

    async fn replace_subscription(
        &mut self,
        uris: &[Arc<str>],
    ) -> Result<RefusedSubscriptions, Failure> {
        let mut listened = None;
        if !uris.is_empty() {
            let listening = subscribe(
                &self.site,
                &self.running,
                CapabilityClass::BASE,
                list_page::updates_filter(uris),
            );
            listened = listening.await.map_err(|refusal| refusal.failure)?;
        }
        let honoured = listened
            .as_ref()
            .map(|(_, params)| list_page::acknowledged_updates(params))
            .unwrap_or_default();
        let refused = uris.iter().filter(|uri| !honoured.contains(&***uri));
        let refused = refused
            .map(|uri| (uri.clone(), refusal(&self.site.label)))
            .collect();
        // The previous subscription ends only now, so that no update is missed in between.
        self.line = StdioSubscriptions::Modern(
            listened
                .filter(|_| !honoured.is_empty())
                .map(|(ticket, _)| ticket),
        );
        Ok(refused)
    }
}

/// Subscribes to the status of the task that a call is about; absent if the child has no such
/// subscription.
pub(crate) async fn follow_task(
    site: &UpstreamContext,
    running: Arc<RunningChild>,
    outbound: &OutboundCall,
) -> Option<TaskNotifications> {
    let tongue = running.greeted.tongue;
    if running.legacy.is_some() {
        return None;
    }
    let class = outbound
        .call
        .capabilities
        .class
        .cut(site.permissions.carries(tongue));
    let (ticket, params) = subscribe(
        site,
        &running,
        class,
        list_page::task_filter(&outbound.native),
    )
    .await
    .ok()??;
    if !list_page::acknowledges_task(&params, &outbound.native) {
        return None;
    }
    // Kept with it, so that the process counts as in use.
    let rings = stream::unfold((ticket, running), |(mut ticket, running)| async move {
        loop {
            match std::future::poll_fn(|cx| ticket.poll_message(cx)).await? {
                Message::Notification(told) if told.method.known() == Some(Method::Tasks) => {
                    return Some(((), (ticket, running)));
                }
                Message::Response(_) => {
                    ticket.end();
                    return None;
                }
                Message::Notification(_) | Message::Request(_) => {}
            }
        }
    });
    Some(Box::pin(rings))
}

impl ResourceUpdates for StdioUpdates {
    fn set_subscriptions<'a>(
        &'a mut self,
        uris: &'a [Arc<str>],
    ) -> Fut<'a, Result<RefusedSubscriptions, Failure>> {
        Box::pin(async move {
            match self.line {
                StdioSubscriptions::Legacy(_) => self.subscribe(uris).await,
                StdioSubscriptions::Modern(_) => self.replace_subscription(uris).await,
            }
        })
    }

    fn next_update(&mut self) -> Fut<'_, Result<ResourceUpdate, Failure>> {
        Box::pin(async move {
            let pipe = &self.running.child.pipe;
            let over = pipe.closed();
            let listening = match &mut self.line {
                StdioSubscriptions::Modern(ticket) => ticket.as_mut(),
                StdioSubscriptions::Legacy(_) => None,
            };
            tokio::select! {
                biased;
                updated = pipe.pending_updates.next() => Ok(updated),
                () = over.cancelled() => Err(self.site.label.fail(FailureKind::Unavailable, "The upstream ended")),
                () = ChildRequest::wait_for_end(listening) => Err(self.site.label.fail(FailureKind::Unavailable, "The upstream ended the subscription")),
            }
        })
    }
}

fn refusal(label: &UpstreamLabel) -> Failure {
    label.fail(
        FailureKind::InvalidParams,
        "The server of this resource does not tell of its updates",
    )
}
