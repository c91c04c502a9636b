//! The path of the endpoint that is served without any in the config.

/// The path of the endpoint with all upstreams, if the config lists no endpoints.
pub const DEFAULT_ENDPOINT: &str = "/mcp";
