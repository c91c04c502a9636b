//! The lists of a child process that serves one principal. The child may change them for that
//! principal alone.

use std::sync::{Arc, Weak};

use weir_core::port::BoxFuture;
use weir_core::port::ListSession;
use weir_core::upstream::ListWatch;
use weir_core::{CapabilityClass, Failure, SessionKey};
use weir_era::lower;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_wire::method::Method;

use crate::running_child::RunningChild;
use crate::stdio_call;
use crate::stdio_watch::StdioWatch;

impl RunningChild {
    /// Keeps the child's lists apart from the shared ones. A modern child sends no notifications
    /// without a subscription, so it has no lists of its own.
    pub(super) fn open_own_lists(self: &Arc<Self>) {
        self.continue_own_lists(Vec::new());
    }

    /// As [`Self::open_own_lists`], for a child that served these client sessions in another
    /// process: their calls may have changed its lists.
    pub(super) fn continue_own_lists(self: &Arc<Self>, clients: Vec<SessionKey>) {
        if self.legacy.is_none() {
            return;
        }
        let context = &self.child.channel.context;
        let own: Weak<Self> = Arc::downgrade(self);
        let lists = context.session_lists.open(
            context.label.id.clone(),
            self.handshake.about.notifies_of,
            own,
        );
        for client in clients {
            lists.serves(client);
            lists.count_call();
        }
        // The output of a child is always read.
        lists.set_heard(true);
        let _first = self.child.channel.lists.set(lists);
    }

    async fn request_about(&self, method: Method, uri: &str) -> Result<(), FailedAttempt> {
        let members: &[(&str, &[u8])] = &[("uri", &lower::json(uri))];
        stdio_call::request(
            &self.child.channel.context,
            self,
            CapabilityClass::BASE,
            method,
            members,
        )
        .await
        .map(drop)
    }
}

impl ListSession for RunningChild {
    fn lists(self: Arc<Self>) -> Box<dyn ListWatch> {
        Box::new(StdioWatch::beside_calls(self))
    }

    fn subscribe(self: Arc<Self>, uri: Arc<str>) -> BoxFuture<'static, Result<(), Failure>> {
        Box::pin(async move {
            self.request_about(Method::ResourcesSubscribe, &uri)
                .await
                .map_err(|refusal| refusal.failure)
        })
    }

    fn unsubscribe(self: Arc<Self>, uri: Arc<str>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let channel = &self.child.channel;
            if channel.is_handed_over() {
                return;
            }
            if let Err(refusal) = self.request_about(Method::ResourcesUnsubscribe, &uri).await {
                tracing::debug!(upstream = %channel.context.label.id, error = refusal.failure.cause(), "resource unsubscribe failed");
            }
        })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.child.channel.context.tasks.spawn(task);
    }
}
