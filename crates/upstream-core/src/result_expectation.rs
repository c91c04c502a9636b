//! Classification of a whole result for the call that it answers.

use std::sync::Arc;

use bytes::Bytes;
use weir_core::call::TaskMode;
use weir_core::reply::{Payload, ReplyEnd};
use weir_core::upstream::OutboundCall;
use weir_core::{CapabilityClass, FailureKind};
use weir_era::tasks;
use weir_era::upstream_messages::{MessageFilter, ResultType, RevisionDialect};
use weir_wire::method::Method;

use crate::response_limits::ResponseLimits;
use crate::task_holds::{TaskHolds, TaskOwner};
use crate::task_progress::TaskProgressHandle;

/// The state of a call that decides how its result is read: the server's dialect, the message
/// filter, and the client's capabilities.
#[derive(Debug)]
pub struct ResultExpectation {
    /// The encoder and decoder of its revision.
    pub dialect: RevisionDialect,
    /// The classification of the messages before the result.
    pub filter: MessageFilter,
    /// The capabilities that the server may use of the caller.
    pub class: CapabilityClass,
    /// The owner of the task that the call may become; absent if it may become none.
    pub task_owner: Option<TaskOwner>,
    /// The client session for progress of the task.
    pub tracked: Option<TaskProgressHandle>,
    /// True if the result is needed whole.
    pub needs_whole: bool,
    /// True for a request of weir's own, such as for a list: its answer is read as one message of
    /// any size.
    pub is_unsplit: bool,
}

impl ResultExpectation {
    /// Returns the expectation for a request of weir's own: its answer is read as one message of any
    /// size.
    pub fn for_own_request(
        dialect: RevisionDialect,
        filter: MessageFilter,
        class: CapabilityClass,
    ) -> Self {
        Self {
            dialect,
            filter,
            class,
            task_owner: None,
            tracked: None,
            needs_whole: false,
            is_unsplit: true,
        }
    }

    /// The owner of the task that a call may become at a server of this kind. A modern server is
    /// informed that tasks are accepted; an older one gets an explicit request for a task.
    pub fn task_owner(
        dialect: RevisionDialect,
        outbound: &OutboundCall,
        declared: CapabilityClass,
    ) -> Option<TaskOwner> {
        let call = &outbound.call;
        let takes_task = call.method == Method::ToolsCall
            && if dialect.tools_declare_tasks() {
                matches!(call.task_mode, TaskMode::Wanted { .. })
            } else {
                declared.has(CapabilityClass::TASKS)
            };
        takes_task.then(|| TaskOwner::of(outbound))
    }

    /// Notes that the call became a task, which needs `held` for as long as it runs: the session or
    /// child process, if any, that it began in.
    pub fn note_task<T: Send + Sync + ?Sized + 'static>(
        &mut self,
        holds: &TaskHolds,
        created: &Bytes,
        held: Option<Arc<T>>,
    ) {
        let tracked = self
            .tracked
            .take()
            .inspect(|tracked| tracked.set_task(created));
        if let Some(owner) = self.task_owner.take() {
            holds.hold(owner, created, held, tracked);
        }
    }
}

/// Classifies a whole result as an end of the call.
pub fn classify_result(
    limits: &ResponseLimits,
    expectation: &ResultExpectation,
    result: Bytes,
) -> ReplyEnd {
    if expectation.needs_whole && result.len() > limits.hold_share.per_call() {
        return limits.too_large_failure().into();
    }
    match expectation.dialect.read_result_type(&result) {
        ResultType::Complete
            if expectation.task_owner.is_some() && !expectation.dialect.has_result_type() =>
        {
            tasks::created(&result).map_or_else(
                || ReplyEnd::Complete(Payload::Whole(result)),
                ReplyEnd::Task,
            )
        }
        ResultType::Complete => ReplyEnd::Complete(Payload::Whole(result)),
        ResultType::Task if expectation.task_owner.is_some() => ReplyEnd::Task(result),
        ResultType::Task => {
            let text =
                "The upstream makes a task of a call whose client did not say that it takes one";
            limits.label.fail(FailureKind::BadAnswer, text).into()
        }
        ResultType::InputRequired if !expectation.dialect.can_continue(&result) => {
            let text =
                "The upstream asks for input and says neither which nor how the call goes on";
            limits.label.fail(FailureKind::BadAnswer, text).into()
        }
        ResultType::InputRequired if expectation.dialect.may_ask(expectation.class, &result) => {
            ReplyEnd::InputRequired(Payload::Whole(result))
        }
        ResultType::InputRequired => {
            let text = "The upstream asks for input that the client did not say it can give, or that `asks` of the upstream does not allow";
            limits.label.fail(FailureKind::BadAnswer, text).into()
        }
        ResultType::Unknown => limits
            .label
            .fail(
                FailureKind::BadAnswer,
                "The upstream's result is of an unknown type",
            )
            .into(),
    }
}
