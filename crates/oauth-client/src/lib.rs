//! Authentication of weir to a server by OAuth access tokens: weir's own, or those of its callers
//! by exchange.
//!
//! Tokens are requested early, one request at a time for each account, and only from the
//! authorization server that the operator's config names. A server's metadata can stop weir from
//! using its credentials there; it cannot send them elsewhere. A caller's own token is shown to
//! that authorization server alone.

mod authorized_http_client;
mod bearer_token;
mod challenge_headers;
mod settings;
mod token_account;
mod token_context;
mod token_discovery;
mod token_error;
mod token_fetcher;
mod token_response;

use std::fmt;
use std::sync::Arc;

use quick_cache::sync::Cache;
use weir_core::port::DocumentFetcher;
use weir_core::upstream::OutboundCall;
use weir_core::{Failure, FailureKind};
use weir_http_client::HttpClient;

pub use authorized_http_client::{AuthorizedHttpClient, SendError};
pub use challenge_headers::read_challenge;
pub use settings::{
    ClientAuthMethod, ProvidedToken, SharedTokenProvider, TokenAuthority, TokenExchange,
    TokenProvider, UpstreamOAuth,
};
use token_account::TokenAccount;
pub use token_context::TokenContext;
use token_fetcher::TokenFetcher;

/// The most callers with a kept exchanged token at one server. The least recently used is evicted
/// first and is exchanged anew.
const MAX_CALLER_ACCOUNTS: usize = 4096;

/// The accounts of weir and its callers at one server.
pub struct UpstreamCredentials {
    http: HttpClient,
    grant: Arc<TokenFetcher>,
    service: Arc<TokenAccount>,
    /// Present if calls are made in the name of their callers.
    callers: Option<Arc<Cache<CallerTokenKey, Arc<TokenAccount>>>>,
}

/// The account's key: its principal and the token. The token is part of it because a narrower token
/// of the same caller must not get more than it allows.
#[derive(Clone, PartialEq, Eq, Hash)]
struct CallerTokenKey {
    principal: [u8; 16],
    token: [u8; 16],
}

impl UpstreamCredentials {
    /// Makes the accounts at the server behind `http`. Requests no token before the first request.
    pub fn new(
        context: TokenContext,
        http: HttpClient,
        fetch: Arc<dyn DocumentFetcher>,
        settings: UpstreamOAuth,
    ) -> Self {
        let callers = settings
            .exchange
            .as_ref()
            .map(|_| Arc::new(Cache::new(MAX_CALLER_ACCOUNTS)));
        let grant = Arc::new(TokenFetcher::new(context, http.clone(), fetch, settings));
        let service = TokenAccount::new(grant.clone(), None);
        Self {
            http,
            grant,
            service,
            callers,
        }
    }

    /// Returns the same accounts for another instance of the server, behind `http`: an instance
    /// takes the tokens of the others.
    #[must_use]
    pub fn at_instance(&self, http: HttpClient) -> Self {
        Self {
            http,
            grant: self.grant.clone(),
            service: self.service.clone(),
            callers: self.callers.clone(),
        }
    }

    /// Returns the client that uses weir's own account: for probes, lists, watches, and the calls
    /// of servers without exchange.
    pub fn own_client(&self) -> AuthorizedHttpClient {
        AuthorizedHttpClient::of_account(self.http.clone(), self.service.clone())
    }

    /// Returns the client of a caller whose token is not known yet, which sends no request; absent
    /// for a server without exchange.
    pub fn unknown_caller_client(&self) -> Option<AuthorizedHttpClient> {
        self.callers.as_ref().map(|_| {
            let upstream = self.grant.context().label.id.clone();
            AuthorizedHttpClient::of_unknown_caller(self.http.clone(), upstream)
        })
    }

    /// True if calls are made in the accounts of their callers.
    pub fn are_of_callers(&self) -> bool {
        self.callers.is_some()
    }

    /// Returns the client that uses the caller's account; absent for a server without exchange.
    ///
    /// # Errors
    /// `Denied`: the caller showed no token that could be exchanged.
    pub fn caller_client(
        &self,
        outbound: &OutboundCall,
    ) -> Result<Option<AuthorizedHttpClient>, Failure> {
        let Some(callers) = &self.callers else {
            return Ok(None);
        };
        let Some(token) = outbound
            .token
            .as_ref()
            .filter(|_| !outbound.principal.is_anonymous())
        else {
            let text = "This upstream is called in the name of its caller only: connect to weir with an OAuth access token";
            return Err(self.grant.context().label.fail(FailureKind::Denied, text));
        };
        let key = CallerTokenKey {
            principal: *outbound.principal.digest(),
            token: token.digest(),
        };
        let account = match callers.get(&key) {
            Some(account) => account,
            None => {
                let account = TokenAccount::new(self.grant.clone(), Some(token.clone()));
                // If two calls come at once the first account stays, so that both wait for one
                // exchange.
                callers.get_or_insert_with(&key, || Ok::<_, Failure>(account))?
            }
        };
        Ok(Some(AuthorizedHttpClient::of_account(
            self.http.clone(),
            account,
        )))
    }
}

impl fmt::Debug for UpstreamCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UpstreamCredentials(<secret>)")
    }
}
