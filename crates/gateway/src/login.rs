//! A person's login at an MCP server that wants OAuth tokens: `weir login`, and what `weir tools`
//! and `weir call` then use by themselves.
//!
//! The client side of 2026-07-28 basic/authorization, for one person at one machine: the
//! authorization code grant with PKCE and a loopback redirect (RFC 8252). It has nothing to do with
//! how weir, the service, checks tokens or gets its own for upstreams; those are the policy and
//! upstream crates'.

mod accounts;
mod callback;
mod challenge;
mod discovery;
mod grant;
mod web;

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha256};
use url::Url;
use weir_core::port::Random;

pub(crate) use accounts::{Account, Accounts};
pub(crate) use challenge::Challenge;

use crate::system::SystemRandom;
use callback::Callback;
use discovery::Discovery;
use grant::Client;

/// How long a person may take in the browser.
const PATIENCE: Duration = Duration::from_secs(300);

/// Why a login did not work. No message has a secret in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    /// The URL is none.
    #[error("`{0}` is no http or https URL")]
    Url(String),
    /// An address that a server named is not safe to use.
    #[error("{what} is {url}, which is neither https nor on this machine")]
    Unsafe {
        /// What it was named for.
        what: &'static str,
        /// The address.
        url: String,
    },
    /// Nothing came back, or nothing that makes sense.
    #[error("{url}: {why}")]
    Web {
        /// Where.
        url: String,
        /// What came instead.
        why: String,
    },
    /// The servers do not offer what a login takes.
    #[error("{0}")]
    Unfit(String),
    /// The authorization server refused.
    #[error("the authorization server refused: {0}")]
    Refused(String),
    /// The browser's answer belongs to somebody else.
    #[error(
        "the answer came from another authorization server than the one that was asked: nothing of it was used"
    )]
    WrongIssuer,
    /// Nobody came back from the browser.
    #[error("nobody came back from the browser in {} minutes", PATIENCE.as_secs() / 60)]
    TooLate,
    /// Files or sockets of this machine.
    #[error("{what}: {error}")]
    Local {
        /// What was tried.
        what: String,
        /// What happened.
        error: std::io::Error,
    },
}

/// What a person chose on the command line.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    /// A client id that the authorization server knows; without one this client registers itself.
    pub(crate) client_id: Option<String>,
    /// Scopes, separated by spaces, beyond what the server asks for.
    pub(crate) scope: Option<String>,
    /// The port of the redirect, where the authorization server wants a certain one.
    pub(crate) port: Option<u16>,
}

/// Logs in: finds out where, sends the person there, and brings the account back. Dropping it gives
/// up.
///
/// `challenge` is what the server said when it refused; `show` gets the URL that the person must
/// open.
///
/// # Errors
/// Everything that [`LoginError`] lists; nothing is kept then.
pub(crate) async fn login(
    server: &Url,
    challenge: &Challenge,
    wishes: &Wishes,
    show: &mut (dyn FnMut(&Url) + Send),
) -> Result<Account, LoginError> {
    let found = Discovery::of(server, challenge).await?;
    let callback = Callback::bind(wishes.port).await?;
    let redirect_uri = callback.redirect_uri();
    let client = match &wishes.client_id {
        Some(id) => Client::known(id),
        None => Client::register(&found, &redirect_uri).await?,
    };
    let (state, verifier) = (random(), random());
    let scope = scopes(
        &[
            challenge.scope.as_deref().or(found.scope.as_deref()),
            wishes.scope.as_deref(),
        ],
        &found,
    );
    let ask = grant::Ask {
        client: &client,
        redirect_uri: &redirect_uri,
        state: &state,
        code_challenge: &BASE64URL_NOPAD.encode(&Sha256::digest(verifier.as_bytes())),
        scope: scope.as_deref(),
    };
    show(&ask.url(&found));
    let landed = tokio::time::timeout(PATIENCE, callback.landing(&state))
        .await
        .map_err(|_| LoginError::TooLate)??;
    // Before anything else of the answer is looked at (RFC 9207).
    found.check_issuer(landed.issuer.as_deref())?;
    let code = landed.code.map_err(LoginError::Refused)?;
    client
        .exchange(&found, &code, &redirect_uri, &verifier)
        .await
}

/// The canonical form of an MCP server's URL: no fragment, no slash at the end.
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

/// The key of a resource: its URL without a slash at the end.
fn key(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

/// Whether a token for `resource` is meant for requests to `server`: the same origin, and the same
/// path or one below.
fn covers(resource: &Url, server: &Url) -> bool {
    let (whole, part) = (key(resource), key(server));
    resource.origin() == server.origin()
        && resource.query() == server.query().filter(|_| resource.query().is_some())
        && (whole == part
            || part
                .strip_prefix(&whole)
                .is_some_and(|rest| rest.starts_with(['/', '?'])))
}

/// All of these scopes, each once, and the one that brings a refresh token where it is offered.
fn scopes(lists: &[Option<&str>], found: &Discovery) -> Option<String> {
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

/// A server's text, without what would steer the terminal.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// 256 bits that nobody guesses, fit for a URL.
fn random() -> String {
    let mut bytes = [0; 32];
    SystemRandom.fill(&mut bytes);
    BASE64URL_NOPAD.encode(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r241_a_token_is_used_below_its_resource_and_nowhere_else() {
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
