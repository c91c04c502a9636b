//! A verifier with one issuer. Its documents are in memory and its time is tokio's.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_core::failure::{AuthenticationDenial, Failure, FailureKind};
use weir_core::names::EndpointId;
use weir_core::port::{
    BorrowedSecret, BoxFuture, Clock, DocumentFetcher, Evidence, FetchRequest, FetchResponse,
    Verifier,
};
use weir_core::principal::{Subject, VerifiedIdentity};
use weir_testkit::owned_task::OwnedTask;
use weir_testkit::{FakeRandom, TokenSigner, TokioClock};

use super::super::CredentialVerifier;
use crate::settings::{
    ApiKey, KeySource, SignatureAlgorithm, TokenIssuer, TokenValidation, VerifierSettings,
};
use crate::verifier_ports::VerifierPorts;

pub(super) const ISSUER: &str = "https://id.example.com";
pub(super) const URL: &str = "https://mcp.example.com/mcp";
pub(super) const API_KEY: &str = "weir_ci_0123456789abcdef";

/// Documents in memory.
#[derive(Debug, Default)]
pub(super) struct FakeDocuments {
    answers: Mutex<HashMap<String, (u16, String)>>,
    max_age: Mutex<Option<Duration>>,
    asked: Mutex<Vec<String>>,
    /// The delay of a response.
    delay: Mutex<Duration>,
}

impl FakeDocuments {
    pub(super) fn put(&self, url: &str, status: u16, body: impl Into<String>) {
        self.answers
            .lock()
            .insert(url.to_owned(), (status, body.into()));
    }

    pub(super) fn max_age(&self, age: Duration) {
        *self.max_age.lock() = Some(age);
    }

    pub(super) fn delay(&self, delay: Duration) {
        *self.delay.lock() = delay;
    }

    pub(super) fn asked(&self, url: &str) -> usize {
        self.asked
            .lock()
            .iter()
            .filter(|asked| *asked == url)
            .count()
    }

    /// All URLs requested so far.
    pub(super) fn all(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

impl DocumentFetcher for FakeDocuments {
    fn fetch<'a>(&'a self, ask: FetchRequest<'a>) -> BoxFuture<'a, Result<FetchResponse, Failure>> {
        self.asked.lock().push(ask.url.to_owned());
        let (answer, delay) = (
            self.answers.lock().get(ask.url).cloned(),
            *self.delay.lock(),
        );
        let max_age = *self.max_age.lock();
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            match answer {
                Some((status, body)) if body.len() <= ask.limit => Ok(FetchResponse {
                    status,
                    max_age,
                    body: body.into(),
                }),
                Some(_) => Err(Failure::new(FailureKind::BadAnswer, "too large")),
                None => Err(Failure::new(FailureKind::Unavailable, "nobody there")),
            }
        })
    }
}

pub(super) struct VerifierFixture {
    pub(super) credentials: Arc<CredentialVerifier>,
    pub(super) fetch: Arc<FakeDocuments>,
    pub(super) signer: TokenSigner,
    clock: TokioClock,
    endpoint: EndpointId,
    _run: OwnedTask,
}

pub(super) fn settings() -> VerifierSettings {
    let arcs = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| Arc::from(*text))
            .collect::<Vec<Arc<str>>>()
    };
    VerifierSettings {
        required: true,
        base: "https://mcp.example.com".to_owned(),
        leeway: Duration::from_secs(30),
        issuers: vec![TokenIssuer {
            name: ISSUER.into(),
            validation: TokenValidation::Keys {
                source: KeySource::Metadata,
                algorithms: SignatureAlgorithm::DEFAULT.to_vec(),
                strict_type: false,
                max_lifetime: Duration::from_secs(24 * 3600),
            },
            audiences: arcs(&["api://weir"]),
            groups: arcs(&["groups", "realm_access.roles"]),
            claims: arcs(&["tenant", "level"]),
        }],
        implied: HashMap::from([
            ("admin".into(), arcs(&["write"])),
            ("write".into(), arcs(&["read", "admin"])),
        ]),
        api_keys: vec![ApiKey {
            id: "ci".to_owned(),
            digest: crate::api_key_digest(API_KEY),
            subject: "build".into(),
            groups: Vec::new(),
            scopes: arcs(&["admin"]),
            expires: UNIX_EPOCH.checked_add(Duration::from_secs(1_785_542_400 + 3600)),
        }],
        certificates: None,
    }
}

impl VerifierFixture {
    /// With one key, published already.
    pub(super) async fn new() -> Self {
        let stand = Self::with(settings(), TokenSigner::es256("key-1"));
        stand.publish(&[stand.signer.jwk()]);
        stand.settle().await;
        stand
    }

    /// Without documents yet.
    pub(super) fn with(settings: VerifierSettings, signer: TokenSigner) -> Self {
        let (fetch, clock) = (Arc::new(FakeDocuments::default()), TokioClock::new());
        let ports = VerifierPorts {
            fetch: fetch.clone(),
            clock: Arc::new(clock),
            random: Arc::new(FakeRandom::new(1)),
        };
        let credentials = CredentialVerifier::new(settings, ports);
        let run = OwnedTask::spawn(credentials.clone().run());
        Self {
            credentials,
            fetch,
            signer,
            clock,
            endpoint: EndpointId::new("/mcp"),
            _run: run,
        }
    }

    /// Publishes metadata and these keys.
    pub(super) fn publish(&self, keys: &[Value]) {
        let metadata = json!({ "issuer": ISSUER, "jwks_uri": format!("{ISSUER}/keys") });
        self.fetch.put(
            &format!("{ISSUER}/.well-known/openid-configuration"),
            200,
            metadata.to_string(),
        );
        self.fetch.put(
            &format!("{ISSUER}/keys"),
            200,
            json!({ "keys": keys }).to_string(),
        );
    }

    /// Lets the verifier's work come to rest, with hardly any time passing.
    pub(super) async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    pub(super) async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    pub(super) fn wall(&self) -> SystemTime {
        self.clock.wall()
    }

    /// Seconds since 1970.
    pub(super) fn now(&self) -> u64 {
        self.wall().duration_since(UNIX_EPOCH).unwrap().as_secs()
    }

    pub(super) fn claims(&self) -> Value {
        json!({ "iss": ISSUER, "sub": "ada", "aud": URL, "iat": self.now(), "exp": self.now() + 300 })
    }

    /// Valid claims of a token that was issued before the keys were fetched.
    pub(super) fn earlier_claims(&self) -> Value {
        self.claims_with(json!({ "iat": self.now() - 1 }))
    }

    /// Valid claims with these changes; `null` removes one.
    pub(super) fn claims_with(&self, changes: Value) -> Value {
        let Value::Object(changes) = changes else {
            panic!("{changes}");
        };
        let mut claims = self.claims();
        for (name, value) in changes {
            if value.is_null() {
                claims.as_object_mut().unwrap().remove(&name);
            } else {
                claims[name] = value;
            }
        }
        claims
    }

    pub(super) fn good(&self) -> String {
        self.signer.token(&self.claims())
    }

    pub(super) fn evidence(&self) -> Evidence<'_> {
        Evidence::none(Ipv4Addr::LOCALHOST.into(), &self.endpoint)
    }

    pub(super) async fn verify(
        &self,
        evidence: &Evidence<'_>,
    ) -> Result<VerifiedIdentity, Failure> {
        self.credentials.verify(evidence).await
    }

    pub(super) async fn identify(&self, evidence: &Evidence<'_>) -> Result<Arc<Subject>, Failure> {
        match self.verify(evidence).await? {
            VerifiedIdentity::Subject(subject) => Ok(subject),
            VerifiedIdentity::Anonymous => panic!("somebody was let in as nobody"),
        }
    }

    pub(super) async fn subject(&self, token: &str) -> Result<Arc<Subject>, Failure> {
        self.identify(&Evidence {
            bearer: Some(BorrowedSecret::new(token)),
            ..self.evidence()
        })
        .await
    }

    /// The reason for refusing the evidence.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a test panics on every other variant"
    )]
    pub(super) async fn reason_of(&self, evidence: &Evidence<'_>) -> &'static str {
        let failure = self.identify(evidence).await.expect_err("it was let in");
        match failure.kind() {
            FailureKind::Unauthenticated(AuthenticationDenial::Missing) => "missing",
            FailureKind::Unauthenticated(AuthenticationDenial::Invalid(reason)) => reason,
            FailureKind::Unavailable => "unavailable",
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn reason(&self, token: &str) -> &'static str {
        self.reason_of(&Evidence {
            bearer: Some(BorrowedSecret::new(token)),
            ..self.evidence()
        })
        .await
    }

    pub(super) async fn reason_at(&self, path: &str, token: &str) -> &'static str {
        let endpoint = EndpointId::new(path);
        let evidence = Evidence {
            bearer: Some(BorrowedSecret::new(token)),
            ..Evidence::none(Ipv4Addr::LOCALHOST.into(), &endpoint)
        };
        self.reason_of(&evidence).await
    }
}
