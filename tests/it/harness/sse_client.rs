//! A client of HTTP+SSE, the transport of 2024-11-05. Its messages may go to another replica than its
//! stream.

use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, HttpExchange, RawClient};

use super::{Weir, within_test_timeout};

/// The stream of a client beside the endpoint `/mcp`.
pub struct SseClient {
    stream: HttpExchange,
    /// The path for messages, as the stream named it.
    pub path: String,
    /// The id of the last event that had one.
    pub last_event: Option<String>,
}

impl SseClient {
    /// Opens the stream, after this event of an earlier one.
    ///
    /// # Panics
    ///
    /// The stream does not begin with the path for messages.
    pub async fn open(weir: &Weir, last_event: Option<&str>) -> Self {
        let raw = RawClient::new(&weir.url("/mcp/sse"));
        let events = HeaderValue::from_static("text/event-stream");
        let mut headers: HeaderMap = [(header::ACCEPT, events)].into_iter().collect();
        if let Some(id) = last_event {
            headers.insert("last-event-id", HeaderValue::from_str(id).unwrap());
        }
        let opened = within_test_timeout("the stream", raw.send(Method::GET, headers, "")).await;
        let mut stream = opened.unwrap();
        assert_eq!(stream.status, 200);
        let first = within_test_timeout("the path", stream.next_event()).await;
        let first = first.unwrap().unwrap();
        assert_eq!(first.event.as_deref(), Some("endpoint"));
        Self {
            stream,
            path: first.data,
            last_event: None,
        }
    }

    /// Opens a session of 2025-11-25 with these capabilities.
    pub async fn initialize(&mut self, weir: &Weir, capabilities: Value) {
        let about = json!({ "name": "old", "version": "1" });
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": about,
        });
        let greeted = self.ask(weir, 1, "initialize", hello).await;
        assert_eq!(greeted["result"]["protocolVersion"], "2025-11-25");
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.post(weir, &ready).await.status, 202);
    }

    /// Posts a message.
    pub async fn post(&self, weir: &Weir, message: &Value) -> ClientAnswer {
        let raw = RawClient::new(&weir.url(&self.path));
        let json = HeaderValue::from_static("application/json");
        let headers = [(header::CONTENT_TYPE, json)].into_iter().collect();
        let sent = raw.send(Method::POST, headers, message.to_string()).await;
        let answer = within_test_timeout("the response", sent.unwrap().finish()).await;
        answer.unwrap()
    }

    /// Posts a request.
    pub async fn request(&self, weir: &Weir, id: usize, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        assert_eq!(self.post(weir, &message).await.status, 202, "{message}");
    }

    /// The next message with an id; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            let event = within_test_timeout("a message", self.stream.next_event()).await;
            let event = event.unwrap()?;
            if event.id.is_some() {
                self.last_event = event.id;
            }
            if event.data.is_empty() {
                continue;
            }
            let message: Value = serde_json::from_str(&event.data).unwrap();
            if message.get("id").is_some() {
                return Some(message);
            }
        }
    }

    /// Posts a request, whose response must be the next message.
    pub async fn ask(&mut self, weir: &Weir, id: usize, method: &str, params: Value) -> Value {
        self.request(weir, id, method, params).await;
        let answer = self.next().await.unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }
}
