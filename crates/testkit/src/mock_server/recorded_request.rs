//! The requests that a mock server received, for tests to inspect afterwards.

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

/// One HTTP request as it arrived.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// HTTP method.
    pub verb: Method,
    /// Path and query.
    pub path: String,
    /// Headers.
    pub headers: HeaderMap,
    /// Body, byte for byte.
    pub body: Bytes,
    /// The body as JSON; null if it is not JSON.
    pub message: Value,
    /// The number of the TCP connection, from 1 in order of arrival.
    pub connection: u64,
}

impl RecordedRequest {
    /// The JSON-RPC method; empty for responses, batches and requests without a body.
    pub fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    /// The tool that a `tools/call` names.
    pub fn tool(&self) -> Option<&str> {
        if self.method() == "tools/call" {
            self.message["params"]["name"].as_str()
        } else {
            None
        }
    }

    /// The `_meta` of the params; null if there is no `_meta`.
    pub fn meta(&self) -> &Value {
        &self.message["params"]["_meta"]
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// True if path, headers or body contain the text.
    pub fn contains_text(&self, text: &str) -> bool {
        let within = |bytes: &[u8]| {
            bytes
                .windows(text.len())
                .any(|window| window == text.as_bytes())
        };
        within(self.path.as_bytes())
            || self.headers.values().any(|value| within(value.as_bytes()))
            || within(&self.body)
    }

    /// The session that it named.
    pub fn session(&self) -> Option<&str> {
        self.header("mcp-session-id")
    }

    /// The kind that rules match on: the JSON-RPC method, else the HTTP method.
    pub(super) fn kind(&self) -> &str {
        match self.method() {
            "" => self.verb.as_str(),
            method => method,
        }
    }
}
