//! A load balancer of HTTP/1.1 requests, and of HTTP/2 with prior knowledge: each request goes to
//! the next backend in turn, whichever connection it came over, in the version of HTTP that it came
//! in. Headers and bodies pass unchanged, and bodies pass as they come.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};

use weir_testkit::accept::accept;
use weir_testkit::owned_task::OwnedTask;

/// A running load balancer. Dropping it closes its connections.
#[derive(Debug)]
pub struct RoundRobinProxy {
    address: SocketAddr,
    backends: Arc<BackendRing>,
    _server: OwnedTask,
}

impl RoundRobinProxy {
    /// Starts a balancer in front of these backends, on a free loopback port.
    ///
    /// # Panics
    /// No loopback port is free.
    pub async fn start(backends: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), backends).await
    }

    /// Starts a balancer at this address.
    ///
    /// # Panics
    /// The address is in use.
    pub async fn start_at(
        address: SocketAddr,
        backends: impl IntoIterator<Item = SocketAddr>,
    ) -> Self {
        let listener = TcpListener::bind(address)
            .await
            .unwrap_or_else(|error| panic!("no port: {error}"));
        let address = listener
            .local_addr()
            .unwrap_or_else(|error| panic!("no address: {error}"));
        let ring = Arc::new(BackendRing::default());
        ring.0.lock().backends = backends.into_iter().collect();
        let shared = Arc::clone(&ring);
        let server = async move {
            accept(listener, |client| serve(client, Arc::clone(&shared))).await;
        };
        Self {
            address,
            backends: ring,
            _server: OwnedTask::spawn(server),
        }
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path behind the balancer.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sends new requests to these backends. Requests on their way stay with theirs.
    pub fn set_backends(&self, backends: impl IntoIterator<Item = SocketAddr>) {
        self.backends.0.lock().backends = backends.into_iter().collect();
    }

    /// Counts the requests that a backend was sent so far.
    #[must_use]
    pub fn requests_to(&self, backend: SocketAddr) -> usize {
        let state = self.backends.0.lock();
        state.requests.get(&backend).copied().unwrap_or_default()
    }

    /// Counts the requests that found no backend.
    #[must_use]
    pub fn refused_requests(&self) -> usize {
        self.backends.0.lock().refused
    }
}

/// The backends and the turn of the next one.
#[derive(Debug, Default)]
struct BackendRing(Mutex<BackendRingState>);

#[derive(Debug, Default)]
struct BackendRingState {
    backends: Vec<SocketAddr>,
    next: usize,
    requests: BTreeMap<SocketAddr, usize>,
    refused: usize,
}

impl BackendRing {
    /// Returns all backends, from the one whose turn it is.
    fn take_turn(&self) -> Vec<SocketAddr> {
        let mut state = self.0.lock();
        let mut turn = state.backends.clone();
        if !turn.is_empty() {
            turn.rotate_left(state.next % state.backends.len());
            state.next = (state.next + 1) % state.backends.len();
        }
        turn
    }

    /// Connects to the first backend that accepts, and counts a request to it.
    async fn connect(&self) -> io::Result<TcpStream> {
        let mut refusal = io::Error::from(io::ErrorKind::ConnectionRefused);
        for backend in self.take_turn() {
            match TcpStream::connect(backend).await {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    *self.0.lock().requests.entry(backend).or_default() += 1;
                    return Ok(stream);
                }
                // No byte of the request was sent, so another backend can get it.
                Err(error) => refusal = error,
            }
        }
        self.0.lock().refused += 1;
        Err(refusal)
    }
}

/// The beginning of a connection of HTTP/2, and of no request of HTTP/1.1 (RFC 9113, section 3.4).
const HTTP2_BEGINNING: &[u8] = b"PRI ";

async fn serve(client: TcpStream, backends: Arc<BackendRing>) {
    // An error of a connection shows at its peers.
    let _ = client.set_nodelay(true);
    let Ok(is_http2) = begins_http2(&client).await else {
        return;
    };
    let service = service_fn(move |request| {
        let backends = Arc::clone(&backends);
        async move { pass_on(request, is_http2, &backends).await }
    });
    let client = TokioIo::new(client);
    if is_http2 {
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        drop(server.serve_connection(client, service).await);
        return;
    }
    drop(
        hyper::server::conn::http1::Builder::new()
            // A client that closes its side has gone away: its request ends at the backend.
            .half_close(false)
            .serve_connection(client, service)
            .await,
    );
}

/// Looks at the first bytes of a connection and leaves them there.
async fn begins_http2(client: &TcpStream) -> io::Result<bool> {
    let mut first = [0; HTTP2_BEGINNING.len()];
    loop {
        let length = client.peek(&mut first).await?;
        let (seen, is_whole) = (&first[..length], length == first.len());
        if is_whole || length == 0 || !HTTP2_BEGINNING.starts_with(seen) {
            return Ok(seen == HTTP2_BEGINNING);
        }
        // A peek does not wait for more bytes than there are.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Sends a request over a new connection to a backend. An error closes the client's connection, or
/// resets its stream, without an answer, as the backend did.
async fn pass_on(
    request: Request<Incoming>,
    is_http2: bool,
    backends: &BackendRing,
) -> io::Result<Response<BackendBody>> {
    let stream = TokioIo::new(backends.connect().await?);
    if is_http2 {
        let opening = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream);
        let (mut sender, connection) = opening.await.map_err(io::Error::other)?;
        let connection = OwnedTask::spawn(async move {
            let _ = connection.await;
        });
        let answer = sender.send_request(request).await;
        return hold(answer, connection);
    }
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream)
        .await
        .map_err(io::Error::other)?;
    let connection = OwnedTask::spawn(async move {
        // An error shows in the answer.
        let _ = connection.await;
    });
    let answer = sender.send_request(request).await;
    hold(answer, connection)
}

/// Returns an answer that keeps its connection as long as its body lasts.
fn hold(
    answer: hyper::Result<Response<Incoming>>,
    connection: OwnedTask,
) -> io::Result<Response<BackendBody>> {
    let answer = answer.map_err(io::Error::other)?;
    Ok(answer.map(|body| BackendBody {
        body,
        _connection: connection,
    }))
}

/// The body of a backend's answer. Dropping it closes the connection to the backend.
#[derive(Debug)]
struct BackendBody {
    body: Incoming,
    _connection: OwnedTask,
}

impl Body for BackendBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use weir_wire::Revision;

    use super::*;
    use weir_testkit::mock_server::CallGate;
    use weir_testkit::{ClosedPort, MockBehaviour, MockServer, RawClient};

    async fn backends(count: usize, gate: &CallGate) -> Vec<MockServer> {
        let mut servers = Vec::new();
        for _ in 0..count {
            let server = MockServer::modern()
                .tool("echo", MockBehaviour::echo())
                .tool("gated", MockBehaviour::gated_after_progress(gate))
                .tool("huge", MockBehaviour::huge(3_000_000));
            servers.push(server.start().await);
        }
        servers
    }

    async fn proxy(servers: &[MockServer]) -> RoundRobinProxy {
        RoundRobinProxy::start(servers.iter().map(MockServer::address)).await
    }

    #[tokio::test]
    async fn requests_of_one_connection_go_to_all_backends_in_turn() {
        let servers = backends(3, &CallGate::new()).await;
        let proxy = proxy(&servers).await;
        let client = RawClient::new(&proxy.url("/mcp"))
            .modern()
            .with_header("x-own", "kept")
            .keeping_connections();
        for number in 0..6 {
            let answer = client.call("echo", json!({ "n": number })).await;
            let text = answer.expect("an answer").text().to_owned();
            assert_eq!(text, format!(r#"{{"n":{number}}}"#));
        }
        for server in &servers {
            assert_eq!(server.executions("echo"), 2);
            assert_eq!(proxy.requests_to(server.address()), 2);
            let request = &server.requests()[0];
            assert_eq!(request.header("x-own"), Some("kept"));
            let host = proxy.address().to_string();
            assert_eq!(request.header("host"), Some(host.as_str()), "unchanged");
        }
    }

    #[tokio::test]
    async fn requests_over_http2_stay_so_and_go_to_all_backends_in_turn() {
        let mut servers = Vec::new();
        for _ in 0..2 {
            let server = MockServer::modern().tool("echo", MockBehaviour::echo());
            servers.push(server.http2().start().await);
        }
        let proxy = proxy(&servers).await;
        let client = RawClient::new(&proxy.url("/mcp")).modern().with_http2();
        let client = client.keeping_connections();
        for number in 0..4 {
            let answer = client.call("echo", json!({ "n": number })).await;
            let text = answer.expect("an answer").text().to_owned();
            assert_eq!(text, format!(r#"{{"n":{number}}}"#));
        }
        for server in &servers {
            assert_eq!(server.executions("echo"), 2);
        }
    }

    #[tokio::test]
    async fn events_pass_before_the_answer_is_whole() {
        let gate = CallGate::new();
        let servers = backends(2, &gate).await;
        let proxy = proxy(&servers).await;
        let client = RawClient::new(&proxy.url("/mcp")).modern();
        let call = client.start_call("gated", json!({ "n": 1 }), json!("p"));
        let mut call = call.await.expect("a head");
        let first = call.next_message().await.expect("a stream");
        let first = first.expect("a message");
        assert_eq!(first["method"], "notifications/progress");
        gate.open();
        let last = call.finish().await.expect("an answer");
        assert_eq!(last.text(), r#"{"n":1}"#);
        let huge = client.call("huge", Value::Null).await.expect("an answer");
        assert!(huge.text().len() >= 3_000_000);
    }

    #[tokio::test]
    async fn request_of_a_client_that_goes_away_ends_at_the_backend() {
        let servers = backends(1, &CallGate::new()).await;
        let proxy = proxy(&servers).await;
        let client = RawClient::new(&proxy.url("/mcp")).modern();
        let call = client.start_call("gated", json!({}), json!("p"));
        drop(call.await.expect("a head"));
        servers[0]
            .wait_until("the call was given up", |server| {
                server.counts("gated").abandoned == 1
            })
            .await;
    }

    #[tokio::test]
    async fn request_without_an_answer_yet_ends_with_its_client() {
        let server = MockServer::legacy(Revision::NEWEST_LEGACY)
            .without_sessions()
            .tool("silent", MockBehaviour::hang());
        let server = server.start().await;
        let proxy = RoundRobinProxy::start([server.address()]).await;
        let client = RawClient::new(&proxy.url("/mcp"));
        let call = tokio::spawn(async move { client.call("silent", json!({})).await });
        server
            .wait_until("it runs", |server| server.executions("silent") == 1)
            .await;
        call.abort();
        server
            .wait_until("every connection is closed", |server| {
                server.open_connections() == 0
            })
            .await;
    }

    #[tokio::test]
    async fn backend_that_breaks_breaks_the_answer() {
        let mut servers = backends(1, &CallGate::new()).await;
        let proxy = proxy(&servers).await;
        let client = RawClient::new(&proxy.url("/mcp")).modern();
        let call = client.start_call("gated", json!({}), json!("p"));
        let mut call = call.await.expect("a head");
        call.next_message().await.expect("a stream");
        servers[0].stop().await;
        assert!(call.finish().await.is_err());
        // The only backend refuses connections now.
        assert!(client.call("echo", json!({})).await.is_err());
        assert_eq!(proxy.refused_requests(), 1);
    }

    #[tokio::test]
    async fn backends_that_refuse_are_left_out_and_can_be_replaced() {
        let servers = backends(2, &CallGate::new()).await;
        let closed = ClosedPort::new();
        let (one, other) = (servers[0].address(), servers[1].address());
        let proxy = RoundRobinProxy::start([closed.address(), one]).await;
        let client = RawClient::new(&proxy.url("/mcp")).modern();
        for number in 0..4 {
            let answer = client.call("echo", json!({ "n": number })).await;
            assert_eq!(answer.expect("an answer").status, 200);
        }
        assert_eq!(proxy.requests_to(one), 4);
        assert_eq!(proxy.requests_to(closed.address()), 0);
        proxy.set_backends([other]);
        let answer = client.call("echo", json!({})).await;
        assert_eq!(answer.expect("an answer").status, 200);
        assert_eq!(proxy.requests_to(other), 1);
        assert_eq!(proxy.refused_requests(), 0);
    }
}
