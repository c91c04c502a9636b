//! The source of a server's messages, and its limits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use weir_core::instant::millis;
use weir_core::port::BoxFuture;
use weir_core::telemetry::instruments;
use weir_core::{Failure, FailureKind};
use weir_process::keeper::ChildKeeper;
use weir_upstream_core::upstream_context::UpstreamContext;

use crate::stdio_settings::StdioUpstreamSettings;
use crate::upstream_child::UpstreamChild;

/// The connector of HTTP+SSE streams to one server. A stream is served like the pipes of a process.
pub trait SseConnector: fmt::Debug + Send + Sync {
    /// Opens a stream to the server.
    ///
    /// # Errors
    /// `Unavailable` if no such server is at the URL.
    fn connect<'a>(
        &'a self,
        context: &'a Arc<UpstreamContext>,
    ) -> BoxFuture<'a, Result<UpstreamChild, Failure>>;
}

/// The source of a server's messages.
#[derive(Debug)]
pub enum ChildSource {
    /// A process for each child, started by the keeper.
    Process(StdioUpstreamSettings, Arc<ChildKeeper>),
    /// An HTTP+SSE stream and its posts for each child.
    Sse(Arc<dyn SseConnector>),
}

impl ChildSource {
    pub(super) async fn start(
        &self,
        context: &Arc<UpstreamContext>,
    ) -> Result<UpstreamChild, Failure> {
        match self {
            Self::Process(settings, keeper) => {
                UpstreamChild::start(context, keeper, settings).await
            }
            Self::Sse(connector) => connector.connect(context).await,
        }
    }

    /// Returns the most children if each principal has its own.
    pub(super) fn max_children(&self, context: &UpstreamContext) -> usize {
        match self {
            Self::Process(settings, _) => settings.max_processes,
            Self::Sse(_) => context.bounds.sessions,
        }
    }

    /// Returns the milliseconds for which a child must be unused before it is ended for another
    /// one.
    pub(super) fn idle_millis(&self, context: &UpstreamContext) -> u64 {
        match self {
            // A start is costly, and the state of the process is lost with it.
            Self::Process(..) => millis(context.bounds.session_idle),
            Self::Sse(_) => 0,
        }
    }

    /// Returns the failure of a call that got no child.
    pub(super) fn full_failure(&self, context: &UpstreamContext) -> Failure {
        let text = match self {
            Self::Process(..) => {
                instruments()
                    .upstream_processes_refused
                    .add(1, &[context.label.attribute()]);
                "The upstream runs as many processes as `limits.max_processes` in its config lets it, or as many of yours as \
                 leave some to others: try again later"
            }
            Self::Sse(_) => {
                "The upstream has as many sessions as `limits.sessions` in its config lets it: try again later"
            }
        };
        context.label.fail(FailureKind::Busy, text)
    }

    /// Returns the time limit up to the answer to the first message.
    pub(super) fn start_timeout(&self, context: &UpstreamContext) -> Duration {
        match self {
            Self::Process(settings, _) => settings.start,
            Self::Sse(_) => context.own_requests.deadlines.probe,
        }
    }
}
