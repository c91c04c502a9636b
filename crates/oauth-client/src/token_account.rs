//! One account at one server: its current token, and the one token request that is in flight.
//!
//! A token is renewed before it ends, at a jittered time, while the old one still serves. All
//! requests that need a token at the same time share one token request, and it goes on when they
//! give up. After a failure the next attempt waits, longer each time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt;
use futures_util::future::Shared;
use parking_lot::Mutex;
use weir_core::{ClientToken, Failure};
use weir_oauth::BearerChallenge;
use weir_upstream_core::retry_backoff::RetryBackoff;

use crate::bearer_token::BearerToken;
use crate::token_error::TokenError;
use crate::token_fetcher::{TokenFetcher, UpstreamTokenRequest};

/// The minimum time between two replacements of refused tokens. It keeps a server that refuses
/// every token from making weir flood its authorization server.
const FORCED_RENEWAL_INTERVAL: Duration = Duration::from_secs(5);
type TokenFuture = Pin<Box<dyn Future<Output = Result<Arc<BearerToken>, TokenError>> + Send>>;

/// A token request in flight, shared by all that wait for it.
#[derive(Clone)]
struct TokenFlight {
    outcome: Shared<TokenFuture>,
    /// The scopes that it adds. Its failure is none of a request without them.
    step_up: Arc<[String]>,
}

/// An account of weir itself or of a caller.
pub(crate) struct TokenAccount {
    grant: Arc<TokenFetcher>,
    /// The caller's token, for a caller's account.
    subject: Option<ClientToken>,
    current: ArcSwapOption<BearerToken>,
    state: Mutex<TokenAccountState>,
}

#[derive(Default)]
struct TokenAccountState {
    in_flight: Option<TokenFlight>,
    pace: RetryBackoff,
    /// The backoff of requests with further scopes. Their failures do not delay a renewal.
    step_up_pace: RetryBackoff,
    /// The error of the last token request, if it failed.
    last_error: Option<TokenError>,
    /// The time at which a refused token was last replaced.
    last_forced: Option<Duration>,
    /// The scopes that the authorization server stated for the last token without added scopes.
    default_scopes: Vec<String>,
    /// Scopes that the server asked for and the authorization server granted.
    added_scopes: Vec<String>,
    /// Scopes that the server asked for and the authorization server denied.
    denied_scopes: Vec<String>,
}

impl TokenAccount {
    pub(crate) fn new(grant: Arc<TokenFetcher>, subject: Option<ClientToken>) -> Arc<Self> {
        Arc::new(Self {
            grant,
            subject,
            current: ArcSwapOption::empty(),
            state: Mutex::default(),
        })
    }

    /// Returns the token to use now.
    ///
    /// # Errors
    /// `Unavailable`: no token can be had. Cancel safe: the request in flight arrives for the next
    /// caller.
    pub(crate) async fn current_token(self: &Arc<Self>) -> Result<Arc<BearerToken>, Failure> {
        let now = self.grant.context().clock.now();
        let held = self.current.load_full();
        if let Some(held) = held.as_ref().filter(|held| now < held.renew_at) {
            return Ok(held.clone());
        }
        let held = held.filter(|held| now < held.expires_at);
        loop {
            let flight = self.token_request(now);
            // The old token serves while the new one is in flight or cannot be had.
            if let Some(held) = held {
                return Ok(held);
            }
            let flight = flight?;
            match flight.outcome.await {
                Err(_) if !flight.step_up.is_empty() => {}
                outcome => return outcome.map_err(|trouble| self.failure(&trouble)),
            }
        }
    }

    /// Replaces a token that the server refused with 401. Returns no token if another request makes
    /// no sense now.
    ///
    /// # Errors
    /// `Unavailable`: no token can be had.
    pub(crate) async fn replace_refused(
        self: &Arc<Self>,
        refused: &Arc<BearerToken>,
        challenge: BearerChallenge,
    ) -> Result<Option<Arc<BearerToken>>, Failure> {
        let now = self.grant.context().clock.now();
        if let Some(held) = self
            .current
            .load_full()
            .filter(|held| !Arc::ptr_eq(held, refused) && now < held.expires_at)
        {
            return Ok(Some(held));
        }
        loop {
            let flight = {
                let mut state = self.state.lock();
                match (&state.in_flight, state.last_forced) {
                    // Another call met the same refusal.
                    (Some(flight), _) => flight.clone(),
                    (None, Some(before)) if now < before + FORCED_RENEWAL_INTERVAL => {
                        return Ok(None);
                    }
                    (None, _) => {
                        state.last_forced = Some(now);
                        self.start_request(&mut state, Some(challenge.clone()), Vec::new())
                    }
                }
            };
            match flight.outcome.await {
                Err(_) if !flight.step_up.is_empty() => {}
                outcome => {
                    return outcome.map(Some).map_err(|trouble| self.failure(&trouble));
                }
            }
        }
    }

    /// Returns a token with the scopes that the server asks for in the 403 to a request with the
    /// token `used`, beside the scopes it has. Returns no token if they cannot be had. All calls
    /// share one token request. A scope is not asked for again once it was granted or refused.
    pub(crate) async fn step_up(
        self: &Arc<Self>,
        used: &Arc<BearerToken>,
        challenge: &BearerChallenge,
    ) -> Option<Arc<BearerToken>> {
        let mut wanted = self.grant.permitted_scopes(challenge);
        loop {
            let (flight, is_final) = {
                let mut state = self.state.lock();
                wanted.retain(|scope| !state.denied_scopes.contains(scope));
                if wanted.is_empty() {
                    return None;
                }
                let mut missing = wanted.clone();
                missing.retain(|scope| !state.added_scopes.contains(scope));
                if missing.is_empty() {
                    // The scopes came while the request with the other token was under way.
                    let now = self.grant.context().clock.now();
                    return self
                        .current
                        .load_full()
                        .filter(|held| !Arc::ptr_eq(held, used) && now < held.expires_at);
                }
                match &state.in_flight {
                    Some(flight) => {
                        let is_final = missing.iter().all(|scope| flight.step_up.contains(scope));
                        (flight.clone(), is_final)
                    }
                    None => {
                        let now = self.grant.context().clock.now();
                        if state
                            .pace
                            .admit(now)
                            .and(state.step_up_pace.admit(now))
                            .is_err()
                        {
                            return None;
                        }
                        (self.start_request(&mut state, None, missing), true)
                    }
                }
            };
            let outcome = flight.outcome.await;
            // After a request without these scopes one with them follows.
            if is_final {
                return outcome.ok();
            }
        }
    }

    /// Returns the request in flight, or starts one if the pace allows it.
    fn token_request(self: &Arc<Self>, now: Duration) -> Result<TokenFlight, Failure> {
        let mut state = self.state.lock();
        if let Some(flight) = &state.in_flight {
            return Ok(flight.clone());
        }
        if let Some(held) = self.current.load_full().filter(|held| now < held.renew_at) {
            // The token arrived a moment ago.
            let landed: TokenFuture = Box::pin(std::future::ready(Ok(held)));
            return Ok(TokenFlight {
                outcome: landed.shared(),
                step_up: Arc::default(),
            });
        }
        match (state.pace.admit(now), &state.last_error) {
            (Ok(()), _) | (Err(_), None) => Ok(self.start_request(&mut state, None, Vec::new())),
            (Err(wait), Some(trouble)) => Err(self.failure(trouble).retry_after(wait)),
        }
    }

    /// Starts a token request. `step_up` are the scopes that the request adds, at first for itself:
    /// they are part of further requests once it succeeded.
    fn start_request(
        self: &Arc<Self>,
        state: &mut TokenAccountState,
        challenge: Option<BearerChallenge>,
        step_up: Vec<String>,
    ) -> TokenFlight {
        let want = UpstreamTokenRequest {
            subject: self.subject.clone(),
            default_scopes: state.default_scopes.clone(),
            added_scopes: [&*state.added_scopes, &*step_up].concat(),
            challenge,
        };
        let step_up: Arc<[String]> = step_up.into();
        let added = step_up.clone();
        let (grant, account) = (self.grant.clone(), Arc::downgrade(self));
        let request = async move {
            let outcome = grant.fetch_token(&want).await.map(Arc::new);
            if let Some(account) = account.upgrade() {
                account.finish_request(&added, &outcome);
            }
            outcome
        };
        let request: TokenFuture = Box::pin(request);
        let flight = TokenFlight {
            outcome: request.shared(),
            step_up,
        };
        state.in_flight = Some(flight.clone());
        // The request goes on when a waiting caller leaves, so that the others and the next one get
        // its token.
        self.grant
            .context()
            .tasks
            .spawn(flight.outcome.clone().map(drop));
        flight
    }

    /// Keeps the outcome of a token request. It runs with the request, which goes on when every
    /// waiting caller leaves.
    fn finish_request(&self, step_up: &[String], outcome: &Result<Arc<BearerToken>, TokenError>) {
        let context = self.grant.context();
        let mut state = self.state.lock();
        state.in_flight = None;
        match outcome {
            Ok(bearer) => {
                state.pace.record_success();
                state.last_error = None;
                if !step_up.is_empty() {
                    state.step_up_pace.record_success();
                    state.added_scopes.extend_from_slice(step_up);
                } else if state.added_scopes.is_empty() {
                    state.default_scopes.clone_from(&bearer.stated_scopes);
                }
                self.current.store(Some(bearer.clone()));
            }
            // The old token is as good as before.
            Err(trouble) if !step_up.is_empty() && trouble.is_scope_refusal => {
                tracing::warn!(upstream = %context.label.id, %trouble, "token step-up failed: requested scopes not granted");
                state.denied_scopes.extend_from_slice(step_up);
            }
            Err(trouble) => {
                tracing::warn!(upstream = %context.label.id, %trouble, "token request failed");
                if trouble.is_scope_refusal {
                    // The next request is one without the scopes that are not granted any more.
                    let added = std::mem::take(&mut state.added_scopes);
                    state.denied_scopes.extend(added);
                }
                let pace = if step_up.is_empty() {
                    state.last_error = Some(trouble.clone());
                    &mut state.pace
                } else {
                    &mut state.step_up_pace
                };
                pace.record_failure(context.clock.now(), context.clock.random());
            }
        }
    }

    fn failure(&self, trouble: &TokenError) -> Failure {
        trouble.failure(self.grant.context())
    }
}

impl fmt::Debug for TokenAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenAccount(<secret>)")
    }
}
