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
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use data_encoding::HEXLOWER;
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
const MAX_RESPONSE_BYTES: usize = 64 << 10;
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

/// A request without an answer of RFC 7662; for operators.
enum IntrospectionFailure {
    Unreachable(String),
    ClientRefused(u16),
    Status(u16),
    NoObject,
    NoActivity,
}

impl fmt::Display for IntrospectionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(cause) => f.write_str(cause),
            Self::ClientRefused(status) => write!(
                f,
                "status {status}: it refuses weir's `client_id` and `client_secret`"
            ),
            Self::Status(status) => write!(f, "status {status}"),
            Self::NoObject => f.write_str("its response is no JSON object"),
            Self::NoActivity => {
                f.write_str("its response does not say whether the token is active")
            }
        }
    }
}

impl IntrospectionFailure {
    fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::ClientRefused(status),
            other => Self::Status(other),
        }
    }

    /// Logs the failure, and returns that of the requests with the token.
    fn log(&self, issuer: &str) -> AuthFailure {
        match self {
            Self::ClientRefused(status) | Self::Status(status) => {
                tracing::warn!(
                    issuer,
                    status,
                    "token introspection failed: unexpected status"
                );
                AuthFailure::Unavailable("the issuer does not tell")
            }
            Self::Unreachable(_) => {
                self.log_cause(issuer);
                AuthFailure::Unavailable("the issuer does not answer")
            }
            Self::NoObject => {
                self.log_cause(issuer);
                AuthFailure::Unavailable("the issuer's answer is no JSON object")
            }
            Self::NoActivity => {
                self.log_cause(issuer);
                let why = "the issuer's answer does not say whether the token is active";
                AuthFailure::Unavailable(why)
            }
        }
    }

    fn log_cause(&self, issuer: &str) {
        tracing::warn!(issuer, failure = %self, "token introspection failed");
    }
}

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
    /// The requests in a row that the issuer has not answered.
    failures: AtomicU32,
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
            failures: AtomicU32::new(0),
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

    /// The requests in a row, up to the last one, that the issuer has not answered.
    pub(crate) fn failures(&self) -> u32 {
        self.state.failures.load(Ordering::Relaxed)
    }

    /// Asks the issuer about a made-up token, which must not be active.
    ///
    /// # Errors
    /// The failure, for operators.
    pub(crate) async fn examine(&self) -> Result<(), String> {
        let state = &self.state;
        let mut made_up = [0; 16];
        state.ports.random.fill(&mut made_up);
        let failure = match state.request(&HEXLOWER.encode(&made_up)).await {
            Ok(None) => return Ok(()),
            Ok(Some(_)) => "it says that a made-up token is active".to_owned(),
            Err(failure) => failure.to_string(),
        };
        Err(format!("{}: {failure}", state.url))
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

    /// Asks the issuer about a token. Returns its answer if the token is active.
    async fn request(
        &self,
        token: &str,
    ) -> Result<Option<Map<String, Value>>, IntrospectionFailure> {
        let fields = [("token", token), ("token_type_hint", "access_token")];
        let client = ClientAuthentication::Basic(self.client_secret.expose());
        let request = FormRequest::new(&fields, &self.client_id, client);
        let ask = FetchRequest {
            url: &self.url,
            form: Some(BorrowedSecret::new(&request.form)),
            authorization: request.authorization.as_deref().map(BorrowedSecret::new),
            limit: MAX_RESPONSE_BYTES,
            timeout: INTROSPECTION_TIMEOUT,
            url_source: UrlSource::Operator,
        };
        let fetched = self
            .ports
            .fetch
            .fetch(ask)
            .await
            .map_err(|failure| IntrospectionFailure::Unreachable(failure.cause()))?;
        if fetched.status != 200 {
            return Err(IntrospectionFailure::of_status(fetched.status));
        }
        let mut response =
            strict_json::parse_object(&fetched.body).ok_or(IntrospectionFailure::NoObject)?;
        // Issuers write an optional member without a value as null. The others are kept: a null end
        // is not the end of a token that has none.
        response.retain(|name, value| name != "iss" || !value.is_null());
        // Only the exact value: `"true"` or 1 is not active.
        match response.get("active") {
            Some(Value::Bool(true)) => Ok(Some(response)),
            Some(Value::Bool(false)) => Ok(None),
            _ => Err(IntrospectionFailure::NoActivity),
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
        let state = &self.state;
        let answered = state.request(token).await;
        match &answered {
            Ok(_) => state.failures.store(0, Ordering::Relaxed),
            Err(_) => {
                state.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
        match answered.map_err(|failure| failure.log(&state.issuer))? {
            Some(response) => {
                state.active.insert(self.digest, ());
                Ok(Arc::new(response))
            }
            None => {
                state.active.remove(&self.digest);
                let now = state.ports.clock.monotonic();
                state.inactive.insert(self.digest, now);
                Err(TokenRefusal::Expired.into())
            }
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
