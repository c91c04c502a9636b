//! The one wrapper of a running reply: an operator's stop, the changes of its events, and the
//! record. The permit and the time limits at the upstream come with the reply itself.

use std::task::{Context, Poll, ready};

use weir_core::failure::Failure;
use weir_core::reply::{Payload, Reply, ReplyEnd, ReplyEvent, ReplySource};

use crate::call_record::CallRecord;
use crate::live_calls::CallPhase;
use crate::reply_transform::ReplyTransform;
use crate::tasks::gathered_result::GatheredResult;

/// The parts that handle the reply of one call.
pub(crate) struct ReplyHandling {
    pub(crate) record: CallRecord,
    pub(crate) transform: ReplyTransform,
    pub(crate) rules: ReplyRules,
}

/// The rules for the events of one reply.
#[derive(Clone, Copy)]
pub(crate) struct ReplyRules {
    /// True if the upstream's questions are dropped: it learns that there is no answer.
    pub(crate) drops_questions: bool,
    /// True if the whole result is kept as that of a task.
    pub(crate) keeps_result: bool,
}

impl ReplyHandling {
    /// Returns the reply for the client. Its end writes the record, and so does dropping it.
    pub(crate) fn wrap_reply(self, reply: Reply) -> Reply {
        let Self {
            record,
            transform,
            rules,
        } = self;
        let events = match reply.into_end() {
            Ok(ReplyEnd::Complete(Payload::Stream(source))) if rules.keeps_result => {
                UpstreamEvents::Gathering(GatheredResult::new(source))
            }
            Ok(end) => return Reply::ended(record.end_reply(end, &transform)),
            Err(reply) => UpstreamEvents::Running(reply),
        };
        Reply::live(RecordedReply {
            events,
            rules,
            record: Some(record),
            transform,
        })
    }
}

struct RecordedReply {
    events: UpstreamEvents,
    rules: ReplyRules,
    /// Absent after the end.
    record: Option<CallRecord>,
    transform: ReplyTransform,
}

impl ReplySource for RecordedReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        let Self {
            events,
            rules,
            record: slot,
            transform,
        } = self;
        let Some(record) = slot else {
            let failure = Failure::internal("a recorded reply was read on after its end");
            return Poll::Ready(ReplyEvent::End(failure.into()));
        };
        let event = ready!(record.poll_unless_stopped(cx, |cx| events.poll_event(*rules, cx)));
        Poll::Ready(match event {
            Ok(ReplyEvent::Ask(ask)) => {
                record.set_phase(CallPhase::Asking);
                transform.ask(ask)
            }
            Ok(ReplyEvent::Note(note)) => {
                record.set_phase(CallPhase::Answering);
                ReplyEvent::Note(transform.note(note))
            }
            Ok(ReplyEvent::End(end)) => end_reply(slot.take(), end, transform),
            Err(stopped) => end_reply(slot.take(), stopped.into(), transform),
        })
    }
}

fn end_reply(record: Option<CallRecord>, end: ReplyEnd, transform: &ReplyTransform) -> ReplyEvent {
    ReplyEvent::End(match record {
        Some(record) => record.end_reply(end, transform),
        None => end,
    })
}

/// The events of the upstream, and its result if that is gathered.
enum UpstreamEvents {
    Running(Reply),
    /// The reply has ended with a result that streams and is to be kept.
    Gathering(GatheredResult),
}

impl UpstreamEvents {
    /// Polls the next event that concerns the client.
    fn poll_event(&mut self, rules: ReplyRules, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        loop {
            let reply = match self {
                Self::Running(reply) => reply,
                Self::Gathering(result) => return result.poll_end(cx).map(ReplyEvent::End),
            };
            match ready!(reply.poll_event(cx)) {
                ReplyEvent::Ask(_) if rules.drops_questions => {}
                ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(source)))
                    if rules.keeps_result =>
                {
                    *self = Self::Gathering(GatheredResult::new(source));
                }
                event @ (ReplyEvent::Note(_) | ReplyEvent::Ask(_) | ReplyEvent::End(_)) => {
                    return Poll::Ready(event);
                }
            }
        }
    }
}
