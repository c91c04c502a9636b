//! A request that a test spoils, and the checks of a refusal.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Map, Value, json};
use weir_testkit::{ClientAnswer, RawClient};

use super::WeirWithUpstream;

/// The headers and the message of one POST.
pub struct RequestDraft {
    pub headers: HeaderMap,
    pub body: Value,
}

/// A change that spoils a good request, and the answer that it must get.
pub struct RefusalRow {
    pub name: &'static str,
    pub spoil: fn(&mut RequestDraft),
    pub status: u16,
    pub code: i64,
}

/// Returns a [`RefusalRow`]; short for a table.
pub const fn row(
    name: &'static str,
    status: u16,
    code: i64,
    spoil: fn(&mut RequestDraft),
) -> RefusalRow {
    RefusalRow {
        name,
        spoil,
        status,
        code,
    }
}

impl RequestDraft {
    /// Returns the request that this client would send.
    pub fn of(client: &RawClient, method: &str, params: Value) -> Self {
        let (headers, body) = client.envelope(method, params);
        Self { headers, body }
    }

    /// Replaces a header's value.
    pub fn set_header(&mut self, name: &str, value: &str) {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        self.headers
            .insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
    }

    /// Adds one more line of a header.
    pub fn add_header(&mut self, name: &str, value: &str) {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        self.headers
            .append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
    }

    pub fn remove_header(&mut self, name: &str) {
        self.headers
            .remove(name)
            .unwrap_or_else(|| panic!("there is no {name}"));
    }

    /// Returns the params.
    pub fn params(&mut self) -> &mut Map<String, Value> {
        self.body["params"].as_object_mut().unwrap()
    }

    /// Returns the `_meta` of the params.
    pub fn meta(&mut self) -> &mut Map<String, Value> {
        self.body["params"]["_meta"].as_object_mut().unwrap()
    }

    /// Sets this version in the header and in `_meta`.
    pub fn set_version(&mut self, version: &str) {
        self.set_header("mcp-protocol-version", version);
        self.meta()
            .insert(weir_wire::meta::PROTOCOL_VERSION.to_owned(), json!(version));
    }

    /// Sets this method in the header and in the body.
    pub fn set_method(&mut self, method: &str) {
        self.set_header("mcp-method", method);
        self.body["method"] = json!(method);
    }

    pub async fn post(self, stage: &WeirWithUpstream) -> ClientAnswer {
        stage
            .send(Method::POST, self.headers, self.body.to_string())
            .await
    }
}

/// Asserts that the answer is this JSON-RPC error with this status, in one JSON object, for this
/// request.
///
/// `id` null stands for a request whose id cannot be read: the member is null or absent then.
pub fn assert_refused(name: &str, answer: &ClientAnswer, status: u16, code: i64, id: &Value) {
    assert_eq!(answer.status.as_u16(), status, "{name}: {:?}", answer.body);
    assert_error(name, answer, code, id);
}

/// Asserts that the answer is this JSON-RPC error, with any status.
pub fn assert_error(name: &str, answer: &ClientAnswer, code: i64, id: &Value) {
    let kind = answer.header("content-type").unwrap_or_default();
    assert!(
        kind.starts_with("application/json"),
        "{name}: {} is {kind:?}: {:?}",
        answer.status,
        answer.body
    );
    assert_eq!(answer.messages.len(), 1, "{name}: {:?}", answer.body);
    let message = answer.last();
    assert_eq!(message["jsonrpc"], "2.0", "{name}: {message}");
    assert_eq!(message["error"]["code"], code, "{name}: {message}");
    assert_eq!(&message["id"], id, "{name}: {message}");
    assert!(
        message["error"]["message"]
            .as_str()
            .is_some_and(|text| !text.is_empty()),
        "{name}: {message}"
    );
    assert!(message.get("result").is_none(), "{name}: {message}");
    assert_request_id(name, answer);
}

/// Asserts that the request was refused before it was read: a status without JSON-RPC.
pub fn assert_refused_unread(name: &str, answer: &ClientAnswer, status: StatusCode) {
    assert_eq!(answer.status, status, "{name}: {:?}", answer.body);
    assert!(
        !String::from_utf8_lossy(&answer.body).contains("jsonrpc"),
        "{name}: {:?}",
        answer.body
    );
    assert_request_id(name, answer);
}

/// Asserts that an operator can find the request in the log.
fn assert_request_id(name: &str, answer: &ClientAnswer) {
    assert!(
        answer
            .header("x-request-id")
            .is_some_and(|id| !id.is_empty()),
        "{name}: {:?}",
        answer.headers
    );
}
