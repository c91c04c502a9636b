//! Names of headers that `http` does not know: those of MCP and of trace context. As constants they
//! are not parsed for each request.

use http::HeaderName;
pub use weir_session::SESSION_HEADER as SESSION;

/// The protocol revision of a message.
pub static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The method of a message, for routers in between.
pub static METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// The tool, prompt or resource of a message, for routers in between.
pub static NAME: HeaderName = HeaderName::from_static("mcp-name");
/// W3C Trace Context.
pub static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(crate) static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
