//! The reply to a call of a client without tasks, whose tool can only be called as a task: weir
//! waits for the task in the client's stead.
//!
//! The waiting is a part of the call: the call's permit, its record, its entry among the running
//! calls and its time limit cover it. A call that ends before its task cancels the task.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::time::Instant;
use weir_core::Authenticated;
use weir_core::call::Call;
use weir_core::failure::Failure;
use weir_core::reply::{Reply, ReplyEnd, ReplyEvent, ReplySource};
use weir_wire::method::Method;
use weir_wire::params::Params;
use weir_wire::scan;
use weir_wire::splice::ObjectEdits;

use crate::tasks::task_naming::TaskNaming;
use crate::tasks::{TaskRequests, TaskRoute};

/// The parts that wait for the task of one call.
pub(crate) struct TaskAwaiting {
    requests: TaskRequests,
    /// The call, for the requests about its task.
    call: Authenticated<Arc<Call>>,
    naming: TaskNaming,
    /// The latest end of the call.
    until: Instant,
}

impl TaskAwaiting {
    /// Returns the reply that follows the task to its end, if `reply` ends with one.
    pub(crate) fn wrap_reply(self, reply: Reply) -> Reply {
        Reply::live(AwaitedTaskReply {
            context: self,
            reply,
        })
    }

    /// The reply of the task that the call became.
    fn await_task(&self, created: &Bytes) -> Result<Reply, Failure> {
        // The task book keeps this state, and the texts in it were not cleaned.
        let edits = ["statusMessage", "_meta"]
            .into_iter()
            .fold(ObjectEdits::new(), ObjectEdits::remove);
        let named = self.naming.name_task(&edits.apply_or_keep(created))?;
        let name = scan::find(&named, "taskId")
            .and_then(|at| scan::string(&named[at]))
            .unwrap_or_default();
        let about = Call {
            params: Params::of_task(&name),
            ..Call::clone(self.call.inner())
        };
        let about = self.call.for_payload(Arc::new(about));
        Ok(self.requests.await_task(about, self.until))
    }
}

impl TaskRequests {
    /// Waits for the task that a call becomes, at most until `until`.
    pub(crate) fn awaiting(
        &self,
        call: Authenticated<Arc<Call>>,
        naming: TaskNaming,
        until: Instant,
    ) -> TaskAwaiting {
        TaskAwaiting {
            requests: self.clone(),
            call,
            naming,
            until,
        }
    }

    /// Cancels a task in the background, at its server alone: a reply that waited for it was
    /// dropped.
    pub(super) fn cancel_unawaited(&self, call: &Authenticated<Arc<Call>>) {
        let call = &call.for_payload(Arc::new(Call {
            method: Method::TasksCancel,
            ..Call::clone(call.inner())
        }));
        let (principal, request) = (call.principal(), call.inner());
        let location = || {
            let name = request.params.task_id().ok().flatten()?;
            self.names
                .as_ref()?
                .locate(principal, &request.endpoint, &name)
        };
        if let Some(TaskRoute {
            upstream, outbound, ..
        }) = location().and_then(|home| self.task_route(call, home))
        {
            upstream.cancel_task(outbound);
        }
    }
}

struct AwaitedTaskReply {
    context: TaskAwaiting,
    reply: Reply,
}

impl ReplySource for AwaitedTaskReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        loop {
            match ready!(self.reply.poll_event(cx)) {
                ReplyEvent::End(ReplyEnd::Task(created)) => {
                    match self.context.await_task(&created) {
                        Ok(reply) => self.reply = reply,
                        Err(failure) => return Poll::Ready(ReplyEvent::End(failure.into())),
                    }
                }
                event @ (ReplyEvent::Note(_) | ReplyEvent::Ask(_) | ReplyEvent::End(_)) => {
                    return Poll::Ready(event);
                }
            }
        }
    }
}
