//! The answers that the client of one HTTP+SSE connection waits for.

use std::sync::Arc;

use tokio::sync::watch;

/// Requests of one client that are answered at the same time, apart from pings.
const MAX_REQUESTS: usize = 64;
/// Pings of one client that are answered at the same time. They have a limit of their own: a client
/// may take a refused ping for a lost connection.
const MAX_PINGS: usize = 8;

/// The answers that a client waits for. A slow reader can delay each of them, so their number is
/// bounded. Messages without an answer are not counted: a call that is counted may wait for them.
#[derive(Debug, Default)]
pub struct PendingAnswers(watch::Sender<AnswerCounts>);

#[derive(Debug, Default)]
struct AnswerCounts {
    requests: usize,
    pings: usize,
    is_closed: bool,
}

/// The kind of a message that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// A request, a batch, or a message that cannot be read.
    Request,
    /// A ping.
    Ping,
}

/// The reason that a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPendingAnswer {
    /// The client waits for too many answers.
    TooMany,
    /// The stream takes no more answers.
    Closed,
}

/// An answer that the client waits for, until it is dropped.
#[derive(Debug)]
pub struct PendingAnswer {
    pending: Arc<PendingAnswers>,
    kind: AnswerKind,
}

impl AnswerCounts {
    fn of(&mut self, kind: AnswerKind) -> (&mut usize, usize) {
        match kind {
            AnswerKind::Request => (&mut self.requests, MAX_REQUESTS),
            AnswerKind::Ping => (&mut self.pings, MAX_PINGS),
        }
    }

    fn is_empty(&self) -> bool {
        self.requests + self.pings == 0
    }
}

impl PendingAnswers {
    /// Counts the answer to a message of this kind.
    pub fn begin(self: &Arc<Self>, kind: AnswerKind) -> Result<PendingAnswer, NoPendingAnswer> {
        let mut refused = None;
        self.0.send_if_modified(|counts| {
            let is_closed = counts.is_closed;
            let (count, most) = counts.of(kind);
            if is_closed {
                refused = Some(NoPendingAnswer::Closed);
            } else if *count >= most {
                refused = Some(NoPendingAnswer::TooMany);
            } else {
                *count += 1;
            }
            // Only an end can be waited for.
            false
        });
        match refused {
            Some(refused) => Err(refused),
            None => Ok(PendingAnswer {
                pending: self.clone(),
                kind,
            }),
        }
    }

    /// Begins no further answers.
    pub fn close(&self) {
        self.0.send_if_modified(|counts| {
            counts.is_closed = true;
            false
        });
    }

    /// Waits until no answer is pending. From then on none is begun.
    pub async fn close_when_none(&self) {
        let mut counts = self.0.subscribe();
        loop {
            // The sender is borrowed here, so the channel stays open.
            let _open = counts.wait_for(AnswerCounts::is_empty).await.is_ok();
            let mut is_closed = false;
            self.0.send_if_modified(|counts| {
                // A message may have come meanwhile.
                counts.is_closed |= counts.is_empty();
                is_closed = counts.is_closed;
                false
            });
            if is_closed {
                return;
            }
        }
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        self.pending.0.send_modify(|counts| {
            *counts.of(self.kind).0 -= 1;
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn requests_are_bounded_and_keep_no_ping_out() {
        let pending = Arc::new(PendingAnswers::default());
        let begin = |kind| pending.begin(kind);
        let mut requests: Vec<_> = (0..MAX_REQUESTS)
            .map(|_| begin(AnswerKind::Request).unwrap())
            .collect();
        let refused = begin(AnswerKind::Request).unwrap_err();
        assert_eq!(refused, NoPendingAnswer::TooMany);
        let pings: Vec<_> = (0..MAX_PINGS)
            .map(|_| begin(AnswerKind::Ping).unwrap())
            .collect();
        let refused = begin(AnswerKind::Ping).unwrap_err();
        assert_eq!(refused, NoPendingAnswer::TooMany);
        requests.pop();
        assert!(begin(AnswerKind::Request).is_ok());
        drop(pings);
        assert!(begin(AnswerKind::Ping).is_ok());
    }

    #[test]
    fn stream_that_drains_takes_messages_until_none_is_pending() {
        let pending = Arc::new(PendingAnswers::default());
        let first = pending.begin(AnswerKind::Request).unwrap();
        let mut closing = pin!(pending.close_when_none());
        let mut looks = Context::from_waker(Waker::noop());
        assert!(closing.as_mut().poll(&mut looks).is_pending());
        // The client asks for something that its answer to the first request's question needs.
        let second = pending.begin(AnswerKind::Request).unwrap();
        drop(first);
        assert!(closing.as_mut().poll(&mut looks).is_pending());
        drop(second);
        assert!(closing.as_mut().poll(&mut looks).is_ready());
        let refused = pending.begin(AnswerKind::Ping).unwrap_err();
        assert_eq!(refused, NoPendingAnswer::Closed);
    }
}
