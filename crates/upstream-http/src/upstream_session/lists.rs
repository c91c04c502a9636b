//! The lists of a session, read beside its calls.

use std::sync::Arc;

use weir_core::Failure;
use weir_core::port::BoxFuture;
use weir_core::port::ListSession;
use weir_core::upstream::{ListKind, ListKinds, ListPage, ListWatch, ServerDescription};
use weir_era::lower;
use weir_upstream_core::list_page::{PageCursor, ToolListRules, ToolTasks, parse_page};
use weir_wire::method::Method;

use crate::upstream_session::UpstreamSession;

impl ListSession for UpstreamSession {
    fn lists(self: Arc<Self>) -> Box<dyn ListWatch> {
        Box::new(SessionWatch(self))
    }

    fn subscribe(self: Arc<Self>, uri: Arc<str>) -> BoxFuture<'static, Result<(), Failure>> {
        Box::pin(async move {
            let outcome = self
                .request(Method::ResourcesSubscribe, &[("uri", &lower::json(&uri))])
                .await;
            outcome.map(drop).map_err(|refusal| refusal.failure)
        })
    }

    fn unsubscribe(self: Arc<Self>, uri: Arc<str>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if self.channel.has_left() {
                return;
            }
            let outcome = self
                .request(Method::ResourcesUnsubscribe, &[("uri", &lower::json(&uri))])
                .await;
            if let Err(refusal) = outcome {
                tracing::debug!(upstream = %self.context.label.id, error = refusal.failure.cause(), "resource unsubscribe failed");
            }
        })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.context.tasks.spawn(task);
    }
}

/// Reads the lists of a session that also serves calls.
struct SessionWatch(Arc<UpstreamSession>);

impl ListWatch for SessionWatch {
    fn about(&self) -> &ServerDescription {
        &self.0.about
    }

    fn list(
        &mut self,
        kind: ListKind,
        cursor: Option<String>,
    ) -> BoxFuture<'_, Result<ListPage, Failure>> {
        Box::pin(async move { list(&self.0, kind, cursor).await })
    }

    fn next_change(&mut self) -> BoxFuture<'_, Result<ListKinds, Failure>> {
        // The session itself handles its list changes.
        Box::pin(std::future::pending())
    }
}

/// Reads one page of a list in a session.
pub(crate) async fn list(
    session: &Arc<UpstreamSession>,
    kind: ListKind,
    cursor: Option<String>,
) -> Result<ListPage, Failure> {
    let cursor = PageCursor::new(cursor.as_deref());
    let outcome = session.request(kind.method(), &cursor.members()).await;
    parse_page(
        &session.context.record,
        session.dialect,
        kind,
        outcome,
        ToolListRules {
            drop_bad_mirrors: false,
            tasks: ToolTasks::of(session.about.tasks, false),
        },
    )
}
