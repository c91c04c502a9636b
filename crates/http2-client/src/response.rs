//! The response of one HTTP/2 request.
//!
//! Its reader takes what the library has received for it. If the reader is slow and the server
//! sends small frames, the connection takes those instead and joins their bytes: the library ends a
//! connection on which too many small frames are unread, with all its requests.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::Response;
use http::response::Parts;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::inbound_traffic::InboundTraffic;

/// The responses of one connection that have readers.
#[derive(Debug)]
pub struct OpenResponses {
    by_stream: Mutex<HashMap<u32, SharedReceiver>>,
    traffic: Arc<InboundTraffic>,
}

type SharedReceiver = Arc<Mutex<ResponseReceiver>>;

impl OpenResponses {
    /// Makes the record of a connection without requests.
    pub(crate) fn new(traffic: Arc<InboundTraffic>) -> Self {
        Self {
            by_stream: Mutex::default(),
            traffic,
        }
    }

    /// Adds the response of a request that was just sent. A `turn` is held as long as the response.
    pub fn add(
        self: &Arc<Self>,
        response: ResponseFuture,
        turn: Option<OwnedSemaphorePermit>,
    ) -> Http2Response {
        let stream = response.stream_id().as_u32();
        let receiver = Arc::new(Mutex::new(ResponseReceiver::new(response)));
        self.by_stream.lock().insert(stream, receiver.clone());
        Http2Response {
            receiver,
            stream,
            open: self.clone(),
            _turn: turn,
        }
    }

    /// Takes all frames that the library holds for the readers, if there are many small ones. The
    /// windows stay as they are, so they bound the bytes.
    pub(crate) fn gather(&self) {
        if !self.traffic.is_to_gather() {
            return;
        }
        for receiver in self.by_stream.lock().values() {
            receiver.lock().gather(&self.traffic);
        }
        self.traffic.gathered();
    }

    /// Notes that the connection's window becomes larger.
    pub(crate) fn set_window(&self, window: u32) {
        self.traffic.set_window(window);
    }

    /// True if slow readers hold much of the connection's window: they could stop the other requests
    /// of the connection, which is to get no further one.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.traffic.is_crowded()
    }

    /// Returns what the server has left of the connection's window.
    #[must_use]
    pub fn window_left(&self) -> i64 {
        self.traffic.window_left()
    }

    /// True if the connection comes near to the empty or small frames that the library accepts.
    #[must_use]
    pub fn is_worn(&self) -> bool {
        self.traffic.is_worn()
    }

    /// Returns the time of the last bytes of the server.
    #[must_use]
    pub fn last_read(&self) -> Instant {
        self.traffic.last_read()
    }

    /// True if the connection has no request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_stream.lock().is_empty()
    }
}

/// The response of one request. Dropping it before its end resets the stream.
#[derive(Debug)]
pub struct Http2Response {
    receiver: SharedReceiver,
    stream: u32,
    open: Arc<OpenResponses>,
    /// The permit for one of the streams that the server allows.
    _turn: Option<OwnedSemaphorePermit>,
}

impl Http2Response {
    /// Waits for the head. Cancel safe.
    ///
    /// # Errors
    /// The stream or the connection failed.
    pub async fn head(&mut self) -> Result<Parts, h2::Error> {
        poll_fn(|cx| self.poll_head(cx)).await
    }

    /// Polls for the head.
    ///
    /// # Errors
    /// As [`Self::head`].
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Parts, h2::Error>> {
        self.receiver.lock().poll_head(cx)
    }

    /// Polls for the next bytes of the body; absent at its end. Bytes that are returned open the
    /// flow-control windows again.
    ///
    /// # Errors
    /// As [`Self::head`].
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        self.receiver.lock().poll_data(cx, &self.open.traffic)
    }

    /// True if the whole body was taken.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.receiver.lock().is_taken()
    }
}

impl Drop for Http2Response {
    fn drop(&mut self) {
        self.open.by_stream.lock().remove(&self.stream);
    }
}

#[derive(Debug)]
struct ResponseReceiver {
    source: ResponseSource,
    /// The head, if the connection took it.
    head: Option<Parts>,
    /// The bytes of the body that the connection took.
    gathered: BytesMut,
    /// The failure after them.
    failure: Option<h2::Error>,
    /// True once the library has no more for the response.
    is_ended: bool,
    /// The task that waits for more.
    reader: Option<Waker>,
}

#[derive(Debug)]
enum ResponseSource {
    Head(ResponseFuture),
    Body(RecvStream),
}

impl ResponseReceiver {
    fn new(response: ResponseFuture) -> Self {
        Self {
            source: ResponseSource::Head(response),
            head: None,
            gathered: BytesMut::new(),
            failure: None,
            is_ended: false,
            reader: None,
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Parts, h2::Error>> {
        if let Some(head) = self.head.take() {
            return Poll::Ready(Ok(head));
        }
        if let Some(failure) = self.failure.take() {
            return Poll::Ready(Err(failure));
        }
        self.wait_as(cx);
        self.receive_head(cx)
    }

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        traffic: &InboundTraffic,
    ) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let data = if self.gathered.is_empty() {
            if let Some(failure) = self.failure.take() {
                return Poll::Ready(Some(Err(failure)));
            }
            self.wait_as(cx);
            match ready!(self.receive_data(cx, traffic)) {
                Some(Ok(data)) => data,
                end => return Poll::Ready(end),
            }
        } else {
            self.gathered.split().freeze()
        };
        if let ResponseSource::Body(body) = &mut self.source {
            // It fails only for more bytes than were received.
            let _ = body.flow_control().release_capacity(data.len());
        }
        Poll::Ready(Some(Ok(data)))
    }

    /// Notes the task that is woken by what comes next, also if the connection polls meanwhile.
    fn wait_as(&mut self, cx: &Context<'_>) {
        match &mut self.reader {
            Some(reader) => reader.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    fn receive_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Parts, h2::Error>> {
        let ResponseSource::Head(response) = &mut self.source else {
            return Poll::Pending;
        };
        if self.is_ended {
            return Poll::Pending;
        }
        match ready!(Pin::new(response).poll(cx)) {
            Ok(response) => {
                let (head, body) = Response::into_parts(response);
                self.source = ResponseSource::Body(body);
                Poll::Ready(Ok(head))
            }
            Err(error) => {
                self.is_ended = true;
                Poll::Ready(Err(error))
            }
        }
    }

    /// Polls for the next frame of the body. Trailers are skipped.
    fn receive_data(
        &mut self,
        cx: &mut Context<'_>,
        traffic: &InboundTraffic,
    ) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let ResponseSource::Body(body) = &mut self.source else {
            return Poll::Pending;
        };
        if self.is_ended {
            return Poll::Ready(None);
        }
        let next = ready!(body.poll_data(cx));
        if let Some(Ok(data)) = next {
            traffic.taken(data.len());
            return Poll::Ready(Some(Ok(data)));
        }
        self.is_ended = true;
        // A server that does not want the rest of the request ends its response so (RFC 9113, 8.1).
        Poll::Ready(next.filter(|next| {
            next.as_ref()
                .is_err_and(|error| error.reason() != Some(Reason::NO_ERROR))
        }))
    }

    fn gather(&mut self, traffic: &InboundTraffic) {
        let waker = self.reader.clone();
        let mut cx = Context::from_waker(waker.as_ref().unwrap_or(Waker::noop()));
        match self.receive_head(&mut cx) {
            Poll::Ready(Ok(head)) => self.head = Some(head),
            Poll::Ready(Err(error)) => self.failure = Some(error),
            Poll::Pending => {}
        }
        while !self.is_ended {
            match self.receive_data(&mut cx, traffic) {
                Poll::Ready(Some(Ok(data))) => self.gathered.extend_from_slice(&data),
                Poll::Ready(Some(Err(error))) => self.failure = Some(error),
                Poll::Ready(None) | Poll::Pending => return,
            }
        }
    }

    fn is_taken(&self) -> bool {
        let is_ended = match &self.source {
            ResponseSource::Head(_) => false,
            ResponseSource::Body(body) => self.is_ended || body.is_end_stream(),
        };
        is_ended && self.gathered.is_empty() && self.failure.is_none()
    }
}
