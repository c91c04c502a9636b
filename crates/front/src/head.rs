//! Names of headers that `http` does not know: MCP's own, and the trace's. As constants they need
//! not be read from text for each request.

use http::HeaderName;

pub(crate) static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) static METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(crate) static NAME: HeaderName = HeaderName::from_static("mcp-name");
/// W3C Trace Context.
pub(crate) static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(crate) static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
pub(crate) static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
