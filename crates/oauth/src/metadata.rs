//! Metadata of protected resources (RFC 9728) and of authorization servers (RFC 8414, OpenID
//! Connect Discovery): the documents, and the URLs where they are.
//!
//! `M` has the members of a document that its reader needs beyond those that every reader needs.

use serde::Deserialize;
use url::Url;

use crate::optional_member::null_as_default;

/// Metadata of a protected resource (RFC 9728, 2).
#[derive(Debug, Deserialize)]
#[serde(expecting = "a JSON object")]
pub struct ProtectedResourceMetadata<M = ()> {
    /// The identifier of the resource.
    pub resource: String,
    /// The issuers of its tokens.
    #[serde(default, deserialize_with = "null_as_default")]
    pub authorization_servers: Vec<String>,
    /// Further members.
    #[serde(flatten)]
    pub members: M,
}

/// Metadata of an authorization server (RFC 8414, 2).
#[derive(Debug, Deserialize)]
#[serde(expecting = "a JSON object")]
pub struct AuthorizationServerMetadata<M> {
    /// The issuer that the document is about.
    pub issuer: String,
    /// Further members.
    #[serde(flatten)]
    pub members: M,
}

impl<M> AuthorizationServerMetadata<M> {
    /// True if the document is about `issuer`. Another document must not be used (RFC 8414, 3.3).
    pub fn is_about(&self, issuer: &str) -> bool {
        is_same_issuer(&self.issuer, issuer)
    }
}

/// True for equal issuer identifiers. They are compared character by character, except that an
/// empty path is equal to `/` (RFC 3986, 6.2.3): libraries write the URL of a root both ways.
pub fn is_same_issuer(one: &str, other: &str) -> bool {
    without_root_path(one) == without_root_path(other)
}

fn without_root_path(issuer: &str) -> &str {
    match issuer.strip_suffix('/') {
        Some(root) if root.matches('/').count() == 2 && !root.contains(['?', '#']) => root,
        _ => issuer,
    }
}

/// Returns the identifier in another party's metadata as a message for operators can quote it: at
/// most 200 characters that a URL has.
pub fn quoted_identifier(text: &str) -> String {
    let shown = text.chars().filter(char::is_ascii_graphic).take(200);
    format!("`{}`", shown.collect::<String>())
}

/// Returns the URLs of a server's protected resource metadata, in the order of trial: with the
/// server's path, then at the root (RFC 9728, 3.1).
pub fn resource_metadata_urls(server: &Url) -> Vec<Url> {
    const NAME: &str = "/.well-known/oauth-protected-resource";
    let root = with_path(server, NAME);
    match bare_path(server) {
        "" => vec![root],
        path => vec![with_path(server, &format!("{NAME}{path}")), root],
    }
}

/// Returns the URLs of an issuer's metadata, in the order of trial: RFC 8414 with the issuer's path
/// behind the well-known part, OpenID likewise, OpenID with the path before it.
pub fn server_metadata_urls(issuer: &Url) -> Vec<Url> {
    const OPENID: &str = "/.well-known/openid-configuration";
    let path = bare_path(issuer);
    let mut paths = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("{OPENID}{path}"),
    ];
    if !path.is_empty() {
        paths.push(format!("{path}{OPENID}"));
    }
    let urls = paths.iter().map(|path| with_path(issuer, path));
    urls.collect()
}

fn bare_path(url: &Url) -> &str {
    url.path().trim_end_matches('/')
}

fn with_path(url: &Url, path: &str) -> Url {
    let mut url = url.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn texts(urls: &[Url]) -> Vec<&str> {
        urls.iter().map(Url::as_str).collect()
    }

    // Proves R256.
    #[test]
    fn resource_metadata_urls_are_listed_in_order() {
        let urls = |server| resource_metadata_urls(&Url::parse(server).unwrap());
        assert_eq!(
            texts(&urls("https://a.example/mcp/team/?key=1#part")),
            [
                "https://a.example/.well-known/oauth-protected-resource/mcp/team",
                "https://a.example/.well-known/oauth-protected-resource"
            ]
        );
        assert_eq!(
            texts(&urls("https://a.example:8443")),
            ["https://a.example:8443/.well-known/oauth-protected-resource"]
        );
    }

    // Proves R257.
    #[test]
    fn issuer_metadata_urls_are_listed_in_order() {
        let urls = |issuer| server_metadata_urls(&Url::parse(issuer).unwrap());
        assert_eq!(
            texts(&urls("https://id.example.com")),
            [
                "https://id.example.com/.well-known/oauth-authorization-server",
                "https://id.example.com/.well-known/openid-configuration",
            ]
        );
        let with_path = [
            "https://id.example.com:8443/.well-known/oauth-authorization-server/a/b",
            "https://id.example.com:8443/.well-known/openid-configuration/a/b",
            "https://id.example.com:8443/a/b/.well-known/openid-configuration",
        ];
        assert_eq!(texts(&urls("https://id.example.com:8443/a/b")), with_path);
        assert_eq!(texts(&urls("https://id.example.com:8443/a/b/")), with_path);
    }

    // Proves R258.
    #[test]
    fn issuer_of_metadata_is_compared_character_by_character() {
        #[derive(Deserialize)]
        struct Endpoint {
            token_endpoint: Option<String>,
        }
        let text = r#"{"issuer":"https://id.example.com/t","token_endpoint":"https://id.example.com/token","scopes_supported":7}"#;
        let metadata: AuthorizationServerMetadata<Endpoint> = serde_json::from_str(text).unwrap();
        assert!(metadata.is_about("https://id.example.com/t"));
        for other in [
            "https://id.example.com/t/",
            "https://ID.example.com/t",
            "https://id.example.com",
        ] {
            assert!(!metadata.is_about(other), "{other}");
        }
        let endpoint = metadata.members.token_endpoint;
        assert_eq!(endpoint.as_deref(), Some("https://id.example.com/token"));
    }

    #[test]
    fn slash_of_an_empty_path_makes_no_other_issuer() {
        for (one, other, expected) in [
            ("https://id.example.com", "https://id.example.com/", true),
            (
                "https://id.example.com:8443/",
                "https://id.example.com:8443",
                true,
            ),
            ("https://id.example.com/", "https://id.example.com/", true),
            ("https://id.example.com", "https://id.example.com//", false),
            (
                "https://id.example.com",
                "https://id.example.com:8443/",
                false,
            ),
            (
                "https://id.example.com/t",
                "https://id.example.com/t/",
                false,
            ),
            (
                "https://id.example.com?t=",
                "https://id.example.com?t=/",
                false,
            ),
            ("https:/", "https:", false),
        ] {
            assert_eq!(is_same_issuer(one, other), expected, "{one} {other}");
            assert_eq!(is_same_issuer(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn members_that_no_reader_needs_may_have_any_type() {
        let text = r#"{"resource":"https://a.example","scopes_supported":"all"}"#;
        let metadata: ProtectedResourceMetadata = serde_json::from_str(text).unwrap();
        assert!(metadata.authorization_servers.is_empty());
        let null = r#"{"resource":"https://a.example","authorization_servers":null}"#;
        let metadata: ProtectedResourceMetadata = serde_json::from_str(null).unwrap();
        assert!(metadata.authorization_servers.is_empty());
        let foreign = r#"{"resource":"https://a.example","authorization_servers":"https://b"}"#;
        assert!(serde_json::from_str::<ProtectedResourceMetadata>(foreign).is_err());
    }
}
