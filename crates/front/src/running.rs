//! A running call and its owner: the connection of a modern client, or the session of a legacy one.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use weir_core::port::Fut;
use weir_core::reply::NoteKind;
use weir_core::{Failure, Payload, Reply, ReplyEnd, ReplyEvent, ReplyNote};
use weir_wire::method::Method;

use crate::asker::{Asker, Outcome};
use crate::sessions::InFlight;
use crate::stack::Shared;

/// A call in progress: first the wait for its reply, then the reply's events. Dropping it cancels
/// the call.
pub(crate) struct Running {
    stage: Stage,
    asker: Option<Box<Asker>>,
    /// The latest end of the call.
    until: Option<Instant>,
}

enum Stage {
    Asking(Fut<'static, Reply>),
    Answering(Reply),
    /// The call ended with questions; with the answers it goes on.
    Gathering,
    /// The call has ended, and a message is sent before its end.
    Ending(ReplyEnd),
    Over,
}

/// An output of a call.
pub(crate) enum Said {
    /// A notification, or the end.
    Event(ReplyEvent),
    /// A complete message for the client.
    Message(Bytes),
}

impl Running {
    /// A call whose client cannot be asked while it runs.
    pub(crate) fn new(asking: Fut<'static, Reply>) -> Self {
        Self {
            stage: Stage::Asking(asking),
            asker: None,
            until: None,
        }
    }

    /// The call with an asker for its client.
    pub(crate) fn asking(self, asker: Box<Asker>) -> Self {
        Self {
            asker: Some(asker),
            ..self
        }
    }

    fn poll_said(&mut self, cx: &mut Context<'_>) -> Poll<Option<Said>> {
        loop {
            if let Some(message) = self.poll_asker(cx) {
                return Poll::Ready(Some(Said::Message(message)));
            }
            match &mut self.stage {
                Stage::Asking(asking) => {
                    let reply = std::task::ready!(asking.as_mut().poll(cx));
                    self.until = reply.deadline();
                    self.stage = Stage::Answering(reply);
                }
                Stage::Answering(reply) => {
                    let event = std::task::ready!(reply.poll_next(cx));
                    if let Some(event) = self.take(event) {
                        return Poll::Ready(Some(Said::Event(event)));
                    }
                }
                Stage::Gathering => return Poll::Pending,
                Stage::Ending(_) => match std::mem::replace(&mut self.stage, Stage::Over) {
                    Stage::Ending(end) => {
                        return Poll::Ready(Some(Said::Event(ReplyEvent::End(end))));
                    }
                    _ => return Poll::Ready(None),
                },
                Stage::Over => return Poll::Ready(None),
            }
        }
    }

    /// Polls the asker; returns its next message.
    fn poll_asker(&mut self, cx: &mut Context<'_>) -> Option<Bytes> {
        let asker = self.asker.as_mut()?;
        match asker.poll(cx) {
            Poll::Ready(Outcome::Again(asking)) => self.stage = Stage::Asking(asking),
            Poll::Ready(Outcome::End(end)) => self.stage = Stage::Ending(end),
            Poll::Pending => {}
        }
        asker.message()
    }

    /// Takes an event of the reply; returns the part that goes to the client now.
    fn take(&mut self, event: Option<ReplyEvent>) -> Option<ReplyEvent> {
        let Some(asker) = &mut self.asker else {
            // A dropped question counts as unanswered.
            return match event {
                Some(ReplyEvent::Ask(_)) => None,
                Some(ReplyEvent::Note(note)) => Some(ReplyEvent::Note(note)),
                Some(ReplyEvent::End(end)) => self.ends(end),
                None => self.ends(Failure::internal("a reply ended without an end").into()),
            };
        };
        match event {
            Some(ReplyEvent::Ask(ask)) => asker.ask(ask),
            Some(ReplyEvent::Note(ReplyNote {
                kind: NoteKind::Other(Method::ElicitationComplete),
                params,
            })) => {
                asker.completed(&params);
            }
            Some(ReplyEvent::Note(note)) => return Some(ReplyEvent::Note(note)),
            Some(ReplyEvent::End(end)) => match asker.end(end) {
                Some(end) => self.stage = Stage::Ending(end),
                None => self.stage = Stage::Gathering,
            },
            None => return self.ends(Failure::internal("a reply ended without an end").into()),
        }
        None
    }

    fn ends(&mut self, end: ReplyEnd) -> Option<ReplyEvent> {
        self.stage = Stage::Over;
        Some(ReplyEvent::End(end))
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }
}

/// The next step of a call.
pub(crate) enum Step {
    /// An event of the reply.
    Event(ReplyEvent),
    /// A complete message for the client: a question.
    Message(Bytes),
    /// The client cancelled the call: it gets no further message.
    Cancelled,
}

/// A running call with its owner.
pub(crate) struct Owned {
    running: Option<Running>,
    session: Option<SessionOwner>,
}

/// The session's hold on a call.
pub(crate) struct SessionOwner {
    shared: Arc<Shared>,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    token: CancellationToken,
    in_flight: InFlight,
}

impl SessionOwner {
    pub(crate) fn new(shared: Arc<Shared>, token: CancellationToken, in_flight: InFlight) -> Self {
        Self {
            shared,
            cancelled: Box::pin(token.clone().cancelled_owned()),
            token,
            in_flight,
        }
    }
}

impl Owned {
    /// A call that is dropped with the connection, and cancelled by it.
    pub(crate) fn by_connection(running: Running) -> Self {
        Self {
            running: Some(running),
            session: None,
        }
    }

    /// A call that is dropped with its connection, bounded by its deadline; ended by a cancellation
    /// or with its session.
    pub(crate) fn by_session(running: Running, owner: SessionOwner) -> Self {
        Self {
            running: Some(running),
            session: Some(owner),
        }
    }

    /// The next step; after the end, always [`Step::Cancelled`].
    pub(crate) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if let Some(owner) = &mut self.session
            && owner.cancelled.as_mut().poll(cx).is_ready()
        {
            self.running = None;
            return Poll::Ready(Step::Cancelled);
        }
        let Some(running) = &mut self.running else {
            return Poll::Ready(Step::Cancelled);
        };
        running.poll_said(cx).map(|said| match said {
            Some(Said::Event(event)) => Step::Event(event),
            Some(Said::Message(message)) => Step::Message(message),
            None => Step::Cancelled,
        })
    }

    /// The latest end of the call, if it is known. A call that asks its client may be repeated, so
    /// it has none.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.running
            .as_ref()
            .filter(|running| running.asker.is_none())
            .and_then(|running| running.until)
    }

    pub(crate) async fn next(&mut self) -> Step {
        poll_fn(|cx| self.poll_step(cx)).await
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let (Some(running), Some(owner)) = (self.running.take(), self.session.take()) else {
            return;
        };
        if running.is_over() || !owner.in_flight.may_detach() {
            return;
        }
        let SessionOwner {
            shared,
            token,
            in_flight,
            ..
        } = owner;
        let force = shared.force.clone();
        let finish = run_to_end(running, in_flight);
        // The drain waits for the tracker; the token is the session's, the deadline the upstream's.
        shared.detached.spawn(async move {
            tokio::select! {
                () = finish => {}
                () = token.cancelled() => {}
                () = force.cancelled() => {}
            }
        });
    }
}

/// Runs a call to its end without a listener, and discards its output: the client did not cancel
/// it.
async fn run_to_end(mut running: Running, in_flight: InFlight) {
    let _held = in_flight;
    if let Some(asker) = &mut running.asker {
        asker.deaf();
    }
    while let Some(said) = poll_fn(|cx| running.poll_said(cx)).await {
        if let Said::Event(ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(mut source)))) = said
        {
            while let Some(Ok(_)) = poll_fn(|cx| source.poll_chunk(cx)).await {}
        }
    }
}
