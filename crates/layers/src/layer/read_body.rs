//! Reads the body of a POST within its limits of size, time and pace.
//!
//! A request whose body has not come gives its in-flight permit back until the body is whole. So
//! clients that send heads alone take no permits from the others.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, Limited};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};
use tower::Layer;
use weir_core::budget::ByteReservation;
use weir_listen::{BodyError, DISCARD_TIME, DISCARDED_BYTES, RequestBody};

use crate::failure::RequestResult;
use crate::failure::request_refusal::RequestRefusal;
use crate::http::head_guard::declared_length;
use crate::layer::answer_request::AnswerRequest;
use crate::request::endpoint_request::{AuthenticatedRequest, CompleteRequest};
use crate::request::request_context::HttpRequestContext;
use crate::settings::FrontLimits;

/// The bytes of a body that need no reservation: a connection reads as much at once anyway.
const UNRESERVED_BODY_BYTES: usize = 8 << 10;
/// The longest wait of a body for memory in use by others.
const BODY_MEMORY_WAIT: Duration = Duration::from_secs(1);

/// The layer.
#[derive(Debug, Clone, Copy)]
pub struct ReadBodyLayer;

impl<S> Layer<S> for ReadBodyLayer {
    type Service = ReadBody<S>;

    fn layer(&self, inner: S) -> ReadBody<S> {
        ReadBody(inner)
    }
}

/// A service that takes whole requests.
#[derive(Debug, Clone)]
pub struct ReadBody<S>(S);

impl<S: AnswerRequest<CompleteRequest>> AnswerRequest<AuthenticatedRequest> for ReadBody<S> {
    async fn answer(self, authenticated: AuthenticatedRequest) -> RequestResult {
        let body = match authenticated.request.head.method {
            Method::POST => read_body(&authenticated).await?,
            _ => Bytes::new(),
        };
        let complete = CompleteRequest {
            authenticated,
            body,
        };
        self.0.answer(complete).await
    }
}

/// Reads the whole body of a request, and counts it.
///
/// # Errors
/// See [`read_within_limits`]. 503 if a body that was waited for finds no in-flight permit.
pub async fn read_body(
    AuthenticatedRequest { request, sender }: &AuthenticatedRequest,
) -> Result<Bytes, RequestRefusal> {
    let context = &request.context;
    let mut has_waited = false;
    let body = read_within_limits(
        &request.head.headers,
        context.facts.take_body(),
        context.limits(),
        context.bodies(sender),
        || {
            has_waited = true;
            drop(context.facts.take_permit());
        },
    )
    .await?;
    context.route.meters.count_received(body.len());
    if has_waited {
        // On the heap: most bodies are at hand.
        Box::pin(take_permit_again(context)).await?;
    }
    Ok(body)
}

async fn take_permit_again(context: &HttpRequestContext) -> Result<(), RequestRefusal> {
    let limits = context.limits();
    let in_flight = &context.shared().outer.in_flight;
    let permit = in_flight
        .acquire(limits.in_flight, limits.in_flight_wait)
        .await
        .ok_or(RequestRefusal::Overloaded)?;
    context.facts.hold_permit(permit);
    Ok(())
}

/// Reads the whole body, unless it was read before. A large body holds a reservation of `memory`
/// until its last part is dropped. Calls `on_wait` before each wait for the client.
///
/// # Errors
/// 413 beyond the size, 408 beyond the time or below the pace, 400 if the client broke off, 503 if
/// other bodies hold all the memory. Each closes the connection: the rest of the body must not be
/// read as a request.
async fn read_within_limits(
    headers: &HeaderMap,
    body: Option<RequestBody>,
    limits: &FrontLimits,
    memory: ByteReservation,
    mut on_wait: impl FnMut(),
) -> Result<Bytes, RequestRefusal> {
    let length = declared_length(headers, limits.listener.body_bytes)?;
    let Some(mut body) = body else {
        return Ok(Bytes::new());
    };
    let mut share = BodyMemory::new(memory, length).await?;
    // Set with the first wait, so that a body at hand costs no reading of the clock.
    let mut began = None;
    let mut whole: Option<Bytes> = None;
    let mut joined = BytesMut::new();
    loop {
        let deadline = || {
            on_wait();
            let began = *began.get_or_insert_with(Instant::now);
            let received = received_bytes(whole.as_ref(), &joined);
            (began + limits.body_time).min(pace_deadline(began, received, limits))
        };
        let frame = match next_frame(&mut body, deadline).await {
            Err(_) => {
                return Err(RequestRefusal::BodyTooSlow);
            }
            Ok(None) => break,
            Ok(Some(Err(_))) => {
                return Err(RequestRefusal::BodyBrokenOff);
            }
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let size = received_bytes(whole.as_ref(), &joined) + data.len();
        if size > limits.listener.body_bytes {
            return Err(RequestRefusal::BodyTooLarge);
        }
        share.cover_size(size).await?;
        // The usual body is one frame and is not copied.
        if whole.is_none() && joined.is_empty() {
            whole = Some(data);
        } else {
            if let Some(first) = whole.take() {
                // Reserves the whole known length, and no more.
                joined.reserve(length.unwrap_or_default().max(size));
                joined.extend_from_slice(&first);
            }
            joined.extend_from_slice(&data);
        }
        // With a known length, the end needs no further read.
        if body.is_end_stream() {
            break;
        }
    }
    Ok(share.hold(whole.unwrap_or_else(|| joined.freeze())))
}

/// The share of one body in the memory of all bodies.
struct BodyMemory {
    taken: ByteReservation,
    bytes: usize,
}

impl BodyMemory {
    /// A share for a body of this length, if it is known.
    async fn new(taken: ByteReservation, length: Option<usize>) -> Result<Self, RequestRefusal> {
        let mut share = Self {
            taken,
            bytes: UNRESERVED_BODY_BYTES,
        };
        if let Some(length) = length {
            share.take(length).await?;
        }
        Ok(share)
    }

    /// Grows the share for a body of this size: without a known length, its buffer doubles as it
    /// grows.
    async fn cover_size(&mut self, size: usize) -> Result<(), RequestRefusal> {
        if size <= self.bytes {
            Ok(())
        } else {
            self.take(size * 2).await
        }
    }

    async fn take(&mut self, bytes: usize) -> Result<(), RequestRefusal> {
        if bytes <= self.bytes {
            return Ok(());
        }
        if bytes > self.taken.most() {
            return Err(RequestRefusal::BodyTooLarge);
        }
        if !self
            .taken
            .grow(bytes - self.taken.bytes(), BODY_MEMORY_WAIT)
            .await
        {
            return Err(RequestRefusal::NoMemoryForBody);
        }
        self.bytes = bytes;
        Ok(())
    }

    fn hold(mut self, body: Bytes) -> Bytes {
        self.taken.shrink(self.bytes.saturating_sub(body.len()));
        if self.taken.bytes() == 0 {
            body
        } else {
            self.taken.hold(body)
        }
    }
}

/// Reads and discards the body of a refused request; false if it is too large or too slow.
///
/// A client that waits for `100 Continue` gets it for a body as small as this.
pub(crate) async fn discard_body(body: RequestBody) -> bool {
    if body.size_hint().lower() > DISCARDED_BYTES as u64 {
        return false;
    }
    let mut body = Limited::new(body, DISCARDED_BYTES);
    let all = async {
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return false;
            }
        }
        true
    };
    timeout(DISCARD_TIME, all).await.unwrap_or(false)
}

/// The next frame, if it comes before the deadline. Bytes that came with the head are ready once the
/// connection was polled for them, so the deadline is asked for and the timer set only if the second
/// poll is pending too.
async fn next_frame(
    body: &mut RequestBody,
    deadline: impl FnOnce() -> Instant,
) -> Result<Option<Result<Frame<Bytes>, BodyError>>, Elapsed> {
    let mut was_pending = false;
    let at_hand = poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
        Poll::Ready(frame) => Poll::Ready(Some(frame)),
        Poll::Pending if std::mem::replace(&mut was_pending, true) => Poll::Ready(None),
        Poll::Pending => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    });
    match at_hand.await {
        Some(frame) => Ok(frame),
        None => timeout_at(deadline(), body.frame()).await,
    }
}

fn received_bytes(whole: Option<&Bytes>, joined: &BytesMut) -> usize {
    whole.map_or(joined.len(), Bytes::len)
}

/// The latest time of the next byte for the body to keep its pace.
fn pace_deadline(began: Instant, held: usize, limits: &FrontLimits) -> Instant {
    let paid = held as u64 / limits.body_rate.max(1);
    began + limits.body_rate_grace + Duration::from_secs(paid)
}
