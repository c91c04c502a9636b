//! The answers to replicas that announce lists: this one knows the announcement, and has the lists.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderMap, HeaderName, Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use weir_core::port::{BoxFuture, ListAnnouncements};
use weir_listen::{ForwardedBody, ReplicaStreams, RequestBody};

/// The header of a stream that asks for a confirmation: the version of the announcement.
pub(crate) const LIST_VERSION_HEADER: HeaderName = HeaderName::from_static("weir-list-version");

/// This replica knows the announcement: requests of its clients wait for the lists.
pub(crate) const KNOWN: u8 = b'k';
/// This replica has the lists.
pub(crate) const FOLLOWED: u8 = b'f';
/// A client of this replica may have got an older list.
pub(crate) const OLDER_LIST: u8 = b'o';

/// The lists of this replica.
pub trait ListFollower: std::fmt::Debug + Send + Sync {
    /// Takes the announcements that are known now: from then on, requests wait for the lists.
    fn learn_announced(&self);

    /// Waits until the lists have followed the announcements, for a limited time. True if a client may
    /// have got an older list since.
    fn follow_announced(&self) -> BoxFuture<'_, bool>;
}

/// Answers the streams of replicas that announce lists, and hands on all others.
#[derive(Debug)]
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
        // Dropped with the answer: a request that is dropped earlier resets the stream.
        let request = request.into_body();
        let frames = self.answers(version).map(move |byte| {
            let _held = &request;
            Ok(Frame::data(Bytes::copy_from_slice(&[byte])))
        });
        Response::new(Box::pin(StreamBody::new(frames)))
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
