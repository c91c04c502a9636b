//! A child that is another server's mouth: what it reads it posts there, and what comes back it prints. So whatever a
//! [`weir_testkit::Mockup`] does can be had over standard streams, and looked at in the test's own process.

use std::collections::HashMap;
use std::io::BufRead as _;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use weir_testkit::{Exchange, RawClient};
use weir_wire::{Revision, meta};

use super::say_text;

/// Lines that wait to be posted.
const WAITING: usize = 64;

/// Relays until the end of the input; the session at the server ends with it.
pub(super) fn run(url: &str) -> Result<(), String> {
    let (sender, lines) = mpsc::channel(WAITING);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let relay = Relay { client: RawClient::new(url), session: None, running: HashMap::new(), all: JoinSet::new() };
    runtime.map_err(|error| error.to_string())?.block_on(relay.serve(lines));
    Ok(())
}

struct Relay {
    client: RawClient,
    session: Option<HeaderValue>,
    /// Requests that may still be answered, by id.
    running: HashMap<String, AbortHandle>,
    all: JoinSet<()>,
}

impl Relay {
    async fn serve(mut self, mut lines: mpsc::Receiver<String>) {
        while let Some(line) = lines.recv().await {
            let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
            self.take(line, &message).await;
            while self.all.try_join_next().is_some() {}
        }
        if self.session.is_some() {
            // An error means that the server is gone before us.
            let _ = self.client.send(Method::DELETE, self.headers(&Value::Null), "").await;
        }
    }

    async fn take(&mut self, line: String, message: &Value) {
        let headers = self.headers(message);
        let method = message["method"].as_str().unwrap_or_default();
        if method == "initialize" {
            let Ok(answer) = self.client.send(Method::POST, headers, line).await else { return };
            self.session = answer.headers.get("mcp-session-id").cloned();
            return print(answer).await;
        }
        // Over HTTP a modern request is cancelled by closing its connection.
        if method == "notifications/cancelled" && self.session.is_none() {
            if let Some(running) = self.running.remove(&message["params"]["requestId"].to_string()) {
                running.abort();
            }
            return;
        }
        let (client, id) = (self.client.clone(), message["id"].to_string());
        let posted = self.all.spawn(async move {
            if let Ok(answer) = client.send(Method::POST, headers, line).await {
                print(answer).await;
            }
        });
        self.running.retain(|_, running| !running.is_finished());
        self.running.insert(id, posted);
        if method == "notifications/initialized" {
            let mut headers = self.headers(&Value::Null);
            headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
            // Whatever the server says beside its calls has a way from here on.
            if let Ok(stream) = self.client.send(Method::GET, headers, "").await {
                self.all.spawn(print(stream));
            }
        }
    }

    /// What HTTP says beside a message.
    fn headers(&self, message: &Value) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(self.session.clone().map(|session| (HeaderName::from_static("mcp-session-id"), session)));
        let (method, params) = (message["method"].as_str(), &message["params"]);
        let version = params["_meta"][meta::PROTOCOL_VERSION].as_str();
        if let Some((method, version)) =
            method.zip(version).filter(|(_, version)| *version == Revision::MODERN.as_str())
        {
            let member = weir_wire::Method::parse(method).and_then(|method| method.name_header().member());
            let name = member.and_then(|member| params[member].as_str()).map(weir_wire::header::encode);
            let all = [
                ("mcp-protocol-version", Some(version.into())),
                ("mcp-method", Some(method.into())),
                ("mcp-name", name),
            ];
            let all = all.into_iter().filter_map(|(key, value)| Some((key, HeaderValue::from_str(&value?).ok()?)));
            headers.extend(all.map(|(key, value)| (HeaderName::from_static(key), value)));
        }
        headers
    }
}

/// Prints every message of an answer as it comes, a line each.
async fn print(mut answer: Exchange) {
    if !answer.is_stream() {
        if let Ok(answer) = answer.finish().await {
            line(&answer.body);
        }
        return;
    }
    while let Ok(Some(event)) = answer.next_event().await {
        line(&Bytes::from(event.data));
    }
}

fn line(message: &Bytes) {
    let text = String::from_utf8_lossy(message);
    if !text.trim().is_empty() {
        say_text(&text.replace(['\n', '\r'], " "));
    }
}
