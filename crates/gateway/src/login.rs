//! A person's login at an MCP server that requires OAuth tokens: `weir login`, and the tokens that
//! `weir tools` and `weir call` use.
//!
//! The client side of specification 2026-07-28, basic/authorization, for one person at one machine:
//! the authorization code grant with PKCE and a loopback redirect (RFC 8252). The service checks
//! tokens in the policy crate and gets its own for upstreams in the upstream crate, independently
//! of this module.

mod accounts;
mod challenge;
mod discovery;
mod grant;
mod json_http;
mod redirect_listener;

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha256};
use url::Url;
use weir_core::port::Random;

pub(crate) use accounts::{LoginAccount, LoginAccounts};
pub(crate) use challenge::LoginChallenge;

use crate::system::SystemRandom;
use discovery::LoginDiscovery;
use grant::LoginClient;
use redirect_listener::RedirectListener;

/// The time that a person may take in the browser.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(300);

/// The reason why a login failed. No message has a secret in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    /// The URL is not http or https.
    #[error("`{0}` is not an http or https URL")]
    Url(String),
    /// An address that a server named is not safe to use.
    #[error("{what} is {url}, which is neither https nor on this machine")]
    Unsafe {
        /// The address's purpose.
        what: &'static str,
        /// The address.
        url: String,
    },
    /// No response came, or one that is invalid.
    #[error("{url}: {why}")]
    Web {
        /// The URL of the request.
        url: String,
        /// The reason.
        why: String,
    },
    /// The servers, or this machine's environment, lack a feature that a login needs.
    #[error("{0}")]
    Unfit(String),
    /// The authorization server refused.
    #[error("the authorization server refused: {0}")]
    Refused(String),
    /// The browser's answer is from another authorization server.
    #[error("the response came from another authorization server, and was not used")]
    WrongIssuer,
    /// The browser did not return in time.
    #[error("the browser did not return within {} minutes", BROWSER_TIMEOUT.as_secs() / 60)]
    TooLate,
    /// A file or socket of this machine failed.
    #[error("{what}: {error}")]
    Local {
        /// The operation.
        what: String,
        /// The error.
        error: std::io::Error,
    },
}

/// The person's choices on the command line.
#[derive(Debug, Default)]
pub(crate) struct LoginChoices {
    /// A client id that the authorization server knows; without one this client registers itself.
    pub(crate) client_id: Option<String>,
    /// Scopes, separated by spaces, beyond those that the server asks for.
    pub(crate) scope: Option<String>,
    /// The port of the redirect, if the authorization server requires a certain one.
    pub(crate) port: Option<u16>,
}

/// Logs in: discovers the authorization server, sends the person there, and returns the account.
/// Dropping the future gives up.
///
/// `challenge` is from the server's refusal; `show` gets the URL that the person must open.
///
/// # Errors
///
/// Any [`LoginError`]; no account is kept then.
pub(crate) async fn login(
    server: &Url,
    challenge: &LoginChallenge,
    wishes: &LoginChoices,
    show: &mut (dyn FnMut(&Url) + Send),
) -> Result<LoginAccount, LoginError> {
    let found = LoginDiscovery::of(server, challenge).await?;
    let callback = RedirectListener::bind(wishes.port).await?;
    let redirect_uri = callback.redirect_uri();
    let client = match &wishes.client_id {
        Some(id) => LoginClient::known(id),
        None => LoginClient::register(&found, &redirect_uri).await?,
    };
    let (state, verifier) = (random(), random());
    let scope = scopes(
        &[
            challenge.scope.as_deref().or(found.scope.as_deref()),
            wishes.scope.as_deref(),
        ],
        &found,
    );
    let ask = grant::LoginAuthorizationRequest {
        client: &client,
        redirect_uri: &redirect_uri,
        state: &state,
        code_challenge: &BASE64URL_NOPAD.encode(&Sha256::digest(verifier.as_bytes())),
        scope: scope.as_deref(),
    };
    show(&ask.url(&found));
    let landed = tokio::time::timeout(BROWSER_TIMEOUT, callback.wait_for_response(&state))
        .await
        .map_err(|_| LoginError::TooLate)??;
    // The first check of the answer (RFC 9207).
    found.check_issuer(landed.issuer.as_deref())?;
    let code = landed.code.map_err(LoginError::Refused)?;
    client
        .exchange(&found, &code, &redirect_uri, &verifier)
        .await
}

/// Parses an MCP server's URL into its canonical form: no fragment, no slash at the end.
pub(crate) fn server_url(text: &str) -> Result<Url, LoginError> {
    let wrong = || LoginError::Url(text.to_owned());
    let mut url = Url::parse(text).map_err(|_| wrong())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong());
    }
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

/// Returns the key of a resource: its URL without a slash at the end.
fn key(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

/// Reports if a token for `resource` may go to `server`: the same origin, and the same path or one
/// below.
fn covers(resource: &Url, server: &Url) -> bool {
    let (whole, part) = (key(resource), key(server));
    resource.origin() == server.origin()
        && resource.query() == server.query().filter(|_| resource.query().is_some())
        && (whole == part
            || part
                .strip_prefix(&whole)
                .is_some_and(|rest| rest.starts_with(['/', '?'])))
}

/// Joins these scopes, each once, with the scope for a refresh token if it is offered.
fn scopes(lists: &[Option<&str>], found: &LoginDiscovery) -> Option<String> {
    let mut all: Vec<&str> = Vec::new();
    let offline = found.offline_access().then_some("offline_access");
    for scope in lists
        .iter()
        .flatten()
        .flat_map(|list| list.split_ascii_whitespace())
        .chain(offline)
    {
        if !all.contains(&scope) {
            all.push(scope);
        }
    }
    (!all.is_empty()).then(|| all.join(" "))
}

/// Returns a server's text without control characters, which could steer the terminal.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Returns 256 random bits, fit for a URL.
fn random() -> String {
    let mut bytes = [0; 32];
    SystemRandom.fill(&mut bytes);
    BASE64URL_NOPAD.encode(&bytes)
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
    }
}
