//! The answers to replicas that announce lists: this one knows the announcement, and has the lists.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderMap, HeaderName, Request, Response};
use http_body::{Body, Frame};
use weir_core::port::{Fut, ListAnnouncements};
use weir_listen::{BodyError, ForwardedBody, ReplicaStreams, RequestBody};

/// The header of a stream that asks for a confirmation: the version of the announcement.
pub(crate) const LIST_VERSION_HEADER: HeaderName = HeaderName::from_static("weir-list-version");

/// This replica knows the announcement: requests of its clients wait for the lists.
pub(crate) const KNOWN: u8 = b'k';
/// This replica has the lists.
pub(crate) const FOLLOWED: u8 = b'f';
/// A client of this replica may have got an older list.
pub(crate) const OLDER_LIST: u8 = b'o';

/// The lists of this replica.
pub trait ListFollower: Send + Sync {
    /// Takes the announcements that are known now: from then on, requests wait for the lists.
    fn learn_announced(&self);

    /// Waits until the lists have followed the announcements, for a limited time. True if a client may
    /// have got an older list since.
    fn follow_announced(&self) -> Fut<'_, bool>;
}

/// Answers the streams of replicas that announce lists, and hands on all others.
pub struct ListStreams {
    announcements: Arc<dyn ListAnnouncements>,
    lists: Arc<dyn ListFollower>,
    others: Arc<dyn ReplicaStreams>,
}

impl ListStreams {
    /// Answers by these lists and announcements; `others` answers streams of other kinds.
    #[must_use]
    pub fn new(
        announcements: Arc<dyn ListAnnouncements>,
        lists: Arc<dyn ListFollower>,
        others: Arc<dyn ReplicaStreams>,
    ) -> Self {
        Self {
            announcements,
            lists,
            others,
        }
    }

    /// The bytes of the answer. They do not end: the other replica drops the stream.
    fn answers(self: Arc<Self>, version: u64) -> impl Stream<Item = u8> + Send {
        let all = self.clone();
        let known = async move {
            self.announcements.wait_until_known(version).await;
            self.lists.learn_announced();
            KNOWN
        };
        let followed = async move {
            if all.lists.follow_announced().await {
                OLDER_LIST
            } else {
                FOLLOWED
            }
        };
        let answers = stream::once(known).chain(stream::once(followed));
        answers.chain(stream::pending())
    }
}

impl ReplicaStreams for ListStreams {
    fn serve(self: Arc<Self>, request: Request<RequestBody>) -> Response<ForwardedBody> {
        let Some(version) = read_version(request.headers()) else {
            return self.others.clone().serve(request);
        };
        Response::new(Box::pin(AnswerBytes {
            _request: request.into_body(),
            bytes: self.answers(version).boxed(),
        }))
    }
}

fn read_version(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(LIST_VERSION_HEADER)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

impl fmt::Debug for ListStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListStreams").finish_non_exhaustive()
    }
}

/// An answer, a byte at a time.
struct AnswerBytes {
    /// Dropped with the answer: a request that is dropped earlier resets the stream.
    _request: RequestBody,
    bytes: Pin<Box<dyn Stream<Item = u8> + Send>>,
}

impl Body for AnswerBytes {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let byte = ready!(self.bytes.as_mut().poll_next(cx));
        Poll::Ready(byte.map(|byte| Ok(Frame::data(Bytes::copy_from_slice(&[byte])))))
    }
}
