//! Classification of a whole result for the call that it answers.

use std::sync::Arc;

use bytes::Bytes;
use weir_core::call::TaskMode;
use weir_core::reply::{Payload, ReplyEnd};
use weir_core::upstream::OutboundCall;
use weir_core::{CapabilityClass, FailureKind};
use weir_era::upstream_messages::{MessageFilter, ResultType, RevisionDialect};
use weir_era::{structured, tasks};
use weir_wire::method::Method;
use weir_wire::splice::ObjectEdits;

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
    /// True for a request about a task: some servers state the type of its result as `task`, as the
    /// examples of SEP-2663 do.
    pub is_about_task: bool,
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
            is_about_task: false,
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
        ResultType::Complete if !expectation.dialect.revision().has_any_structured_content() => {
            ReplyEnd::Complete(Payload::Whole(structured::without_null(result)))
        }
        ResultType::Complete => ReplyEnd::Complete(Payload::Whole(result)),
        ResultType::Task if expectation.is_about_task => {
            let complete = ObjectEdits::new().set("resultType", &b"\"complete\""[..]);
            ReplyEnd::Complete(Payload::Whole(complete.apply_or_keep(&result)))
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_core::Budgets;
    use weir_core::call::LogMessages;
    use weir_core::names::UpstreamId;
    use weir_wire::Revision;

    use super::*;
    use crate::upstream_label::UpstreamLabel;

    /// The result that a server of this revision ends a request with; no value for a failure.
    fn ended(revision: Revision, is_about_task: bool, result: &str) -> Option<String> {
        let id = UpstreamId::new("u").unwrap();
        let limits = ResponseLimits::new(UpstreamLabel { id }, 1 << 20, &Budgets::default());
        let dialect = RevisionDialect::new(revision);
        let filter = dialect.message_filter(1, false, LogMessages::None);
        let mut expectation =
            ResultExpectation::for_own_request(dialect, filter, CapabilityClass::BASE);
        expectation.is_about_task = is_about_task;
        let result = Bytes::copy_from_slice(result.as_bytes());
        let end = classify_result(&limits, &expectation, result);
        let ReplyEnd::Complete(Payload::Whole(result)) = end else {
            return None;
        };
        Some(String::from_utf8(result.to_vec()).unwrap())
    }

    #[test]
    fn the_state_of_a_task_may_have_the_type_of_a_task() {
        let state = r#"{"resultType":"task","taskId":"t","status":"working"}"#;
        assert_eq!(
            ended(Revision::MODERN, true, state).as_deref(),
            Some(r#"{"resultType":"complete","taskId":"t","status":"working"}"#)
        );
        assert_eq!(ended(Revision::MODERN, false, state), None);
    }

    #[test]
    fn only_a_server_of_the_newest_revision_has_null_as_structured_content() {
        let result = r#"{"content":[],"structuredContent":null}"#;
        for revision in Revision::ALL {
            let expected = if revision.is_modern() {
                result
            } else {
                r#"{"content":[]}"#
            };
            assert_eq!(
                ended(revision, false, result).as_deref(),
                Some(expected),
                "{revision}"
            );
        }
    }
}
