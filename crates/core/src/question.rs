//! Questions: requests that an upstream sends to the client in the middle of a call, and the
//! channel on which the answer returns.
//!
//! An [`PendingQuestion`] travels with the events of a reply. Its [`AnswerReceiver`] stays with the
//! code that speaks to the upstream. Either end may be dropped: without its answers the question is
//! withdrawn, without its ask there will be no answer.

use std::future::Future as _;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use weir_wire::method::Method;

use crate::names::UpstreamId;

/// Progress reports that wait to be sent to the upstream. More are dropped, since each outdates the
/// one before.
const MAX_QUEUED_REPORTS: usize = 8;

/// The member of a task's state with the server's own ids of its URL elicitations, by the keys of
/// their questions. It stays inside of weir: questions of the newest revision have no such ids.
pub const ELICITATION_IDS: &str = "elicitationIds";

/// A question: a request of the server's own, without its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamQuestion {
    /// `sampling/createMessage`, `elicitation/create` or `roots/list`.
    pub method: Method,
    /// The request's `params` object.
    pub params: Bytes,
}

/// A question that waits for its answer. If it is dropped without one, the upstream learns that
/// there is none.
#[derive(Debug)]
pub struct PendingQuestion {
    /// The question. Layers on the way to the client may change it.
    pub question: UpstreamQuestion,
    /// The upstream that asks.
    pub upstream: UpstreamId,
    /// True if the upstream wants progress notifications before the answer.
    pub wants_progress: bool,
    /// The upstream's own `elicitationId`, if it gave one. A later notification of completion names
    /// it.
    pub elicitation: Option<Arc<str>>,
    /// The upstream's own id of the task that asks outside of the requests about it.
    pub related_task: Option<Arc<str>>,
    answer: oneshot::Sender<Result<Bytes, Bytes>>,
    reports: mpsc::Sender<Bytes>,
    waiting: QuestionWait,
}

/// The upstream's end of an [`PendingQuestion`]. Dropping it withdraws the question.
#[derive(Debug)]
pub struct AnswerReceiver {
    answer: oneshot::Receiver<Result<Bytes, Bytes>>,
    reports: mpsc::Receiver<Bytes>,
}

/// An event that a [`AnswerReceiver`] receives.
#[derive(Debug, PartialEq, Eq)]
pub enum AnswerEvent {
    /// `params` of a progress notification; the token in it is of the client's hop.
    Progress(Bytes),
    /// The answer: a result or an error object. It is the last event.
    Answer(Result<Bytes, Bytes>),
    /// There will be no answer. It is the last event.
    NoAnswer,
}

/// Shows if a question still waits, for code that measures idle time: people take their time to
/// answer.
#[derive(Clone, Debug, Default)]
pub struct QuestionWait(Arc<OnceLock<Instant>>);

impl QuestionWait {
    /// The time at which the waiting ended; absent while it goes on.
    #[must_use]
    pub fn ended(&self) -> Option<Instant> {
        self.0.get().copied()
    }
}

impl PendingQuestion {
    /// A question, and the end that receives its answer.
    #[must_use]
    pub fn new(question: UpstreamQuestion, upstream: UpstreamId) -> (Self, AnswerReceiver) {
        let (answer, heard) = oneshot::channel();
        let (reports, reported) = mpsc::channel(MAX_QUEUED_REPORTS);
        let waiting = QuestionWait::default();
        let ask = Self {
            question,
            upstream,
            wants_progress: false,
            elicitation: None,
            related_task: None,
            answer,
            reports,
            waiting,
        };
        (
            ask,
            AnswerReceiver {
                answer: heard,
                reports: reported,
            },
        )
    }

    /// Sends the answer. An upstream that withdrew the question does not receive it.
    pub fn answer(mut self, outcome: Result<Bytes, Bytes>) {
        let (unheard, _) = oneshot::channel();
        // The upstream withdrew the question in the meantime: the answer is late.
        let _late = std::mem::replace(&mut self.answer, unheard).send(outcome);
    }

    /// Sends a progress report ahead of the answer.
    pub fn send_progress(&self, params: Bytes) {
        // One that is dropped is outdated by the next.
        let _full = self.reports.try_send(params);
    }

    /// Ready once the upstream no longer waits for the answer.
    pub fn poll_withdrawn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.answer.poll_closed(cx)
    }

    /// A handle that shows when the waiting is over.
    #[must_use]
    pub fn waiting(&self) -> QuestionWait {
        self.waiting.clone()
    }
}

impl Drop for PendingQuestion {
    fn drop(&mut self) {
        // This is the one place that sets it.
        let _first = self.waiting.0.set(Instant::now());
    }
}

impl AnswerReceiver {
    /// The next event from the client's side.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<AnswerEvent> {
        // Reports that were sent before the answer are delivered before it.
        if let Poll::Ready(Some(report)) = self.reports.poll_recv(cx) {
            return Poll::Ready(AnswerEvent::Progress(report));
        }
        let outcome = ready!(std::pin::Pin::new(&mut self.answer).poll(cx));
        Poll::Ready(outcome.map_or(AnswerEvent::NoAnswer, AnswerEvent::Answer))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::future::poll_fn;

    use super::*;

    fn pair() -> (PendingQuestion, AnswerReceiver) {
        let question = UpstreamQuestion {
            method: Method::RootsList,
            params: Bytes::from_static(b"{}"),
        };
        PendingQuestion::new(question, UpstreamId::new("u").unwrap())
    }

    #[tokio::test]
    async fn answer_arrives_after_earlier_progress() {
        let (ask, mut answers) = pair();
        let waiting = ask.waiting();
        ask.send_progress(Bytes::from_static(b"1"));
        assert!(waiting.ended().is_none());
        ask.answer(Ok(Bytes::from_static(b"{}")));
        assert!(waiting.ended().is_some());
        assert_eq!(
            poll_fn(|cx| answers.poll_event(cx)).await,
            AnswerEvent::Progress(Bytes::from_static(b"1"))
        );
        assert_eq!(
            poll_fn(|cx| answers.poll_event(cx)).await,
            AnswerEvent::Answer(Ok(Bytes::from_static(b"{}")))
        );
    }

    #[tokio::test]
    async fn dropped_question_has_no_answer_and_dropped_receiver_withdraws_it() {
        let (ask, mut answers) = pair();
        drop(ask);
        assert_eq!(
            poll_fn(|cx| answers.poll_event(cx)).await,
            AnswerEvent::NoAnswer
        );
        let (mut ask, answers) = pair();
        assert!(
            futures_util::FutureExt::now_or_never(poll_fn(|cx| ask.poll_withdrawn(cx))).is_none()
        );
        drop(answers);
        poll_fn(|cx| ask.poll_withdrawn(cx)).await;
        ask.answer(Ok(Bytes::new()));
    }
}
