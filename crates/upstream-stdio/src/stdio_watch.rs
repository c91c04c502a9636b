//! A watch on a child: it reads lists over the child's channel, and gets changes from it.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use weir_core::port::BoxFuture;
use weir_core::upstream::{ListKind, ListKinds, ListPage, ListWatch, ServerDescription};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::list_changes::ListChangeReader;
use weir_upstream_core::list_page::{self, PageCursor, ToolListRules, ToolTasks, parse_page};
use weir_upstream_core::list_subscription::ListSubscription;
use weir_upstream_core::subscription_outcome::{self, SubscriptionAnswer, SubscriptionMessage};
use weir_upstream_core::upstream_context::UpstreamContext;

use crate::child_channel::RequestPurpose;
use crate::child_channel::child_request::ChildRequest;
use crate::child_start::ChildStarter;
use crate::running_child::RunningChild;
use crate::stdio_call;

/// A watch on a stdio server.
pub(crate) struct StdioWatch {
    context: Arc<UpstreamContext>,
    running: Arc<RunningChild>,
    class: CapabilityClass,
    about: ServerDescription,
    /// The lists of which a modern server declares that it sends changes.
    declared: ListKinds,
    /// The request for the subscription of a modern server.
    subscription: ListSubscription<ChildRequest>,
    changes: ListChangeReader,
    /// The subscription of a modern server. Dropping it ends it.
    listening: Option<ChildRequest>,
    /// The starter of the server's children, which knows their eras; absent in a legacy child.
    starter: Option<Arc<ChildStarter>>,
}

impl StdioWatch {
    pub(crate) async fn open(
        context: Arc<UpstreamContext>,
        running: Arc<RunningChild>,
        class: CapabilityClass,
        starter: Arc<ChildStarter>,
    ) -> Result<Self, FailedAttempt> {
        let mut about = running.handshake.about.clone();
        let changes = context.list_changes.reader();
        let is_modern = running.legacy.is_none();
        let declared = if is_modern {
            std::mem::take(&mut about.notifies_of)
        } else {
            ListKinds::default()
        };
        let asked = running.clone();
        let subscription = ListSubscription::for_lists(context.clone(), declared, move |filter| {
            let running = asked.clone();
            async move { subscribe(&running, class, filter).await }
        });
        let mut watch = Self {
            context,
            running,
            class,
            about,
            declared,
            subscription,
            changes,
            listening: None,
            starter: is_modern.then_some(starter),
        };
        if let Some((request, params)) = watch.subscription.opened_first().await? {
            watch.keep_subscription(request, &params);
        }
        Ok(watch)
    }

    /// Keeps the subscription of a modern server to the lists that it acknowledged.
    fn keep_subscription(&mut self, request: ChildRequest, params: &Bytes) {
        let honoured = list_page::acknowledged_lists(params);
        self.about.notifies_of = self.declared.and(honoured);
        self.listening = Some(request).filter(|_| !honoured.is_empty());
    }

    /// Reads the lists of a legacy child that also serves calls.
    pub(super) fn beside_calls(running: Arc<RunningChild>) -> Self {
        let context = running.child.channel.context.clone();
        let (class, about, changes) = (
            running
                .legacy
                .as_ref()
                .map_or(CapabilityClass::BASE, |legacy| legacy.class),
            running.handshake.about.clone(),
            context.list_changes.reader(),
        );
        Self {
            subscription: ListSubscription::none(context.clone()),
            context,
            running,
            class,
            about,
            declared: ListKinds::default(),
            changes,
            listening: None,
            starter: None,
        }
    }
}

/// Sends `subscriptions/listen` with this filter.
///
/// # Errors
/// The child was not reached, or is gone.
pub(crate) async fn subscribe(
    running: &RunningChild,
    class: CapabilityClass,
    wanted: Bytes,
) -> Result<SubscriptionAnswer<ChildRequest>, FailedAttempt> {
    let context = &running.child.channel.context;
    let id = context.request_ids.next_id();
    let body = context.listen_request(running.handshake.dialect, id, class, &wanted);
    subscription_outcome::within_deadline(&context.own_requests, async {
        let mut request = running
            .request(id, body, RequestPurpose::OwnRequest)
            .await?;
        loop {
            let Some(message) = poll_fn(|cx| request.poll_message(cx)).await else {
                return Err(request
                    .take_refusal()
                    .unwrap_or_else(|| stdio_call::process_lost(&context.label).into()));
            };
            match subscription_outcome::classify(context, message) {
                SubscriptionMessage::Acknowledged(params) => {
                    return Ok(SubscriptionAnswer::Open(request, params));
                }
                SubscriptionMessage::Refused(failure) => {
                    request.end();
                    return Ok(SubscriptionAnswer::Refused(failure));
                }
                SubscriptionMessage::Other => {}
            }
        }
    })
    .await
}

impl ListWatch for StdioWatch {
    fn about(&self) -> &ServerDescription {
        &self.about
    }

    fn list(
        &mut self,
        kind: ListKind,
        cursor: Option<String>,
    ) -> BoxFuture<'_, Result<ListPage, Failure>> {
        Box::pin(async move {
            let cursor = PageCursor::new(cursor.as_deref());
            let outcome = stdio_call::request(
                &self.context,
                &self.running,
                self.class,
                kind.method(),
                &cursor.members(),
            )
            .await;
            let starter = self.starter.as_ref();
            let is_other_era = starter.is_some_and(|starter| starter.eras.has_second());
            parse_page(
                &self.context.record,
                self.running.handshake.dialect,
                kind,
                outcome,
                ToolListRules {
                    drop_bad_mirrors: false,
                    tasks: ToolTasks::of(self.about.tasks, is_other_era),
                },
            )
        })
    }

    fn next_change(&mut self) -> BoxFuture<'_, Result<ListKinds, Failure>> {
        Box::pin(async move {
            loop {
                let lost = |text| Err(self.context.label.fail(FailureKind::Unavailable, text));
                let over = self.running.child.channel.closed();
                let ended = ChildRequest::wait_for_end(self.listening.as_mut());
                let (request, params) = tokio::select! {
                    biased;
                    notification = self.changes.changed() => {
                        return notification.or_else(|_| lost("The upstream ended"));
                    }
                    () = over.cancelled() => return lost("The upstream ended"),
                    () = ended => return lost("The upstream ended the subscription"),
                    opened = self.subscription.opened() => opened,
                };
                self.keep_subscription(request, &params);
                // Changes before the subscription are unknown.
                if !self.about.notifies_of.is_empty() {
                    return Ok(ListKinds::default());
                }
            }
        })
    }
}
