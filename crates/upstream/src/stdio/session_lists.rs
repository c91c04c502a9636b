//! The lists of a child process that serves one principal. The child may change them for that
//! principal alone.

use std::sync::{Arc, Weak};

use weir_core::catalog::ListSession;
use weir_core::port::Fut;
use weir_core::upstream::ListWatch;
use weir_core::{CapabilityClass, Failure, SessionKey};
use weir_era::lower;
use weir_wire::method::Method;

use super::watching::StdioWatch;
use super::{Running, talk};
use crate::refusal::Refusal;

impl Running {
    /// Keeps the child's lists apart from the shared ones. A modern child sends no notifications
    /// without a subscription, so it has no lists of its own.
    pub(super) fn has_own_lists(self: &Arc<Self>) {
        if self.greeted.tongue.revision().is_modern() {
            return;
        }
        let site = &self.child.pipe.site;
        let own: Weak<Self> = Arc::downgrade(self);
        let lists = site
            .session_lists
            .open(site.id.clone(), self.greeted.about.notifies_of, own);
        // The output of a child is always read.
        lists.set_heard(true);
        let _first = self.child.pipe.lists.set(lists);
    }

    /// Notes a call of a client's session in the child.
    pub(super) fn serves(&self, client: Option<SessionKey>) {
        if let (Some(lists), Some(client)) = (self.child.pipe.lists.get(), client) {
            lists.serves(client);
            lists.count_call();
        }
    }

    async fn ask_about(&self, method: Method, uri: &str) -> Result<(), Refusal> {
        let members: &[(&str, &[u8])] = &[("uri", &lower::json(uri))];
        talk::ask(
            &self.child.pipe.site,
            self,
            CapabilityClass::BASE,
            method,
            members,
        )
        .await
        .map(drop)
    }
}

impl ListSession for Running {
    fn lists(self: Arc<Self>) -> Box<dyn ListWatch> {
        Box::new(StdioWatch::beside_calls(self))
    }

    fn subscribe(self: Arc<Self>, uri: Arc<str>) -> Fut<'static, Result<(), Failure>> {
        Box::pin(async move {
            self.ask_about(Method::ResourcesSubscribe, &uri)
                .await
                .map_err(|refusal| refusal.failure)
        })
    }

    fn unsubscribe(self: Arc<Self>, uri: Arc<str>) {
        if self.child.pipe.is_given() {
            return;
        }
        let site = self.child.pipe.site.clone();
        site.clone().spawn(async move {
            if let Err(refusal) = self.ask_about(Method::ResourcesUnsubscribe, &uri).await {
                tracing::debug!(upstream = %site.id, error = %refusal.failure, "a subscription was not taken back");
            }
        });
    }
}
