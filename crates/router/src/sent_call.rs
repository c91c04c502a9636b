//! A call on its way: sent to its upstream, with the parts that handle its reply.

use std::future::Future;
use std::task::{Context, Poll, ready};

use tokio::time::Instant;
use weir_core::call::InputMode;
use weir_core::port::Fut;
use weir_core::reply::{Reply, ReplyEvent, ReplySource};

use super::call_record::CallRecord;
use super::reply_transform::ReplyTransform;
use super::tasks::gather_result;
use crate::live_calls::LiveCallGuard;
use crate::parking::ParkingContext;

/// A call at its upstream, with the parts that handle its reply.
pub(super) struct SentCall {
    pub(super) making: Fut<'static, Reply>,
    pub(super) record: CallRecord,
    pub(super) transform: ReplyTransform,
    pub(super) live: LiveCallGuard,
    pub(super) parking: Option<ParkingContext>,
    pub(super) asked: InputMode,
    /// Its result is kept as that of a task.
    pub(super) is_kept_as_task: bool,
    pub(super) until: Instant,
}

impl SentCall {
    /// Waits for the reply.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async function has its arguments twice"
    )]
    pub(super) fn reply(mut self) -> impl Future<Output = Reply> + Send {
        async move {
            let reply = match self.live.unless_stopped(self.making).await {
                Ok(reply) => self.live.wrap_reply(reply),
                Err(stopped) => Reply::ended(stopped),
            };
            self.record.set_live(self.live);
            let reply = match (self.parking, self.asked) {
                (Some(place), _) => place.wrap_reply(reply),
                (None, InputMode::Requests) => reply,
                (None, InputMode::Rounds) => without_questions(reply),
            };
            self.record
                .wrap_reply(
                    if self.is_kept_as_task {
                        gather_result(reply)
                    } else {
                        reply
                    },
                    self.transform,
                )
                .with_deadline(self.until)
        }
    }
}

/// Returns a reply that drops its questions: the upstream learns that there is no answer.
fn without_questions(reply: Reply) -> Reply {
    if reply.is_ended() {
        reply
    } else {
        Reply::live(ReplyWithoutQuestions(reply))
    }
}

struct ReplyWithoutQuestions(Reply);

impl ReplySource for ReplyWithoutQuestions {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        loop {
            match ready!(self.0.poll_event(cx)) {
                ReplyEvent::Ask(_) => {}
                event @ (ReplyEvent::Note(_) | ReplyEvent::End(_)) => return Poll::Ready(event),
            }
        }
    }
}
