//! Classification of a whole result for the call that it answers.

use bytes::Bytes;
use weir_core::call::TaskMode;
use weir_core::reply::{Payload, ReplyEnd};
use weir_core::{Call, CapabilityClass, Failure, FailureKind};
use weir_era::tasks;
use weir_era::upstream_messages::{MessageFilter, ResultType, RevisionDialect};
use weir_wire::method::Method;

use crate::site::Site;
use crate::tracks::Tracked;

/// The state of a call that decides how its result is read: the server's dialect, the message
/// filter, and the client's capabilities.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) tongue: RevisionDialect,
    pub(crate) ear: MessageFilter,
    pub(crate) class: CapabilityClass,
    /// True if the call may go on as a task.
    pub(crate) task: bool,
    /// The client session for progress of the task.
    pub(crate) tracked: Option<Tracked>,
    /// True if the result is needed whole.
    pub(crate) whole: bool,
    /// True for a request of weir's own, such as for a list: its answer is read as one message of
    /// any size.
    pub(crate) unsplit: bool,
}

impl Listener {
    /// Returns the listener for a request of weir's own: its answer is read as one message of any
    /// size.
    pub(crate) fn for_own_request(
        tongue: RevisionDialect,
        ear: MessageFilter,
        class: CapabilityClass,
    ) -> Self {
        Self {
            tongue,
            ear,
            class,
            task: false,
            tracked: None,
            whole: false,
            unsplit: true,
        }
    }

    /// True if a call may become a task at a server of this kind. A modern server is informed that
    /// tasks are accepted; an older one gets an explicit request for a task.
    pub(crate) fn takes_task(
        tongue: RevisionDialect,
        call: &Call,
        declared: CapabilityClass,
    ) -> bool {
        call.method == Method::ToolsCall
            && if tongue.revision().is_modern() {
                declared.has(CapabilityClass::TASKS)
            } else {
                matches!(call.task_mode, TaskMode::Wanted { .. })
            }
    }

    /// Notes that the call became a task. Returns the tracker of its progress.
    pub(crate) fn became(&mut self, created: &Bytes) -> Option<Tracked> {
        self.tracked
            .take()
            .inspect(|tracked| tracked.became(created))
    }
}

/// Classifies a whole result as an end of the call.
pub(crate) fn judge(site: &Site, listener: &Listener, result: Bytes) -> ReplyEnd {
    if listener.whole && result.len() > site.hold.per_call() {
        return too_large(site).into();
    }
    match listener.tongue.read_result_type(&result) {
        ResultType::Complete if listener.task && !listener.tongue.revision().is_modern() => {
            tasks::created(&result).map_or_else(
                || ReplyEnd::Complete(Payload::Whole(result)),
                ReplyEnd::Task,
            )
        }
        ResultType::Complete => ReplyEnd::Complete(Payload::Whole(result)),
        ResultType::Task if listener.task => ReplyEnd::Task(result),
        ResultType::Task => {
            let text =
                "The upstream makes a task of a call whose client did not say that it takes one";
            site.fail(FailureKind::BadAnswer, text).into()
        }
        ResultType::InputRequired if !listener.tongue.can_continue(&result) => {
            let text =
                "The upstream asks for input and says neither which nor how the call goes on";
            site.fail(FailureKind::BadAnswer, text).into()
        }
        ResultType::InputRequired if listener.tongue.may_ask(listener.class, &result) => {
            ReplyEnd::InputRequired(Payload::Whole(result))
        }
        ResultType::InputRequired => {
            let text = "The upstream asks for input that the client did not say it can give";
            site.fail(FailureKind::BadAnswer, text).into()
        }
        ResultType::Unknown => site
            .fail(
                FailureKind::BadAnswer,
                "The upstream's result is of an unknown type",
            )
            .into(),
    }
}

/// Returns the failure of a result that has to be held whole and is too large for that.
pub(crate) fn too_large(site: &Site) -> Failure {
    let most = site.hold.per_call();
    let text = format!(
        "The upstream's result is larger than {most} bytes, the most that can be held to look at it"
    );
    site.fail(FailureKind::BadAnswer, text)
}
