//! One account at one server: its current token, and the one token request that is in flight.
//!
//! A token is renewed before it ends, at a jittered time, while the old one still serves. All
//! requests that need a token at the same time share one token request, and it goes on when they
//! give up. After a failure the next attempt waits, longer each time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt;
use futures_util::future::Shared;
use http::HeaderValue;
use weir_core::port::Random;
use weir_core::{ClientToken, Failure};

use super::Trouble;
use super::challenge::Challenge;
use super::grant::{Grant, Want};
use crate::pace::{Pace, jitter};

/// The minimum time between two replacements of refused tokens. It keeps a server that refuses
/// every token from making weir flood its authorization server.
const BETWEEN_FORCED: Duration = Duration::from_secs(5);
/// The last part of a token's life in which it is not used: the request has to arrive, and clocks
/// differ.
const SKEW: Duration = Duration::from_secs(30);

/// A token and its lifetime.
pub(crate) struct Bearer {
    /// The whole `Authorization` header. Sensitive. If absent, requests go without one.
    pub(crate) header: Option<HeaderValue>,
    /// The time at which a new token is requested.
    renew: Duration,
    /// The time at which the token expires for weir.
    end: Duration,
}

impl Bearer {
    /// Makes a token that was requested at `asked`.
    pub(crate) fn new(
        header: Option<HeaderValue>,
        asked: Duration,
        lifetime: Duration,
        random: &dyn Random,
    ) -> Self {
        let renew = asked + lifetime.mul_f64(0.75) + jitter(lifetime.mul_f64(0.1), random);
        Self {
            header,
            renew,
            end: asked + lifetime - SKEW.min(lifetime / 10),
        }
    }
}

type Landing = Pin<Box<dyn Future<Output = Result<Arc<Bearer>, Trouble>> + Send>>;
type Flight = Shared<Landing>;

/// An account of weir itself or of a caller.
pub(crate) struct Account {
    grant: Arc<Grant>,
    /// The caller's token, for a caller's account.
    subject: Option<ClientToken>,
    held: ArcSwapOption<Bearer>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    flight: Option<Flight>,
    pace: Pace,
    /// The error of the last token request, if it failed.
    trouble: Option<Trouble>,
    /// The time at which a refused token was last replaced.
    forced: Option<Duration>,
    /// Scopes that the server asked for and the authorization server granted.
    more: Vec<String>,
    /// Scopes that the server asked for and the authorization server denied.
    denied: Vec<String>,
}

impl Account {
    pub(crate) fn new(grant: Arc<Grant>, subject: Option<ClientToken>) -> Arc<Self> {
        Arc::new(Self {
            grant,
            subject,
            held: ArcSwapOption::empty(),
            state: Mutex::default(),
        })
    }

    /// Returns the token to use now.
    ///
    /// # Errors
    /// `Unavailable`: no token can be had. Cancel safe: the request in flight arrives for the next
    /// caller.
    pub(crate) async fn bearer(self: &Arc<Self>) -> Result<Arc<Bearer>, Failure> {
        let now = self.grant.site().now();
        let held = self.held.load_full();
        if let Some(held) = held.as_ref().filter(|held| now < held.renew) {
            return Ok(held.clone());
        }
        let flight = self.flight(now);
        match (held.filter(|held| now < held.end), flight) {
            // The old token serves while the new one is in flight or cannot be had.
            (Some(held), _) => Ok(held),
            (None, Ok(flight)) => flight
                .await
                .map_err(|trouble| trouble.failure(self.grant.site())),
            (None, Err(failure)) => Err(failure),
        }
    }

    /// Replaces a token that the server refused with 401. Returns no token if another request makes
    /// no sense now.
    ///
    /// # Errors
    /// `Unavailable`: no token can be had.
    pub(crate) async fn renewed(
        self: &Arc<Self>,
        refused: &Arc<Bearer>,
        challenge: Challenge,
    ) -> Result<Option<Arc<Bearer>>, Failure> {
        let now = self.grant.site().now();
        if let Some(held) = self
            .held
            .load_full()
            .filter(|held| !Arc::ptr_eq(held, refused) && now < held.end)
        {
            return Ok(Some(held));
        }
        let flight = {
            let mut state = self.state();
            match (&state.flight, state.forced) {
                // Another call met the same refusal.
                (Some(flight), _) => flight.clone(),
                (None, Some(before)) if now < before + BETWEEN_FORCED => return Ok(None),
                (None, _) => {
                    state.forced = Some(now);
                    self.start(&mut state, Some(challenge))
                }
            }
        };
        flight
            .await
            .map(Some)
            .map_err(|trouble| trouble.failure(self.grant.site()))
    }

    /// Requests a token with the scopes that the server asks for with 403, beside the scopes it
    /// has. Returns no token if they cannot be had. Each scope is tried once.
    pub(crate) async fn stepped_up(self: &Arc<Self>, challenge: &Challenge) -> Option<Arc<Bearer>> {
        let (flight, added) = {
            let mut state = self.state();
            let mut added = self.grant.permitted(&challenge.scopes);
            added.retain(|scope| !state.more.contains(scope) && !state.denied.contains(scope));
            // One request at a time: the one in flight has other scopes, and the next refusal comes
            // here again.
            if added.is_empty() || state.flight.is_some() {
                return None;
            }
            state.more.extend(added.iter().cloned());
            (self.start(&mut state, None), added)
        };
        match flight.await {
            Ok(bearer) => Some(bearer),
            Err(trouble) => {
                let mut state = self.state();
                state.more.retain(|scope| !added.contains(scope));
                state.denied.extend(added);
                // The old token is as good as before.
                state.pace.succeeded();
                tracing::warn!(upstream = %self.grant.site().id, %trouble, "scopes that the upstream asks for were not given");
                None
            }
        }
    }

    /// Returns the request in flight, or starts one if the pace allows it.
    fn flight(self: &Arc<Self>, now: Duration) -> Result<Flight, Failure> {
        let mut state = self.state();
        if let Some(flight) = &state.flight {
            return Ok(flight.clone());
        }
        if let Some(held) = self.held.load_full().filter(|held| now < held.renew) {
            // The token arrived a moment ago.
            let landed: Landing = Box::pin(std::future::ready(Ok(held)));
            return Ok(landed.shared());
        }
        match (state.pace.admit(now), &state.trouble) {
            (Ok(()), _) | (Err(_), None) => Ok(self.start(&mut state, None)),
            (Err(wait), Some(trouble)) => Err(trouble.failure(self.grant.site()).retry_after(wait)),
        }
    }

    fn start(self: &Arc<Self>, state: &mut State, challenge: Option<Challenge>) -> Flight {
        let want = Want {
            subject: self.subject.clone(),
            more: state.more.clone(),
            challenge,
        };
        let (grant, account) = (self.grant.clone(), Arc::downgrade(self));
        let request = async move {
            let outcome = grant.obtain(&want).await.map(Arc::new);
            if let Some(account) = account.upgrade() {
                account.landed(&outcome);
            }
            outcome
        };
        let request: Landing = Box::pin(request);
        let flight = request.shared();
        state.flight = Some(flight.clone());
        // The request goes on when a waiting caller leaves, so that the others and the next one get
        // its token.
        self.grant.site().spawn(flight.clone().map(drop));
        flight
    }

    fn landed(&self, outcome: &Result<Arc<Bearer>, Trouble>) {
        let site = self.grant.site();
        let mut state = self.state();
        state.flight = None;
        match outcome {
            Ok(bearer) => {
                state.pace.succeeded();
                state.trouble = None;
                self.held.store(Some(bearer.clone()));
            }
            Err(trouble) => {
                tracing::warn!(upstream = %site.id, %trouble, "no token for the upstream");
                state.pace.failed(site.now(), &*site.random);
                state.trouble = Some(trouble.clone());
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every field is valid by itself after a panic of the lock's holder.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Account(<secret>)")
    }
}
