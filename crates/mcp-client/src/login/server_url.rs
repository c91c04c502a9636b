//! URLs of MCP servers, and the resources that a token is for.

use url::Url;

use crate::login::login_error::LoginError;

/// Parses an MCP server's URL into its canonical form: no fragment, no slash at the end.
pub fn server_url(text: &str) -> Result<Url, LoginError> {
    let wrong = || LoginError::Url(text.to_owned());
    let mut url = Url::parse(text).map_err(|_| wrong())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(LoginError::UserInfo(weir_text::url_without_credentials(
            text,
        )));
    }
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

/// Returns the key of a resource: its URL without a slash at the end.
pub(super) fn key(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

/// Reports if a token for `resource` may go to `server`: the same origin, and the same path or one
/// below.
pub(super) fn covers(resource: &Url, server: &Url) -> bool {
    let (whole, part) = (key(resource), key(server));
    resource.origin() == server.origin()
        && resource.query() == server.query().filter(|_| resource.query().is_some())
        && (whole == part
            || part
                .strip_prefix(&whole)
                .is_some_and(|rest| rest.starts_with(['/', '?'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves R241.
    #[test]
    fn a_token_is_used_below_its_resource_and_nowhere_else() {
        let covered = |resource: &str, server: &str| {
            covers(
                &server_url(resource).expect("a URL"),
                &server_url(server).expect("a URL"),
            )
        };
        assert!(covered(
            "https://a.example/mcp",
            "HTTPS://A.example:443/mcp/"
        ));
        assert!(covered("https://a.example", "https://a.example/mcp"));
        assert!(covered(
            "https://a.example/mcp",
            "https://a.example/mcp/team"
        ));
        assert!(!covered("https://a.example/mcp", "https://a.example/mcp2"));
        assert!(!covered("https://a.example/mcp", "https://a.example/"));
        assert!(!covered("https://a.example/mcp", "http://a.example/mcp"));
        assert!(!covered(
            "https://a.example/mcp",
            "https://a.example:8443/mcp"
        ));
        assert!(!covered(
            "https://a.example/mcp",
            "https://a.example.evil.example/mcp"
        ));
        assert!(!covered(
            "https://a.example/mcp?tenant=1",
            "https://a.example/mcp?tenant=2"
        ));
    }

    #[test]
    fn only_http_urls_are_servers() {
        for bad in [
            "",
            "mcp",
            "ftp://a.example/",
            "javascript:alert(1)",
            "http://",
        ] {
            assert!(matches!(server_url(bad), Err(LoginError::Url(_))), "{bad}");
        }
        for bad in ["http://u@a.example/mcp", "http://u:canary@a.example/mcp?x"] {
            let error = server_url(bad).expect_err(bad);
            assert!(matches!(error, LoginError::UserInfo(_)), "{error:?}");
            assert!(
                error.to_string().starts_with("http://a.example/mcp was"),
                "{error}"
            );
        }
    }
}
