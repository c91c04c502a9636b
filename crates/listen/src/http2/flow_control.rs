//! The flow control of an HTTP/2 connection: its windows, the answers that wait for its client, and
//! frames without data that cost work.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::ready;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use weir_wire::http2_frames::{DATA, END_STREAM, FrameHead, FramePiece, HEADERS, IdleFrames};

use crate::listener_settings::H2Limits;

/// The window of a connection, and of a stream unless the client sets another (RFC 9113, 6.9.2).
const FIRST_WINDOW: i64 = 65_535;
const INITIAL_WINDOW_SIZE: u16 = 4;
/// Window updates that are kept for streams before their request is processed.
const MAX_EARLY_GRANTS: usize = 256;

/// The further frames without data that each frame of an answer allows.
const IDLE_FRAMES_AN_ANSWER: u32 = 4;

/// The state that the connection's task, its streams and its frames share.
#[derive(Debug)]
pub struct Http2Flow {
    /// Bytes of answers that the client's socket has not taken.
    waiting: AtomicUsize,
    room_notify: Notify,
    /// Permits for those bytes, granted in the order of requests.
    byte_permits: Arc<Semaphore>,
    /// The most waiting bytes.
    waiting_limit: usize,
    /// The waiting bytes from which on no further request begins and no further result is read.
    pause_above: usize,
    /// True if too many frames without data are a flood.
    is_flood_limited: bool,
    /// Bytes of answers that were sent.
    answered: AtomicU64,
    /// Bytes that went over the connection in either direction.
    moved: AtomicU64,
    flooded: AtomicBool,
    windows: Mutex<FlowWindows>,
}

#[derive(Debug)]
struct FlowWindows {
    /// The bytes that the client accepts on all streams together.
    connection: i64,
    /// The bytes that the client has granted the connection so far.
    granted: u64,
    /// The initial window of a stream.
    initial: i64,
    /// The bytes granted to each answered stream beyond its initial window; the limit of streams
    /// bounds the map.
    streams: HashMap<u32, i64>,
    /// Grants for streams that are not yet answered.
    early: VecDeque<(u32, i64)>,
    idle_frames: IdleFrames,
}

impl Http2Flow {
    pub(super) fn new(limits: &H2Limits) -> Arc<Self> {
        let windows = FlowWindows {
            connection: FIRST_WINDOW,
            granted: 0,
            initial: FIRST_WINDOW,
            streams: HashMap::new(),
            early: VecDeque::new(),
            idle_frames: IdleFrames::new(Instant::now().into_std()),
        };
        Arc::new(Self {
            waiting: AtomicUsize::new(0),
            room_notify: Notify::new(),
            byte_permits: Arc::new(Semaphore::new(limits.waiting_bytes)),
            waiting_limit: limits.waiting_bytes,
            pause_above: limits.pause_bytes,
            is_flood_limited: limits.is_flood_limited,
            answered: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            flooded: AtomicBool::new(false),
            windows: Mutex::new(windows),
        })
    }

    /// Waits until few enough bytes wait for the client.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            // Registered before the check, so that no change between the two is missed.
            let mut changed = std::pin::pin!(self.room_notify.notified());
            changed.as_mut().enable();
            if self.waiting() < self.pause_above {
                return;
            }
            changed.await;
        }
    }

    /// Drives `making`, which produces an answer or a part of one, only while there is room for its
    /// output.
    pub async fn while_room<T>(&self, making: impl Future<Output = T>) -> T {
        let mut making = pin!(making);
        let mut room = None;
        poll_fn(|cx| {
            if room.is_some() || self.waiting() >= self.pause_above {
                let waited = room.get_or_insert_with(|| Box::pin(self.wait_for_room()));
                ready!(waited.as_mut().poll(cx));
                room = None;
            }
            making.as_mut().poll(cx)
        })
        .await
    }

    /// Counts bytes of an answer until they are sent. `None` if too many bytes wait already.
    pub(super) fn try_count(self: &Arc<Self>, bytes: usize) -> Option<Arc<WaitingBytes>> {
        let permits = self
            .byte_permits
            .clone()
            .try_acquire_many_owned(self.permits_for(bytes))
            .ok()?;
        Some(self.share(bytes, permits))
    }

    /// Counts bytes of an answer as soon as enough of the waiting bytes are sent, in the order of
    /// calls.
    pub(super) async fn count_in_turn(self: Arc<Self>, bytes: usize) -> Option<Arc<WaitingBytes>> {
        // The semaphore is never closed.
        let permits = self
            .byte_permits
            .clone()
            .acquire_many_owned(self.permits_for(bytes))
            .await
            .ok()?;
        Some(self.share(bytes, permits))
    }

    /// The permits for so many bytes. An answer above the limit takes all permits, and so waits
    /// alone.
    fn permits_for(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.waiting_limit)).unwrap_or(u32::MAX)
    }

    fn share(self: &Arc<Self>, bytes: usize, permits: OwnedSemaphorePermit) -> Arc<WaitingBytes> {
        self.waiting.fetch_add(bytes, Ordering::AcqRel);
        Arc::new(WaitingBytes {
            flow: self.clone(),
            bytes,
            _permits: permits,
        })
    }

    /// Bytes of answers sent so far.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// The bytes granted so far, if answers wait and the connection's window is used up. A growing
    /// number shows that the client is alive.
    pub(super) fn exhausted_grant(&self) -> Option<u64> {
        let windows = self.windows.lock();
        (self.waiting() > 0 && windows.connection <= 0).then_some(windows.granted)
    }

    pub(super) fn add_moved(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn moved_bytes(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// True once the client sent too many frames without data.
    pub(super) fn is_flooded(&self) -> bool {
        self.flooded.load(Ordering::Acquire)
    }

    /// The window of a stream that is answered from now on.
    pub(super) fn open_window(self: &Arc<Self>, stream: u32) -> StreamWindow {
        let mut windows = self.windows.lock();
        let granted = windows
            .early
            .iter()
            .filter(|(of, _)| *of == stream)
            .map(|(_, bytes)| bytes)
            .sum();
        // Streams are answered in the order of their arrival: earlier streams without a window will
        // never be answered.
        windows.early.retain(|(of, _)| *of > stream);
        windows.streams.insert(stream, granted);
        StreamWindow {
            flow: self.clone(),
            stream,
            sent: 0,
        }
    }

    pub(super) fn received(&self, seen: FramePiece) {
        match seen {
            FramePiece::Head(head) => self.charge_idle_frame(&head),
            FramePiece::Setting(INITIAL_WINDOW_SIZE, bytes) => {
                self.windows.lock().initial = i64::from(bytes)
            }
            FramePiece::Setting(..) => {}
            FramePiece::Window(0, bytes) => {
                let mut windows = self.windows.lock();
                windows.connection += i64::from(bytes);
                windows.granted += u64::from(bytes);
            }
            FramePiece::Window(stream, bytes) => {
                let mut windows = self.windows.lock();
                if let Some(granted) = windows.streams.get_mut(&stream) {
                    *granted += i64::from(bytes);
                    return;
                }
                if windows.early.len() == MAX_EARLY_GRANTS {
                    windows.early.pop_front();
                }
                windows.early.push_back((stream, i64::from(bytes)));
            }
        }
    }

    pub(super) fn sent(&self, seen: FramePiece) {
        let FramePiece::Head(head) = seen else { return };
        if !matches!(head.kind, DATA | HEADERS) {
            return;
        }
        let mut windows = self.windows.lock();
        windows.idle_frames.add(IDLE_FRAMES_AN_ANSWER);
        if head.kind == DATA {
            self.answered
                .fetch_add(head.length as u64, Ordering::Relaxed);
            windows.connection -= i64::try_from(head.length).unwrap_or(i64::MAX);
        }
    }

    /// Charges for a frame without data.
    fn charge_idle_frame(&self, head: &FrameHead) {
        // The library bounds small frames among those.
        if !self.is_flood_limited
            || head.kind == DATA && (head.length > 0 || head.flags & END_STREAM != 0)
        {
            return;
        }
        if !self
            .windows
            .lock()
            .idle_frames
            .take(1, Instant::now().into_std())
        {
            self.flooded.store(true, Ordering::Release);
        }
    }
}

/// Waiting bytes of an answer; they count until their last part is dropped.
#[derive(Debug)]
pub(super) struct WaitingBytes {
    flow: Arc<Http2Flow>,
    bytes: usize,
    _permits: OwnedSemaphorePermit,
}

impl Drop for WaitingBytes {
    fn drop(&mut self) {
        let before = self.flow.waiting.fetch_sub(self.bytes, Ordering::AcqRel);
        let pause_above = self.flow.pause_above;
        if before >= pause_above && before - self.bytes < pause_above {
            self.flow.room_notify.notify_waiters();
        }
    }
}

/// A part of an answer on its way into the socket.
#[derive(Debug)]
pub(super) struct CountedChunk {
    bytes: Bytes,
    _share: Option<Arc<WaitingBytes>>,
}

impl CountedChunk {
    pub(super) fn new(bytes: Bytes, share: Arc<WaitingBytes>) -> Self {
        Self {
            bytes,
            _share: Some(share),
        }
    }

    /// An empty part: the end of a stream.
    pub(super) fn empty() -> Self {
        Self {
            bytes: Bytes::new(),
            _share: None,
        }
    }
}

impl Buf for CountedChunk {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

/// The window of one stream.
#[derive(Debug)]
pub(super) struct StreamWindow {
    flow: Arc<Http2Flow>,
    stream: u32,
    sent: i64,
}

impl StreamWindow {
    /// Records bytes that were handed to the connection.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += i64::try_from(bytes).unwrap_or(i64::MAX);
    }

    /// True if the stream's own window is used up, independent of the connection's.
    pub(super) fn is_exhausted(&self) -> bool {
        let windows = self.flow.windows.lock();
        windows.initial + windows.streams.get(&self.stream).copied().unwrap_or(0) <= self.sent
    }
}

impl Drop for StreamWindow {
    fn drop(&mut self) {
        self.flow.windows.lock().streams.remove(&self.stream);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::Duration;

    use super::*;

    fn head(kind: u8, flags: u8, length: usize) -> FramePiece {
        FramePiece::Head(FrameHead {
            length,
            padding: 0,
            kind,
            flags,
            stream: 1,
        })
    }

    // Proves A10.
    #[tokio::test(start_paused = true)]
    async fn idle_frames_are_a_flood_and_those_of_a_busy_client_are_not() {
        let flow = Http2Flow::new(&H2Limits::default());
        for _ in 0..1000 {
            flow.received(head(6, 0, 8));
        }
        assert!(!flow.is_flooded());
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..100 {
            flow.received(head(4, 0, 0));
        }
        assert!(!flow.is_flooded(), "a second brings a hundred more");
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..10_000 {
            // A call: its head and body arrive, its answer is sent, and two windows grow.
            flow.received(head(HEADERS, 4, 50));
            flow.received(head(DATA, 1, 100));
            flow.sent(head(HEADERS, 4, 10));
            flow.sent(head(DATA, 1, 100));
            flow.received(head(8, 0, 4));
            flow.received(head(8, 0, 4));
        }
        assert!(!flow.is_flooded());
        for _ in 0..1001 {
            flow.received(head(DATA, 0, 0));
        }
        assert!(flow.is_flooded());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_frames_of_a_replica_are_no_flood() {
        let flow = Http2Flow::new(&H2Limits {
            is_flood_limited: false,
            ..H2Limits::default()
        });
        for _ in 0..20_000 {
            flow.received(head(6, 0, 8));
        }
        assert!(!flow.is_flooded());
    }

    // Proves A12.
    #[tokio::test]
    async fn waiting_bytes_count_until_their_last_part_is_sent() {
        let limits = H2Limits::default();
        let (most, pause) = (limits.waiting_bytes, limits.pause_bytes);
        let flow = Http2Flow::new(&limits);
        let whole = flow.try_count(pause).unwrap();
        let part = CountedChunk::new(Bytes::from_static(b"part"), whole.clone());
        drop(whole);
        assert_eq!(flow.waiting(), pause);
        let waiting = flow.clone();
        let room = tokio::spawn(async move { waiting.wait_for_room().await });
        tokio::task::yield_now().await;
        assert!(!room.is_finished());
        drop(part);
        room.await.unwrap();
        let first = flow.try_count(most + 1).unwrap();
        assert!(
            flow.try_count(1).is_none(),
            "beyond the bound only what is alone is held"
        );
        let mut turns = [most, 1].map(|bytes| Box::pin(flow.clone().count_in_turn(bytes)));
        for turn in &mut turns {
            assert!(futures_util::poll!(turn).is_pending());
        }
        drop(first);
        assert_eq!(flow.waiting(), 0);
        let [second, mut third] = turns;
        let second = second.await.unwrap();
        assert!(
            futures_util::poll!(&mut third).is_pending(),
            "one after the other"
        );
        drop(second);
        drop(third.await.unwrap());
        assert_eq!(flow.waiting(), 0);
    }

    // Proves A12.
    #[tokio::test]
    async fn stream_window_counts_grants_before_its_answer() {
        let flow = Http2Flow::new(&H2Limits::default());
        flow.received(FramePiece::Setting(INITIAL_WINDOW_SIZE, 0));
        flow.received(FramePiece::Window(3, 5));
        let (first, mut second) = (flow.open_window(1), flow.open_window(3));
        assert!(first.is_exhausted());
        assert!(!second.is_exhausted());
        second.sent(5);
        assert!(second.is_exhausted());
        flow.received(FramePiece::Window(3, 1));
        assert!(!second.is_exhausted());
        assert_eq!(
            flow.exhausted_grant(),
            None,
            "the connection has its first window"
        );
        flow.sent(head(DATA, 0, 65_535));
        assert_eq!(flow.exhausted_grant(), None, "nothing waits");
        let _share = flow.try_count(1).unwrap();
        assert_eq!(flow.exhausted_grant(), Some(0));
        flow.received(FramePiece::Window(0, 1));
        assert_eq!(flow.exhausted_grant(), None);
    }
}
