//! What a mock server saw, for tests to look at afterwards.

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

/// One HTTP request as it arrived.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// HTTP method.
    pub verb: Method,
    /// Path and query.
    pub path: String,
    /// Headers.
    pub headers: HeaderMap,
    /// Body, byte for byte.
    pub body: Bytes,
    /// The body as JSON; null when it is none.
    pub message: Value,
    /// The number of the TCP connection, from 1 in order of arrival.
    pub connection: u64,
}

impl Recorded {
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

    /// The `_meta` of the params; null when there is none.
    pub fn meta(&self) -> &Value {
        &self.message["params"]["_meta"]
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// True if the text stands anywhere in it: path, headers or body.
    pub fn holds(&self, text: &str) -> bool {
        let within = |bytes: &[u8]| {
            bytes
                .windows(text.len())
                .any(|window| window == text.as_bytes())
        };
        within(self.path.as_bytes())
            || self.headers.values().any(|value| within(value.as_bytes()))
            || within(&self.body)
    }

    /// The session it named.
    pub fn session(&self) -> Option<&str> {
        self.header("mcp-session-id")
    }

    /// What rules match on: the JSON-RPC method, else the HTTP method.
    pub(super) fn kind(&self) -> &str {
        match self.method() {
            "" => self.verb.as_str(),
            method => method,
        }
    }
}
