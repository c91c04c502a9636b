//! The sockets of a mock server: accepting, one task for each connection, and the choice of the
//! era.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use weir_wire::{Revision, meta};

use crate::accept::accept;
use crate::emitted_messages;
use crate::mock_server::breakable_stream::{BreakableStream, ResetSwitch};
use crate::mock_server::mock_call::MockCall;
use crate::mock_server::mock_response::{MockBody, empty};
use crate::mock_server::player::play;
use crate::mock_server::recorded_request::RecordedRequest;
use crate::mock_server::state::MockState;
use crate::mock_server::{legacy, modern};
use crate::schemas::MessageSender;

/// The path of the MCP endpoint.
pub(super) const PATH: &str = "/mcp";
/// The largest request a mock server reads.
const MAX_BODY: usize = 64 << 20;

/// Accepts for ever. Dropping the future closes every connection.
pub(super) async fn serve(listener: TcpListener, shared: Arc<MockState>) {
    accept(listener, |stream| connection(stream, Arc::clone(&shared))).await;
}

async fn connection(stream: TcpStream, shared: Arc<MockState>) {
    let opened = ConnectionCountGuard::new(Arc::clone(&shared));
    // Without this a reset would overtake bytes written before it.
    let _ = stream.set_nodelay(true);
    let (number, switch) = (opened.number, ResetSwitch::new());
    let io = TokioIo::new(BreakableStream::new(stream, switch.clone()));
    let (http2, streams) = (shared.settings.http2, shared.settings.http2_streams);
    let service = service_fn(move |request| {
        let (shared, switch) = (Arc::clone(&shared), switch.clone());
        async move { Ok::<_, Infallible>(answer(&shared, request, number, &switch).await) }
    });
    // An error of a connection shows at the client.
    if http2 {
        let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        if streams.is_some() {
            server.max_concurrent_streams(streams);
        }
        drop(server.serve_connection(io, service).await);
    } else {
        drop(
            hyper::server::conn::http1::Builder::new()
                .half_close(false)
                .serve_connection(io, service)
                .await,
        );
    }
}

async fn answer(
    shared: &Arc<MockState>,
    request: Request<Incoming>,
    connection: u64,
    switch: &ResetSwitch,
) -> Response<MockBody> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
        return empty(StatusCode::BAD_REQUEST);
    };
    let body = body.to_bytes();
    let message = serde_json::from_slice(&body).unwrap_or_default();
    let path = head
        .uri
        .path_and_query()
        .map_or_else(String::new, ToString::to_string);
    let request = RecordedRequest {
        verb: head.method,
        path,
        headers: head.headers,
        body,
        message,
        connection,
    };
    record_request(shared, &request);
    shared.change(|inner| inner.requests.push(request.clone()));
    if let Some(answer) = shared.lock().authorization.answer(&request) {
        return answer;
    }
    let is_modern = is_modern(shared, &request);
    if let Some(behaviour) = shared.rule(&request) {
        let revision = if is_modern {
            Revision::MODERN
        } else {
            shared.settings.legacy.unwrap_or(Revision::NEWEST_LEGACY)
        };
        let call = MockCall {
            tool: None,
            ..MockCall::of(&request, revision)
        };
        return play(shared, behaviour, call, switch).await;
    }
    if is_modern {
        modern::answer(shared, &request, switch).await
    } else {
        legacy::answer(shared, &request, switch).await
    }
}

/// Records weir's message, in the revision that it spoke.
fn record_request(shared: &MockState, request: &RecordedRequest) {
    let inner = shared.lock();
    let asked = request.message["id"]
        .as_str()
        .and_then(|id| inner.pending_requests.get(id));
    let answered = asked.map(|(method, _)| method.as_str()).unwrap_or_default();
    let of_session = request
        .session()
        .and_then(|id| inner.sessions.get(id))
        .map(|session| session.revision);
    let named = [
        &request.meta()[meta::PROTOCOL_VERSION],
        &request.message["params"]["protocolVersion"],
    ];
    let named = named
        .into_iter()
        .find_map(|version| Revision::parse(version.as_str()?));
    // A session from before a restart is not known any more.
    let of_head = || {
        request
            .header("mcp-protocol-version")
            .and_then(Revision::parse)
    };
    // A request without any revision is of an old one: a modern request names it twice.
    let old = shared.settings.legacy.unwrap_or(Revision::NEWEST_LEGACY);
    let revision = named.or(of_session).or_else(of_head).unwrap_or(old);
    // Requests of other paths are not MCP.
    if request.path == PATH && request.message.is_object() {
        emitted_messages::record_message(
            MessageSender::Client,
            revision,
            answered,
            &request.message,
        );
    }
}

fn is_modern(shared: &MockState, request: &RecordedRequest) -> bool {
    let claims = request.meta().get(meta::PROTOCOL_VERSION).is_some()
        || request
            .header("mcp-protocol-version")
            .and_then(Revision::parse)
            .is_some_and(Revision::is_modern);
    shared.settings.modern && (claims || shared.settings.legacy.is_none())
}

/// Counts a connection while it is open.
struct ConnectionCountGuard {
    shared: Arc<MockState>,
    number: u64,
}

impl ConnectionCountGuard {
    fn new(shared: Arc<MockState>) -> Self {
        let number = shared.change(|inner| {
            inner.connections += 1;
            inner.open_connections += 1;
            inner.connections
        });
        Self { shared, number }
    }
}

impl Drop for ConnectionCountGuard {
    fn drop(&mut self) {
        self.shared.change(|inner| inner.open_connections -= 1);
    }
}
