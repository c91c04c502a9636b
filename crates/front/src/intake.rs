//! Reads a request's body within its limits of size, time and pace.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, Limited};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};
use weir_core::budget::ByteReservation;

use crate::answer::Refusal;
use crate::body::{Broken, RequestBody};
use crate::settings::Limits;

/// The part of a refused request's body that is still read: so that its connection serves the next
/// request, or, if it is closed, so that the answer is not lost to a reset (A05, A09). A connection
/// that is closed discards more of a body that is not too large.
pub(crate) const SWALLOWED_BYTES: usize = 64 << 10;
pub(crate) const SWALLOWED_TIME: Duration = Duration::from_secs(1);

/// The bytes of a body that need no reservation: a connection reads as much at once anyway.
const FREE: usize = 8 << 10;
/// The longest wait of a body for memory in use by others.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reads the whole body, unless it was read before. A large body holds a reservation of `memory`
/// until its last part is dropped.
///
/// # Errors
/// 413 beyond the size, 408 beyond the time or below the pace, 400 if the client broke off, 503 if
/// other bodies hold all the memory. Each closes the connection: the rest of the body must not be
/// read as a request.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: &mut Option<RequestBody>,
    limits: &Limits,
    memory: ByteReservation,
) -> Result<Bytes, Refusal> {
    let length = declared(headers, limits.body_bytes)?;
    let Some(mut body) = body.take() else {
        return Ok(Bytes::new());
    };
    let mut share = Share::new(memory, length).await?;
    let began = Instant::now();
    let end = began + limits.body_time;
    let mut whole: Option<Bytes> = None;
    let mut joined = BytesMut::new();
    loop {
        let frame = match in_time(
            &mut body,
            end.min(pace_end(began, held(whole.as_ref(), &joined), limits)),
        )
        .await
        {
            Err(_) => {
                return Err(closing(
                    StatusCode::REQUEST_TIMEOUT,
                    "body_timeout",
                    "the body came too slowly",
                ));
            }
            Ok(None) => break,
            Ok(Some(Err(_))) => {
                return Err(closing(
                    StatusCode::BAD_REQUEST,
                    "body",
                    "the body ended early",
                ));
            }
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let size = held(whole.as_ref(), &joined) + data.len();
        if size > limits.body_bytes {
            return Err(too_large());
        }
        share.cover(size).await?;
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
struct Share {
    taken: ByteReservation,
    bytes: usize,
}

impl Share {
    /// A share for a body of this length, if it is known.
    async fn new(taken: ByteReservation, length: Option<usize>) -> Result<Self, Refusal> {
        let mut share = Self { taken, bytes: FREE };
        if let Some(length) = length {
            share.take(length).await?;
        }
        Ok(share)
    }

    /// Grows the share for a body of this size: without a known length, its buffer doubles as it
    /// grows.
    async fn cover(&mut self, size: usize) -> Result<(), Refusal> {
        if size <= self.bytes {
            Ok(())
        } else {
            self.take(size * 2).await
        }
    }

    async fn take(&mut self, bytes: usize) -> Result<(), Refusal> {
        if bytes <= self.bytes {
            return Ok(());
        }
        if bytes > self.taken.most() {
            return Err(too_large());
        }
        if !self.taken.grow(bytes - self.taken.bytes(), PATIENCE).await {
            let text = "other requests have all the memory for bodies: try again in a second";
            return Err(closing(StatusCode::SERVICE_UNAVAILABLE, "memory", text)
                .with(header::RETRY_AFTER, "1"));
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
pub(crate) async fn swallow(body: RequestBody) -> bool {
    if body.size_hint().lower() > SWALLOWED_BYTES as u64 {
        return false;
    }
    let mut body = Limited::new(body, SWALLOWED_BYTES);
    let all = async {
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return false;
            }
        }
        true
    };
    timeout(SWALLOWED_TIME, all).await.unwrap_or(false)
}

/// The next frame, if it comes in time. Bytes that came with the head are ready once the connection
/// was polled for them, so the timer is set only if the second poll is pending too.
async fn in_time(
    body: &mut RequestBody,
    until: Instant,
) -> Result<Option<Result<Frame<Bytes>, Broken>>, Elapsed> {
    let mut asked = false;
    let at_hand = poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
        Poll::Ready(frame) => Poll::Ready(Some(frame)),
        Poll::Pending if std::mem::replace(&mut asked, true) => Poll::Ready(None),
        Poll::Pending => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    });
    match at_hand.await {
        Some(frame) => Ok(frame),
        None => timeout_at(until, body.frame()).await,
    }
}

/// Checks a body by the length in its head, and returns that length.
///
/// # Errors
/// 413 beyond the size. Closes the connection.
pub(crate) fn declared(headers: &HeaderMap, most: usize) -> Result<Option<usize>, Refusal> {
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    match length.map(usize::try_from) {
        None => Ok(None),
        Some(Ok(length)) if length <= most => Ok(Some(length)),
        Some(_) => Err(too_large()),
    }
}

fn held(whole: Option<&Bytes>, joined: &BytesMut) -> usize {
    whole.map_or(joined.len(), Bytes::len)
}

/// The latest time of the next byte for the body to keep its pace.
fn pace_end(began: Instant, held: usize, limits: &Limits) -> Instant {
    let paid = held as u64 / limits.body_rate.max(1);
    began + limits.body_rate_grace + Duration::from_secs(paid)
}

fn too_large() -> Refusal {
    closing(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body_size",
        "the body is larger than this service takes",
    )
}

fn closing(status: StatusCode, reason: &'static str, text: &'static str) -> Refusal {
    Refusal::new(status, reason, text).with(header::CONNECTION, "close")
}
