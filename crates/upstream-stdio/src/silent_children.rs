//! The end of children that hang, and of children that an operator replaces.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use weir_core::CapabilityClass;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::settings::FAILURES_TO_OPEN;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::method::Method;

use crate::StdioUpstream;
use crate::child_source::ChildSource;
use crate::running_child::RunningChild;
use crate::stdio_call;

/// The time between two looks at the calls of a child that is replaced.
const CALLS_LOOK_INTERVAL: Duration = Duration::from_millis(20);

impl StdioUpstream {
    /// Asks each child that left calls unanswered for a sign of life, and ends those without one.
    /// Calls at this upstream have failed several times in a row. A child that works on a long call
    /// and answers meanwhile goes on.
    pub fn check_silent_children(&self) {
        for running in self.silent_children() {
            self.check(running);
        }
    }

    /// Does the same for one child that is to get a call, if it left many unanswered: calls of other
    /// principals, which have children of their own, may succeed and keep the breaker closed.
    pub(super) fn check_before_call(&self, running: &Arc<RunningChild>) {
        let unanswered = running.child.channel.silence.unanswered();
        if unanswered >= FAILURES_TO_OPEN && is_process_of(running, &self.starter.origin) {
            self.check(running.clone());
        }
    }

    fn check(&self, running: Arc<RunningChild>) {
        if running.child.channel.silence.begin_check() {
            let context = self.context.clone();
            self.context.tasks.spawn_endless(async move {
                end_if_silent(&context, &running).await;
                running.child.channel.silence.end_check();
            });
        }
    }

    /// True if a child left a call unanswered and has been silent since.
    pub fn has_silent_child(&self) -> bool {
        !self.silent_children().is_empty()
    }

    /// Asks each child that left calls unanswered for a sign of life. True if a child runs, and none
    /// is silent.
    pub async fn answers(&self) -> bool {
        let silent = self.silent_children();
        let probes = silent.iter().map(|running| async move {
            let messages = running.child.channel.silence.messages();
            ask_for_life(&self.context, running).await;
            running.child.channel.silence.messages() != messages
        });
        let answered = join_all(probes).await.into_iter().all(|answered| answered);
        let all = self.slots.values_where(|_| true);
        answered && all.iter().any(|running| !running.child.channel.is_closed())
    }

    /// Asks a server of HTTP+SSE on a stream of weir's own, up to its answer to `initialize`.
    ///
    /// # Errors
    /// The server opens no stream, or does not answer.
    pub async fn check_stream(&self) -> Result<(), FailedAttempt> {
        self.starter.check().await
    }

    fn silent_children(&self) -> Vec<Arc<RunningChild>> {
        let mut silent = self.slots.values_where(|_| true);
        silent.retain(|running| {
            running.child.channel.silence.unanswered() > 0
                && is_process_of(running, &self.starter.origin)
        });
        silent
    }

    /// Ends all children once their running calls are done, at most `grace` from now. Later calls
    /// and watches start others.
    pub async fn replace_children(&self, grace: Duration) {
        let mut old = self.slots.take_all();
        old.extend(self.watched.take_all());
        let until = Instant::now() + grace;
        let ending = old.iter().map(|running| async move {
            let channel = &running.child.channel;
            while channel.may_have_calls() && Instant::now() < until {
                tokio::time::sleep(CALLS_LOOK_INTERVAL).await;
            }
            running.child.stopped().await;
        });
        join_all(ending).await;
    }
}

/// True for a process of this weir process. An HTTP+SSE stream is none.
fn is_process_of(running: &RunningChild, origin: &ChildSource) -> bool {
    let channel = &running.child.channel;
    matches!(origin, ChildSource::Process(..)) && !channel.is_closed() && !channel.is_handed_over()
}

/// Asks a child for a sign of life within the deadline of lists, and ends it if it says nothing at
/// all in that time.
async fn end_if_silent(context: &UpstreamContext, running: &RunningChild) {
    let channel = &running.child.channel;
    let before = channel.silence.messages();
    ask_for_life(context, running).await;
    if channel.silence.messages() == before && !channel.is_closed() && !channel.is_handed_over() {
        tracing::warn!(upstream = %context.label.id, "child process ended: it answers neither calls nor a ping");
        channel.close("the process answered neither calls nor a ping: weir ended it");
        running.child.stop();
    }
}

/// Asks a child for a sign of life within the deadline of lists.
async fn ask_for_life(context: &UpstreamContext, running: &RunningChild) {
    let method = match running.legacy {
        Some(_) => Method::Ping,
        None => Method::Discover,
    };
    // Any answer is a sign of life, an error too.
    let _answered = stdio_call::request(context, running, CapabilityClass::BASE, method, &[]).await;
}
