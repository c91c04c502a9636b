//! A byte stream with timeouts: for a request head, and for an idle connection. A connection that
//! is closed early first discards the bytes that its client still sends, so that the client gets the
//! refusal and no reset.
//!
//! hyper's own head timer also runs while a connection is idle between requests, so it could not
//! keep the two times apart.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};
use weir_core::budget::ByteReservation;

use crate::connection_activity::ConnectionActivity;
use crate::request_framing::RequestFraming;

/// The part of a refused request's body that is still read: so that its connection serves the next
/// request (A05, A09). A connection that is closed discards more.
pub const DISCARDED_BYTES: usize = 64 << 10;
/// The longest time that such a part is read for.
pub const DISCARD_TIME: Duration = Duration::from_secs(1);

/// The longest time that the bytes of a client are discarded for, before its connection is closed.
/// Without further bytes it is [`DISCARD_TIME`].
pub(crate) const MAX_LINGERING: Duration = Duration::from_secs(5);
/// The most bytes that are discarded meanwhile. It does not depend on the largest body that a
/// request may have: a client with a larger body must get its refusal, too, and a socket that is
/// closed with unread bytes resets the connection (RFC 9112, section 9.6).
pub(crate) const LINGERING_BYTES: usize = 32 << 20;

/// The timeouts of an HTTP/1.1 connection; HTTP/2 has pings and an age instead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Http1Timeouts {
    /// The deadline of the first head, including its part that was read before.
    pub(crate) first: Instant,
    pub(crate) head: Duration,
    pub(crate) idle: Duration,
}

/// The stream `inner`, with `prefix` read first, and with timeouts.
pub(crate) struct GuardedStream<S> {
    inner: S,
    prefix: Bytes,
    activity: Arc<ConnectionActivity>,
    times: Option<Http1Timeouts>,
    phase: ReadPhase,
    framing: RequestFraming,
    /// The current deadline, if there is one.
    deadline: Option<Instant>,
    /// Never later than `deadline`. It may fire earlier, and is then set anew. So a request moves
    /// `deadline` alone, and not the timer.
    timer: Option<Pin<Box<Sleep>>>,
    lingering: Option<LingeringClose>,
    /// Bytes read since the head of a request was complete, and the number of that request.
    unanswered: (usize, usize),
    /// The memory of large heads, taken with the first of them.
    memory: Option<ByteReservation>,
}

/// The bytes left to discard of a connection with its write side shut.
#[derive(Clone, Copy, Debug)]
struct LingeringClose {
    bytes: usize,
    until: Instant,
}

/// The most that is read ahead of a connection.
pub(super) const READ_BUFFER: usize = 64 << 10;
/// The bytes of a head that need no further reservation: each connection has that much.
const SMALL_HEAD: usize = 8 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadPhase {
    /// No byte of a head yet.
    Waiting,
    /// Part of a head has arrived; the number tells this head from the next one.
    Head(usize),
    /// A request is being answered.
    Busy,
    /// The write side is shut, the rest is discarded.
    Lingering,
}

impl<S> GuardedStream<S> {
    /// Wraps a stream. Without `times` there are no timeouts (HTTP/2).
    pub(crate) fn new(
        inner: S,
        prefix: Bytes,
        activity: Arc<ConnectionActivity>,
        times: Option<Http1Timeouts>,
    ) -> Self {
        let phase = if prefix.is_empty() {
            ReadPhase::Waiting
        } else {
            ReadPhase::Head(0)
        };
        let (mut framing, mut prefix) = (RequestFraming::default(), BytesMut::from(prefix));
        if times.is_some() {
            framing.check(&mut prefix);
        }
        let mut guarded = Self {
            inner,
            prefix: prefix.freeze(),
            activity,
            times,
            phase,
            framing,
            deadline: None,
            timer: None,
            lingering: None,
            unanswered: (0, 0),
            memory: None,
        };
        if let Some(times) = times {
            // The first head has its time from the accept on, even before its first byte (A02).
            guarded.set_deadline(times.first);
        }
        guarded
    }

    /// Takes the memory of large heads from the budget of this reservation.
    pub(crate) fn with_head_memory(self, memory: ByteReservation) -> Self {
        Self {
            memory: Some(memory),
            ..self
        }
    }

    /// Reserves memory for a head that has become large; an error if none is free.
    fn reserve_large_head(&mut self, read: usize) -> io::Result<()> {
        let (served, is_busy) = (self.activity.requests_begun(), self.activity.is_busy());
        let before = if is_busy || served != self.unanswered.1 {
            0
        } else {
            self.unanswered.0
        };
        let unanswered = if is_busy { 0 } else { before + read };
        self.unanswered = (unanswered, served);
        let Some(memory) = self.memory.as_mut().filter(|_| unanswered > SMALL_HEAD) else {
            return Ok(());
        };
        if memory.bytes() > 0 || memory.try_grow(READ_BUFFER) {
            return Ok(());
        }
        super::count_closed("memory");
        Err(io::Error::new(
            io::ErrorKind::OutOfMemory,
            "other connections have the memory for heads",
        ))
    }

    fn set_timeout(&mut self, time: Duration) {
        self.set_deadline(Instant::now() + time);
    }

    fn set_deadline(&mut self, due: Instant) {
        self.deadline = Some(due);
        match &mut self.timer {
            Some(timer) if timer.deadline() <= due => {}
            Some(timer) => timer.as_mut().reset(due),
            None => self.timer = Some(Box::pin(sleep_until(due))),
        }
    }

    fn begin_lingering(&mut self) -> LingeringClose {
        *self.lingering.insert(LingeringClose {
            bytes: LINGERING_BYTES,
            until: Instant::now() + MAX_LINGERING,
        })
    }

    /// True once the deadline has passed.
    fn is_past_deadline(&mut self, cx: &mut Context<'_>) -> bool {
        while let (Some(due), Some(timer)) = (self.deadline, &mut self.timer) {
            if timer.as_mut().poll(cx).is_pending() {
                return false;
            }
            if due <= timer.deadline() {
                return true;
            }
            timer.as_mut().reset(due);
        }
        false
    }

    /// Follows the state of requests; called whenever hyper reads. Returns an error once a deadline
    /// has passed.
    fn check_timeouts(&mut self, read: bool, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(times) = self.times else {
            return Ok(());
        };
        let served = self.activity.requests_begun();
        if self.activity.is_busy() {
            self.phase = ReadPhase::Busy;
            self.deadline = None;
            // A long answer needs no timer; a short one would only set it again.
            if self
                .timer
                .as_mut()
                .is_some_and(|timer| timer.as_mut().poll(cx).is_ready())
            {
                self.timer = None;
            }
            return Ok(());
        }
        // A whole request may have come and gone between two reads.
        let answered = match self.phase {
            ReadPhase::Busy => true,
            ReadPhase::Head(of) => of != served,
            ReadPhase::Waiting | ReadPhase::Lingering => false,
        };
        match self.phase {
            // The bytes read begin the next head, even if the last answer ended just before.
            ReadPhase::Waiting | ReadPhase::Busy | ReadPhase::Head(_)
                if read && (answered || self.phase == ReadPhase::Waiting) =>
            {
                self.phase = ReadPhase::Head(served);
                if served > 0 {
                    self.set_timeout(times.head);
                }
            }
            ReadPhase::Busy | ReadPhase::Head(_) if answered => {
                self.phase = ReadPhase::Waiting;
                self.set_timeout(times.idle);
            }
            ReadPhase::Waiting | ReadPhase::Busy | ReadPhase::Head(_) | ReadPhase::Lingering => {}
        }
        if self.is_past_deadline(cx) {
            let (reason, what) = match self.phase {
                ReadPhase::Head(_) => ("head_timeout", "request head took too long"),
                ReadPhase::Waiting | ReadPhase::Busy | ReadPhase::Lingering if served == 0 => {
                    ("head_timeout", "no request came")
                }
                ReadPhase::Waiting | ReadPhase::Busy | ReadPhase::Lingering => {
                    ("idle", "idle for too long")
                }
            };
            super::count_closed(reason);
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GuardedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.prefix.is_empty() {
            let part = this.prefix.len().min(buffer.remaining());
            buffer.put_slice(&this.prefix[..part]);
            this.prefix.advance(part);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.inner).poll_read(cx, buffer);
        let read = matches!(polled, Poll::Ready(Ok(()))) && buffer.filled().len() > before;
        if read && this.times.is_some() {
            this.framing.check(&mut buffer.filled_mut()[before..]);
            this.reserve_large_head(buffer.filled().len() - before)?;
        }
        this.check_timeouts(read, cx)?;
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for GuardedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    /// Shuts the write side, then reads and discards the rest. Closing a socket with unread bytes
    /// resets it, and the client would never see the refusal that was just sent.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let mut lingering = match this.lingering {
            Some(lingering) => lingering,
            None => {
                ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
                this.phase = ReadPhase::Lingering;
                this.set_timeout(DISCARD_TIME);
                this.begin_lingering()
            }
        };
        let mut scratch = [0; 16 << 10];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = match Pin::new(&mut this.inner).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => buffer.filled().len(),
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            };
            if read >= lingering.bytes {
                return Poll::Ready(Ok(()));
            }
            lingering.bytes -= read;
            this.lingering = Some(lingering);
            this.set_deadline(lingering.until.min(Instant::now() + DISCARD_TIME));
        }
        let over = this.deadline.is_none() || this.is_past_deadline(cx);
        if over {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn times() -> Http1Timeouts {
        let head = Duration::from_secs(10);
        Http1Timeouts {
            first: Instant::now() + head,
            head,
            idle: Duration::from_secs(120),
        }
    }

    async fn error_of(
        guarded: &mut GuardedStream<tokio::io::DuplexStream>,
    ) -> (io::ErrorKind, Duration) {
        let began = Instant::now();
        let mut buffer = [0; 64];
        loop {
            match guarded.read(&mut buffer).await {
                Ok(0) => return (io::ErrorKind::UnexpectedEof, began.elapsed()),
                Ok(_) => {}
                Err(error) => return (error.kind(), began.elapsed()),
            }
        }
    }

    // Proves A02.
    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_closed_when_its_head_is_due() {
        let (_client, server) = duplex(64);
        let mut guarded = GuardedStream::new(server, Bytes::new(), Arc::default(), Some(times()));
        let (kind, after) = error_of(&mut guarded).await;
        assert_eq!((kind, after.as_secs()), (io::ErrorKind::TimedOut, 10));
    }

    // Proves A01.
    #[tokio::test(start_paused = true)]
    async fn dripping_a_head_gives_no_more_time() {
        let (mut client, server) = duplex(64);
        let mut guarded = GuardedStream::new(server, Bytes::new(), Arc::default(), Some(times()));
        let drip = tokio::spawn(async move {
            while client.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
        let (kind, after) = error_of(&mut guarded).await;
        assert_eq!((kind, after.as_secs()), (io::ErrorKind::TimedOut, 10));
        drip.abort();
    }

    // Proves A01.
    #[tokio::test(start_paused = true)]
    async fn prefix_of_the_first_head_gives_no_more_time() {
        let (_client, server) = duplex(64);
        let times = times();
        tokio::time::advance(Duration::from_secs(9)).await;
        let mut guarded = GuardedStream::new(
            server,
            Bytes::from_static(b"PRI * HTTP/2.0\r\n"),
            Arc::default(),
            Some(times),
        );
        let (kind, after) = error_of(&mut guarded).await;
        assert_eq!((kind, after.as_secs()), (io::ErrorKind::TimedOut, 1));
    }

    #[tokio::test]
    async fn large_head_reserves_memory_once_or_ends_the_connection() {
        let budget = weir_core::budget::ByteBudget::new("connections");
        for (limit, expected) in [(READ_BUFFER, Some(READ_BUFFER)), (READ_BUFFER - 1, None)] {
            budget.set_limit(limit);
            let (mut client, server) = duplex(SMALL_HEAD);
            let activity = Arc::new(ConnectionActivity::default());
            let mut guarded =
                GuardedStream::new(server, Bytes::new(), activity.clone(), Some(times()))
                    .with_head_memory(budget.empty());
            let mut part = vec![0; SMALL_HEAD];
            client.write_all(&part).await.unwrap();
            guarded.read_exact(&mut part).await.unwrap();
            assert_eq!(budget.used(), 0, "every connection has so much");
            drop(activity.begin_request());
            for nth in 0..3 {
                assert_eq!(
                    budget.used(),
                    if nth < 2 { 0 } else { expected.unwrap_or(0) }
                );
                client.write_all(&part).await.unwrap();
                let read = guarded.read_exact(&mut part).await;
                assert_eq!(
                    read.is_ok(),
                    nth == 0 || expected.is_some(),
                    "{limit} {nth}"
                );
            }
            assert_eq!(budget.used(), expected.unwrap_or(0));
            drop(guarded);
            assert_eq!(budget.used(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answered_connection_may_idle_longer_and_a_busy_one_for_ever() {
        let (mut client, server) = duplex(64);
        let activity = Arc::new(ConnectionActivity::default());
        let mut guarded = GuardedStream::new(server, Bytes::new(), activity.clone(), Some(times()));
        client.write_all(b"head").await.unwrap();
        let mut buffer = [0; 64];
        assert_eq!(guarded.read(&mut buffer).await.unwrap(), 4);
        let guard = activity.begin_request();
        let busy = tokio::time::timeout(Duration::from_secs(3600), guarded.read(&mut buffer)).await;
        assert!(busy.is_err(), "a busy connection has no read timer");
        drop(guard);
        let (kind, after) = error_of(&mut guarded).await;
        assert_eq!((kind, after.as_secs()), (io::ErrorKind::TimedOut, 120));
    }

    // Proves A01.
    #[tokio::test(start_paused = true)]
    async fn a_second_head_has_its_own_time_however_fast_the_first_answer_was() {
        for busy_at_a_read in [false, true] {
            let (mut client, server) = duplex(64);
            let activity = Arc::new(ConnectionActivity::default());
            let mut guarded =
                GuardedStream::new(server, Bytes::new(), activity.clone(), Some(times()));
            client.write_all(b"head").await.unwrap();
            let mut buffer = [0; 64];
            assert_eq!(guarded.read(&mut buffer).await.unwrap(), 4);
            let guard = activity.begin_request();
            if busy_at_a_read {
                assert!(
                    tokio::time::timeout(Duration::from_secs(1), guarded.read(&mut buffer))
                        .await
                        .is_err()
                );
            }
            drop(guard);
            // The next head begins before the connection is polled again.
            client.write_all(b"he").await.unwrap();
            let (kind, after) = error_of(&mut guarded).await;
            assert_eq!((kind, after.as_secs()), (io::ErrorKind::TimedOut, 10));
        }
    }

    // Proves A09.
    #[tokio::test(start_paused = true)]
    async fn closing_connection_discards_late_bytes() {
        let (mut client, server) = duplex(16);
        let mut guarded = GuardedStream::new(
            server,
            Bytes::from_static(b"already read"),
            Arc::default(),
            Some(times()),
        );
        let closing = tokio::spawn(async move { guarded.shutdown().await });
        client.write_all(&[b'x'; 1000]).await.unwrap();
        drop(client);
        closing.await.unwrap().unwrap();
    }

    /// The number of bytes discarded from a body of `sent` bytes after this head.
    async fn bytes_discarded(head: &str, read: usize, sent: usize) -> usize {
        let (mut client, server) = duplex(READ_BUFFER);
        let mut guarded = GuardedStream::new(server, Bytes::new(), Arc::default(), Some(times()));
        let head = head.to_owned();
        let writing = tokio::spawn(async move {
            client.write_all(head.as_bytes()).await.unwrap();
            let mut written = 0;
            while written < sent {
                match client.write(&[b'x'; READ_BUFFER]).await {
                    Ok(bytes @ 1..) => written += bytes,
                    Ok(0) | Err(_) => break,
                }
            }
            written
        });
        let mut seen = vec![0; read];
        guarded.read_exact(&mut seen).await.unwrap();
        guarded.shutdown().await.unwrap();
        drop(guarded);
        writing.await.unwrap()
    }

    // Proves A09.
    #[tokio::test(start_paused = true)]
    async fn body_is_discarded_however_large_it_is_and_an_endless_one_is_not() {
        let length = |bytes: usize| format!("POST / HTTP/1.1\r\ncontent-length: {bytes}\r\n\r\n");
        let chunked = format!(
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
            1 << 30
        );
        let (large, endless) = (30_000_000, LINGERING_BYTES + (1 << 20));
        for (head, sent, all) in [
            (length(1_000_000), 1_000_000, true),
            (length(large), large, true),
            (chunked, large, true),
            // Whose end weir does not know: the head is refused.
            (
                "POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n".to_owned(),
                large,
                true,
            ),
            (length(endless), endless, false),
        ] {
            let written = bytes_discarded(&head, head.len(), sent).await;
            assert_eq!(written >= sent, all, "{head}: {written}");
        }
    }

    // Proves A09.
    #[tokio::test(start_paused = true)]
    async fn absent_body_is_awaited_one_second_and_a_slow_one_five() {
        for (pause, seconds) in [(3600, 1), (0, 5)] {
            let (mut client, server) = duplex(1 << 10);
            let mut guarded =
                GuardedStream::new(server, Bytes::new(), Arc::default(), Some(times()));
            let head = b"POST / HTTP/1.1\r\ncontent-length: 100000\r\n\r\n";
            client.write_all(head).await.unwrap();
            guarded.read_exact(&mut vec![0; head.len()]).await.unwrap();
            let drip = tokio::spawn(async move {
                while client.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(Duration::from_secs(pause).max(Duration::from_millis(500)))
                        .await;
                }
            });
            tokio::task::yield_now().await;
            let began = Instant::now();
            guarded.shutdown().await.unwrap();
            assert_eq!(began.elapsed().as_secs(), seconds);
            drip.abort();
        }
    }
}
