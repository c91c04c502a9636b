//! The envelope of a modern request: `_meta` in the body, mirrored headers above it.

use http::HeaderMap;
use serde_json::{Value, json};
use weir_wire::method::NameSource;
use weir_wire::{Method, Revision, header, meta};

use crate::client::header_text::insert;

/// The metadata that a modern client sends with every request.
#[derive(Clone, Debug)]
pub struct ModernEnvelope {
    /// `io.modelcontextprotocol/clientCapabilities`.
    pub capabilities: Value,
    /// `io.modelcontextprotocol/logLevel`.
    pub log_level: Option<String>,
    /// The declared protocol version.
    pub version: String,
}

impl Default for ModernEnvelope {
    fn default() -> Self {
        Self {
            capabilities: json!({}),
            log_level: None,
            version: Revision::MODERN.as_str().to_owned(),
        }
    }
}

impl ModernEnvelope {
    /// Adds `_meta` to `params` and the mirrored headers to `headers`. `_meta` members from the
    /// caller stay.
    pub(super) fn wrap_params(
        &self,
        headers: &mut HeaderMap,
        method: &str,
        params: Value,
    ) -> Value {
        let mut params = if params.is_null() { json!({}) } else { params };
        let mut own = json!({
            meta::PROTOCOL_VERSION: self.version,
            meta::CLIENT_CAPABILITIES: self.capabilities,
            meta::CLIENT_INFO: {"name": "raw-client", "version": "1.0.0"},
        });
        if let Some(level) = &self.log_level {
            own[meta::LOG_LEVEL] = json!(level);
        }
        if let Some(given) = params["_meta"].as_object() {
            for (key, value) in given {
                own[key] = value.clone();
            }
        }
        params["_meta"] = own;
        insert(headers, "mcp-protocol-version", &self.version);
        insert(headers, "mcp-method", method);
        let source = match Method::parse(method).map(Method::name_header) {
            Some(NameSource::Name) => "name",
            Some(NameSource::Uri) => "uri",
            Some(NameSource::TaskId) => "taskId",
            Some(NameSource::None) | None => return params,
        };
        if let Some(name) = params[source].as_str() {
            insert(headers, "mcp-name", &header::encode(name));
        }
        params
    }
}
