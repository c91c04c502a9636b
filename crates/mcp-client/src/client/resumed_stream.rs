//! The resumption of a stream that a legacy server closed, or whose connection was lost, before its
//! answer (transports, "Resumability and Redelivery"). Servers of 2025-11-25 close streams on
//! purpose, and have the client ask again after a while.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method as HttpMethod, StatusCode};

use crate::client::answer::Answer;
use crate::client::error::ClientError;
use crate::client::{Client, no_mcp};

static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The shortest wait before a stream is resumed, also if the server asks for less.
const MIN_WAIT: Duration = Duration::from_millis(100);
/// The attempts in a row while the server does not open the stream now.
const MAX_ATTEMPTS: usize = 10;

impl Client {
    /// Resumes the stream of an answer after the time that the server asks for. False if the server
    /// gave its events no ids, or no longer has the stream.
    pub(super) async fn resume(&self, answer: &mut Answer) -> Result<bool, ClientError> {
        let Some(point) = answer.resume_point() else {
            return Ok(false);
        };
        let last_event = point.last_event().map(HeaderValue::from_str);
        let Some(Ok(last_event)) = last_event.filter(|_| self.revision().has_event_ids()) else {
            return Ok(false);
        };
        let wait = point.retry_wait().max(MIN_WAIT);
        for attempt in 1..=MAX_ATTEMPTS {
            tokio::time::sleep(wait).await;
            let mut headers = self.legacy_headers();
            headers.insert(&LAST_EVENT_ID, last_event.clone());
            let sent = self.transport.send(HttpMethod::GET, headers, Bytes::new());
            match sent.await {
                Ok(response) if response.status() == StatusCode::OK && response.is_stream() => {
                    answer.continue_with(response);
                    return Ok(true);
                }
                Ok(response) if no_mcp::is_busy(response.status()) => {}
                Ok(_) => return Ok(false),
                Err(ClientError::Unreachable { .. }) if attempt < MAX_ATTEMPTS => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::VecDeque;

    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use weir_testkit::ScriptedServer;
    use weir_testkit::scripted_server::{ScriptedRequest, ServerAct, json_answer};

    use super::*;

    /// The result of the call, with `ID` for its id.
    const RESULT: &str = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}"#;
    const OPENING: &str = "id: e1\nretry: 1\ndata:\n\n";

    /// A stream of these events, which the server closes.
    fn closed(events: &str) -> String {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        format!("{head}{events}")
    }

    /// A stream of these events, whose connection is lost.
    fn lost(events: &str) -> String {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n";
        format!("{head}{events}")
    }

    fn refused(status: u16) -> String {
        format!("HTTP/1.1 {status} Scripted\r\ncontent-length: 0\r\n\r\n")
    }

    /// A server of 2025-11-25 that answers a call, and each GET after it by the next of the streams.
    async fn server(call: String, streams: impl IntoIterator<Item = String>) -> ScriptedServer {
        let streams: Mutex<VecDeque<String>> = Mutex::new(streams.into_iter().collect());
        let call_id = Mutex::new(Value::Null);
        ScriptedServer::start(move |request| {
            let write = |text: String| {
                let text = text.replace("ID", &call_id.lock().to_string());
                vec![ServerAct::Write(text.into()), ServerAct::Close]
            };
            let message = |member: &str, value: Value| {
                let message = json!({ "jsonrpc": "2.0", "id": request.id(), member: value });
                vec![json_answer(200, &message)]
            };
            if request.head.starts_with("GET") {
                let next = streams.lock().pop_front();
                return write(next.unwrap_or_else(|| refused(404)));
            }
            match request.method() {
                "server/discover" => message("error", json!({ "code": -32601, "message": "no" })),
                "initialize" => message(
                    "result",
                    json!({
                        "protocolVersion": "2025-11-25",
                        "capabilities": { "tools": { "listChanged": true } },
                        "serverInfo": { "name": "polled", "version": "1" },
                    }),
                ),
                "tools/call" => {
                    *call_id.lock() = request.id().clone();
                    write(call.clone())
                }
                _ => write(refused(202)),
            }
        })
        .await
    }

    /// The outcome of the call, and the last event of each GET.
    async fn outcome(server: &ScriptedServer) -> (Result<Value, ClientError>, Vec<String>) {
        let mut client = Client::connect(&server.url(), None, None).await.unwrap();
        let arguments = serde_json::value::to_raw_value(&json!({})).unwrap();
        let outcome = client.call("poll", &arguments, &mut |_| {}).await;
        assert_eq!(server.requests_of("tools/call").len(), 1);
        (outcome, last_events(server))
    }

    fn last_events(server: &ScriptedServer) -> Vec<String> {
        let last = |request: ScriptedRequest| {
            let mut lines = request.head.lines();
            lines.find_map(|line| Some(line.strip_prefix("last-event-id: ")?.to_owned()))
        };
        server.requests().into_iter().filter_map(last).collect()
    }

    // Proves R096, R097.
    #[tokio::test]
    async fn call_is_resumed_after_each_stream_that_its_server_closes() {
        let streams = [
            closed("id: e2\ndata:\n\n"),
            refused(503),
            closed(&format!("id: e3\ndata: {RESULT}\n\n")),
        ];
        let server = server(closed(OPENING), streams).await;
        let (result, resumed) = outcome(&server).await;
        assert_eq!(result.unwrap()["content"], json!([]));
        assert_eq!(resumed, ["e1", "e2", "e2"]);
    }

    #[tokio::test]
    async fn call_is_resumed_after_a_lost_connection() {
        let rest = closed(&format!("id: e2\ndata: {RESULT}\n\n"));
        let server = server(lost(&format!("{OPENING}id: e2\nda")), [rest]).await;
        let (result, resumed) = outcome(&server).await;
        assert_eq!(result.unwrap()["content"], json!([]));
        assert_eq!(resumed, ["e1"]);
    }

    #[tokio::test]
    async fn stream_that_cannot_be_resumed_is_an_error() {
        let without_ids = "retry: 1\n\n";
        for (call, why, resumed) in [
            (closed(OPENING), "the answer ended before its result", 1),
            (lost(OPENING), "the connection was lost", 1),
            (closed(without_ids), "the answer ended before its result", 0),
            (lost(without_ids), "the connection was lost", 0),
        ] {
            let server = server(call.clone(), []).await;
            let (result, last_events) = outcome(&server).await;
            let error = result.unwrap_err().to_string();
            assert!(error.contains(why), "{call}: {error}");
            assert_eq!(last_events.len(), resumed, "{call}");
        }
    }

    #[tokio::test]
    async fn stream_of_changes_is_resumed() {
        let change = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        let streams = [
            closed(OPENING),
            closed(&format!("id: e2\ndata: {change}\n\n")),
        ];
        let server = server(refused(404), streams).await;
        let mut client = Client::connect(&server.url(), None, None).await.unwrap();
        client.changed(&mut None).await.unwrap();
        assert_eq!(last_events(&server), ["e1"]);
    }
}
