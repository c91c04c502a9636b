//! Names of headers that `http` does not know: those of MCP and of trace context. As constants they
//! are not parsed for each request.

use http::HeaderName;

pub(crate) static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) static METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(crate) static NAME: HeaderName = HeaderName::from_static("mcp-name");
/// W3C Trace Context.
pub(crate) static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(crate) static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
pub(crate) static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
