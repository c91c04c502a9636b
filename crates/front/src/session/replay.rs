//! Resumable streams of legacy calls: a client that lost its connection can resume one. Each event
//! has an id and is kept for a while, and the call goes on without its reader (transports,
//! "Resumability and Redelivery").
//!
//! This module sees events as written bytes, not messages. Comments are not replayed.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::FutureExt as _;
use http::HeaderMap;
use http_body::Frame;
use opentelemetry::KeyValue;
use tokio::sync::watch;
use tokio_util::sync::WaitForCancellationFutureOwned;
use weir_core::port::{BoxFuture, LOST_ANSWER, ReplayLog, ReplayedEvents, StoreError, StreamKey};
use weir_core::telemetry::instruments;
use weir_layers::request::request_context::HttpRequestContext;
use weir_layers::settings::FrontSettings;
use weir_layers::state::FrontState;
use weir_listen::OtherProcess;
use weir_session::{
    DetachLimits, LoadedSession, NoDetachPermit, StreamKind, StreamPermit, StreamReaderGuard,
};
use weir_wire::sse;

use crate::keep_alive::{self, KeepAlive};
use crate::reply::encode::response_context::{RecordedAnswer, ResponseContext};
use crate::reply::encode::unknown_result::{LostAnswer, UnknownResult};

/// The largest event that is kept. A larger answer to a call is kept as an error that states this.
const MAX_EVENT_BYTES: usize = 512 << 10;

/// Records the events of a stream in the replay log.
pub(crate) struct ReplayRecorder {
    shared: Arc<FrontState>,
    settings: Arc<FrontSettings>,
    key: StreamKey,
    /// The number of the current or last event.
    seq: u64,
    /// The event so far; absent if it is too large to keep.
    event: Option<BytesMut>,
    /// True between two events.
    between: bool,
    /// The messages that are kept in place of a lost answer.
    unknown: UnknownResult,
    /// True once the stream has ended by itself: with its answer, or without one after a
    /// cancellation.
    has_ended: bool,
    /// The cause, if the answer is lost while the replica runs.
    lost_with: LostAnswer,
    /// Bytes to write before the stream.
    first: Option<Bytes>,
}

impl ReplayRecorder {
    /// Begins the record of the answer to a request, in its session; `None` if the log keeps no
    /// record.
    pub(crate) fn begin_recording(log: RecordedAnswer, context: &ResponseContext) -> Option<Self> {
        let shared = &context.route.shared;
        let mut stream = [0; 8];
        shared.ports.random.fill(&mut stream);
        let key = StreamKey {
            session: log.session,
            stream: u64::from_ne_bytes(stream),
        };
        let unknown = context.unknown_result();
        let lost_answer = || {
            let id = event_id(key.stream, LOST_ANSWER);
            event_of(&id, &unknown.message(LostAnswer::WithReplica))
        };
        if !shared.ports.replays.begin(key, &lost_answer) {
            return None;
        }
        let mut recorder = Self {
            shared: shared.clone(),
            settings: context.route.settings.clone(),
            key,
            seq: 0,
            event: None,
            between: true,
            unknown,
            has_ended: false,
            lost_with: LostAnswer::WithConnection,
            first: None,
        };
        if log.from_start {
            // A client that has only an id so far can resume the whole stream.
            let mut out = BytesMut::new();
            recorder.seq = 1;
            sse::write_event(
                &mut out,
                Some(&recorder.id()),
                Some(context.limits().call_retry(&*shared.ports.random)),
                b"",
            );
            recorder.first = Some(out.freeze());
        }
        Some(recorder)
    }

    /// The stream, with ids.
    pub(crate) fn record_stream<B>(self, stream: B) -> RecordedStream<B>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    {
        let (replaced, hold) = self.shared.sessions.register_reader(self.key);
        let replaced = Box::pin(replaced.cancelled_owned());
        RecordedStream {
            running: Some((stream, self)),
            replaced,
            _hold: hold,
        }
    }

    fn id(&self) -> String {
        event_id(self.key.stream, self.seq)
    }

    /// Takes a chunk of the stream; returns the bytes to write.
    fn record_chunk(&mut self, piece: Bytes) -> Bytes {
        if self.between && piece.starts_with(b":") {
            return piece;
        }
        let begins = std::mem::replace(&mut self.between, piece.ends_with(b"\n\n"));
        let whole = begins && self.between;
        let piece = if begins {
            self.seq += 1;
            let id = self.id();
            let mut out = BytesMut::with_capacity(piece.len() + id.len() + 8);
            out.put_slice(format!("id: {id}\n").as_bytes());
            out.put_slice(&piece);
            self.event = Some(BytesMut::new());
            out.freeze()
        } else {
            piece
        };
        if whole {
            self.event = None;
            self.shared
                .ports
                .replays
                .append(self.key, self.seq, piece.clone());
            return piece;
        }
        self.event = self
            .event
            .take()
            .filter(|event| event.len() + piece.len() <= MAX_EVENT_BYTES);
        if let Some(event) = &mut self.event {
            event.put_slice(&piece);
        }
        if self.between {
            let event = self
                .event
                .take()
                .map_or_else(|| self.lost_event(LostAnswer::TooLarge), BytesMut::freeze);
            self.shared.ports.replays.append(self.key, self.seq, event);
        }
        piece
    }

    /// Notes the end of the stream: without an error it has ended by itself.
    fn note_end<T, E>(&mut self, end: &Option<Result<T, E>>) {
        self.has_ended = end.is_none();
    }

    /// The current event, with the message in place of a lost answer.
    fn lost_event(&self, lost: LostAnswer) -> Bytes {
        event_of(&self.id(), &self.unknown.message(lost))
    }
}

impl Drop for ReplayRecorder {
    fn drop(&mut self) {
        let replays = &self.shared.ports.replays;
        if !self.has_ended {
            self.seq += 1;
            let lost = if self.shared.shutdown.force().is_cancelled() {
                LostAnswer::WithReplica
            } else {
                self.lost_with
            };
            replays.append(self.key, self.seq, self.lost_event(lost));
        }
        replays.end(self.key);
    }
}

/// A stream that is recorded while it is read. Without its reader it runs on, within limits.
pub(crate) struct RecordedStream<B>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
{
    running: Option<(B, ReplayRecorder)>,
    /// Fires when another reader takes over.
    replaced: Pin<Box<WaitForCancellationFutureOwned>>,
    _hold: StreamReaderGuard,
}

impl<B> http_body::Body for RecordedStream<B>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Task<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        if this.replaced.as_mut().poll(cx).is_ready() {
            this.detach();
            return Poll::Ready(None);
        }
        let Some((stream, recorder)) = &mut this.running else {
            return Poll::Ready(None);
        };
        if let Some(first) = recorder.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let frame = std::task::ready!(Pin::new(stream).poll_frame(cx));
        match frame {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(
                frame.map_data(|piece| recorder.record_chunk(piece))
            ))),
            end => {
                recorder.note_end(&end);
                this.running = None;
                Poll::Ready(end)
            }
        }
    }
}

impl<B> RecordedStream<B>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
{
    /// Runs the stream to its end without a reader, and records its events.
    fn detach(&mut self) {
        let Some((mut stream, mut recorder)) = self.running.take() else {
            return;
        };
        let (shared, limits) = (recorder.shared.clone(), &recorder.settings.limits);
        let most = DetachLimits::of(&limits.session);
        let permit = match shared.sessions.detach(recorder.key.session, most) {
            Ok(permit) => permit,
            Err(NoDetachPermit::TooMany) => return,
            Err(NoDetachPermit::SessionGone) => {
                recorder.lost_with = LostAnswer::WithSession;
                return;
            }
        };
        let running = async move {
            let _permit = permit;
            let ended = loop {
                match std::future::poll_fn(|cx| Pin::new(&mut stream).poll_frame(cx)).await {
                    Some(Ok(frame)) => {
                        if let Ok(piece) = frame.into_data() {
                            recorder.record_chunk(piece);
                        }
                    }
                    end => break end,
                }
            };
            recorder.note_end(&ended);
        };
        // The drain waits for this task. A cancellation, the session's end and the deadline end the
        // stream itself.
        shared.shutdown.spawn_until_force(running);
    }
}

impl<B> Drop for RecordedStream<B>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
{
    fn drop(&mut self) {
        self.detach();
    }
}

/// The outcome of a GET request's `Last-Event-ID`.
pub(crate) enum Resumption {
    /// The rest of the stream.
    Resumed(Box<ResumedStream>),
    /// The stream has no further events, or its events are not kept.
    Ended,
    /// The stream may have begun in the process after this one, which has the session.
    InSuccessor,
    /// The request resumes no stream: it opens one of its own, with this permit.
    None(StreamPermit),
}

/// Resumes this session's stream that `Last-Event-ID` names. A name in another form than weir's
/// resumes none.
///
/// A client whose call ended without an answer, because it cancelled it, asks for the rest again
/// and again. A standing stream in its place would end the standing stream that the client has, and
/// the client would open that one again, without end.
pub(crate) async fn resume(
    context: &HttpRequestContext,
    session: &LoadedSession,
    headers: &HeaderMap,
    permit: StreamPermit,
) -> Resumption {
    let Some(given) = headers.get("last-event-id") else {
        return Resumption::None(permit);
    };
    let count = |result| {
        instruments()
            .resumes
            .add(1, &[KeyValue::new("result", result)]);
    };
    let Some((stream, seq)) = given.to_str().ok().and_then(parse_event_id) else {
        count("unknown");
        return Resumption::None(permit);
    };
    let key = StreamKey {
        session: session.key,
        stream,
    };
    let replays = &context.ports().replays;
    let (moves, result) = match replays.watch_events(key) {
        Some(moves) => (Some(moves), "replayed"),
        None if replays.recover(key).await => (replays.watch_events(key), "recovered"),
        None => (None, "unknown"),
    };
    let Some(moves) = moves else {
        let has_moved = context.shared().sessions.has_moved();
        if has_moved && context.other_process(OtherProcess::Successor).is_some() {
            return Resumption::InSuccessor;
        }
        count(result);
        return Resumption::Ended;
    };
    let found = replays.events_after(key, seq).await;
    if matches!(&found, Ok(Some(replay)) if replay.is_ended && replay.events.is_empty()) {
        count("ended");
        return Resumption::Ended;
    }
    count(result);
    let point = ReplayPoint { key, seq, moves };
    let keep_alive = KeepAlive::new(
        context,
        &session.record_key.principal,
        headers,
        StreamKind::Resumed,
    )
    .of_session(context, session);
    let resumed = ResumedStream::new(context, keep_alive, point, permit, found);
    Resumption::Resumed(Box::new(resumed))
}

/// An event with this id and message.
fn event_of(id: &str, message: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    sse::write_event(&mut out, Some(id), None, message);
    out.freeze()
}

/// The id of an event of a stream.
fn event_id(stream: u64, seq: u64) -> String {
    format!("{stream:016x}-{seq}")
}

/// The stream and number of an event id.
fn parse_event_id(id: &str) -> Option<(u64, u64)> {
    let (stream, seq) = id.split_once('-')?;
    let is_hex = stream.len() == 16
        && stream
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_number = !seq.is_empty() && seq.bytes().all(|byte| byte.is_ascii_digit());
    (is_hex && is_number).then_some(())?;
    Some((u64::from_str_radix(stream, 16).ok()?, seq.parse().ok()?))
}

/// The event after which a stream is resumed.
struct ReplayPoint {
    key: StreamKey,
    /// The number of the event.
    seq: u64,
    /// Changes with each new event of the stream.
    moves: watch::Receiver<u64>,
}

/// A resumed stream, read from the replay log.
pub(crate) struct ResumedStream {
    replays: Arc<dyn ReplayLog>,
    key: StreamKey,
    seq: u64,
    ready: std::collections::VecDeque<Bytes>,
    asking: Option<BoxFuture<'static, Result<Option<ReplayedEvents>, StoreError>>>,
    moved: BoxFuture<'static, watch::Receiver<u64>>,
    over: bool,
    ends: [Pin<Box<WaitForCancellationFutureOwned>>; 2],
    keep_alive: KeepAlive,
    _hold: StreamReaderGuard,
    _permit: StreamPermit,
}

impl ResumedStream {
    fn new(
        context: &HttpRequestContext,
        keep_alive: KeepAlive,
        ReplayPoint { key, seq, moves }: ReplayPoint,
        permit: StreamPermit,
        found: Result<Option<ReplayedEvents>, StoreError>,
    ) -> Self {
        let (replaced, hold) = context.shared().sessions.register_reader(key);
        // The drain waits for the call itself; then its record has an end.
        let ends = [context.shared().shutdown.force(), &replaced]
            .map(|token| Box::pin(token.clone().cancelled_owned()));
        let mut resumed = Self {
            replays: context.ports().replays.clone(),
            key,
            seq,
            ready: [keep_alive::comment()].into(),
            asking: None,
            moved: Box::pin(wait_for_change(moves)),
            over: false,
            ends,
            keep_alive,
            _hold: hold,
            _permit: permit,
        };
        resumed.take_events(found);
        resumed
    }

    fn fetch_events(&mut self) {
        let (replays, key, seq) = (self.replays.clone(), self.key, self.seq);
        self.asking = Some(Box::pin(
            async move { replays.events_after(key, seq).await },
        ));
    }

    /// Takes recorded events; true if there were events or an end.
    fn take_events(&mut self, found: Result<Option<ReplayedEvents>, StoreError>) -> bool {
        // An unknown record has ended.
        let Ok(Some(replay)) = found else {
            self.over = true;
            return true;
        };
        self.over = replay.is_ended;
        self.seq = replay.events.last().map_or(self.seq, |(seq, _)| *seq);
        self.ready
            .extend(replay.events.into_iter().map(|(_, event)| event));
        self.over || !self.ready.is_empty()
    }

    /// Polls for more events; true if there are some, or an end.
    fn poll_more(&mut self, cx: &mut Task<'_>) -> bool {
        loop {
            if let Some(asking) = &mut self.asking {
                let Poll::Ready(found) = asking.poll_unpin(cx) else {
                    return false;
                };
                self.asking = None;
                if self.take_events(found) {
                    return true;
                }
            }
            let Poll::Ready(moves) = self.moved.as_mut().poll(cx) else {
                return false;
            };
            self.moved = Box::pin(wait_for_change(moves));
            self.fetch_events();
        }
    }
}

/// Waits for the next change of the record. A dropped record counts as a change.
async fn wait_for_change(mut moves: watch::Receiver<u64>) -> watch::Receiver<u64> {
    let _gone = moves.changed().await;
    moves
}

impl http_body::Body for ResumedStream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Task<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(event))));
            }
            if this.over
                || this.keep_alive.is_expired()
                || this
                    .ends
                    .iter_mut()
                    .any(|end| end.as_mut().poll(cx).is_ready())
            {
                return Poll::Ready(None);
            }
            if this.poll_more(cx) {
                continue;
            }
            std::task::ready!(this.keep_alive.poll_due(cx));
            this.ready.push_back(keep_alive::comment());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves D06.
    #[test]
    fn only_canonical_event_ids_are_parsed() {
        assert_eq!(parse_event_id("00000000000000ff-12"), Some((255, 12)));
        for bad in [
            "",
            "-",
            "ff-1",
            "00000000000000FF-1",
            "00000000000000ff-",
            "00000000000000ff--1",
            "00000000000000ff-+1",
        ] {
            assert_eq!(parse_event_id(bad), None, "{bad}");
        }
        assert_eq!(
            parse_event_id("00000000000000ff-99999999999999999999"),
            None
        );
    }
}
