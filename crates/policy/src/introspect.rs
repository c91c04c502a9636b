//! Opaque tokens, checked by token introspection at their issuer (RFC 7662).
//!
//! A token is sent to its issuer alone, so at most one issuer of a config accepts tokens that are
//! not JWTs. An answer is trusted for a short while; a token reported as inactive is not asked
//! about again at once.
//!
//! Requests to the issuer are bounded, and the bound is shared: a network may have as many in
//! flight as are free, so that one network has at most half and leaves some for the others.
//! Renewals of active tokens have slots of their own.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quick_cache::sync::Cache;
use serde_json::Value;
use tokio::sync::Semaphore;
use weir_core::network::SenderNetwork;
use weir_core::port::{BorrowedSecret, FetchRequest, UrlSource};
use weir_oauth::{ClientAuthentication, FormRequest};

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
/// The most introspection requests in flight; further requests of clients get "unavailable".
const MAX_IN_FLIGHT: usize = 128;
/// The same for tokens that were active in their last introspection, and the number of those
/// remembered.
const RENEWALS: usize = 64;
const ACTIVE: usize = 10_000;
/// The number of inactive tokens remembered, and the time before they are asked about again.
const REMEMBERED: usize = 1024;
const INACTIVE_CACHE_TIME: Duration = Duration::from_secs(10);

/// A token as it came with the request.
#[derive(Clone, Copy)]
pub(crate) struct PresentedToken<'a> {
    pub(crate) text: &'a str,
    pub(crate) digest: &'a [u8; 32],
    /// The address of the client.
    pub(crate) peer: IpAddr,
}

/// An issuer with an introspection endpoint.
pub(crate) struct Introspector {
    url: String,
    client_id: String,
    client_secret: ClientSecret,
    slots: IntrospectionSlots,
    renewals: Semaphore,
    /// Tokens that were active, by digest.
    active: Cache<[u8; 32], ()>,
    /// Tokens that were inactive, by digest, with the time of that answer.
    inactive: Cache<[u8; 32], Duration>,
}

impl Introspector {
    pub(crate) fn new(url: &str, client_id: &str, client_secret: &ClientSecret) -> Self {
        Self {
            url: url.to_owned(),
            client_id: client_id.to_owned(),
            client_secret: client_secret.clone(),
            slots: IntrospectionSlots::default(),
            renewals: Semaphore::new(RENEWALS),
            active: Cache::new(ACTIVE),
            inactive: Cache::new(REMEMBERED),
        }
    }

    /// The claims of a token that came from `peer`, by the issuer's answer. Cancel safe.
    pub(crate) async fn ask(
        &self,
        PresentedToken {
            text: token,
            digest,
            peer,
        }: PresentedToken<'_>,
        issuer: &TokenIssuer,
        ports: &VerifierPorts,
    ) -> Result<TokenClaims, AuthFailure> {
        let now = ports.clock.monotonic();
        if self
            .inactive
            .get(digest)
            .is_some_and(|since| now.saturating_sub(since) < INACTIVE_CACHE_TIME)
        {
            return Err(TokenRefusal::Expired.into());
        }
        let renewal = self
            .active
            .get(digest)
            .and_then(|()| self.renewals.try_acquire().ok());
        let question = if renewal.is_none() {
            self.slots.begin(SenderNetwork::of(peer))
        } else {
            None
        };
        if renewal.is_none() && question.is_none() {
            return Err(AuthFailure::Unavailable(
                "too many tokens are being asked about",
            ));
        }
        let fields = [("token", token), ("token_type_hint", "access_token")];
        let client = ClientAuthentication::Basic(self.client_secret.expose());
        let request = FormRequest::new(&fields, &self.client_id, client);
        let ask = FetchRequest {
            url: &self.url,
            form: Some(BorrowedSecret::new(&request.form)),
            authorization: request.authorization.as_deref().map(BorrowedSecret::new),
            limit: LARGEST,
            timeout: INTROSPECTION_TIMEOUT,
            url_source: UrlSource::Operator,
        };
        let fetched = ports.fetch.fetch(ask).await.map_err(|failure| {
            tracing::warn!(issuer = &*issuer.name, %failure, "token introspection failed");
            AuthFailure::Unavailable("the issuer does not answer")
        })?;
        if fetched.status != 200 {
            tracing::warn!(
                issuer = &*issuer.name,
                status = fetched.status,
                "token introspection failed: unexpected status"
            );
            return Err(AuthFailure::Unavailable("the issuer does not tell"));
        }
        let said = strict_json::parse_object(&fetched.body).ok_or(AuthFailure::Unavailable(
            "the issuer's answer is no JSON object",
        ))?;
        // Only the exact value: `"true"` or 1 is not active.
        match said.get("active") {
            Some(Value::Bool(true)) => {
                self.active.insert(*digest, ());
                Ok(TokenClaims::read(said, issuer)?)
            }
            Some(Value::Bool(false)) => {
                self.active.remove(digest);
                self.inactive.insert(*digest, now);
                Err(TokenRefusal::Expired.into())
            }
            _ => Err(AuthFailure::Unavailable(
                "the issuer's answer does not say whether the token is active",
            )),
        }
    }
}

/// Introspection requests in flight, by the network of the client.
#[derive(Default)]
struct IntrospectionSlots(Mutex<HashMap<SenderNetwork, usize>>);

impl IntrospectionSlots {
    /// Begins a request, if fewer of this network are in flight than are free.
    fn begin(&self, network: SenderNetwork) -> Option<IntrospectionSlot<'_>> {
        let mut under_way = self.under_way();
        let free = MAX_IN_FLIGHT - under_way.values().sum::<usize>();
        let own = under_way.entry(network).or_default();
        if *own < free {
            *own += 1;
            return Some(IntrospectionSlot {
                questions: self,
                network,
            });
        }
        if *own == 0 {
            under_way.remove(&network);
        }
        None
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<SenderNetwork, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in flight.
struct IntrospectionSlot<'a> {
    questions: &'a IntrospectionSlots,
    network: SenderNetwork,
}

impl Drop for IntrospectionSlot<'_> {
    fn drop(&mut self) {
        let mut under_way = self.questions.under_way();
        if let Some(own) = under_way.get_mut(&self.network) {
            *own -= 1;
            if *own == 0 {
                under_way.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use weir_core::Failure;
    use weir_core::port::{DocumentFetcher, FetchResponse, Fut};
    use weir_testkit::owned_task::OwnedTask;
    use weir_testkit::{FakeRandom, TokioClock};

    use super::*;
    use crate::settings::TokenValidation;

    /// An issuer that answers while its gate is open.
    struct GatedIssuer {
        gate: Semaphore,
        says_active: AtomicBool,
        asked: AtomicUsize,
    }

    impl DocumentFetcher for GatedIssuer {
        fn fetch<'a>(&'a self, _ask: FetchRequest<'a>) -> Fut<'a, Result<FetchResponse, Failure>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            Box::pin(async {
                let _open = self.gate.acquire().await;
                let body = format!(
                    "{{\"active\":{}}}",
                    self.says_active.load(Ordering::Relaxed)
                );
                Ok(FetchResponse {
                    status: 200,
                    max_age: None,
                    body: body.into(),
                })
            })
        }
    }

    /// An introspector with its issuer.
    #[derive(Clone)]
    struct IntrospectorFixture {
        introspector: Arc<Introspector>,
        issuer: Arc<TokenIssuer>,
        gated: Arc<GatedIssuer>,
        ports: VerifierPorts,
    }

    impl IntrospectorFixture {
        fn new() -> Self {
            let gated = Arc::new(GatedIssuer {
                gate: Semaphore::new(Semaphore::MAX_PERMITS),
                says_active: AtomicBool::new(true),
                asked: AtomicUsize::new(0),
            });
            let password = ClientSecret::new("secret".to_owned());
            let url = "https://id.example.com/introspect".to_owned();
            let introspector = Arc::new(Introspector::new(&url, "weir", &password));
            let issuer = Arc::new(TokenIssuer {
                name: "https://id.example.com".into(),
                validation: TokenValidation::Introspection {
                    url,
                    client_id: "weir".to_owned(),
                    client_secret: password,
                },
                audiences: Vec::new(),
                groups: Vec::new(),
                claims: Vec::new(),
            });
            let random = Arc::new(FakeRandom::new(1));
            let ports = VerifierPorts {
                fetch: gated.clone(),
                clock: Arc::new(TokioClock::new()),
                random,
            };
            Self {
                introspector,
                issuer,
                gated,
                ports,
            }
        }

        /// Returns true if the issuer was asked about the token, for either answer.
        async fn ask(&self, token: u8, network: u8) -> bool {
            let shown = PresentedToken {
                text: "token",
                digest: &[token; 32],
                peer: [192, 0, network, 1].into(),
            };
            !matches!(
                self.introspector
                    .ask(shown, &self.issuer, &self.ports)
                    .await,
                Err(AuthFailure::Unavailable(_))
            )
        }

        /// Lets this number of requests of a network wait for the issuer.
        async fn hang(&self, token: u8, network: u8, count: usize) -> Vec<OwnedTask> {
            let before = self.gated.asked.load(Ordering::Relaxed);
            let one = || {
                let desk = self.clone();
                OwnedTask::spawn(async move {
                    desk.ask(token, network).await;
                })
            };
            let hanging: Vec<_> = (0..count).map(|_| one()).collect();
            while self.gated.asked.load(Ordering::Relaxed) < before + count {
                tokio::task::yield_now().await;
            }
            hanging
        }

        fn shut(&self) {
            self.gated.gate.forget_permits(Semaphore::MAX_PERMITS);
        }

        fn open(&self) {
            self.gated.gate.add_permits(Semaphore::MAX_PERMITS);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn renewal_has_its_own_slots_if_its_network_has_no_more() {
        let desk = IntrospectorFixture::new();
        assert!(desk.ask(1, 0).await, "it is active, and remembered");
        desk.shut();
        let news = desk.hang(2, 0, MAX_IN_FLIGHT / 2).await;
        assert!(!desk.ask(3, 0).await, "the network has all its questions");
        // All renewal slots are available to it, and not one more.
        let renewals = desk.hang(1, 0, RENEWALS).await;
        assert!(
            !desk.ask(1, 0).await,
            "all renewals are under way, and its network has no other question"
        );
        let other = desk.hang(1, 7, 1).await;
        drop(renewals);
        while desk.introspector.renewals.available_permits() < RENEWALS {
            tokio::task::yield_now().await;
        }
        desk.open();
        assert!(desk.ask(1, 0).await, "the places came back");
        drop((news, other));
    }

    #[tokio::test(start_paused = true)]
    async fn inactive_token_has_no_renewal_slot() {
        let desk = IntrospectorFixture::new();
        assert!(desk.ask(1, 0).await);
        desk.gated.says_active.store(false, Ordering::Relaxed);
        assert!(desk.ask(1, 0).await, "the issuer says that it is over");
        tokio::time::advance(INACTIVE_CACHE_TIME).await;
        desk.shut();
        let news = desk.hang(2, 0, MAX_IN_FLIGHT / 2).await;
        assert!(!desk.ask(1, 0).await, "it is a new token like any other");
        drop(news);
    }

    #[test]
    fn one_network_has_at_most_half_of_the_slots() {
        let questions = IntrospectionSlots::default();
        let network = |n: u8| SenderNetwork::of([192, 0, n, 1].into());
        let first: Vec<_> = std::iter::from_fn(|| questions.begin(network(0))).collect();
        assert_eq!(first.len(), MAX_IN_FLIGHT / 2);
        let others: Vec<_> = (1..=5)
            .map(|n| questions.begin(network(n)).unwrap())
            .collect();
        assert!(
            questions.begin(network(0)).is_none(),
            "the others have what is free"
        );
        drop((first, others));
        assert!(questions.under_way().is_empty());
        let held: Vec<_> = (0..5)
            .flat_map(|n| std::iter::from_fn(|| questions.begin(network(n))).collect::<Vec<_>>())
            .collect();
        assert!(held.len() < MAX_IN_FLIGHT);
        assert!(
            questions.begin(network(5)).is_some(),
            "a sixth finds room where five take all that they can"
        );
    }
}
