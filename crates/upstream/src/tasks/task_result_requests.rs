//! Open requests for the results of tasks that wait for input: servers of 2025-11-25 ask on their
//! streams. They are read all the time, so that answers reach the server at once. Questions wait
//! here until the client gets the task's state.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use weir_core::parked::OpenQuestions;
use weir_core::port::BoxFuture;
use weir_core::{Failure, FailureKind, PendingQuestion, Principal, Reply, ReplyEvent};
use weir_era::tasks::TaskQuestion;
use weir_upstream_core::background_tasks::BackgroundTasks;
use weir_upstream_core::upstream_clock::UpstreamClock;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_upstream_core::upstream_label::UpstreamLabel;

use crate::in_flight::UpstreamInFlightLimit;

/// The most held requests of one server. They have permits of their own: a task may wait for its
/// client for hours, and the calls of other clients go on meanwhile.
const MAX_HELD_REQUESTS: usize = 256;
/// The most held requests of one principal at one server, so that no client takes the room of all.
/// All anonymous callers share one principal, so only the total binds it.
const MAX_HELD_REQUESTS_OF_A_PRINCIPAL: usize = 64;
/// The longest wait for the question of a task that is in `input_required`.
const QUESTION_WAIT: Duration = Duration::from_millis(500);

type TaskOwnerKey = (Principal, Arc<str>);

/// The held requests of one server, by principal and the server's own task id.
#[derive(Debug)]
pub(crate) struct TaskResultRequests {
    label: UpstreamLabel,
    clock: UpstreamClock,
    tasks: BackgroundTasks,
    bound: UpstreamInFlightLimit,
    held: Mutex<HashMap<TaskOwnerKey, TaskResultEntry>>,
}

/// A held request and its reader. Dropping it ends the request.
#[derive(Debug)]
struct TaskResultEntry {
    held: Arc<TaskResultRequest>,
    reading: Option<AbortHandle>,
}

/// One held request.
#[derive(Debug)]
pub(crate) struct TaskResultRequest {
    state: Mutex<TaskResultState>,
    /// Notified of a question, and of the end.
    changed: Notify,
}

#[derive(Debug)]
struct TaskResultState {
    open: OpenQuestions,
    over: bool,
}

impl TaskResultRequests {
    pub(crate) fn new(context: &UpstreamContext) -> Self {
        Self {
            label: context.label.clone(),
            clock: context.clock.clone(),
            tasks: context.tasks.clone(),
            bound: UpstreamInFlightLimit::new(context.label.clone(), MAX_HELD_REQUESTS),
            held: Mutex::default(),
        }
    }

    /// Returns the held request for this task, if it still runs.
    pub(crate) fn find(&self, key: &TaskOwnerKey) -> Option<Arc<TaskResultRequest>> {
        self.held
            .lock()
            .get(key)
            .map(|entry| entry.held.clone())
            .filter(|held| !held.state.lock().over)
    }

    /// Returns the held request for this task, or begins one. `begin` gets the bound of its permit.
    ///
    /// # Errors
    /// `Busy`: too many requests are held, of this principal or of all.
    pub(crate) fn take(
        &self,
        key: &TaskOwnerKey,
        begin: impl FnOnce(UpstreamInFlightLimit) -> BoxFuture<'static, Reply>,
    ) -> Result<Arc<TaskResultRequest>, Failure> {
        let mut all = self.held.lock();
        all.retain(|_, entry| !entry.held.state.lock().over);
        if let Some(entry) = all.get(key) {
            return Ok(entry.held.clone());
        }
        let of_principal = all.keys().filter(|(principal, _)| *principal == key.0);
        if !key.0.is_anonymous() && of_principal.count() >= MAX_HELD_REQUESTS_OF_A_PRINCIPAL {
            let text = "As many of your tasks of this upstream wait for input as may: answer or cancel one";
            return Err(self.label.fail(FailureKind::Busy, text).own_limit());
        }
        if all.len() >= MAX_HELD_REQUESTS {
            let text = "As many tasks of this upstream wait for input as may: answer one, or try again later";
            return Err(self.label.fail(FailureKind::Busy, text));
        }
        let mut tag = [0; 4];
        self.clock.random().fill(&mut tag);
        // A key is never used again in the life of a task: each held request has its own prefix
        // (SEP-2663).
        let prefix = format!("input-{:08x}", u32::from_be_bytes(tag));
        let state = TaskResultState {
            open: OpenQuestions::new(prefix),
            over: false,
        };
        let held = Arc::new(TaskResultRequest {
            state: Mutex::new(state),
            changed: Notify::new(),
        });
        let reading = self
            .tasks
            .spawn_endless(read(held.clone(), begin(self.bound.clone())));
        all.insert(
            key.clone(),
            TaskResultEntry {
                held: held.clone(),
                reading,
            },
        );
        Ok(held)
    }

    /// Ends the request, if it exists.
    pub(crate) fn forget(&self, key: &TaskOwnerKey) {
        drop(self.held.lock().remove(key));
    }
}

impl Drop for TaskResultEntry {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}

async fn read(held: Arc<TaskResultRequest>, begun: BoxFuture<'static, Reply>) {
    let mut reply = begun.await;
    while let Some(event) = reply.next().await {
        match event {
            ReplyEvent::Ask(ask) => held.take(*ask),
            ReplyEvent::Note(_) => {}
            // The result is fetched once the task is seen to be over.
            ReplyEvent::End(_) => break,
        }
    }
    let mut state = held.state.lock();
    state.over = true;
    state.open.clear();
    drop(state);
    held.changed.notify_one();
}

impl TaskResultRequest {
    /// Waits for a question, but not for long.
    pub(crate) async fn wait_for_question(&self) {
        let question = async {
            while self.open_questions().is_empty() && !self.state.lock().over {
                self.changed.notified().await;
            }
        };
        // A later question is seen at a later request.
        let _late = tokio::time::timeout(QUESTION_WAIT, question).await;
    }

    /// True if the server has asked on this request.
    pub(crate) fn has_asked(&self) -> bool {
        self.state.lock().open.has_asked()
    }

    /// Returns the open questions.
    pub(crate) fn open_questions(&self) -> Vec<TaskQuestion> {
        let mut state = self.state.lock();
        // The server may have withdrawn a question.
        let mut cx = Context::from_waker(Waker::noop());
        state.open.drop_withdrawn(&mut cx);
        state
            .open
            .all()
            .iter()
            .map(|open| TaskQuestion {
                key: open.key.clone(),
                question: open.ask.question.clone(),
                elicitation_id: open.ask.elicitation.clone(),
            })
            .collect()
    }

    /// Sends some or all answers to the server. Answers without a question are ignored (SEP-2663).
    ///
    /// # Errors
    /// `InvalidParams`: one of them is no answer to its question. In that case no answer is sent.
    pub(crate) fn answer(&self, answers: &Bytes) -> Result<(), Failure> {
        let mut state = self.state.lock();
        state.open.check(answers)?;
        state.open.answer(answers);
        Ok(())
    }

    /// Sends the client's errors to the server, by the keys of their questions.
    pub(crate) fn refuse(&self, errors: &Bytes) {
        self.state.lock().open.refuse(errors);
    }

    fn take(&self, ask: PendingQuestion) {
        self.state.lock().open.keep(ask);
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_core::question::AnswerEvent;
    use weir_core::{UpstreamId, UpstreamQuestion};
    use weir_wire::method::Method;

    use super::*;

    fn held() -> TaskResultRequest {
        let state = TaskResultState {
            open: OpenQuestions::new("k".into()),
            over: false,
        };
        TaskResultRequest {
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    fn ask(held: &TaskResultRequest) -> weir_core::question::AnswerReceiver {
        let question = UpstreamQuestion {
            method: Method::ElicitationCreate,
            params: Bytes::from_static(b"{}"),
        };
        let (ask, answers) = PendingQuestion::new(question, UpstreamId::new("u").unwrap());
        held.take(ask);
        answers
    }

    fn keys(held: &TaskResultRequest) -> Vec<String> {
        held.open_questions()
            .into_iter()
            .map(|open| open.key)
            .collect()
    }

    // Proves R230.
    #[tokio::test]
    async fn answers_come_in_parts_and_no_key_comes_twice() {
        let held = held();
        let (mut first, _second, third) = (ask(&held), ask(&held), ask(&held));
        assert_eq!(keys(&held), ["k-1", "k-2", "k-3"]);
        drop(third);
        assert_eq!(keys(&held), ["k-1", "k-2"], "taken back");
        let odd = held.answer(&Bytes::from_static(
            br#"{"k-1":{"action":"cancel"},"k-2":{"action":"odd"}}"#,
        ));
        assert!(odd.unwrap_err().message().contains("k-2"));
        held.answer(&Bytes::from_static(
            br#"{"k-1":{"action":"cancel"},"k-9":5}"#,
        ))
        .unwrap();
        assert_eq!(
            std::future::poll_fn(|cx| first.poll_event(cx)).await,
            AnswerEvent::Answer(Ok(r#"{"action":"cancel"}"#.into()))
        );
        let _fourth = ask(&held);
        assert_eq!(keys(&held), ["k-2", "k-4"]);
        held.wait_for_question().await;
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_a_question_is_short() {
        let held = held();
        held.wait_for_question().await;
        assert!(keys(&held).is_empty());
    }
}
