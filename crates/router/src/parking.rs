//! Parks a call when it asks its client, and goes on with it when the client comes back.

mod open_questions;
mod reading_on;

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Sleep;
use weir_core::call::ParkedId;
use weir_core::failure::Failure;
use weir_core::parked::{ParkedCallDetails, ParkedReply};
use weir_core::port::CallParking;
use weir_core::reply::{Reply, ReplyEnd, ReplyEvent, ReplySource};

use open_questions::{asked_methods, input_required};
use reading_on::{read_on, stop_reading};

/// The wait for further questions after one, so that the questions a server asks at once are asked
/// in one round.
const ROUND_WAIT: Duration = Duration::from_millis(25);
/// The parking of a call, and its description there.
#[derive(Clone)]
pub(crate) struct ParkingContext {
    pub(crate) parking: Arc<dyn CallParking>,
    /// Without its questions.
    pub(crate) details: ParkedCallDetails,
}

impl ParkingContext {
    /// Wraps a reply so that its questions end it: then it is parked.
    pub(crate) fn wrap_reply(self, reply: Reply) -> Reply {
        if reply.is_ended() {
            return reply;
        }
        self.reply_of(ParkedReply::new(reply))
    }

    /// Goes on with a parked call.
    ///
    /// # Errors
    ///
    /// `InvalidParams`: the call is not parked (any more), or an answer is malformed. After a
    /// malformed one it stays parked.
    pub(crate) fn resume(self, id: ParkedId, answers: Option<&Bytes>) -> Result<Reply, Failure> {
        let gone = || {
            Failure::invalid_params(
                "This call no longer waits for input: make it again without `requestState`",
            )
        };
        let shared = self
            .parking
            .take(&self.details.principal, id)
            .ok_or_else(gone)?;
        let none = Bytes::from_static(b"{}");
        let answers = answers.unwrap_or(&none);
        let checked = {
            let parked = shared.lock();
            let parked = parked.as_ref().ok_or_else(gone)?;
            let checked = parked.open.check(answers);
            checked.map_err(|failure| (failure, self.details_of(parked)))
        };
        if let Err((failure, details)) = checked {
            self.parking.park(details, Some(id), shared)?;
            return Err(failure);
        }
        let mut parked = stop_reading(&shared).ok_or_else(gone)?;
        parked.open.answer(answers);
        Ok(self.reply_of(parked))
    }

    fn details_of(&self, parked: &ParkedReply) -> ParkedCallDetails {
        ParkedCallDetails {
            questions: asked_methods(&parked.open),
            ..self.details.clone()
        }
    }

    fn reply_of(self, parked: ParkedReply) -> Reply {
        Reply::live(ParkingReply {
            place: self,
            parked: Some(parked),
            together: None,
        })
    }
}

/// A call that ends with its questions.
struct ParkingReply {
    place: ParkingContext,
    /// Absent once the call has ended, or is parked.
    parked: Option<ParkedReply>,
    together: Option<Pin<Box<Sleep>>>,
}

impl ReplySource for ParkingReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        loop {
            let Some(parked) = &mut self.parked else {
                return Poll::Ready(ReplyEvent::End(
                    Failure::internal("a parked call was read on").into(),
                ));
            };
            parked.open.drop_withdrawn(cx);
            let event = match parked.unread.pop_front() {
                Some(unread) => Poll::Ready(unread),
                None => parked.reply.poll_event(cx),
            };
            match event {
                Poll::Ready(ReplyEvent::Ask(ask)) => parked.open.keep(*ask),
                note @ Poll::Ready(ReplyEvent::Note(_)) => return note,
                end @ Poll::Ready(ReplyEvent::End(_)) => {
                    self.parked = None;
                    return end;
                }
                Poll::Pending if parked.open.all().is_empty() => {
                    self.together = None;
                    return Poll::Pending;
                }
                Poll::Pending => {
                    let together = self
                        .together
                        .get_or_insert_with(|| Box::pin(tokio::time::sleep(ROUND_WAIT)));
                    ready!(together.as_mut().poll(cx));
                    return Poll::Ready(ReplyEvent::End(self.park()));
                }
            }
        }
    }
}

impl ParkingReply {
    fn park(&mut self) -> ReplyEnd {
        let Some(parked) = self.parked.take() else {
            return Failure::internal("a call was parked twice").into();
        };
        let details = self.place.details_of(&parked);
        let result = input_required(&parked.open);
        match self.place.parking.park(details, None, read_on(parked)) {
            Ok(id) => ReplyEnd::Parked { id, result },
            Err(failure) => failure.into(),
        }
    }
}

#[cfg(test)]
mod tests;
