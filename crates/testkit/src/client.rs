//! A client of raw HTTP that speaks either era and has no logic of its own: no retry, no fallback,
//! no pooling. Tests see exactly the bytes of the server, and can send messages that no
//! well-behaved client would.

mod connection;
pub(crate) mod exchange;
mod header_text;
mod modern_envelope;
mod raw_socket;
mod sse_event;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri, header};
use http_body_util::Full;
use rustls::ClientConfig;
use serde_json::{Value, json};
use weir_wire::Revision;

pub use exchange::{ClientAnswer, HttpExchange};
pub use modern_envelope::ModernEnvelope;
pub use raw_socket::RawSocket;
pub use sse_event::SseEvent;

use connection::{ConnectionProtocols, KeptConnections};
use header_text::{append, insert};

use crate::message_recorder::MessageRecorder;
use crate::mock_server::authorization::CANARY;

/// A client of one endpoint. Clones share the request counter and the session.
///
/// Every request has a connection of its own, so dropping an [`HttpExchange`] is a client that goes
/// away in the middle; unless the client keeps its connections
/// ([`RawClient::keeping_connections`]).
#[derive(Clone, Debug)]
pub struct RawClient {
    url: Uri,
    dialect: ClientDialect,
    /// Headers that every request carries.
    headers: HeaderMap,
    protocols: ConnectionProtocols,
    kept: Option<KeptConnections>,
    ids: Arc<AtomicI64>,
    recorder: Option<MessageRecorder>,
}

/// The form of a client's requests.
#[derive(Clone, Debug)]
enum ClientDialect {
    /// Neither session nor `_meta`.
    Bare,
    Legacy {
        revision: Revision,
        session: Option<String>,
    },
    Modern(ModernEnvelope),
}

impl RawClient {
    /// A client that sends requests without additions.
    ///
    /// # Panics
    /// `url` is not an absolute `http` URL.
    pub fn new(url: &str) -> Self {
        let (headers, ids) = (HeaderMap::new(), Arc::new(AtomicI64::new(1)));
        Self {
            url: parse_url(url),
            dialect: ClientDialect::Bare,
            headers,
            protocols: ConnectionProtocols::default(),
            kept: None,
            ids,
            recorder: None,
        }
    }

    /// Sends further requests to another URL, with the same session, headers and request counter.
    ///
    /// # Panics
    /// `url` is not an absolute `http` URL.
    pub fn with_url(mut self, url: &str) -> Self {
        self.url = parse_url(url);
        self.kept = self
            .kept
            .map(|_| KeptConnections::new(self.protocols.http2));
        self
    }

    /// Speaks 2026-07-28: headers and `_meta` on every request.
    pub fn modern(self) -> Self {
        self.modern_with(ModernEnvelope::default())
    }

    /// Speaks 2026-07-28 with these capabilities, log level and client name.
    pub fn modern_with(mut self, modern: ModernEnvelope) -> Self {
        self.dialect = ClientDialect::Modern(modern);
        self
    }

    /// Speaks a legacy revision; [`RawClient::initialize`] opens the session.
    pub fn legacy(mut self, revision: Revision) -> Self {
        self.dialect = ClientDialect::Legacy {
            revision,
            session: None,
        };
        self
    }

    /// Adds a header to every request, such as a token or another `Host`.
    ///
    /// # Panics
    /// Name or value is not valid in a header.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        insert(&mut self.headers, name, value);
        self
    }

    /// Sends credentials that weir must keep to itself: a mock server that ever receives one fails
    /// its test.
    pub fn with_canary_credentials(self) -> Self {
        let named = |what: &str| format!("{CANARY}{what}-of-a-client");
        let token = format!("Bearer {}", named("token"));
        let cookie = format!("session={}", named("cookie"));
        self.with_header("authorization", &token)
            .with_header("cookie", &cookie)
            .with_header("x-own", &named("header"))
    }

    /// Speaks HTTP/2 with prior knowledge instead of HTTP/1.1.
    pub fn with_http2(mut self) -> Self {
        self.protocols.http2 = true;
        self
    }

    /// Opens each connection with TLS, and checks the certificate for the name `localhost`, whatever
    /// the URL. A client that keeps its connections has none.
    pub fn with_tls(mut self, config: Arc<ClientConfig>) -> Self {
        self.protocols.tls = Some(config.into());
        self
    }

    /// Keeps connections from one request to the next, in the protocol chosen so far.
    pub fn keeping_connections(mut self) -> Self {
        self.kept = Some(KeptConnections::new(self.protocols.http2));
        self
    }

    /// Records every message of every answer in `recorder` from now on.
    pub fn with_recorder(mut self, recorder: &MessageRecorder) -> Self {
        self.recorder = Some(recorder.clone());
        self
    }

    /// Sends `initialize` and `notifications/initialized` without client capabilities; the client
    /// then carries the session. Errors if the server refuses.
    pub async fn initialize(self) -> io::Result<Self> {
        Ok(self.initialize_with(json!({})).await?.0)
    }

    /// Opens the session with these client capabilities; also returns the server's answer.
    pub async fn initialize_with(
        mut self,
        capabilities: Value,
    ) -> io::Result<(Self, ClientAnswer)> {
        let ClientDialect::Legacy { revision, .. } = self.dialect else {
            return Err(io::Error::other(
                "initialize is for a legacy client: call legacy(revision) first",
            ));
        };
        let params = json!({
            "protocolVersion": revision.as_str(),
            "capabilities": capabilities,
            "clientInfo": {"name": "raw-client", "version": "1.0.0"},
        });
        let answer = self.ask("initialize", params).await?;
        let agreed = answer
            .messages
            .last()
            .and_then(|message| message["result"]["protocolVersion"].as_str());
        let Some(agreed) = agreed.and_then(Revision::parse) else {
            return Err(io::Error::other(format!(
                "initialize refused: {} {:?}",
                answer.status, answer.body
            )));
        };
        let session = answer.header("mcp-session-id").map(str::to_owned);
        self.dialect = ClientDialect::Legacy {
            revision: agreed,
            session,
        };
        self.notify("notifications/initialized", json!({})).await?;
        Ok((self, answer))
    }

    /// The session id, once there is one.
    pub fn session(&self) -> Option<&str> {
        match &self.dialect {
            ClientDialect::Legacy { session, .. } => session.as_deref(),
            ClientDialect::Bare | ClientDialect::Modern(_) => None,
        }
    }

    /// The id of the newest request; 0 before the first one. Clones count together.
    pub fn newest_id(&self) -> i64 {
        self.ids.load(Ordering::Relaxed) - 1
    }

    /// Returns the headers and the message that [`RawClient::request`] would send, for a test that
    /// changes them.
    pub fn envelope(&self, method: &str, params: Value) -> (HeaderMap, Value) {
        let mut headers = self.base_headers();
        let mut message = json!({"jsonrpc": "2.0", "id": self.ids.fetch_add(1, Ordering::Relaxed), "method": method});
        let params = match &self.dialect {
            ClientDialect::Modern(modern) => modern.wrap_params(&mut headers, method, params),
            ClientDialect::Bare | ClientDialect::Legacy { .. } => params,
        };
        if !params.is_null() {
            message["params"] = params;
        }
        (headers, message)
    }

    /// Sends a request and returns the answer's head; the messages follow from it.
    pub async fn request(&self, method: &str, params: Value) -> io::Result<HttpExchange> {
        let (headers, message) = self.envelope(method, params);
        let exchange = self
            .send(Method::POST, headers, message.to_string())
            .await?;
        Ok(self.recorded(exchange, method))
    }

    /// Sends a request and reads its whole answer.
    pub async fn ask(&self, method: &str, params: Value) -> io::Result<ClientAnswer> {
        self.request(method, params).await?.finish().await
    }

    /// `tools/call`, read to its end.
    pub async fn call(&self, tool: &str, arguments: Value) -> io::Result<ClientAnswer> {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
            .await
    }

    /// `tools/call` with a progress token, as a stream of messages.
    pub async fn start_call(
        &self,
        tool: &str,
        arguments: Value,
        progress_token: Value,
    ) -> io::Result<HttpExchange> {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": progress_token}});
        self.request("tools/call", params).await
    }

    /// Lists all tools, page by page. Errors if a page is not a list, or after 1,000 pages.
    pub async fn list_tools(&self) -> io::Result<Vec<Value>> {
        let mut tools = Vec::new();
        let mut params = json!({});
        for _ in 0..1_000 {
            let answer = self.ask("tools/list", params).await?;
            let result = answer.messages.last().map(|message| &message["result"]);
            let Some(page) = result.and_then(|result| result["tools"].as_array()) else {
                return Err(io::Error::other(format!(
                    "tools/list refused: {} {:?}",
                    answer.status, answer.body
                )));
            };
            tools.extend(page.iter().cloned());
            match result.and_then(|result| result.get("nextCursor")) {
                Some(cursor) => params = json!({"cursor": cursor}),
                None => return Ok(tools),
            }
        }
        Err(io::Error::other("the list does not end"))
    }

    /// Sends a notification and reads its answer, which should be 202 and empty.
    pub async fn notify(&self, method: &str, params: Value) -> io::Result<ClientAnswer> {
        let (headers, mut message) = self.envelope(method, params);
        if let Some(message) = message.as_object_mut() {
            message.remove("id");
        }
        self.send(Method::POST, headers, message.to_string())
            .await?
            .finish()
            .await
    }

    /// Answers a request that the server sent on a legacy stream.
    pub async fn respond(&self, id: &Value, result: Value) -> io::Result<ClientAnswer> {
        let message = json!({"jsonrpc": "2.0", "id": id, "result": result});
        self.send(Method::POST, self.base_headers(), message.to_string())
            .await?
            .finish()
            .await
    }

    /// Modern `subscriptions/listen` with this filter, such as `{"toolsListChanged": true}`.
    pub async fn listen(&self, filter: Value) -> io::Result<HttpExchange> {
        self.request("subscriptions/listen", json!({"notifications": filter}))
            .await
    }

    /// The legacy GET stream.
    pub async fn get_stream(&self) -> io::Result<HttpExchange> {
        let mut headers = self.base_headers();
        headers.remove(header::CONTENT_TYPE);
        insert(&mut headers, "accept", "text/event-stream");
        let exchange = self.send(Method::GET, headers, Bytes::new()).await?;
        Ok(self.recorded(exchange, ""))
    }

    /// DELETE: ends the legacy session.
    pub async fn delete(&self) -> io::Result<ClientAnswer> {
        self.send(Method::DELETE, self.base_headers(), Bytes::new())
            .await?
            .finish()
            .await
    }

    /// A POST with exactly these headers (and `Host`) and this body.
    pub async fn post_raw(
        &self,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> io::Result<HttpExchange> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            append(&mut map, name, value);
        }
        self.send(Method::POST, map, body).await
    }

    /// Sends any request. `Host` is added if it is missing. Errors if no head of an answer
    /// arrives.
    pub async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: impl Into<Bytes>,
    ) -> io::Result<HttpExchange> {
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        if let Some(kept) = &self.kept {
            return Ok(HttpExchange::new(
                kept.exchange(&self.url, request).await?,
                None,
            ));
        }
        let (response, connection) =
            connection::exchange(&self.url, &self.protocols, request).await?;
        Ok(HttpExchange::new(response, Some(connection)))
    }

    fn recorded(&self, exchange: HttpExchange, method: &str) -> HttpExchange {
        let revision = match &self.dialect {
            ClientDialect::Bare => return exchange,
            ClientDialect::Legacy { revision, .. } => *revision,
            ClientDialect::Modern(_) => Revision::MODERN,
        };
        exchange.recorded(self.recorder.clone(), revision, method)
    }

    fn base_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        insert(
            &mut headers,
            "accept",
            "application/json, text/event-stream",
        );
        insert(&mut headers, "content-type", "application/json");
        if let ClientDialect::Legacy {
            revision,
            session: Some(session),
        } = &self.dialect
        {
            insert(&mut headers, "mcp-session-id", session);
            if revision.has_version_header() {
                insert(&mut headers, "mcp-protocol-version", revision.as_str());
            }
        }
        headers.extend(self.headers.clone());
        headers
    }
}

fn parse_url(url: &str) -> Uri {
    let url: Uri = url.parse().unwrap_or_else(|error| panic!("{url}: {error}"));
    assert!(
        url.scheme_str() == Some("http") && url.authority().is_some(),
        "an absolute http URL, not {url}"
    );
    url
}
