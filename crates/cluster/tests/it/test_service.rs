//! A service that shows the requests that it gets.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use weir_core::port::ReplicaId;
use weir_listen::{
    BodyError, ClientPeer, ConnectionActivity, IncomingRequest, ListenerLimits, RequestService,
    ServedBody, answered_by_header, not_owner_header,
};

use crate::test_replica::OTHER;

/// The other end of a streamed answer.
pub(crate) type AnswerSender = mpsc::Sender<Result<Bytes, BodyError>>;

/// The owner that `/not-owner` names.
pub(crate) const OWNER: ReplicaId = ReplicaId(*b"theowner");

/// The requests that came, and the answers in the making.
#[derive(Clone)]
pub(crate) struct TestService {
    limits: ListenerLimits,
    /// Requests so far.
    pub(crate) served: Arc<watch::Sender<usize>>,
    /// Requests of `/hang` that are neither answered nor cancelled.
    pub(crate) hanging: Arc<watch::Sender<usize>>,
    /// The connections of requests, each once.
    connections: Arc<Mutex<Vec<Arc<ConnectionActivity>>>>,
    streams: mpsc::Sender<AnswerSender>,
}

impl TestService {
    pub(crate) fn new() -> (Self, mpsc::Receiver<AnswerSender>) {
        let (streams, opened) = mpsc::channel(1000);
        let service = Self {
            limits: ListenerLimits::default(),
            served: Arc::new(watch::Sender::new(0)),
            hanging: Arc::new(watch::Sender::new(0)),
            connections: Arc::default(),
            streams,
        };
        (service, opened)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.lock().len()
    }

    fn note(&self, peer: &ClientPeer) {
        self.served.send_modify(|served| *served += 1);
        let mut connections = self.connections.lock();
        if !connections
            .iter()
            .any(|seen| Arc::ptr_eq(seen, &peer.activity))
        {
            connections.push(peer.activity.clone());
        }
    }
}

impl RequestService for TestService {
    type Body = TestBody;
    type Future = Pin<Box<dyn Future<Output = Result<Response<TestBody>, Infallible>> + Send>>;

    fn serve(&self, incoming: IncomingRequest) -> Self::Future {
        self.note(&incoming.peer);
        let service = self.clone();
        Box::pin(async move { Ok(answer(service, incoming).await) })
    }

    fn limits(&self) -> &ListenerLimits {
        &self.limits
    }
}

async fn answer(
    service: TestService,
    IncomingRequest { request, peer }: IncomingRequest,
) -> Response<TestBody> {
    let (sender, receiver) = mpsc::channel(16);
    let mut answer = Response::new(TestBody(receiver));
    match request.uri().path() {
        "/stream" => service.streams.send(sender).await.unwrap(),
        "/not-owner" => {
            let (name, value) = not_owner_header(&OWNER).unwrap();
            answer.headers_mut().insert(name, value);
        }
        "/replaced" => {
            let headers = [not_owner_header(&OTHER), answered_by_header(&OWNER)];
            answer.headers_mut().extend(headers.into_iter().flatten());
        }
        "/owned-elsewhere" => {
            let headers = [not_owner_header(&OWNER), answered_by_header(&OTHER)];
            answer.headers_mut().extend(headers.into_iter().flatten());
        }
        "/hang" => {
            let _hanging = Hanging::begin(service.hanging.clone());
            std::future::pending::<()>().await;
        }
        _ => {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let text = format!(
                "{} {}\n{:?}\npeer {} {} {:?} {:?}\n",
                head.method,
                head.uri,
                head.headers,
                peer.address,
                peer.secure,
                peer.certificate,
                peer.forwarded_by
                    .map(|forwarding| (forwarding.id, forwarding.request))
            );
            answer
                .headers_mut()
                .insert("x-answer", "1".parse().unwrap());
            sender.send(Ok(text.into())).await.unwrap();
            sender.send(Ok(body)).await.unwrap();
        }
    }
    answer
}

struct Hanging(Arc<watch::Sender<usize>>);

impl Hanging {
    fn begin(count: Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// The body of an answer, from a channel.
pub(crate) struct TestBody(mpsc::Receiver<Result<Bytes, BodyError>>);

impl http_body::Body for TestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.0
            .poll_recv(cx)
            .map(|part| part.map(|part| part.map(Frame::data)))
    }
}

impl ServedBody for TestBody {
    fn until(&self) -> Option<Instant> {
        None
    }
}
