//! A replica with a public and a cluster listener, and one that forwards to it.

use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use weir_cluster::{ClusterSecret, ClusterTls, PeerDialer, PeerForwarder};
use weir_core::Budgets;
use weir_core::call::RequestName;
use weir_core::port::{BoxFuture, ReplicaDirectory, ReplicaId, ReplicaSeen};
use weir_listen::{
    ForwardError, ForwardedBody, ForwardedClient, ForwardedRequest, ForwardedRequests,
    ForwardedSender, ListenerState, ReplicaStreams, ReplicaStreamsSlot, RequestBody,
    RequestForwarder as _,
};
use weir_testkit::accept::listen_on_loopback;

use crate::test_service::{AnswerSender, TestService};

/// The replica that owns the sessions.
pub(crate) const OTHER: ReplicaId = ReplicaId(*b"replica2");
/// The replica that forwards.
pub(crate) const OWN: ReplicaId = ReplicaId(*b"replica1");

/// The TLS of keys that are named by their ids; those of one id are equal.
pub(crate) fn tls(ids: &[u8]) -> ClusterTls {
    let secrets: Vec<_> = ids
        .iter()
        .map(|id| ClusterSecret {
            id: *id,
            secret: [*id; 32],
        })
        .collect();
    ClusterTls::new(&secrets).unwrap()
}

/// The replica that owns the sessions.
pub(crate) struct TestReplica {
    pub(crate) address: SocketAddr,
    pub(crate) service: TestService,
    pub(crate) streams: mpsc::Receiver<AnswerSender>,
    pub(crate) budgets: Budgets,
    pub(crate) public: Arc<ListenerState<TestService>>,
    pub(crate) cluster: Arc<ListenerState<ForwardedRequests<TestService>>>,
}

impl TestReplica {
    pub(crate) async fn start(keys: &[u8]) -> Self {
        let (service, streams) = TestService::new();
        let budgets = Budgets::default();
        let public = ListenerState::new(
            service.clone(),
            budgets.clone(),
            CancellationToken::new(),
            None,
        )
        .unwrap();
        let cluster = ListenerState::new(
            ForwardedRequests::new(public.clone()).with_streams(streams_slot()),
            budgets.clone(),
            CancellationToken::new(),
            None,
        )
        .unwrap();
        cluster.use_server_config(tls(keys).server);
        let (listener, address) = listen_on_loopback().await;
        cluster.start(listener);
        Self {
            address,
            service,
            streams,
            budgets,
            public,
            cluster,
        }
    }

    pub(crate) fn forwarder(&self, keys: &[u8]) -> TestForwarder {
        TestForwarder::new(self.address, keys)
    }
}

/// The answerer of streams of other replicas: each ends at once.
#[derive(Debug)]
struct EndedStreams;

impl ReplicaStreams for EndedStreams {
    fn serve(self: Arc<Self>, _request: Request<RequestBody>) -> Response<ForwardedBody> {
        let body = Empty::new().map_err(|never| match never {});
        Response::new(Box::pin(body))
    }
}

fn streams_slot() -> ReplicaStreamsSlot {
    let slot = ReplicaStreamsSlot::default();
    let _empty_before = slot.set(Arc::new(EndedStreams));
    slot
}

/// A directory of one other replica.
#[derive(Debug)]
pub(crate) struct TestDirectory {
    address: Mutex<Option<Arc<str>>>,
    pub(crate) unreachable: watch::Sender<usize>,
}

impl TestDirectory {
    fn of(address: SocketAddr) -> Arc<Self> {
        Arc::new(Self {
            address: Mutex::new(Some(address.to_string().into())),
            unreachable: watch::Sender::new(0),
        })
    }
}

impl ReplicaDirectory for TestDirectory {
    fn own(&self) -> &ReplicaId {
        &OWN
    }

    fn address(&self, replica: &ReplicaId) -> Option<Arc<str>> {
        assert_eq!(*replica, OTHER);
        self.address.lock().clone()
    }

    fn may_answer(&self, replica: &ReplicaId) -> bool {
        self.address(replica).is_some()
    }

    fn find_address<'a>(&'a self, replica: &'a ReplicaId) -> BoxFuture<'a, Option<Arc<str>>> {
        Box::pin(ready(self.address(replica)))
    }

    fn report_unreachable(&self, replica: &ReplicaId) {
        assert_eq!(*replica, OTHER);
        self.unreachable.send_modify(|reports| *reports += 1);
    }

    fn replicas(&self) -> Vec<ReplicaSeen> {
        Vec::new()
    }
}

/// The forwarder of the replica that has the clients.
#[derive(Clone)]
pub(crate) struct TestForwarder {
    pub(crate) forwarder: Arc<PeerForwarder>,
    pub(crate) directory: Arc<TestDirectory>,
}

impl TestForwarder {
    pub(crate) fn new(address: SocketAddr, keys: &[u8]) -> Self {
        let directory = TestDirectory::of(address);
        let forwarder = PeerForwarder::new(directory.clone(), tls(keys), Budgets::default());
        Self {
            forwarder: Arc::new(forwarder),
            directory,
        }
    }

    /// A forwarder with the key 1, over connections of this dialer.
    pub(crate) fn over(dialer: Arc<dyn PeerDialer>, address: SocketAddr, budgets: Budgets) -> Self {
        let directory = TestDirectory::of(address);
        let forwarder = PeerForwarder::over(dialer, directory.clone(), tls(&[1]), budgets);
        Self {
            forwarder: Arc::new(forwarder),
            directory,
        }
    }

    pub(crate) fn end_replica(&self) {
        *self.directory.address.lock() = None;
    }

    pub(crate) fn unreachable(&self) -> usize {
        *self.directory.unreachable.borrow()
    }

    pub(crate) async fn send(
        &self,
        request: Request<Bytes>,
    ) -> Result<Response<ForwardedBody>, ForwardError> {
        let (head, body) = request.into_parts();
        let client = ForwardedClient {
            forwarded_by: OWN,
            request: RequestName::from_bits(7),
            address: "192.0.2.7".parse().unwrap(),
            secure: true,
            certificate: Some(Arc::from(&b"der"[..])),
        };
        let request = ForwardedRequest {
            sender: ForwardedSender::Client,
            head,
            body,
            client,
        };
        self.forwarder.forward(&OTHER, request).await
    }

    /// Sends a POST to a path.
    pub(crate) async fn post(
        &self,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Response<ForwardedBody>, ForwardError> {
        let request = Request::post(path)
            .header("host", "weir.example")
            .body(body.into())
            .unwrap();
        self.send(request).await
    }
}

/// The whole text of an answer.
pub(crate) async fn text(answer: Response<ForwardedBody>) -> String {
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}
