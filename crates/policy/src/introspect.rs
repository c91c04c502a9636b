//! Opaque tokens, checked by token introspection at their issuer (RFC 7662).
//!
//! A token is sent to its issuer alone, so at most one issuer of a config accepts tokens that are
//! not JWTs. An answer is trusted for a short while; a token reported as inactive is not asked
//! about again at once.
//!
//! All requests that present a token at the same time share one introspection request, in a task
//! that goes on when they give up. Introspection requests are bounded by slots, which networks
//! share: see `introspection_slots.rs`. Renewals of active tokens have slots of their own.

mod introspection_slots;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use weir_core::network::SenderNetwork;
use weir_core::port::{BorrowedSecret, FetchRequest, UrlSource};
use weir_oauth::{ClientAuthentication, FormRequest};

use self::introspection_slots::{IntrospectionSlot, IntrospectionSlots, SlotRequest};
use crate::auth_failure::AuthFailure;
use crate::settings::{ClientSecret, TokenIssuer};
use crate::strict_json;
use crate::token::claims::TokenClaims;
use crate::token::token_refusal::TokenRefusal;
use crate::verifier_ports::VerifierPorts;

/// The largest response that is read, in bytes.
const LARGEST: usize = 64 << 10;
/// The timeout of one request.
const INTROSPECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait for a slot.
const SLOT_WAIT: Duration = Duration::from_secs(2);
/// The most requests in flight for tokens that were active in their last introspection, and the
/// number of those remembered.
const RENEWALS: usize = 64;
const ACTIVE: usize = 10_000;
/// The number of inactive tokens remembered, and the time before they are asked about again.
const REMEMBERED: usize = 1024;
const INACTIVE_CACHE_TIME: Duration = Duration::from_secs(10);

const NO_SLOT: AuthFailure = AuthFailure::Unavailable("too many tokens are being asked about");

/// A token as it came with the request.
#[derive(Clone, Copy)]
pub(crate) struct PresentedToken<'a> {
    pub(crate) text: &'a str,
    pub(crate) digest: &'a [u8; 32],
    /// The address of the client.
    pub(crate) peer: IpAddr,
}

/// The issuer's answer about an active token, or the failure.
type IntrospectionAnswer = Result<Arc<Map<String, Value>>, AuthFailure>;

/// The answer that an introspection request in flight will have.
type PendingAnswer = watch::Receiver<Option<IntrospectionAnswer>>;

/// An issuer with an introspection endpoint.
pub(crate) struct Introspector {
    state: Arc<IntrospectionState>,
    /// The requests in flight. Each ends within its timeout; all are aborted with the introspector.
    tasks: Mutex<JoinSet<()>>,
}

/// The parts of an introspector that its requests in flight need.
struct IntrospectionState {
    issuer: Arc<str>,
    url: String,
    client_id: String,
    client_secret: ClientSecret,
    ports: VerifierPorts,
    slots: Arc<IntrospectionSlots>,
    renewals: Arc<Semaphore>,
    /// Tokens that were active, by digest.
    active: Cache<[u8; 32], ()>,
    /// Tokens that were inactive, by digest, with the time of that answer.
    inactive: Cache<[u8; 32], Duration>,
    /// The requests in flight and those that wait for a slot, by the digest of their token. The
    /// slots and the places to wait for one bound their number.
    in_flight: Mutex<HashMap<[u8; 32], PendingAnswer>>,
}

/// The slot that a new request takes.
enum IntrospectionPermit {
    Renewal(#[expect(dead_code, reason = "held until dropped")] OwnedSemaphorePermit),
    Slot(#[expect(dead_code, reason = "held until dropped")] IntrospectionSlot),
    /// A slot that is not free yet; a renewal takes the first one of either kind.
    Wait {
        is_renewal: bool,
        slot: SlotRequest,
    },
}

impl Introspector {
    pub(crate) fn new(
        issuer: Arc<str>,
        url: &str,
        client_id: &str,
        client_secret: &ClientSecret,
        ports: VerifierPorts,
    ) -> Arc<Self> {
        let state = IntrospectionState {
            issuer,
            url: url.to_owned(),
            client_id: client_id.to_owned(),
            client_secret: client_secret.clone(),
            ports,
            slots: Arc::default(),
            renewals: Arc::new(Semaphore::new(RENEWALS)),
            active: Cache::new(ACTIVE),
            inactive: Cache::new(REMEMBERED),
            in_flight: Mutex::default(),
        };
        Arc::new(Self {
            state: Arc::new(state),
            tasks: Mutex::default(),
        })
    }

    /// True if it asks this endpoint as this client.
    pub(crate) fn is_same_endpoint(&self, url: &str, client: &str, secret: &ClientSecret) -> bool {
        let state = &self.state;
        state.url == url && state.client_id == client && state.client_secret == *secret
    }

    /// The claims of a token, by the issuer's answer. Cancel safe.
    pub(crate) async fn ask(
        &self,
        token: PresentedToken<'_>,
        issuer: &TokenIssuer,
    ) -> Result<TokenClaims, AuthFailure> {
        let now = self.state.ports.clock.monotonic();
        if self
            .state
            .inactive
            .get(token.digest)
            .is_some_and(|since| now.saturating_sub(since) < INACTIVE_CACHE_TIME)
        {
            return Err(TokenRefusal::Expired.into());
        }
        let mut pending = self.join_or_begin(token)?;
        let answer = match pending.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone(),
            Err(_) => None,
        };
        let lost = AuthFailure::Unavailable("the introspection request was given up");
        let claims = answer.unwrap_or(Err(lost))?;
        let claims = TokenClaims::read((*claims).clone(), issuer)?;
        claims.refuse_other_introspected_kinds()?;
        Ok(claims)
    }

    /// Joins the request in flight about a token, or begins one.
    fn join_or_begin(&self, token: PresentedToken<'_>) -> Result<PendingAnswer, AuthFailure> {
        let mut in_flight = self.state.in_flight.lock();
        if let Some(pending) = in_flight.get(token.digest) {
            return Ok(pending.clone());
        }
        let permit = self.state.permit(token).ok_or(NO_SLOT)?;
        let (sender, pending) = watch::channel(None);
        in_flight.insert(*token.digest, pending.clone());
        drop(in_flight);
        let flight = IntrospectionFlight {
            state: self.state.clone(),
            digest: *token.digest,
        };
        let text = token.text.to_owned();
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let answer = flight.run(&text, permit).await;
            // Sent before the flight ends, so that a request in between has this answer too.
            sender.send_replace(Some(answer));
            drop(flight);
        });
        Ok(pending)
    }
}

impl IntrospectionState {
    /// A slot for a new request about a token, or a place to wait for one.
    fn permit(&self, token: PresentedToken<'_>) -> Option<IntrospectionPermit> {
        let is_renewal = self.active.get(token.digest).is_some();
        if is_renewal && let Ok(permit) = self.renewals.clone().try_acquire_owned() {
            return Some(IntrospectionPermit::Renewal(permit));
        }
        match self.slots.begin(SenderNetwork::of(token.peer)) {
            SlotRequest::Granted(slot) => Some(IntrospectionPermit::Slot(slot)),
            SlotRequest::Refused if !is_renewal => None,
            slot @ (SlotRequest::Waiting(_) | SlotRequest::Refused) => {
                Some(IntrospectionPermit::Wait { is_renewal, slot })
            }
        }
    }
}

/// An introspection request in flight. It leaves the map of those when it ends, however it ends.
struct IntrospectionFlight {
    state: Arc<IntrospectionState>,
    digest: [u8; 32],
}

impl Drop for IntrospectionFlight {
    fn drop(&mut self) {
        self.state.in_flight.lock().remove(&self.digest);
    }
}

impl IntrospectionFlight {
    async fn run(&self, token: &str, permit: IntrospectionPermit) -> IntrospectionAnswer {
        let _permit = match permit {
            IntrospectionPermit::Wait { is_renewal, slot } => {
                let wait = self.wait_for_slot(is_renewal, slot);
                let waited = tokio::time::timeout(SLOT_WAIT, wait).await;
                waited.ok().flatten().ok_or(NO_SLOT)?
            }
            granted @ (IntrospectionPermit::Renewal(_) | IntrospectionPermit::Slot(_)) => granted,
        };
        let fields = [("token", token), ("token_type_hint", "access_token")];
        let state = &self.state;
        let client = ClientAuthentication::Basic(state.client_secret.expose());
        let request = FormRequest::new(&fields, &state.client_id, client);
        let ask = FetchRequest {
            url: &state.url,
            form: Some(BorrowedSecret::new(&request.form)),
            authorization: request.authorization.as_deref().map(BorrowedSecret::new),
            limit: LARGEST,
            timeout: INTROSPECTION_TIMEOUT,
            url_source: UrlSource::Operator,
        };
        let fetched = state.ports.fetch.fetch(ask).await.map_err(|failure| {
            let failure = failure.cause();
            tracing::warn!(
                issuer = &*state.issuer,
                failure,
                "token introspection failed"
            );
            AuthFailure::Unavailable("the issuer does not answer")
        })?;
        if fetched.status != 200 {
            tracing::warn!(
                issuer = &*state.issuer,
                status = fetched.status,
                "token introspection failed: unexpected status"
            );
            return Err(AuthFailure::Unavailable("the issuer does not tell"));
        }
        let mut response = strict_json::parse_object(&fetched.body).ok_or(
            AuthFailure::Unavailable("the issuer's answer is no JSON object"),
        )?;
        // Issuers write a member without a value as null.
        response.retain(|_, value| !value.is_null());
        // Only the exact value: `"true"` or 1 is not active.
        match response.get("active") {
            Some(Value::Bool(true)) => {
                state.active.insert(self.digest, ());
                Ok(Arc::new(response))
            }
            Some(Value::Bool(false)) => {
                state.active.remove(&self.digest);
                let now = state.ports.clock.monotonic();
                state.inactive.insert(self.digest, now);
                Err(TokenRefusal::Expired.into())
            }
            _ => Err(AuthFailure::Unavailable(
                "the issuer's answer does not say whether the token is active",
            )),
        }
    }

    /// Waits for a slot; for a renewal, of either kind.
    async fn wait_for_slot(
        &self,
        is_renewal: bool,
        slot: SlotRequest,
    ) -> Option<IntrospectionPermit> {
        let renewal = async {
            if !is_renewal {
                std::future::pending::<()>().await;
            }
            let permit = self.state.renewals.clone().acquire_owned().await.ok()?;
            Some(IntrospectionPermit::Renewal(permit))
        };
        let slot = async {
            match slot {
                SlotRequest::Granted(slot) => Some(slot),
                SlotRequest::Waiting(granted) => granted.await.ok(),
                SlotRequest::Refused => std::future::pending().await,
            }
        };
        tokio::select! {
            permit = renewal => permit,
            slot = slot => slot.map(IntrospectionPermit::Slot),
        }
    }
}

#[cfg(test)]
mod tests;
