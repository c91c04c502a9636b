//! The required parts of a modern request and result: mirrored headers and `_meta`, checked in the
//! order that gives a client the most useful error.

use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};
use weir_wire::{error_code, header, meta};

use crate::http::text;
use crate::rpc::{DemoFault, DemoRequest};

/// The only revision that desk speaks.
pub(super) const REVISION: &str = "2026-07-28";
/// The methods that desk offers.
pub(super) const METHODS: [&str; 4] = [
    "server/discover",
    "tools/list",
    "tools/call",
    "subscriptions/listen",
];

/// Adds the members that every result of this revision carries.
pub(super) fn complete(mut result: Value) -> Value {
    result["resultType"] = json!("complete");
    result["_meta"][meta::SERVER_INFO] =
        json!({"name": "desk", "title": "Desk", "version": env!("CARGO_PKG_VERSION")});
    result
}

/// Checks headers against the body. An `Err` is the HTTP status and the error.
pub(super) fn check(
    headers: &HeaderMap,
    request: &DemoRequest,
) -> Result<(), (StatusCode, DemoFault)> {
    let bad = |fault| (StatusCode::BAD_REQUEST, fault);
    let meta = request.params.get("_meta").and_then(Value::as_object);
    if request.method == "initialize"
        && !meta.is_some_and(|meta| meta.contains_key(meta::PROTOCOL_VERSION))
    {
        let asked = request
            .params
            .get("protocolVersion")
            .and_then(Value::as_str)
            .unwrap_or_default();
        return Err(bad(unsupported(asked)));
    }
    let version = text(headers, "mcp-protocol-version")
        .ok_or_else(|| bad(mismatch("MCP-Protocol-Version is missing")))?;
    let method =
        text(headers, "mcp-method").ok_or_else(|| bad(mismatch("Mcp-Method is missing")))?;
    let declared = declared_version(meta).map_err(bad)?;
    if version != declared {
        return Err(bad(mismatch(
            "MCP-Protocol-Version differs from the version in _meta",
        )));
    }
    if version != REVISION {
        return Err(bad(unsupported(version)));
    }
    if method != request.method {
        return Err(bad(mismatch(
            "Mcp-Method differs from the method in the body",
        )));
    }
    if !METHODS.contains(&method) {
        let fault = DemoFault::new(
            error_code::METHOD_NOT_FOUND,
            format!("this server has no method {method}"),
        );
        return Err((StatusCode::NOT_FOUND, fault));
    }
    if method == "tools/call" {
        check_name(headers, request).map_err(bad)
    } else {
        Ok(())
    }
}

fn declared_version(meta: Option<&Map<String, Value>>) -> Result<&str, DemoFault> {
    let missing = |key: &str| DemoFault::params(format!("params._meta must have {key}"));
    let meta = meta.ok_or_else(|| missing(meta::PROTOCOL_VERSION))?;
    let version = meta.get(meta::PROTOCOL_VERSION).and_then(Value::as_str);
    let version = version.ok_or_else(|| missing(meta::PROTOCOL_VERSION))?;
    match meta.get(meta::CLIENT_CAPABILITIES) {
        Some(Value::Object(_)) => Ok(version),
        _ => Err(missing(meta::CLIENT_CAPABILITIES)),
    }
}

fn check_name(headers: &HeaderMap, request: &DemoRequest) -> Result<(), DemoFault> {
    let raw = headers
        .get("mcp-name")
        .ok_or_else(|| mismatch("Mcp-Name is missing"))?;
    let name =
        header::decode(raw.as_bytes()).map_err(|_| mismatch("Mcp-Name cannot be decoded"))?;
    match request.string("name")? {
        Some(body) if body == name => Ok(()),
        _ => Err(mismatch("Mcp-Name differs from params.name")),
    }
}

fn mismatch(why: &str) -> DemoFault {
    DemoFault::new(error_code::HEADER_MISMATCH, why)
}

fn unsupported(requested: &str) -> DemoFault {
    DemoFault::new(
        error_code::UNSUPPORTED_PROTOCOL_VERSION,
        format!("this server speaks only {REVISION}"),
    )
    .with(json!({"supported": [REVISION], "requested": requested}))
}
