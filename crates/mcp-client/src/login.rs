//! A person's login at an MCP server that requires OAuth tokens: `weir login`, and the tokens that
//! `weir tools` and `weir call` use.
//!
//! The client side of specification 2026-07-28, basic/authorization, for one person at one machine:
//! the authorization code grant with PKCE and a loopback redirect (RFC 8252). The
//! formats are those of `weir-oauth`, as for the other OAuth clients of weir; the requests, limits
//! and errors are this module's.

mod accounts;
mod discovery;
mod grant;
mod json_http;
mod login_account;
mod login_choices;
mod login_error;
mod redirect_listener;
mod server_url;

use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha256};
use url::Url;
use weir_core::port::Random;
use weir_oauth::BearerChallenge;

pub use accounts::{LoginAccounts, Logout};
pub use login_account::LoginAccount;
pub use login_choices::LoginChoices;
pub use login_error::LoginError;
pub use server_url::server_url;

use discovery::{LoginDiscovery, OFFLINE_ACCESS};
use grant::LoginClient;
use login_error::BROWSER_TIMEOUT;
use redirect_listener::RedirectListener;
use weir_system::SystemRandom;

/// Logs in: discovers the authorization server, sends the person there, and returns the account.
/// Dropping the future gives up.
///
/// `challenge` is from the server's refusal; `show` gets the URL that the person must open. A login
/// with scopes of the person's choice keeps those of the earlier login for the same resource in
/// `accounts`; a login without them starts anew.
///
/// # Errors
///
/// Any [`LoginError`]; no account is kept then.
pub async fn login(
    server: &Url,
    challenge: &BearerChallenge,
    choices: &LoginChoices,
    accounts: &LoginAccounts,
    show: &mut (dyn FnMut(&Url) + Send),
) -> Result<LoginAccount, LoginError> {
    let found = LoginDiscovery::of(server, challenge, choices).await?;
    let callback = RedirectListener::bind(choices.port).await?;
    let redirect_uri = callback.redirect_uri();
    let client = match &choices.client_id {
        Some(id) => LoginClient::known(id),
        None => LoginClient::register(&found, &redirect_uri).await?,
    };
    let (state, verifier) = (random(), random());
    let earlier = match choices.scope {
        Some(_) => accounts.scope(&found.resource, &found.issuer)?,
        None => None,
    };
    let scope = scopes(
        &[
            challenge.scope.as_deref().or(found.scope.as_deref()),
            earlier.as_deref(),
            choices.scope.as_deref(),
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

/// Joins these scopes, each once, with the scope for a refresh token if it is offered.
fn scopes(lists: &[Option<&str>], found: &LoginDiscovery) -> Option<String> {
    let mut all: Vec<&str> = Vec::new();
    let offline = found.offline_access().then_some(OFFLINE_ACCESS);
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

/// Returns 256 random bits, fit for a URL.
fn random() -> String {
    let mut bytes = [0; 32];
    SystemRandom.fill(&mut bytes);
    BASE64URL_NOPAD.encode(&bytes)
}
