//! The failures of waits for a task, in the words of their clients: a client without tasks knows a
//! call alone, and it cannot ask for the result again.

use bytes::Bytes;
use weir_core::failure::{Failure, FailureKind, UpstreamError};
use weir_wire::scan;

use crate::tasks::waited_task::{TaskResultForm, WaitedTask};

impl WaitedTask {
    /// The failure of a wait that reached its time limit.
    pub(super) fn waited_too_long(&self) -> Failure {
        let text = match self.form {
            TaskResultForm::AsTask => {
                "The task has taken too long to be waited for: ask for its result again"
            }
            TaskResultForm::AsCall => "The call took longer than it may: it was cancelled",
        };
        Failure::new(FailureKind::TimedOut, text)
    }

    /// The failure if the server does not answer for so long that the wait ends. The task runs on,
    /// as far as weir knows.
    pub(super) fn unreachable(&self, last: Failure) -> Failure {
        let text = match self.form {
            TaskResultForm::AsTask => {
                "The server of the task cannot be reached: ask for the task's result again later"
            }
            TaskResultForm::AsCall => {
                "The server cannot be reached while it makes this call: the tool may have run. \
                 Check before calling again"
            }
        };
        self.result_unknown(text).because(last)
    }

    /// The failure if the task does not exist any more.
    pub(super) fn lost_task(&self, failure: Failure) -> Failure {
        match self.form {
            TaskResultForm::AsTask => failure,
            TaskResultForm::AsCall => {
                let text = "The server has lost this call: the tool may have run. \
                            Check before calling again";
                self.result_unknown(text).because(failure)
            }
        }
    }

    /// The failure of a request about the task. Those of weir itself about an answer speak of
    /// tasks.
    pub(super) fn refused_request(&self, failure: Failure) -> Failure {
        let is_of_weir = *failure.kind() == FailureKind::InvalidParams;
        match self.form {
            TaskResultForm::AsCall if is_of_weir => {
                let text = "The client's answer could not be passed on, and the call was cancelled: \
                            the tool may have run. Check before calling again";
                self.result_unknown(text).because(failure)
            }
            TaskResultForm::AsTask | TaskResultForm::AsCall => failure,
        }
    }

    /// The failure if the task was cancelled.
    pub(super) fn cancelled(&self) -> Failure {
        match self.form {
            TaskResultForm::AsTask => {
                Failure::invalid_params("The task was cancelled: it has no result")
            }
            TaskResultForm::AsCall => self.result_unknown(
                "The server cancelled this call: the tool may have run. Check before calling again",
            ),
        }
    }

    /// The failure if the client went away without an answer. A client with tasks that comes back
    /// is asked again.
    pub(super) fn unanswered(&self) -> Failure {
        match self.form {
            TaskResultForm::AsTask => {
                let text = "The client did not answer: ask for the task's result again";
                Failure::invalid_params(text)
            }
            TaskResultForm::AsCall => self.result_unknown(
                "The client did not answer a question of the server, and the call was cancelled: \
                 the tool may have run. Check before calling again",
            ),
        }
    }

    /// The failure if the client refused the input, and the task was cancelled for that.
    pub(super) fn without_input(&self) -> Failure {
        match self.form {
            TaskResultForm::AsTask => {
                let text = "The client did not give the input that the task asks for";
                Failure::invalid_params(text)
            }
            TaskResultForm::AsCall => self.result_unknown(
                "The client did not give the input that the server asks for, and the call was \
                 cancelled: the tool may have run. Check before calling again",
            ),
        }
    }

    /// The failure if the state of a completed task has no result.
    pub(super) fn without_result(&self) -> Failure {
        let text = match self.form {
            TaskResultForm::AsTask => "The server's task is completed, and has no result",
            TaskResultForm::AsCall => "The server completed this call without a result",
        };
        Failure::new(FailureKind::BadAnswer, text)
    }

    /// The error that the task ended with, as its call's own.
    pub(super) fn failed(&self, state: &Bytes) -> Failure {
        let bad = || {
            let text = match self.form {
                TaskResultForm::AsTask => "The server's task failed, and has no error",
                TaskResultForm::AsCall => "The server failed to make this call, and gave no error",
            };
            Failure::new(FailureKind::BadAnswer, text)
        };
        let Some(error) = scan::find(state, "error").map(|at| state.slice(at)) else {
            return bad();
        };
        let code = scan::find(&error, "code").and_then(|at| scan::integer(&error[at]));
        let message = scan::find(&error, "message").and_then(|at| scan::string(&error[at]));
        let (Some(code), Some(message)) = (code, message) else {
            return bad();
        };
        let data = scan::find(&error, "data").map(|at| error.slice(at));
        let error = UpstreamError {
            code,
            message: message.to_string(),
            data,
        };
        self.of_upstream(Failure::new(
            FailureKind::Upstream(error),
            message.into_owned(),
        ))
    }

    fn result_unknown(&self, text: &'static str) -> Failure {
        self.of_upstream(Failure::new(FailureKind::ResultUnknown, text))
    }

    fn of_upstream(&self, failure: Failure) -> Failure {
        match &self.upstream {
            Some(upstream) => failure.with_upstream(upstream),
            None => failure,
        }
    }
}
