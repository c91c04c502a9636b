//! A running call and its owner: the connection of a modern client, or the session of a legacy one.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;
use weir_core::port::BoxFuture;
use weir_core::reply::NoteKind;
use weir_core::{Failure, Payload, Reply, ReplyEnd, ReplyEvent, ReplyNote};
use weir_layers::state::FrontState;
use weir_router::CancelledCall;
use weir_session::{CallCancellation, CancellationCause, RegisteredCall};
use weir_wire::method::Method;

use crate::reply::client_asker::{ClientAsker, NextStep};
use crate::reply::encode::unknown_result::LostAnswer;
use crate::reply::url_visits::UrlVisitRepeats;

/// A call in progress: first the wait for its reply, then the reply's events. Dropping it cancels
/// the call.
pub(crate) struct RunningCall {
    stage: CallStage,
    asker: Option<Box<ClientAsker>>,
    /// The repeats after visits of URLs.
    repeats: Option<Box<UrlVisitRepeats>>,
    /// The latest end of the call.
    until: Option<Instant>,
}

enum CallStage {
    Asking(BoxFuture<'static, Reply>),
    Answering(Reply),
    /// The call ended with questions; with the answers it goes on.
    AwaitingAnswers,
    /// The call has ended, and a message is sent before its end.
    Ending(ReplyEnd),
    Over,
}

impl RunningCall {
    /// A call whose client cannot be asked while it runs.
    pub(crate) fn new(asking: BoxFuture<'static, Reply>) -> Self {
        Self {
            stage: CallStage::Asking(asking),
            asker: None,
            repeats: None,
            until: None,
        }
    }

    /// The call with an asker for its client, if the client can be asked.
    pub(crate) fn with_asker(self, asker: Option<Box<ClientAsker>>) -> Self {
        Self { asker, ..self }
    }

    /// The call with repeats while its server waits for visits of URLs.
    pub(crate) fn with_repeats(self, repeats: Option<Box<UrlVisitRepeats>>) -> Self {
        Self { repeats, ..self }
    }

    /// The next step; after the end, always [`CallStep::Over`].
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<CallStep> {
        loop {
            if let Some(message) = self.poll_asker(cx) {
                return Poll::Ready(CallStep::Message(message));
            }
            match &mut self.stage {
                CallStage::Asking(asking) => {
                    let reply = std::task::ready!(asking.as_mut().poll(cx));
                    self.until = reply.deadline();
                    self.stage = CallStage::Answering(reply);
                }
                CallStage::Answering(reply) => {
                    let event = std::task::ready!(reply.poll_next(cx));
                    if let Some(event) = self.take_event(event) {
                        return Poll::Ready(CallStep::Event(event));
                    }
                }
                CallStage::AwaitingAnswers => return Poll::Pending,
                CallStage::Ending(_) | CallStage::Over => {
                    let stage = std::mem::replace(&mut self.stage, CallStage::Over);
                    let CallStage::Ending(end) = stage else {
                        return Poll::Ready(CallStep::Over);
                    };
                    return Poll::Ready(CallStep::Event(ReplyEvent::End(end)));
                }
            }
        }
    }

    /// Polls the asker; returns its next message.
    fn poll_asker(&mut self, cx: &mut Context<'_>) -> Option<Bytes> {
        let asker = self.asker.as_mut()?;
        match asker.poll(cx) {
            Poll::Ready(NextStep::Again(asking)) => self.stage = CallStage::Asking(asking),
            Poll::Ready(NextStep::End(end)) => self.stage = CallStage::Ending(end),
            Poll::Pending => {}
        }
        asker.next_message()
    }

    /// Takes an event of the reply; returns the part that goes to the client now.
    fn take_event(&mut self, event: Option<ReplyEvent>) -> Option<ReplyEvent> {
        let Some(asker) = &mut self.asker else {
            // A dropped question counts as unanswered.
            return match event {
                Some(ReplyEvent::Ask(_)) => None,
                Some(ReplyEvent::Note(note)) => Some(ReplyEvent::Note(note)),
                Some(ReplyEvent::End(end)) => self.repeat_or_finish(end),
                None => self.finish(Failure::internal("a reply ended without an end").into()),
            };
        };
        match event {
            Some(ReplyEvent::Ask(ask)) => asker.ask(ask),
            Some(ReplyEvent::Note(ReplyNote {
                kind: NoteKind::Other(Method::ElicitationComplete),
                params,
            })) => {
                asker.complete_elicitation(&params);
            }
            Some(ReplyEvent::Note(note)) => return Some(ReplyEvent::Note(note)),
            Some(ReplyEvent::End(end)) => match asker.handle_end(end, self.until) {
                Some(end) => self.stage = CallStage::Ending(end),
                None => self.stage = CallStage::AwaitingAnswers,
            },
            None => return self.finish(Failure::internal("a reply ended without an end").into()),
        }
        None
    }

    fn repeat_or_finish(&mut self, end: ReplyEnd) -> Option<ReplyEvent> {
        let Some(repeats) = &mut self.repeats else {
            return self.finish(end);
        };
        match repeats.next_call(end, self.until) {
            Ok(call) => self.stage = CallStage::Asking(call),
            Err(end) => return self.finish(end),
        }
        None
    }

    fn finish(&mut self, end: ReplyEnd) -> Option<ReplyEvent> {
        self.stage = CallStage::Over;
        Some(ReplyEvent::End(end))
    }

    /// Cancels the call for its client. Returns the next message that withdraws a question from it.
    fn cancel(&mut self) -> Option<Bytes> {
        self.stage = CallStage::Over;
        let asker = self.asker.as_mut()?;
        asker.withdraw_all();
        asker.next_message()
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, CallStage::Over)
    }
}

/// The next step of a call.
pub(crate) enum CallStep {
    /// An event of the reply.
    Event(ReplyEvent),
    /// A complete message for the client: a question.
    Message(Bytes),
    /// The call is over, or its client cancelled it: there is no further message.
    Over,
}

/// A running call with its owner.
pub(crate) struct OwnedCall {
    running: Option<RunningCall>,
    session: Option<SessionOwner>,
}

/// The session's hold on a call.
pub(crate) struct SessionOwner {
    shared: Arc<FrontState>,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    cancellation: CallCancellation,
    in_flight: RegisteredCall,
    /// True if the answer goes to the connection of an HTTP+SSE client. The client may have begun
    /// another session on it, with the same ids of requests.
    is_over_http_sse: bool,
}

impl SessionOwner {
    pub(crate) fn new(
        shared: Arc<FrontState>,
        cancellation: CallCancellation,
        in_flight: RegisteredCall,
    ) -> Self {
        Self {
            shared,
            cancelled: Box::pin(cancellation.token().clone().cancelled_owned()),
            cancellation,
            in_flight,
            is_over_http_sse: false,
        }
    }

    /// The same for a call whose answer goes to the connection of an HTTP+SSE client, or not.
    pub(crate) fn over_http_sse(self, is_over_http_sse: bool) -> Self {
        Self {
            is_over_http_sse,
            ..self
        }
    }
}

impl OwnedCall {
    /// A call that is dropped with the connection, and cancelled by it.
    pub(crate) fn by_connection(running: RunningCall) -> Self {
        Self {
            running: Some(running),
            session: None,
        }
    }

    /// A call that outlives its connection, at most until its deadline; it ends by a cancellation
    /// or with its session.
    pub(crate) fn by_session(running: RunningCall, owner: SessionOwner) -> Self {
        Self {
            running: Some(running),
            session: Some(owner),
        }
    }

    /// The next step; after the end, always [`CallStep::Over`].
    pub(crate) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<CallStep> {
        if let Some(owner) = &mut self.session
            && owner.cancelled.as_mut().poll(cx).is_ready()
        {
            let is_of_client = owner.cancellation.cause() == Some(CancellationCause::Client);
            let running = self.running.as_mut().filter(|_| is_of_client);
            if let Some(message) = running.and_then(RunningCall::cancel) {
                return Poll::Ready(CallStep::Message(message));
            }
            let cut_off = self.running.take().filter(|running| !running.is_over());
            return Poll::Ready(match cut_off {
                Some(_) if !is_of_client && !owner.is_over_http_sse => {
                    let failure = LostAnswer::WithSession.failure().because(CancelledCall);
                    CallStep::Event(ReplyEvent::End(failure.into()))
                }
                _ => CallStep::Over,
            });
        }
        let Some(running) = &mut self.running else {
            return Poll::Ready(CallStep::Over);
        };
        running.poll_step(cx)
    }

    /// The latest end of the call, if it is known. A call that may be repeated has none.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.running
            .as_ref()
            .filter(|running| running.asker.is_none() && running.repeats.is_none())
            .and_then(|running| running.until)
    }

    pub(crate) async fn next(&mut self) -> CallStep {
        poll_fn(|cx| self.poll_step(cx)).await
    }
}

impl Drop for OwnedCall {
    fn drop(&mut self) {
        let (Some(running), Some(owner)) = (self.running.take(), self.session.take()) else {
            return;
        };
        if running.is_over() || !owner.in_flight.try_detach() {
            return;
        }
        let SessionOwner {
            shared,
            cancellation,
            in_flight,
            ..
        } = owner;
        let finish = run_to_end(running, in_flight);
        // The drain waits for this task. The token is of the session, the deadline of the upstream.
        shared.shutdown.spawn_until_force(
            cancellation
                .token()
                .clone()
                .run_until_cancelled_owned(finish),
        );
    }
}

/// Runs a call to its end without a listener, and discards its output: the client did not cancel
/// it.
async fn run_to_end(mut running: RunningCall, in_flight: RegisteredCall) {
    let _held = in_flight;
    if let Some(asker) = &mut running.asker {
        asker.stop_asking();
    }
    loop {
        match poll_fn(|cx| running.poll_step(cx)).await {
            CallStep::Event(ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(mut source)))) => {
                while let Some(Ok(_)) = poll_fn(|cx| source.poll_chunk(cx)).await {}
            }
            CallStep::Event(_) | CallStep::Message(_) => {}
            CallStep::Over => return,
        }
    }
}
