//! A stream between two hosts: two pipes, one for each direction.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use weir_front::AcceptedStream;

use crate::host::HostClock;
use crate::links::{HostName, Links, RETRANSMIT};

/// The bytes that one direction holds before its writer waits.
const PIPE_BYTES: usize = 256 << 10;

/// Bytes on their way.
type Parts = VecDeque<(Duration, Bytes)>;

/// One direction of a stream.
pub(crate) struct Pipe(Mutex<PipeState>);

#[derive(Default)]
struct PipeState {
    parts: Parts,
    held: usize,
    is_finished: bool,
    is_reader_gone: bool,
    is_reset: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// One end of a stream.
pub(crate) struct SimStream {
    links: Links,
    /// The host of this end, and the other one.
    ends: (HostName, HostName),
    /// The clock of the host that reads: set with its first read.
    clock: HostClock,
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    timer: Mutex<Option<Pin<Box<Sleep>>>>,
}

impl Pipe {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    /// Loses all bytes on their way, and fails both ends.
    pub(crate) fn reset(&self) {
        let mut state = self.0.lock();
        state.is_reset = true;
        state.parts.clear();
        state.wake();
    }
}

impl PipeState {
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()]
            .into_iter()
            .flatten()
        {
            waker.wake();
        }
    }
}

/// The state of the next part, for the reader.
enum NextPart {
    Due,
    /// Nothing is to be read, and an end of the stream has not come.
    Absent,
    Finished,
    Reset,
    /// It is due after this time.
    In(Duration),
}

impl SimStream {
    /// The two ends of a stream from the first host to the second.
    pub(crate) fn pair(
        links: &Links,
        clock: &HostClock,
        ends: (HostName, HostName),
    ) -> (Self, Self) {
        let (there, back) = (Pipe::new(), Pipe::new());
        let end = |incoming: &Arc<Pipe>, outgoing: &Arc<Pipe>, ends| Self {
            links: links.clone(),
            ends,
            clock: clock.clone(),
            incoming: incoming.clone(),
            outgoing: outgoing.clone(),
            timer: Mutex::default(),
        };
        (
            end(&back, &there, ends),
            end(&there, &back, (ends.1, ends.0)),
        )
    }

    /// The same end at the host that accepted it, with its clock.
    pub(crate) fn accepted_at(mut self, clock: HostClock) -> Self {
        self.clock = clock;
        self
    }

    /// Both directions.
    pub(crate) fn pipes(&self) -> [&Arc<Pipe>; 2] {
        [&self.incoming, &self.outgoing]
    }

    fn next_part(&self, cx: &Context<'_>) -> NextPart {
        let is_open = self.links.is_open(self.ends.0, self.ends.1);
        let mut state = self.incoming.0.lock();
        if state.is_reset {
            return NextPart::Reset;
        }
        match state.parts.front() {
            Some(_) if !is_open => NextPart::In(RETRANSMIT),
            Some((due, _)) => {
                let left = due.saturating_sub(self.clock.now());
                if left.is_zero() {
                    NextPart::Due
                } else {
                    NextPart::In(left)
                }
            }
            None if state.is_finished && is_open => NextPart::Finished,
            None if state.is_finished => NextPart::In(RETRANSMIT),
            None => {
                state.reader = Some(cx.waker().clone());
                NextPart::Absent
            }
        }
    }

    /// Waits until there is something to read.
    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<NextPart> {
        let mut timer = self.timer.lock();
        loop {
            match self.next_part(cx) {
                NextPart::Absent => return Poll::Pending,
                NextPart::In(left) => {
                    // A reset wakes the reader, too.
                    self.incoming.0.lock().reader = Some(cx.waker().clone());
                    let mut waiting = Box::pin(sleep(left));
                    if waiting.as_mut().poll(cx).is_pending() {
                        *timer = Some(waiting);
                        return Poll::Pending;
                    }
                }
                next @ (NextPart::Due | NextPart::Finished | NextPart::Reset) => {
                    return Poll::Ready(next);
                }
            }
        }
    }

    fn poll_send(&self, cx: &Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let (now, (from, to)) = (self.clock.now(), self.ends);
        let due = now + self.links.delay(now, from, to);
        self.links.trace_part(now, from, to, data);
        let mut state = self.outgoing.0.lock();
        if state.is_reset || state.is_finished {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if state.is_reader_gone {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if state.held >= PIPE_BYTES {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        // In order, as in TCP.
        let due = state.parts.back().map_or(due, |(last, _)| due.max(*last));
        state.parts.push_back((due, Bytes::copy_from_slice(data)));
        state.held += data.len();
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(data.len()))
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match std::task::ready!(self.poll_next(cx)) {
            NextPart::Reset => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            NextPart::Finished | NextPart::Absent | NextPart::In(_) => return Poll::Ready(Ok(())),
            NextPart::Due => {}
        }
        let mut state = self.incoming.0.lock();
        if let Some((_, part)) = state.parts.front_mut() {
            let taken = part.len().min(buffer.remaining());
            buffer.put_slice(&part[..taken]);
            part.advance(taken);
            let is_empty = part.is_empty();
            state.held = state.held.saturating_sub(taken);
            if is_empty {
                state.parts.pop_front();
            }
            if let Some(writer) = state.writer.take() {
                writer.wake();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.outgoing.0.lock();
        state.is_finished = true;
        state.wake();
        Poll::Ready(Ok(()))
    }
}

impl AcceptedStream for SimStream {
    async fn wait_readable(&self) {
        poll_fn(|cx| self.poll_next(cx).map(|_| ())).await;
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let mut sent = self.outgoing.0.lock();
        sent.is_finished = true;
        sent.wake();
        drop(sent);
        let mut received = self.incoming.0.lock();
        received.is_reader_gone = true;
        received.wake();
    }
}

impl fmt::Debug for SimStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimStream")
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}
