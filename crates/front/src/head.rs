//! Names of MCP's own headers. As constants they need not be read from text for each request.

use http::HeaderName;

pub(crate) static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) static METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(crate) static NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(crate) static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
