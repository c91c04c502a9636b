//! A request in flight over a child's channel.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::time::Instant;
use weir_core::upstream::CallDeadlines;
use weir_core::{Failure, FailureKind};
use weir_era::{lower, server_questions};
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::outbox::PushOutcome;
use weir_wire::{Message, Request};

use crate::child_channel::child_silence::CallWait;
use crate::child_channel::{
    ChannelRequest, ChildChannel, OutgoingPurpose, PendingChildRequest, RequestPurpose,
};

/// A request in flight. Dropping it before its end cancels it at the child.
#[derive(Debug)]
pub(crate) struct ChildRequest {
    channel: Arc<ChildChannel>,
    pending: Arc<PendingChildRequest>,
    pub(crate) id: u64,
    /// False for the handshake, which must not be cancelled.
    cancels: bool,
    /// Present for a call.
    wait: Option<CallWait>,
}

impl ChildChannel {
    /// Sends a request.
    ///
    /// # Errors
    /// `Unavailable` if the channel is closed: the request was not sent.
    pub(crate) async fn request(
        self: &Arc<Self>,
        id: u64,
        body: Bytes,
        purpose: RequestPurpose,
    ) -> Result<ChildRequest, Failure> {
        let pending = Arc::new(PendingChildRequest::new(id, self.context.messages.clone()));
        let cancels = purpose != RequestPurpose::Handshake;
        {
            let mut state = self.state.lock();
            if let Some(why) = &state.closed {
                return Err(self
                    .context
                    .label
                    .fail(FailureKind::Unavailable, "The upstream ended")
                    .because(&**why));
            }
            state.requests.insert(
                id,
                ChannelRequest {
                    pending: pending.clone(),
                    purpose,
                    elicitations: Vec::new(),
                },
            );
        }
        let mut request = ChildRequest {
            channel: self.clone(),
            pending: pending.clone(),
            id,
            cancels: false,
            wait: None,
        };
        let ended = || {
            self.context
                .label
                .fail(FailureKind::Unavailable, "The upstream ended")
        };
        let permit = match self.requests.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => {
                let turn = Box::pin(
                    self.over
                        .run_until_cancelled(self.requests.clone().acquire_owned()),
                );
                turn.await.and_then(Result::ok)
            }
        };
        let permit = permit.ok_or_else(ended)?;
        let purpose = OutgoingPurpose::Request(pending, permit);
        match self.outbox.push_request(id, body, purpose) {
            PushOutcome::Over => return Err(ended()),
            PushOutcome::Idle(_) => self.queued.notify_one(),
            PushOutcome::Queued | PushOutcome::Overflow => {}
        }
        request.cancels = cancels;
        Ok(request)
    }
}

impl ChildRequest {
    /// Sets the deadlines of a call that began at `begun`.
    pub(crate) fn set_deadlines(&mut self, begun: Instant, deadlines: CallDeadlines) {
        self.wait = Some(CallWait::new(begun, deadlines));
    }

    /// Polls the next message for this request; absent once the channel is closed.
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let message = ready!(self.pending.inbox.poll_message(cx));
        // A closed channel carries no cancellation.
        self.cancels &= message.is_some();
        if let Some(wait) = &mut self.wait {
            wait.note_message();
        }
        Poll::Ready(message)
    }

    /// Waits for the first message, or the end of the request.
    ///
    /// # Errors
    /// The request was refused before any message for it.
    pub(crate) async fn wait_for_start(&mut self) -> Result<(), FailedAttempt> {
        let has_message = std::future::poll_fn(|cx| self.pending.inbox.poll_ready(cx)).await;
        if !has_message && let Some(refusal) = self.take_refusal() {
            self.end();
            return Err(refusal);
        }
        Ok(())
    }

    /// Takes the failure of a request that was refused, after the last message for it.
    pub(crate) fn take_refusal(&self) -> Option<FailedAttempt> {
        self.pending.take_refusal()
    }

    /// Waits for the answer: result or error object; absent once the channel is closed. Earlier
    /// messages are skipped.
    pub(crate) async fn wait_for_answer(&mut self) -> Option<Result<Bytes, Bytes>> {
        loop {
            match std::future::poll_fn(|cx| self.poll_message(cx)).await? {
                Message::Response(response) => {
                    self.end();
                    return Some(response.outcome);
                }
                Message::Request(_) | Message::Notification(_) => {}
            }
        }
    }

    /// Waits for the end of a subscription. Without a subscription it never returns.
    pub(crate) async fn wait_for_end(subscription: Option<&mut Self>) {
        match subscription {
            Some(request) => drop(request.wait_for_answer().await),
            None => std::future::pending().await,
        }
    }

    /// Notes that the request is over and needs no cancellation.
    pub(crate) fn end(&mut self) {
        self.cancels = false;
        self.pending.end();
    }

    /// Ends an answered call. Its unanswered questions, and the unread ones, go to another call,
    /// because they may be meant for that, or else to the client itself.
    pub(crate) fn end_with_questions(&mut self, heard: Vec<Request>) {
        for question in self.take_questions(heard) {
            self.channel.dispatch(Message::Request(question));
        }
    }

    /// Ends a call that its client cancelled. Its questions go to another call. Without one they
    /// are answered with an error: the client has left them.
    pub(crate) fn cancel_with_questions(&mut self, heard: Vec<Request>) {
        for question in self.take_questions(heard) {
            if !self.channel.ask_call(&question) {
                let refusal = server_questions::no_answer_response(&question.id);
                self.channel.send(refusal);
            }
        }
    }

    /// Removes the call from its channel. Returns the questions that it has heard, and the unread
    /// ones.
    fn take_questions(&self, heard: Vec<Request>) -> Vec<Request> {
        self.channel.state.lock().requests.remove(&self.id);
        let mut left = heard;
        left.extend(self.pending.inbox.take_questions());
        left
    }
}

impl Drop for ChildRequest {
    fn drop(&mut self) {
        self.pending.end();
        self.channel.state.lock().requests.remove(&self.id);
        if self.cancels
            && let Some(wait) = &self.wait
        {
            wait.end_unanswered(&self.channel.silence);
        }
        // A request that was not sent needs no cancellation.
        if self.cancels && !self.channel.outbox.withdraw_request(self.id) {
            self.channel.send(lower::cancelled(self.id));
        }
    }
}
