//! The few MCP messages a load run needs, in both eras.
//!
//! Written by hand and not with weir's own types: code shared with weir would share its mistakes.
//! It is not a client library; `client` is the part that sends these messages.

use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

/// The session header of the legacy revisions.
pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// The revision header: every modern request, and a legacy one after `initialize`.
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Modern: the method, mirrored from the body.
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// Modern: the tool's name, mirrored from the body of a `tools/call`.
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The notification that a fan-out run waits for.
pub(crate) const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

/// The path segment of servers that speak both eras on one URL.
pub(crate) const BOTH_ERAS_SEGMENT: &str = "both";

/// The `_meta` of a modern request.
const META: &str = concat!(
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientCapabilities":{},"#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"weir-bench","version":"1"}}"#
);

/// The era that a peer speaks. `Legacy` is 2025-11-25, the newest of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Era {
    Modern,
    Legacy,
}

impl Era {
    /// The revision this tool speaks in that era.
    pub(crate) const fn version(self) -> &'static str {
        match self {
            Self::Modern => "2026-07-28",
            Self::Legacy => "2025-11-25",
        }
    }

    /// The path segment of the upstream, and the word in tables.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Modern => "modern",
            Self::Legacy => "legacy",
        }
    }

    /// Parses such a word.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        [Self::Modern, Self::Legacy]
            .into_iter()
            .find(|era| era.word() == word)
    }
}

/// A request with `params` given as the members of its object, without braces; modern gets its
/// `_meta` appended.
pub(crate) fn request(era: Era, id: u64, method: &str, params: &str) -> String {
    let meta = match era {
        Era::Modern => META,
        Era::Legacy => "",
    };
    let comma = if params.is_empty() || meta.is_empty() {
        ""
    } else {
        ","
    };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{comma}{meta}}}}}"#
    )
}

/// A `tools/call`; `arguments` is a whole JSON object. The tool's name must need no JSON escape.
pub(crate) fn call(era: Era, id: u64, tool: &str, arguments: &str) -> String {
    request(
        era,
        id,
        "tools/call",
        &format!(r#""name":"{tool}","arguments":{arguments}"#),
    )
}

/// The handshake of a legacy session.
pub(crate) fn initialize(id: u64) -> String {
    request(
        Era::Legacy,
        id,
        "initialize",
        r#""protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"weir-bench","version":"1"}"#,
    )
}

/// The notification of a legacy client after the answer to `initialize`.
pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A modern request for the stream of tool list changes.
pub(crate) fn listen(id: u64) -> String {
    request(
        Era::Modern,
        id,
        "subscriptions/listen",
        r#""notifications":{"toolsListChanged":true}"#,
    )
}

/// The headers every request of this era needs; `method` and `tool` are mirrored for a modern peer.
///
/// # Errors
/// A tool name or host that is not a valid header value.
pub(crate) fn headers(
    era: Era,
    host: &str,
    method: &'static str,
    tool: Option<&str>,
) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(HOST, HeaderValue::from_str(host)?);
    headers.insert(
        ACCEPT,
        HeaderValue::from_static("application/json, text/event-stream"),
    );
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if method != "initialize" {
        headers.insert(VERSION, HeaderValue::from_static(era.version()));
    }
    if era == Era::Modern {
        headers.insert(METHOD, HeaderValue::from_static(method));
        if let Some(tool) = tool {
            headers.insert(NAME, HeaderValue::from_str(tool)?);
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_modern_call_carries_its_meta_and_a_legacy_one_does_not() {
        let modern: Value =
            serde_json::from_str(&call(Era::Modern, 7, "echo", r#"{"message":"x"}"#)).unwrap();
        assert_eq!(modern["id"], json!(7));
        assert_eq!(modern["params"]["arguments"], json!({"message": "x"}));
        assert_eq!(
            modern["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"],
            json!("2026-07-28")
        );
        let legacy: Value = serde_json::from_str(&call(Era::Legacy, 7, "echo", "{}")).unwrap();
        assert_eq!(legacy["params"], json!({"name": "echo", "arguments": {}}));
    }

    #[test]
    fn requests_without_parameters_are_json_in_both_eras() {
        for era in [Era::Modern, Era::Legacy] {
            let list: Value = serde_json::from_str(&request(era, 1, "tools/list", "")).unwrap();
            assert!(list["params"].is_object());
        }
    }

    #[test]
    fn modern_headers_mirror_method_and_name() {
        let headers = headers(Era::Modern, "127.0.0.1:1", "tools/call", Some("u0__echo")).unwrap();
        assert_eq!(headers[METHOD], "tools/call");
        assert_eq!(headers[NAME], "u0__echo");
        assert_eq!(headers[VERSION], "2026-07-28");
    }
}
