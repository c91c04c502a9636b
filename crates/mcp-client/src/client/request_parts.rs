//! The envelope of a modern request: `_meta`, and the headers that mirror the body.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use weir_era::lower::{annotated_headers, header_values};
use weir_wire::{Method, Revision, header, meta};

/// How the commands call themselves.
pub(super) const NAME: &str = "weir-cli";

pub(super) fn modern(method: Method, params: Value, capabilities: &Value) -> (HeaderMap, Value) {
    let mut params = if params.is_object() {
        params
    } else {
        json!({})
    };
    let mut own = json!({
        meta::PROTOCOL_VERSION: Revision::MODERN.as_str(),
        meta::CLIENT_CAPABILITIES: capabilities,
        meta::CLIENT_INFO: { "name": NAME, "version": env!("CARGO_PKG_VERSION") },
    });
    if method == Method::ToolsCall {
        own[meta::LOG_LEVEL] = json!("info");
    }
    if let Some(given) = params["_meta"].as_object() {
        for (key, value) in given {
            own[key] = value.clone();
        }
    }
    params["_meta"] = own;
    let mut headers = HeaderMap::new();
    headers.insert(
        "mcp-protocol-version",
        HeaderValue::from_static(Revision::MODERN.as_str()),
    );
    headers.insert("mcp-method", HeaderValue::from_static(method.as_str()));
    let name = method
        .name_header()
        .member()
        .and_then(|member| params[member].as_str());
    if let Some(value) = name.and_then(|name| HeaderValue::from_str(&header::encode(name)).ok()) {
        headers.insert("mcp-name", value);
    }
    (headers, params)
}

/// The headers of a call that repeat arguments, as the tool's input schema asks for
/// (`x-mcp-header`).
pub(super) fn repeated(tool: &Value, arguments: &RawValue) -> HeaderMap {
    let annotated = annotated_headers(tool.to_string().as_bytes()).unwrap_or_default();
    let given = header_values(&annotated, Some(arguments.get().as_bytes())).into_iter();
    let headers = given.filter_map(|(name, value)| {
        let name = HeaderName::try_from(format!("mcp-param-{name}")).ok()?;
        Some((name, HeaderValue::try_from(value).ok()?))
    });
    headers.collect()
}
