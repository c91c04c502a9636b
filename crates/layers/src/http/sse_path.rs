//! The paths of HTTP+SSE beside each endpoint.

use http::Method;
use weir_core::EndpointId;

/// An HTTP+SSE path beside an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SsePath {
    /// The stream.
    Stream,
    /// The path that messages are posted to.
    Messages,
}

/// The suffixes of an endpoint's path: the stream's, and the one that messages are posted to.
pub const SSE_PATHS: [&str; 2] = ["/sse", "/messages"];

impl SsePath {
    /// Both paths, in the order of [`SSE_PATHS`].
    pub const ALL: [Self; 2] = [Self::Stream, Self::Messages];

    /// The method that the path takes.
    pub fn method(self) -> Method {
        match self {
            Self::Stream => Method::GET,
            Self::Messages => Method::POST,
        }
    }

    /// The path beside this endpoint.
    pub fn beside(self, endpoint: &EndpointId) -> String {
        let path = endpoint.as_str().trim_end_matches('/');
        format!("{path}{}", SSE_PATHS[self as usize])
    }

    /// The path of the endpoint that this path stands beside, if it has the form of one.
    pub fn endpoint_of(path: &str) -> Option<&str> {
        let endpoint = SSE_PATHS
            .into_iter()
            .find_map(|end| path.strip_suffix(end))?;
        Some(if endpoint.is_empty() { "/" } else { endpoint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_sse_paths_stand_beside_their_endpoint() {
        let paths = |endpoint| SsePath::ALL.map(|end| end.beside(&EndpointId::new(endpoint)));
        assert_eq!(paths("/mcp"), ["/mcp/sse", "/mcp/messages"]);
        assert_eq!(paths("/"), ["/sse", "/messages"]);
        assert_eq!(SsePath::endpoint_of("/mcp/sse"), Some("/mcp"));
        assert_eq!(SsePath::endpoint_of("/mcp/one/messages"), Some("/mcp/one"));
        assert_eq!(SsePath::endpoint_of("/sse"), Some("/"));
        for other in ["/mcp", "/mcp/sse/", "/mcp/ssex", "/mcpsse"] {
            assert_eq!(SsePath::endpoint_of(other), None, "{other}");
        }
    }
}
