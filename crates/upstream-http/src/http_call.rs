//! The response to one request as a reply: messages of the call become events, others are answered
//! or dropped.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use weir_core::reply::{NoteKind, Payload, Reply, ReplyEnd, ReplyEvent, ReplyNote, ReplySource};
use weir_core::upstream::ListKinds;
use weir_core::{Failure, FailureKind};
use weir_era::upstream_messages::{DropReason, MessageClass};
use weir_upstream_core::list_items;
use weir_upstream_core::message_limits::message_limits;
use weir_upstream_core::result_expectation::{ResultExpectation, classify_result};
use weir_upstream_core::server_questions::ServerQuestions;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::{EnvelopeOutline, IncomingMessage, Message};

use crate::answer_delivery::{AnswerWatch, UndeliveredAnswer};
use crate::http_post::unreadable_failure;
use crate::large_result::{ArrivedResult, LargeResult};
use crate::lost_connection::connection_lost_failure;
use crate::message_collector::ReleaseRule;
use crate::pending_request::PendingRequest;
use crate::response_drain::drain_response;
use crate::response_part::{HeldLargeResult, LARGE_EVENT, ResponsePart, ResponseReadError};
use crate::response_reader::ResponseReader;
use crate::stream_resumption::StreamResumption;

/// Reads a response up to its first event. All values are gathered before the future begins, which
/// keeps it small.
pub(crate) fn reply(
    context: Arc<UpstreamContext>,
    answer: ResponseReader,
    expectation: ResultExpectation,
    pending: PendingRequest,
) -> impl Future<Output = Reply> + Send {
    Reply::started(HttpCallReply::new(context, expectation, pending).with_answer(answer))
}

/// The reply to a request, from the messages of its response and of the streams beside it.
pub(crate) struct HttpCallReply {
    context: Arc<UpstreamContext>,
    /// Absent before the head of the response, and once the call has ended or its result streams.
    answer: Option<ResponseReader>,
    expectation: ResultExpectation,
    asking: ServerQuestions,
    pending: PendingRequest,
    /// The fate of the answers that the server waits for.
    answers: Option<Box<AnswerWatch>>,
    /// Messages of a batch that are still to be dispatched.
    batch: VecDeque<Bytes>,
    /// The error without an id that the server wrote on the stream of this call.
    unnamed_error: Option<Bytes>,
    resumption: StreamResumption,
    release: ReleaseRule,
}

/// The stream on which a message of a call came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MessageSource {
    /// The stream of its response.
    OwnStream,
    /// The stream of its registration, which it shares with other calls.
    Registration,
}

impl ReplySource for HttpCallReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        if let Poll::Ready(end) = self.poll_answers(cx) {
            return Poll::Ready(end);
        }
        loop {
            if let Poll::Ready(event) = self.poll_registration(cx) {
                return Poll::Ready(event);
            }
            while let Some(item) = self.batch.pop_front() {
                match Message::parse(item, &message_limits()) {
                    Ok(message) => {
                        if let Some(event) = self.handle_message(message, MessageSource::OwnStream)
                        {
                            return Poll::Ready(event);
                        }
                    }
                    Err(_) => self.context.label.count_dropped("bad_batch_item"),
                }
            }
            if let Some(resumed) = ready!(self.resumption.poll_resumed(cx)) {
                match resumed {
                    // Such a stream is not the response to the call's own POST.
                    Some(answer) => {
                        self.answer = Some(answer.with_release(ReleaseRule {
                            is_own: false,
                            ..self.release
                        }))
                    }
                    None => return Poll::Ready(self.unanswered(false)),
                }
            }
            let Some(answer) = &mut self.answer else {
                return Poll::Ready(ReplyEvent::End(
                    Failure::internal("an answer was read after its end").into(),
                ));
            };
            let part = match ready!(answer.poll_part(cx)) {
                Ok(part) => part,
                Err(ResponseReadError::Lost(_)) if self.resume() => {
                    return Poll::Ready(waiting_note());
                }
                Err(error) => return Poll::Ready(self.broken(error)),
            };
            if let Some(event) = self.take(part) {
                return Poll::Ready(event);
            }
        }
    }
}

impl HttpCallReply {
    /// Makes the reply to a request whose response has not arrived.
    pub(crate) fn new(
        context: Arc<UpstreamContext>,
        expectation: ResultExpectation,
        pending: PendingRequest,
    ) -> Self {
        let asking = ServerQuestions::new(expectation.dialect.revision());
        let release = ReleaseRule::of_own_post(&expectation, pending.id);
        Self {
            context,
            answer: None,
            expectation,
            asking,
            pending,
            answers: None,
            batch: VecDeque::new(),
            unnamed_error: None,
            resumption: StreamResumption::default(),
            release,
        }
    }

    /// Sets the response to the request.
    pub(crate) fn set_answer(&mut self, answer: ResponseReader) {
        self.answer = Some(answer.with_release(self.release));
    }

    /// The same with the response to the request.
    pub(crate) fn with_answer(mut self, answer: ResponseReader) -> Self {
        self.set_answer(answer);
        self
    }

    /// Ends the request without a cancellation.
    pub(crate) fn end(&mut self) {
        self.pass_questions_on();
        self.pending.end();
    }

    /// Polls the next event of the call on another stream than that of its response.
    pub(crate) fn poll_other_stream(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        if let Poll::Ready(end) = self.poll_answers(cx) {
            return Poll::Ready(end);
        }
        self.poll_registration(cx)
    }

    /// Sends the client's answers. Ready with the end of the call if one is lost.
    fn poll_answers(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        let (Some(side), Some(answers)) = (&self.pending.side, &mut self.answers) else {
            return Poll::Pending;
        };
        let lost = answers.lost();
        self.asking
            .poll_answers(cx, |message| side.send_answer(message, lost));
        let reason = ready!(answers.poll_lost(cx));
        Poll::Ready(self.cut_off(reason))
    }

    /// Polls the next event of the call on the stream of its registration.
    fn poll_registration(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        while let Some(message) = self.pending.poll_registration(cx) {
            if let Some(event) = self.handle_message(message, MessageSource::Registration) {
                return Poll::Ready(event);
            }
        }
        Poll::Pending
    }

    fn take(&mut self, part: Option<ResponsePart>) -> Option<ReplyEvent> {
        match part {
            Some(ResponsePart::Message(bytes)) => {
                match list_items::parse_without_bad_items(
                    &self.context.record,
                    &bytes,
                    &message_limits(),
                ) {
                    Ok(IncomingMessage::One(message)) => {
                        self.resumption.record_message();
                        self.handle_message(message, MessageSource::OwnStream)
                    }
                    Ok(IncomingMessage::Batch(items)) => {
                        self.batch.extend(items);
                        None
                    }
                    Err(_) if self.is_unrelated_event(&bytes) => {
                        self.context.record.drop_event(&bytes);
                        None
                    }
                    Err(error) => {
                        Some(self.broken(ResponseReadError::Malformed(error.to_string())))
                    }
                }
            }
            Some(ResponsePart::Large) => Some(self.stream_large()),
            Some(ResponsePart::Held(held)) => self.finish_held(*held),
            Some(ResponsePart::Foreign) => {
                self.handle_foreign(DropReason::UnknownId);
                None
            }
            Some(ResponsePart::Unreadable) => {
                self.context.record.drop_event(LARGE_EVENT);
                None
            }
            Some(ResponsePart::Mark { id, retry }) => {
                self.resumption.record_mark(id, retry);
                None
            }
            Some(ResponsePart::Result(_) | ResponsePart::LargeEnd(_)) => None,
            None if self.resume() => Some(waiting_note()),
            None => {
                let json = self.answer.take().is_some_and(|answer| !answer.is_stream());
                Some(self.unanswered(json))
            }
        }
    }

    /// True for an event that cannot be read and does not answer the request. Some servers send
    /// heartbeats and other text among their messages.
    fn is_unrelated_event(&self, event: &[u8]) -> bool {
        let is_stream = self.answer.as_ref().is_some_and(ResponseReader::is_stream);
        is_stream && !self.release.is_of(EnvelopeOutline::of(event).answered_id())
    }

    fn handle_message(&mut self, message: Message, source: MessageSource) -> Option<ReplyEvent> {
        match self.expectation.filter.classify(message) {
            MessageClass::Note(note) => return Some(ReplyEvent::Note(note)),
            MessageClass::Answer(outcome) => return Some(self.ended(outcome)),
            MessageClass::Ask { lifted, request } => {
                let shared = (source == MessageSource::Registration).then_some(request);
                match self.asking.ask(&self.context.messages, *lifted, shared) {
                    Ok(ask) => {
                        self.watch_answers();
                        return Some(ask);
                    }
                    Err(refusal) => self.send(refusal),
                }
            }
            MessageClass::Withdrawn(id) => self.asking.withdraw(&id),
            MessageClass::Reply(message) => self.send(message),
            MessageClass::ListChanged(kinds) => {
                let is_of_session = self
                    .pending
                    .side
                    .as_ref()
                    .is_some_and(|side| side.list_changed(kinds));
                self.context.list_changes.record(if is_of_session {
                    ListKinds::default()
                } else {
                    kinds
                });
            }
            MessageClass::Ignored => {}
            MessageClass::Dropped {
                reason: reason @ (DropReason::UnknownId | DropReason::NoId),
                message,
            } => {
                self.keep_unnamed_error(message);
                self.handle_foreign(reason);
            }
            MessageClass::Dropped { reason, message } => {
                // It may be progress of the task with the result that this call waits for.
                if !self.context.task_progress.take_progress(&message) {
                    self.context.label.count_dropped(reason.as_str());
                }
            }
        }
        None
    }

    fn send(&self, message: Bytes) {
        if let Some(side) = &self.pending.side {
            side.send(message);
        }
    }

    /// Watches the answers to the server's questions: without them the call does not go on.
    fn watch_answers(&mut self) {
        let side = self.pending.side.as_deref();
        self.answers.get_or_insert_with(|| AnswerWatch::new(side));
    }

    /// Ends the call: the server waits for an answer that it will not get.
    fn cut_off(&mut self, reason: UndeliveredAnswer) -> ReplyEvent {
        let text = match reason {
            UndeliveredAnswer::SessionOver => {
                self.end();
                "The upstream did not take the answers to what it asked, so its session was ended: the call may have \
                 run. Check before calling again"
            }
            UndeliveredAnswer::Undelivered => {
                self.pass_questions_on();
                // The server learns that the call is over.
                self.pending = PendingRequest::new(None, 0);
                "The answer to what the upstream asked could not be delivered to it: the call may have run. Check \
                 before calling again"
            }
        };
        self.answer = None;
        let failure = self.context.label.fail(FailureKind::ResultUnknown, text);
        ReplyEvent::End(failure.into())
    }

    fn ended(&mut self, outcome: Result<Bytes, Bytes>) -> ReplyEvent {
        // A server may know its tasks only in the session in which they began. A task without a
        // session is noted as well: a reload may remove the upstream while it runs.
        let session = self.pending.side.clone();
        self.close();
        let result = match outcome {
            Ok(result) => result,
            Err(error) => {
                return ReplyEvent::End(self.context.permissions.call_failure(&error).into());
            }
        };
        let end = classify_result(&self.context.responses, &self.expectation, result);
        if let ReplyEnd::Task(created) = &end {
            self.expectation
                .note_task(&self.context.task_holds, created, session);
        }
        ReplyEvent::End(end)
    }

    /// Ends the open questions. Those of the shared stream may be another call's.
    fn pass_questions_on(&mut self) {
        self.pending.stop_listening(self.asking.take_shared());
    }

    /// Handles a response to another request. The server may have lost count, so the connection is
    /// not used again.
    fn handle_foreign(&mut self, reason: DropReason) {
        self.context.label.count_dropped(reason.as_str());
        if let Some(answer) = &mut self.answer {
            answer.retire_connection();
        }
    }

    /// Keeps an error without an id that comes on the call's own stream of events. Only messages
    /// about the call belong there (2025-11-25, Transports, "Sending Messages to the Server"), so
    /// it is the reason if the stream ends without the response.
    fn keep_unnamed_error(&mut self, message: Message) {
        let is_own_stream = self.answer.as_ref().is_some_and(ResponseReader::is_stream);
        if let Message::Response(response) = message
            && let (None, Err(error)) = (response.id, response.outcome)
            && is_own_stream
        {
            self.unnamed_error = Some(error);
        }
    }

    /// Passes a large result on while it arrives.
    fn stream_large(&mut self) -> ReplyEvent {
        let Some(answer) = self.answer.take() else {
            return ReplyEvent::End(Failure::internal("a large result without an answer").into());
        };
        self.pass_questions_on();
        let pending = std::mem::replace(&mut self.pending, PendingRequest::new(None, 0));
        let large = LargeResult {
            context: self.context.clone(),
            answer: Some(answer),
            release: self.release,
            pending,
        };
        ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(Box::new(large))))
    }

    /// Handles a large result that arrived whole.
    fn finish_held(&mut self, held: HeldLargeResult) -> Option<ReplyEvent> {
        if !self.release.is_of(held.end.response.id.as_ref()) {
            self.handle_foreign(DropReason::UnknownId);
            return None;
        }
        if self.release.whole || !self.release.is_plain(held.end.result_type.as_deref()) {
            return Some(self.ended(Ok(held.blocks.join(&held.end.rest))));
        }
        self.close();
        Some(ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(
            Box::new(ArrivedResult(Some(held))),
        ))))
    }

    /// Starts to resume a stream that ended or broke, if its events have ids. The call goes on at
    /// the server, which may close a connection at any time (specification 2025-11-25, Transports).
    fn resume(&mut self) -> bool {
        let Some(side) = self.pending.side.clone() else {
            return false;
        };
        let resuming = self.resumption.resume(side);
        if resuming {
            self.answer = None;
        }
        resuming
    }

    /// Ends a call with a stream that ended without the response.
    fn unanswered(&mut self, json: bool) -> ReplyEvent {
        self.end();
        if let Some(error) = self.unnamed_error.take() {
            return ReplyEvent::End(self.context.permissions.call_failure(&error).into());
        }
        let failure = if json {
            self.context.label.fail(
                FailureKind::BadAnswer,
                "The upstream's answer is to another request",
            )
        } else {
            connection_lost_failure(&self.context.label)
        };
        ReplyEvent::End(failure.into())
    }

    fn broken(&mut self, error: ResponseReadError) -> ReplyEvent {
        if matches!(error, ResponseReadError::Lost(_)) {
            self.end();
        }
        self.answer = None;
        ReplyEvent::End(unreadable_failure(&self.context.label, error).into())
    }

    /// Ends the call. The stream's end is still read, so that the connection can be used again.
    fn close(&mut self) {
        self.end();
        if let Some(answer) = self.answer.take() {
            drain_response(&self.context, answer);
        }
    }
}

impl Drop for HttpCallReply {
    fn drop(&mut self) {
        self.pass_questions_on();
    }
}

/// Makes the event of a stream that will be resumed later.
fn waiting_note() -> ReplyEvent {
    ReplyEvent::Note(ReplyNote {
        kind: NoteKind::StillWorking,
        params: Bytes::new(),
    })
}
