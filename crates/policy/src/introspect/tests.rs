#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use weir_core::Failure;
use weir_core::port::{BoxFuture, DocumentFetcher, FetchResponse};
use weir_testkit::{FakeRandom, TokioClock};

use super::introspection_slots::MAX_WAITING;
use super::*;
use crate::settings::TokenValidation;

/// An issuer that answers while its gate is open.
#[derive(Debug)]
struct GatedIssuer {
    gate: Semaphore,
    says_active: AtomicBool,
    asked: AtomicUsize,
}

impl DocumentFetcher for GatedIssuer {
    fn fetch<'a>(
        &'a self,
        _ask: FetchRequest<'a>,
    ) -> BoxFuture<'a, Result<FetchResponse, Failure>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            let _open = self.gate.acquire().await;
            let body = format!(
                r#"{{"active":{},"sub":"ada","aud":"weir"}}"#,
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
        let ports = VerifierPorts {
            fetch: gated.clone(),
            clock: Arc::new(TokioClock::new()),
            random: Arc::new(FakeRandom::new(1)),
        };
        let name: Arc<str> = "https://id.example.com".into();
        let introspector = Introspector::new(name.clone(), &url, "weir", &password, ports);
        let issuer = Arc::new(TokenIssuer {
            name,
            validation: TokenValidation::Introspection {
                url,
                client_id: "weir".to_owned(),
                client_secret: password,
            },
            audiences: Vec::new(),
            groups: Vec::new(),
            claims: Vec::new(),
        });
        Self {
            introspector,
            issuer,
            gated,
        }
    }

    /// Returns true if the issuer was asked about the token, for either answer.
    async fn ask(&self, token: u16, network: u8) -> bool {
        let mut digest = [0; 32];
        digest[..2].copy_from_slice(&token.to_be_bytes());
        let shown = PresentedToken {
            text: "token",
            digest: &digest,
            peer: [192, 0, network, 1].into(),
        };
        !matches!(
            self.introspector.ask(shown, &self.issuer).await,
            Err(AuthFailure::Unavailable(_))
        )
    }

    /// Begins a request of a network about each of these tokens.
    fn begin(
        &self,
        tokens: impl IntoIterator<Item = u16>,
        network: u8,
    ) -> Vec<tokio::task::JoinHandle<bool>> {
        let one = |token| {
            let fixture = self.clone();
            tokio::spawn(async move { fixture.ask(token, network).await })
        };
        tokens.into_iter().map(one).collect()
    }

    /// Lets a request of a network about each of these tokens wait for the issuer.
    async fn hang(
        &self,
        tokens: std::ops::Range<u16>,
        network: u8,
    ) -> Vec<tokio::task::JoinHandle<bool>> {
        let asked = self.asked() + tokens.len();
        let hanging = self.begin(tokens, network);
        while self.asked() < asked {
            tokio::task::yield_now().await;
        }
        hanging
    }

    fn asked(&self) -> usize {
        self.gated.asked.load(Ordering::Relaxed)
    }

    fn shut(&self) {
        self.gated.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    fn open(&self) {
        self.gated.gate.add_permits(Semaphore::MAX_PERMITS);
    }
}

/// Waits for the outcomes of requests; true if all have an answer of the issuer.
async fn all_answered(requests: Vec<tokio::task::JoinHandle<bool>>) -> bool {
    let mut all = true;
    for request in requests {
        all &= request.await.unwrap();
    }
    all
}

/// The tokens that fill the slots of one network.
const FILLING: std::ops::Range<u16> = 1000..1064;

#[tokio::test(start_paused = true)]
async fn requests_with_one_token_share_an_introspection_that_outlives_them() {
    let fixture = IntrospectorFixture::new();
    fixture.shut();
    let first = fixture.hang(1..2, 0).await;
    let others = fixture.begin([1; 199], 0);
    for request in first {
        request.abort();
        assert!(request.await.is_err(), "the client disconnected");
    }
    fixture.open();
    assert!(all_answered(others).await);
    assert_eq!(fixture.asked(), 1);
    assert!(fixture.ask(1, 0).await);
    assert_eq!(
        fixture.asked(),
        2,
        "the next introspection is one of its own"
    );
}

#[tokio::test(start_paused = true)]
async fn new_token_waits_a_short_time_for_a_slot() {
    let fixture = IntrospectorFixture::new();
    fixture.shut();
    let news = fixture.hang(FILLING, 0).await;
    assert!(!fixture.ask(1, 0).await, "its network has no slot for 2 s");
    let waiting = fixture.begin(1..300, 0);
    let other = fixture.hang(400..401, 7).await;
    assert_eq!(fixture.asked(), FILLING.len() + 1, "they wait");
    fixture.open();
    for requests in [news, waiting, other] {
        assert!(all_answered(requests).await);
    }
    // A flood of made-up tokens is bounded: what does not find a place to wait fails at once.
    fixture.shut();
    let _news = fixture.hang(5000..5064, 0).await;
    let before = tokio::time::Instant::now();
    let flood = fixture.begin((2000..4000).take(MAX_WAITING / 2 + 1), 0);
    let last = flood.into_iter().next_back().unwrap();
    assert!(!last.await.unwrap());
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn renewal_has_its_own_slots_if_its_network_has_no_more() {
    let fixture = IntrospectorFixture::new();
    let (renewals, last) = (0..64, 64);
    assert!(
        all_answered(fixture.begin(0..=last, 0)).await,
        "they are remembered"
    );
    fixture.shut();
    let news = fixture.hang(FILLING, 0).await;
    assert!(!fixture.ask(2000, 0).await, "the network has all its slots");
    // All renewal slots are available to it, and not one more.
    let renewing = fixture.hang(renewals, 0).await;
    assert!(
        !fixture.ask(last, 0).await,
        "all renewals are under way, and its network has no other slot"
    );
    let other = fixture.hang(last..last + 1, 7).await;
    fixture.open();
    for requests in [renewing, news, other] {
        assert!(all_answered(requests).await);
    }
    assert!(fixture.ask(last, 0).await, "the slots came back");
    assert_eq!(
        fixture.introspector.state.renewals.available_permits(),
        RENEWALS
    );
    assert!(fixture.introspector.state.in_flight.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn inactive_token_has_no_renewal_slot() {
    let fixture = IntrospectorFixture::new();
    assert!(fixture.ask(1, 0).await);
    fixture.gated.says_active.store(false, Ordering::Relaxed);
    assert!(fixture.ask(1, 0).await, "the issuer says that it is over");
    tokio::time::advance(INACTIVE_CACHE_TIME).await;
    fixture.shut();
    let _news = fixture.hang(FILLING, 0).await;
    assert!(!fixture.ask(1, 0).await, "it is a new token like any other");
}
