//! A running reply of one instance: it counts as in flight there, and texts in its end that come
//! back later get the instance's name.

use std::task::{Context, Poll, ready};

use weir_core::Failure;
use weir_core::reply::{
    NoteKind, Payload, PayloadSource, Reply, ReplyEnd, ReplyEvent, ReplySource,
};

use crate::instances::instance_name::InstanceName;
use crate::instances::server_instance::InstanceCall;

/// Wraps a reply. Returns it once its first event is known, or at once if that takes longer.
pub(crate) async fn wrap(reply: Reply, call: InstanceCall, name: InstanceName) -> Reply {
    let is_ended = reply.is_ended();
    let wrapped = InstanceReply {
        reply,
        call: Some(call),
        name,
    };
    if is_ended {
        Reply::started(wrapped).await
    } else {
        Reply::live(wrapped)
    }
}

struct InstanceReply {
    reply: Reply,
    /// Absent after the end.
    call: Option<InstanceCall>,
    name: InstanceName,
}

impl ReplySource for InstanceReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        let event = ready!(self.reply.poll_event(cx));
        Poll::Ready(match event {
            ReplyEvent::Note(note) if note.kind == NoteKind::StillWorking => ReplyEvent::Note(note),
            event @ (ReplyEvent::Note(_) | ReplyEvent::Ask(_)) => {
                if let Some(call) = &mut self.call {
                    call.record_answer();
                }
                event
            }
            ReplyEvent::End(end) => ReplyEvent::End(self.end(end)),
        })
    }
}

impl InstanceReply {
    fn end(&mut self, end: ReplyEnd) -> ReplyEnd {
        let Some(mut call) = self.call.take() else {
            return end;
        };
        match end {
            ReplyEnd::Failed(failure) if failure.is_connection_lost() => {
                call.record_loss(&failure);
                ReplyEnd::Failed(failure)
            }
            ReplyEnd::Complete(Payload::Stream(source)) => {
                call.record_answer();
                let counted = InstancePayload {
                    source,
                    _call: call,
                };
                ReplyEnd::Complete(Payload::Stream(Box::new(counted)))
            }
            end @ (ReplyEnd::Complete(_)
            | ReplyEnd::InputRequired(_)
            | ReplyEnd::Parked { .. }
            | ReplyEnd::Task(_)
            | ReplyEnd::Failed(_)) => {
                call.record_answer();
                self.name.add_to_end(end)
            }
        }
    }
}

/// A result that streams: it is in flight until its last byte.
struct InstancePayload {
    source: Box<dyn PayloadSource>,
    _call: InstanceCall,
}

impl PayloadSource for InstancePayload {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<bytes::Bytes, Failure>>> {
        self.source.poll_chunk(cx)
    }

    fn removed(&self) -> u64 {
        self.source.removed()
    }
}
