//! Reading a request's body within its limits of size, time and pace.

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

use crate::answer::Refusal;
use crate::body::{Broken, RequestBody};
use crate::settings::Limits;

/// What is still read of a request that was refused: so that its connection serves the next one, or, where it is closed, so
/// that the answer is not lost to a reset (faults A05, A09).
pub(crate) const SWALLOWED_BYTES: usize = 64 << 10;
pub(crate) const SWALLOWED_TIME: Duration = Duration::from_secs(1);

/// The whole body, which nobody took before.
///
/// # Errors
/// 413 beyond the size, 408 beyond the time or below the pace, 400 where the client broke off. Each closes the
/// connection: what is left of the body must not be read as a request.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: &mut Option<RequestBody>,
    limits: &Limits,
) -> Result<Bytes, Refusal> {
    declared(headers, limits.body_bytes)?;
    let Some(mut body) = body.take() else { return Ok(Bytes::new()) };
    let began = Instant::now();
    let end = began + limits.body_time;
    let mut whole: Option<Bytes> = None;
    let mut joined = BytesMut::new();
    loop {
        let frame = match in_time(&mut body, end.min(pace_end(began, held(whole.as_ref(), &joined), limits))).await {
            Err(_) => return Err(closing(StatusCode::REQUEST_TIMEOUT, "body_timeout", "the body came too slowly")),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(closing(StatusCode::BAD_REQUEST, "body", "the body ended early")),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        if held(whole.as_ref(), &joined) + data.len() > limits.body_bytes {
            return Err(too_large());
        }
        // The usual body is one frame and is not copied.
        if whole.is_none() && joined.is_empty() {
            whole = Some(data);
        } else {
            if let Some(first) = whole.take() {
                joined.extend_from_slice(&first);
            }
            joined.extend_from_slice(&data);
        }
        // Where the length is known, the end needs no further look.
        if body.is_end_stream() {
            break;
        }
    }
    Ok(whole.unwrap_or_else(|| joined.freeze()))
}

/// Reads the body of a refused request away; false where it is too large or comes too slowly for that.
///
/// A client that waits for `100 Continue` is told to go on with a body as small as this.
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

/// The next frame, if it comes in time. What came along with the head is there as soon as the connection has been asked for
/// it, so the timer is set only where the second look finds nothing either.
async fn in_time(body: &mut RequestBody, until: Instant) -> Result<Option<Result<Frame<Bytes>, Broken>>, Elapsed> {
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

/// Judges a body by the length its head declares.
///
/// # Errors
/// 413 beyond the size. Closes the connection.
pub(crate) fn declared(headers: &HeaderMap, most: usize) -> Result<(), Refusal> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > most as u64) { Err(too_large()) } else { Ok(()) }
}

fn held(whole: Option<&Bytes>, joined: &BytesMut) -> usize {
    whole.map_or(joined.len(), Bytes::len)
}

/// By when the next byte has to be there for the body to keep its pace.
fn pace_end(began: Instant, held: usize, limits: &Limits) -> Instant {
    let paid = held as u64 / limits.body_rate.max(1);
    began + limits.body_rate_grace + Duration::from_secs(paid)
}

fn too_large() -> Refusal {
    closing(StatusCode::PAYLOAD_TOO_LARGE, "body_size", "the body is larger than this service takes")
}

fn closing(status: StatusCode, reason: &'static str, text: &'static str) -> Refusal {
    Refusal::new(status, reason, text).with(header::CONNECTION, "close")
}
