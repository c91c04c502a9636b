//! A relay between a line transport (stdio, HTTP+SSE) and a Streamable HTTP server: each message of
//! the client is posted to the server, and each message of the server is passed on in the order of
//! arrival. A test can so reach a [`crate::MockServer`] over every transport, and inspect it in its
//! own process.

use std::collections::HashMap;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use weir_wire::{Revision, meta};

use crate::client::RawClient;
use crate::client::exchange::HttpExchange;

/// The capacity of each queue, in messages.
const QUEUE: usize = 64;

/// The messages of one side, in order.
pub type RelayMessages = mpsc::Receiver<String>;

/// Connects to the server at `url`. Returns the sender of the client's messages, the future that
/// relays, and the server's messages. When the sender is dropped the future deletes the server's
/// session and ends.
pub fn connect(
    url: &str,
) -> (
    mpsc::Sender<String>,
    impl Future<Output = ()> + Send + use<>,
    RelayMessages,
) {
    let (client_sender, client_messages) = mpsc::channel(QUEUE);
    let (server_sender, server_messages) = mpsc::channel(QUEUE);
    let client = RawClient::new(url);
    let relay = MessageRelay {
        client,
        session: None,
        running: HashMap::new(),
        all: JoinSet::new(),
        server_sender,
    };
    (client_sender, relay.run(client_messages), server_messages)
}

struct MessageRelay {
    client: RawClient,
    session: Option<HeaderValue>,
    /// Requests in flight, by id.
    running: HashMap<String, AbortHandle>,
    all: JoinSet<()>,
    server_sender: mpsc::Sender<String>,
}

impl MessageRelay {
    async fn run(mut self, mut messages: RelayMessages) {
        while let Some(line) = messages.recv().await {
            let Ok(message) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            self.take(line, &message).await;
            while self.all.try_join_next().is_some() {}
        }
        if self.session.is_some() {
            // An error means that the server has stopped already.
            let _ = self
                .client
                .send(Method::DELETE, self.headers(&Value::Null), "")
                .await;
        }
    }

    async fn take(&mut self, line: String, message: &Value) {
        let headers = self.headers(message);
        let method = message["method"].as_str().unwrap_or_default();
        if method == "initialize" {
            let Ok(answer) = self.client.send(Method::POST, headers, line).await else {
                return;
            };
            self.session = answer.headers.get("mcp-session-id").cloned();
            return pass_on(answer, &self.server_sender).await;
        }
        // Over HTTP a modern request is cancelled by closing its connection.
        if method == "notifications/cancelled" && self.session.is_none() {
            if let Some(running) = self
                .running
                .remove(&message["params"]["requestId"].to_string())
            {
                running.abort();
            }
            return;
        }
        let (client, id, sender) = (
            self.client.clone(),
            message["id"].to_string(),
            self.server_sender.clone(),
        );
        let posted = self.all.spawn(async move {
            if let Ok(answer) = client.send(Method::POST, headers, line).await {
                pass_on(answer, &sender).await;
            }
        });
        self.running.retain(|_, running| !running.is_finished());
        self.running.insert(id, posted);
        if method == "notifications/initialized" {
            let mut headers = self.headers(&Value::Null);
            headers.insert(
                header::ACCEPT,
                HeaderValue::from_static("text/event-stream"),
            );
            // The server can send messages outside of calls from here on.
            if let Ok(stream) = self.client.send(Method::GET, headers, "").await {
                let sender = self.server_sender.clone();
                self.all
                    .spawn(async move { pass_on(stream, &sender).await });
            }
        }
    }

    /// The headers of a message.
    fn headers(&self, message: &Value) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        headers.extend(
            self.session
                .clone()
                .map(|session| (HeaderName::from_static("mcp-session-id"), session)),
        );
        let (method, params) = (message["method"].as_str(), &message["params"]);
        let version = params["_meta"][meta::PROTOCOL_VERSION].as_str();
        if let Some((method, version)) = method
            .zip(version)
            .filter(|(_, version)| *version == Revision::MODERN.as_str())
        {
            let member =
                weir_wire::Method::parse(method).and_then(|method| method.name_header().member());
            let name = member
                .and_then(|member| params[member].as_str())
                .map(weir_wire::header::encode);
            let all = [
                ("mcp-protocol-version", Some(version.into())),
                ("mcp-method", Some(method.into())),
                ("mcp-name", name),
            ];
            let all = all
                .into_iter()
                .filter_map(|(key, value)| Some((key, HeaderValue::from_str(&value?).ok()?)));
            headers.extend(all.map(|(key, value)| (HeaderName::from_static(key), value)));
        }
        headers
    }
}

/// Passes every message of an answer on as it arrives.
async fn pass_on(mut answer: HttpExchange, sender: &mpsc::Sender<String>) {
    if !answer.is_stream() {
        if let Ok(answer) = answer.finish().await {
            send(&String::from_utf8_lossy(&answer.body), sender).await;
        }
        return;
    }
    while let Ok(Some(event)) = answer.next_event().await {
        send(&event.data, sender).await;
    }
}

async fn send(message: &str, sender: &mpsc::Sender<String>) {
    if !message.trim().is_empty() {
        // An error means that the client has closed the connection.
        let _ = sender.send(message.replace(['\n', '\r'], " ")).await;
    }
}
