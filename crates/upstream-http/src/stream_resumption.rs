//! The resumption of a call's stream: its position when it broke, and its next attempt.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use weir_core::port::BoxFuture;
use weir_upstream_core::retry_backoff::least_wait;
use weir_wire::sse::{MAX_RETRY_WAIT, ResumePoint};

use crate::response_reader::ResponseReader;
use crate::side_channel::{SideChannel, StreamRefusal};

/// The most streams in a row without a message.
const MAX_EMPTY_STREAMS: u32 = 20;
/// The most attempts in a row at one resumption while the server does not open the stream now. With
/// the default wait they take half a minute, in which a server restarts.
const MAX_ATTEMPTS: u32 = 9;

/// The position of a stream beside its messages.
#[derive(Default)]
pub(crate) struct StreamResumption {
    point: ResumePoint,
    /// The streams since the last message.
    broken: u32,
    resuming: Option<BoxFuture<'static, Option<ResponseReader>>>,
}

impl StreamResumption {
    /// Notes an event's id, or the server's reconnection time.
    pub(crate) fn record_mark(&mut self, id: Option<String>, retry: Option<u64>) {
        self.point.record_mark(id, retry);
    }

    /// Notes a message.
    pub(crate) fn record_message(&mut self) {
        self.broken = 0;
    }

    /// Starts to resume a broken stream, after the server's reconnection time; false if that is
    /// impossible.
    pub(crate) fn resume(&mut self, side: Arc<dyn SideChannel>) -> bool {
        let Some(last_event) = self
            .point
            .last_event()
            .filter(|_| self.broken < MAX_EMPTY_STREAMS)
        else {
            return false;
        };
        let last_event = last_event.to_owned();
        let wait = self.point.retry_wait().max(least_wait(self.broken));
        self.broken += 1;
        self.resuming = Some(Box::pin(resume_after(wait, side, last_event)));
        true
    }

    /// Polls the resumed stream; `Ready(None)` if no resumption is in progress.
    pub(crate) fn poll_resumed(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Option<ResponseReader>>> {
        let Some(resuming) = &mut self.resuming else {
            return Poll::Ready(None);
        };
        let resumed = ready!(resuming.as_mut().poll(cx));
        self.resuming = None;
        Poll::Ready(Some(resumed))
    }
}

/// Resumes a stream after a wait, and again after doubling waits while the server does not open it
/// now. Absent if the server no longer has the stream.
async fn resume_after(
    first_wait: Duration,
    side: Arc<dyn SideChannel>,
    last_event: String,
) -> Option<ResponseReader> {
    let mut wait = first_wait;
    for attempt in 1..=MAX_ATTEMPTS {
        tokio::time::sleep(wait).await;
        match side.clone().resume(last_event.clone()).await {
            Ok(stream) => return Some(stream),
            Err(StreamRefusal::Absent) => return None,
            Err(StreamRefusal::NotNow(asked_wait)) => {
                let asked_wait = asked_wait.unwrap_or_default().min(MAX_RETRY_WAIT);
                wait = first_wait.max(least_wait(attempt)).max(asked_wait);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// Counts the resumptions, and refuses each.
    struct ResumeCounter(AtomicUsize, StreamRefusal);

    impl Default for ResumeCounter {
        fn default() -> Self {
            Self(AtomicUsize::new(0), StreamRefusal::Absent)
        }
    }

    impl SideChannel for ResumeCounter {
        fn send(&self, _message: Bytes) {}
        fn send_answer(&self, _message: Bytes, _lost: &CancellationToken) {}
        fn cancel(&self, _id: u64) {}
        fn resume(
            self: Arc<Self>,
            last_event: String,
        ) -> BoxFuture<'static, Result<ResponseReader, StreamRefusal>> {
            assert_eq!(last_event, "e2");
            self.0.fetch_add(1, Ordering::SeqCst);
            Box::pin(std::future::ready(Err(self.1)))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn resumption_is_tried_again_while_the_server_does_not_open_the_stream_now() {
        let waits = [None, Some(Duration::from_secs(5))];
        let least = [Duration::from_secs(25), Duration::from_secs(41)];
        for (asked_wait, least) in waits.into_iter().zip(least) {
            let busy = ResumeCounter(AtomicUsize::new(0), StreamRefusal::NotNow(asked_wait));
            let (mut resumption, side) = (StreamResumption::default(), Arc::new(busy));
            resumption.record_mark(Some("e2".into()), None);
            let began = tokio::time::Instant::now();
            assert!(resumption.resume(side.clone()));
            let resumed = std::future::poll_fn(|cx| resumption.poll_resumed(cx)).await;
            assert!(matches!(resumed, Some(None)), "it gives up in the end");
            assert_eq!(side.0.load(Ordering::SeqCst), MAX_ATTEMPTS as usize);
            assert!(began.elapsed() >= least, "{:?}", began.elapsed());
        }
    }

    // Proves R096, R097.
    #[tokio::test(start_paused = true)]
    async fn broken_stream_resumes_after_its_last_event_id_and_retry_delay() {
        let (mut resumption, side) = (StreamResumption::default(), Arc::<ResumeCounter>::default());
        assert!(!resumption.resume(side.clone()), "no event had an id");
        resumption.record_mark(Some("e1".into()), Some(3000));
        resumption.record_mark(Some("e2".into()), None);
        assert!(resumption.resume(side.clone()));
        let mut resumed = Box::pin(std::future::poll_fn(|cx| resumption.poll_resumed(cx)));
        assert!(
            tokio::time::timeout(Duration::from_millis(2999), &mut resumed)
                .await
                .is_err()
        );
        assert_eq!(
            side.0.load(Ordering::SeqCst),
            0,
            "not before the server wants it"
        );
        assert!(
            matches!(resumed.await, Some(None)),
            "it did not have it any more"
        );
        assert_eq!(side.0.load(Ordering::SeqCst), 1);
        resumption.record_mark(Some(String::new()), None);
        assert!(!resumption.resume(side), "the server took its ids back");
    }

    #[tokio::test(start_paused = true)]
    async fn resumption_waits_at_least_100_ms_that_double() {
        let (mut resumption, side) = (StreamResumption::default(), Arc::<ResumeCounter>::default());
        resumption.record_mark(Some("e2".into()), Some(0));
        let mut waits = Vec::new();
        for goes_on in [false, false, false, true, false] {
            let began = tokio::time::Instant::now();
            assert!(resumption.resume(side.clone()));
            std::future::poll_fn(|cx| resumption.poll_resumed(cx)).await;
            waits.push(began.elapsed().as_millis());
            if goes_on {
                resumption.record_message();
            }
        }
        // The paused clock moves in whole milliseconds.
        let least = [100, 200, 400, 800, 100];
        assert!(
            waits
                .iter()
                .zip(least)
                .all(|(wait, least)| (least..least + 5).contains(wait)),
            "{waits:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn resumption_ends_after_too_many_empty_streams() {
        let (mut resumption, side) = (StreamResumption::default(), Arc::<ResumeCounter>::default());
        resumption.record_mark(Some("e2".into()), None);
        assert_eq!(
            (0..100).filter(|_| resumption.resume(side.clone())).count(),
            MAX_EMPTY_STREAMS as usize
        );
        resumption.record_message();
        assert!(resumption.resume(side));
    }
}
