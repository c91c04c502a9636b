//! One account at one server: the token that is good now, and the one request that is on its way
//! for the next.
//!
//! A token is renewed before it ends, at a jittered time, while the old one still serves. All who
//! need one at the same time wait for the same request; it goes on when they give up. After a
//! failure the next try waits, longer each time.

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

/// Refused tokens are not replaced more often: a server that refuses everything must not drive weir
/// to storm its authorization server.
const BETWEEN_FORCED: Duration = Duration::from_secs(5);
/// A token is not used in the last part of its life: the request has to arrive, and clocks differ.
const SKEW: Duration = Duration::from_secs(30);

/// A token, and for how long.
pub(crate) struct Bearer {
    /// The whole `Authorization` header. Sensitive. `None`: requests go without one.
    pub(crate) header: Option<HeaderValue>,
    /// From here on the next one is asked for.
    renew: Duration,
    /// From here on it is not used.
    end: Duration,
}

impl Bearer {
    /// A token that was asked for at `asked`.
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

/// An account: weir's own, or a caller's.
pub(crate) struct Account {
    grant: Arc<Grant>,
    /// The caller's token, where it is a caller's.
    subject: Option<ClientToken>,
    held: ArcSwapOption<Bearer>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    flight: Option<Flight>,
    pace: Pace,
    /// Why the last request failed, where it did.
    trouble: Option<Trouble>,
    /// When a refused token was last replaced.
    forced: Option<Duration>,
    /// Scopes the server asked for, and got.
    more: Vec<String>,
    /// Scopes the server asked for, and the authorization server did not give.
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

    /// The token to use now.
    ///
    /// # Errors
    /// `Unavailable`: there is none. Cancel safe: what is on its way arrives for the next.
    pub(crate) async fn bearer(self: &Arc<Self>) -> Result<Arc<Bearer>, Failure> {
        let now = self.grant.site().now();
        let held = self.held.load_full();
        if let Some(held) = held.as_ref().filter(|held| now < held.renew) {
            return Ok(held.clone());
        }
        let flight = self.flight(now);
        match (held.filter(|held| now < held.end), flight) {
            // The old one serves while the new one is on its way, or cannot be had for now.
            (Some(held), _) => Ok(held),
            (None, Ok(flight)) => flight
                .await
                .map_err(|trouble| trouble.failure(self.grant.site())),
            (None, Err(failure)) => Err(failure),
        }
    }

    /// Another token in place of one that the server refused with 401; `None` where asking for one
    /// makes no sense now.
    ///
    /// # Errors
    /// `Unavailable`: there is none.
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
                // Somebody else met the same refusal.
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

    /// A token with the scopes that the server asks for with 403 beside those it has; `None` where
    /// they are not to be had. Each scope is tried once.
    pub(crate) async fn stepped_up(self: &Arc<Self>, challenge: &Challenge) -> Option<Arc<Bearer>> {
        let (flight, added) = {
            let mut state = self.state();
            let mut added = self.grant.permitted(&challenge.scopes);
            added.retain(|scope| !state.more.contains(scope) && !state.denied.contains(scope));
            // One at a time: what is on its way has other scopes, and the next refusal comes here
            // again.
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

    /// The request that is on its way, or a new one if it is time for one.
    fn flight(self: &Arc<Self>, now: Duration) -> Result<Flight, Failure> {
        let mut state = self.state();
        if let Some(flight) = &state.flight {
            return Ok(flight.clone());
        }
        if let Some(held) = self.held.load_full().filter(|held| now < held.renew) {
            // It landed a moment ago.
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
        // Whoever waits may go away; the others, and the next, get what they waited for.
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
        // Every field means something by itself, whatever panicked while they were held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Account(<secret>)")
    }
}
