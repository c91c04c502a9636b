//! A call that runs, and who owns it: the connection of a modern client, or the session of a legacy one.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use weir_core::port::Fut;
use weir_core::{Event, Reply};

use crate::sessions::InFlight;
use crate::stack::Shared;

/// A call on its way: first the wait for its reply, then the reply's events. Dropping it cancels the call.
pub(crate) struct Running(Stage);

enum Stage {
    Asking(Fut<'static, Reply>),
    Answering(Reply),
    Over,
}

impl Running {
    pub(crate) fn new(asking: Fut<'static, Reply>) -> Self {
        Self(Stage::Asking(asking))
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            match &mut self.0 {
                Stage::Asking(asking) => {
                    let reply = std::task::ready!(asking.as_mut().poll(cx));
                    self.0 = Stage::Answering(reply);
                }
                Stage::Answering(reply) => {
                    let event = std::task::ready!(reply.poll_next(cx));
                    if matches!(event, Some(Event::End(_)) | None) {
                        self.0 = Stage::Over;
                    }
                    return Poll::Ready(event);
                }
                Stage::Over => return Poll::Ready(None),
            }
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.0, Stage::Over)
    }
}

/// What happens next in a call.
pub(crate) enum Step {
    /// Something was said.
    Event(Event),
    /// The client took the call back: nothing more is said about it.
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
        Self { shared, cancelled: Box::pin(token.clone().cancelled_owned()), token, in_flight }
    }
}

impl Owned {
    /// Dropped with the connection, which cancels it.
    pub(crate) fn by_connection(running: Running) -> Self {
        Self { running: Some(running), session: None }
    }

    /// Dropped with the connection it runs on, bounded by its deadline; ended by a cancel or with its session.
    pub(crate) fn by_session(running: Running, owner: SessionOwner) -> Self {
        Self { running: Some(running), session: Some(owner) }
    }

    /// The next step; after the end, [`Step::Cancelled`] for ever.
    pub(crate) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if let Some(owner) = &mut self.session
            && owner.cancelled.as_mut().poll(cx).is_ready()
        {
            self.running = None;
            return Poll::Ready(Step::Cancelled);
        }
        let Some(running) = &mut self.running else { return Poll::Ready(Step::Cancelled) };
        running.poll_event(cx).map(|event| event.map_or(Step::Cancelled, Step::Event))
    }

    pub(crate) async fn next(&mut self) -> Step {
        poll_fn(|cx| self.poll_step(cx)).await
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let (Some(running), Some(owner)) = (self.running.take(), self.session.take()) else { return };
        if running.is_over() || !owner.in_flight.may_detach() {
            return;
        }
        let SessionOwner { shared, token, in_flight, .. } = owner;
        let force = shared.force.clone();
        let finish = run_to_end(running, in_flight);
        // The tracker is waited for by the drain; the token is the session's, the deadline the upstream's.
        shared.detached.spawn(async move {
            tokio::select! {
                () = finish => {}
                () = token.cancelled() => {}
                () = force.cancelled() => {}
            }
        });
    }
}

/// Nobody listens any more, but the call is not taken back: let it end, and forget what it says.
async fn run_to_end(mut running: Running, in_flight: InFlight) {
    let _held = in_flight;
    while let Some(event) = poll_fn(|cx| running.poll_event(cx)).await {
        if let Event::End(weir_core::End::Complete(weir_core::Payload::Stream(mut source))) = event {
            while let Some(Ok(_)) = poll_fn(|cx| source.poll_chunk(cx)).await {}
        }
    }
}
