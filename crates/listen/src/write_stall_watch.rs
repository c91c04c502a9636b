//! A socket that fails a write once its client has read no byte for too long, or when an answer
//! outlasts its call.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::connection_activity::ConnectionActivity;

/// The stream `inner`, with writes that fail once one has stalled for `most`. It stands below TLS,
/// because TLS accepts more bytes than it has sent.
pub(super) struct WriteStallWatch<S> {
    inner: S,
    stall_time: Duration,
    activity: Arc<ConnectionActivity>,
    timer: Option<Pin<Box<Sleep>>>,
    /// A write waits since the timer was set.
    waits: bool,
}

impl<S> WriteStallWatch<S> {
    pub(super) fn new(inner: S, most: Duration, activity: Arc<ConnectionActivity>) -> Self {
        Self {
            inner,
            stall_time: most,
            activity,
            timer: None,
            waits: false,
        }
    }

    pub(super) fn get_ref(&self) -> &S {
        &self.inner
    }

    fn watch<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waits = false;
            return polled;
        }
        let most = self.stall_time;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(most)));
        if !std::mem::replace(&mut self.waits, true) {
            let stalled = Instant::now() + most;
            timer.as_mut().reset(
                self.activity
                    .answer_deadline()
                    .map_or(stalled, |until| stalled.min(until)),
            );
        }
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        super::count_closed("write_stalled");
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client reads nothing",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteStallWatch<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteStallWatch<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, data);
        self.watch(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, data);
        self.watch(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const MAX_STALL: Duration = Duration::from_secs(30);

    // Proves A12.
    #[tokio::test(start_paused = true)]
    async fn stalled_write_fails_and_a_slow_one_does_not() {
        let (mut client, server) = duplex(16);
        let mut watched = WriteStallWatch::new(server, MAX_STALL, Arc::default());
        let slow = tokio::spawn(async move {
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                let mut some = [0; 8];
                client.read_exact(&mut some).await.unwrap();
            }
            client
        });
        let began = Instant::now();
        let error = watched.write_all(&[0; 1000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed(), Duration::from_secs(4 * 20) + MAX_STALL);
        drop(slow.await.unwrap());
    }

    // Proves A12.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_has_no_longer_than_the_call() {
        let (mut client, server) = duplex(16);
        let activity = Arc::<ConnectionActivity>::default();
        let began = Instant::now();
        activity.set_answer_deadline(Some(began + Duration::from_secs(100)));
        let mut watched = WriteStallWatch::new(server, MAX_STALL, activity);
        let slow = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(20)).await;
                if client.read_exact(&mut [0; 8]).await.is_err() {
                    return;
                }
            }
        });
        let error = watched.write_all(&[0; 1000]).await.unwrap_err();
        assert_eq!(
            (error.kind(), began.elapsed()),
            (io::ErrorKind::TimedOut, Duration::from_secs(100))
        );
        drop(watched);
        slow.await.unwrap();
    }
}
