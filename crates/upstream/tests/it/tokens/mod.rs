//! Tests of tokens towards servers: requested, renewed, exchanged, and kept secret.

mod refused_tokens;
mod scope_step_up;
mod token_exchange;
mod token_provider;
mod token_renewal;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use weir_core::call::{Call, SessionKey};
use weir_core::port::{BorrowedSecret, Evidence};
use weir_core::principal::{Subject, VerifiedIdentity as Sender};
use weir_core::upstream::{OutboundCall, Upstream};
use weir_core::{CapabilityClass, ClientToken, Principal, Reply};
use weir_process::keeper::ChildKeeper;
use weir_testkit::{FakeClock, FakeRandom, MockServer, TokenServer};
use weir_upstream::{
    ClientAuthMethod, ClientImplementation, HttpUpstreamSettings, SecretText, TokenAuthority,
    TokenExchange, TransportSettings, UpstreamFactory, UpstreamOAuth, UpstreamPorts,
    UpstreamSettings,
};

use crate::fixtures::*;

/// A mock server, its authorization server, and weir's upstream between them, with a clock that
/// stands still.
pub(crate) struct TokenScene {
    pub(crate) mock: MockServer,
    pub(crate) authority: TokenServer,
    pub(crate) clock: FakeClock,
    pub(crate) upstream: Arc<dyn Upstream>,
    /// The number of sessions of clients so far.
    sessions: AtomicU8,
    auth: UpstreamOAuth,
}

/// An OAuth client with an awkward secret, which no mock server may ever see.
pub(crate) fn client(authority: &TokenServer) -> UpstreamOAuth {
    UpstreamOAuth {
        authority: TokenAuthority::Issuer(authority.issuer()),
        client_id: "weir:1".to_owned(),
        client_secret: SecretText::new("CANARY-secret %&+"),
        client_auth: ClientAuthMethod::Discovered,
        scopes: vec!["tools".to_owned()],
        step_up: Vec::new(),
        resource: None,
        exchange: None,
    }
}

pub(crate) fn exchanging(authority: &TokenServer) -> UpstreamOAuth {
    let exchange = TokenExchange {
        audience: Some("tools".to_owned()),
        subject_type: TokenExchange::ACCESS_TOKEN.to_owned(),
    };
    UpstreamOAuth {
        exchange: Some(exchange),
        ..client(authority)
    }
}

impl TokenScene {
    pub(crate) async fn new(
        mock: weir_testkit::mock_server::MockServerBuilder,
        auth: impl FnOnce(&TokenServer) -> UpstreamOAuth,
    ) -> Self {
        let (mock, authority) = (mock.start().await, TokenServer::start().await);
        Self::of(mock, auth(&authority), authority)
    }

    pub(crate) fn of(mock: MockServer, auth: UpstreamOAuth, authority: TokenServer) -> Self {
        let clock = FakeClock::new();
        Self {
            upstream: build_upstream(&mock, &auth, &clock),
            mock,
            authority,
            clock,
            sessions: AtomicU8::new(1),
            auth,
        }
    }

    /// Has another process take over, with the sessions of this one.
    pub(crate) async fn hand_over(&mut self) {
        let next = build_upstream(&self.mock, &self.auth, &self.clock);
        let before = std::mem::replace(&mut self.upstream, next);
        for session in before.export_sessions().await {
            self.upstream.clone().import_session(session).await;
        }
    }

    /// Makes an anonymous call.
    pub(crate) async fn ask(&self) -> Reply {
        call_anonymously(&self.upstream, "echo", json!({})).await
    }

    /// Makes a call that succeeds.
    pub(crate) async fn call_successfully(&self) {
        text(self.ask().await).await;
    }

    /// Makes a call as a principal with a token.
    pub(crate) async fn ask_as(&self, caller: &TestCaller) -> Reply {
        self.send_as(caller, call("echo", json!({}))).await
    }

    /// Makes the first call in a session of a principal with a token.
    pub(crate) async fn ask_in_new_session(&self, caller: &TestCaller) -> Reply {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed);
        self.ask_in_session(caller, number).await
    }

    /// Makes a call in this session of a principal with a token, whose client can be asked.
    pub(crate) async fn ask_in_session(&self, caller: &TestCaller, number: u8) -> Reply {
        let mut call = call("echo", json!({}));
        call.session = Some(SessionKey([number; 16]));
        call.capabilities.class = CapabilityClass::SESSIONS.with(CapabilityClass::ELICITATION_FORM);
        self.send_as(caller, call).await
    }

    async fn send_as(&self, caller: &TestCaller, call: Call) -> Reply {
        let outbound = outbound("echo", call).await;
        let outbound = OutboundCall {
            principal: caller.principal.clone(),
            token: Some(caller.token.clone()),
            ..outbound
        };
        self.upstream.clone().call(outbound).await
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Returns the `Authorization` of the requests of a method.
    pub(crate) fn authorizations(&self, kind: &str) -> Vec<String> {
        let requests = self.mock.requests_of(kind);
        requests
            .iter()
            .map(|request| {
                request
                    .header("authorization")
                    .unwrap_or("nothing")
                    .to_owned()
            })
            .collect()
    }

    /// Returns one member of each token request's form.
    pub(crate) fn token_request_members(&self, name: &str) -> Vec<String> {
        let requests = self.authority.requests();
        requests
            .iter()
            .map(|request| request.form.get(name).cloned().unwrap_or_default())
            .collect()
    }
}

/// A principal with an access token.
pub(crate) struct TestCaller {
    principal: Principal,
    token: ClientToken,
}

/// Makes a principal with an access token.
pub(crate) async fn caller(name: &str, token: &str) -> TestCaller {
    let mut subject = Subject::new("https://id.example.com", name);
    subject.is_by_token = true;
    let endpoint = weir_core::EndpointId::new("/mcp");
    let none = Evidence::none([127, 0, 0, 1].into(), &endpoint);
    let evidence = Evidence {
        bearer: Some(BorrowedSecret::new(token)),
        ..none
    };
    let known = weir_core::authenticate(
        &FixedVerifier(Sender::Subject(Arc::new(subject))),
        &evidence,
    )
    .await
    .unwrap();
    let known = known.with_verified_token(&evidence);
    TestCaller {
        principal: known.principal().clone(),
        token: known.token().unwrap().clone(),
    }
}

/// Returns the server's own metadata.
pub(crate) fn resource(mock: &MockServer, servers: &[&str]) -> Value {
    json!({ "resource": mock.url(), "authorization_servers": servers })
}

// Proves R254, R255.
#[tokio::test]
async fn every_request_carries_a_token_that_was_asked_for_this_server() {
    let eras = [
        MockServer::modern(),
        MockServer::legacy(weir_wire::Revision::NEWEST_LEGACY),
    ];
    for builder in eras {
        let scene = TokenScene::new(
            builder.tool("echo", weir_testkit::MockBehaviour::echo()),
            client,
        )
        .await;
        scene.mock.accept_only(&["Bearer token-1"]);
        let mut watch = scene
            .upstream
            .clone()
            .watch(weir_core::CapabilityClass::BASE)
            .await
            .unwrap();
        assert_eq!(
            watch
                .list(weir_core::upstream::ListKind::Tools, None)
                .await
                .unwrap()
                .items
                .len(),
            1
        );
        scene.call_successfully().await;
        scene.call_successfully().await;
        drop(watch);
        scene.upstream.clone().retire(Duration::from_secs(5)).await;

        let [request] = &scene.authority.requests()[..] else {
            panic!("one token serves all")
        };
        // base64("weir%3A1:CANARY-secret+%25%26%2B"): both parts are encoded before they are
        // joined.
        let expected = "Basic d2VpciUzQTE6Q0FOQVJZLXNlY3JldCslMjUlMjYlMkI=";
        assert_eq!(request.authorization.as_deref(), Some(expected));
        let form = [
            ("grant_type", "client_credentials"),
            ("resource", &scene.mock.url()),
            ("scope", "tools"),
        ];
        assert_eq!(
            request.form,
            form.map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into()
        );
        let bare: Vec<_> = scene
            .mock
            .requests()
            .into_iter()
            .filter(|request| request.header("authorization").is_none())
            .collect();
        let looked: Vec<_> = bare
            .iter()
            .map(|request| (request.verb.as_str(), request.path.as_str()))
            .collect();
        assert_eq!(
            looked,
            [
                ("POST", "/mcp"),
                ("GET", "/.well-known/oauth-protected-resource/mcp"),
                ("GET", "/.well-known/oauth-protected-resource"),
            ],
            "without a token it is asked once how it is protected, and nothing else"
        );
        assert_eq!(bare[0].method(), "ping");
    }
}

// Proves R256.
#[tokio::test]
async fn the_servers_challenge_says_where_its_metadata_is() {
    let mock = MockServer::modern()
        .tool("echo", weir_testkit::MockBehaviour::echo())
        .start()
        .await;
    let authority = TokenServer::start().await;
    let own = mock.url().replace("/mcp", "");
    mock.set_challenge(
        format!(r#"Basic realm="x", Bearer resource_metadata="{own}/elsewhere""#).as_bytes(),
    );
    mock.serve_document(
        "/elsewhere",
        &json!({ "resource": own, "authorization_servers": [authority.issuer()] }),
    );
    mock.serve_document(
        "/.well-known/oauth-protected-resource/mcp",
        &json!({ "resource": "https://wrong.example.com" }),
    );
    mock.accept_only(&["Bearer token-1"]);
    let auth = client(&authority);
    let scene = TokenScene::of(mock, auth, authority);
    scene.call_successfully().await;
    assert_eq!(
        scene.token_request_members("resource"),
        [own],
        "it names itself"
    );
}

#[tokio::test]
async fn configured_token_endpoint_is_used_without_discovery() {
    let named = |authority: &TokenServer| UpstreamOAuth {
        authority: TokenAuthority::TokenEndpoint(authority.endpoint()),
        client_auth: ClientAuthMethod::Post,
        resource: Some("urn:tools".to_owned()),
        scopes: Vec::new(),
        ..client(authority)
    };
    let scene = TokenScene::new(
        MockServer::modern().tool("echo", weir_testkit::MockBehaviour::echo()),
        named,
    )
    .await;
    scene.call_successfully().await;
    let request = &scene.authority.requests()[0];
    assert_eq!(request.authorization, None);
    let form = [
        ("grant_type", "client_credentials"),
        ("resource", "urn:tools"),
        ("client_id", "weir:1"),
        ("client_secret", "CANARY-secret %&+"),
    ];
    assert_eq!(
        request.form,
        form.map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    );
    assert!(
        scene
            .mock
            .requests()
            .iter()
            .all(|request| request.header("authorization") == Some("Bearer token-1"))
    );
}

#[tokio::test]
async fn client_authenticates_by_the_method_of_the_metadata() {
    for (methods, expected) in [
        (
            json!(["client_secret_post", "client_secret_basic"]),
            Ok(true),
        ),
        (json!(["private_key_jwt", "client_secret_post"]), Ok(false)),
        (json!(["private_key_jwt"]), Err("takes no client secrets")),
    ] {
        let scene = TokenScene::new(
            MockServer::modern().tool("echo", weir_testkit::MockBehaviour::echo()),
            client,
        )
        .await;
        let mut metadata = scene.authority.metadata();
        metadata["token_endpoint_auth_methods_supported"] = methods;
        scene
            .authority
            .serve_document("/.well-known/oauth-authorization-server", &metadata);
        match expected {
            Ok(basic) => {
                scene.call_successfully().await;
                assert_eq!(scene.authority.requests()[0].authorization.is_some(), basic);
            }
            Err(part) => {
                let failure = failure(scene.ask().await).await;
                assert!(failure.message().contains(part), "{failure}");
                assert_eq!(scene.authority.requests().len(), 0);
            }
        }
    }
}

// Proves R258, C25.
#[tokio::test]
async fn metadata_of_another_issuer_gets_no_credentials() {
    let scene = TokenScene::new(
        MockServer::modern().tool("echo", weir_testkit::MockBehaviour::echo()),
        client,
    )
    .await;
    let thief = TokenServer::start().await;
    scene
        .authority
        .serve_document("/.well-known/oauth-authorization-server", &thief.metadata());
    let failed = failure(scene.ask().await).await;
    assert_eq!(failed.reason(), "unavailable");
    assert!(failed.message().contains("of another issuer"), "{failed}");
    // Its own name with a foreign token endpoint: an outsider's URL, and not a public one.
    let stolen = json!({ "issuer": scene.authority.issuer(), "token_endpoint": thief.endpoint() });
    scene
        .authority
        .serve_document("/.well-known/oauth-authorization-server", &stolen);
    scene.advance(60);
    let failed = failure(scene.ask().await).await;
    assert_eq!(failed.reason(), "unavailable");
    assert_eq!(
        (thief.requests().len(), scene.authority.requests().len()),
        (0, 0)
    );
    assert_eq!(scene.mock.executions("echo"), 0);
}

#[test]
fn secrets_of_an_oauth_client_do_not_print() {
    let auth = UpstreamOAuth {
        authority: TokenAuthority::TokenEndpoint("https://id.example.com/token".to_owned()),
        client_id: "weir".to_owned(),
        client_secret: SecretText::new("CANARY-secret"),
        client_auth: ClientAuthMethod::Basic,
        scopes: Vec::new(),
        step_up: Vec::new(),
        resource: None,
        exchange: None,
    };
    assert!(!format!("{auth:?}").contains("CANARY"));
}

/// weir's upstream of a mock server that wants tokens.
fn build_upstream(mock: &MockServer, auth: &UpstreamOAuth, clock: &FakeClock) -> Arc<dyn Upstream> {
    let ports = UpstreamPorts {
        clock: Arc::new(clock.clone()),
        random: Arc::new(FakeRandom::new(7)),
        notifier: Arc::default(),
        session_lists: weir_catalog::SessionListTable::new(Arc::default(), &FakeRandom::new(8)),
        keeper: ChildKeeper::unavailable(),
        budgets: weir_core::Budgets::default(),
    };
    let url = mock.url().parse().unwrap();
    let http = HttpUpstreamSettings {
        instances: Vec::new(),
        url,
        headers: Vec::new(),
        auth: Some(Box::new(auth.clone())),
        ca_file: None,
        h2c: false,
    };
    let settings = UpstreamSettings {
        transport: TransportSettings::Http(http),
        ..settings(&mock.url())
    };
    let factory = UpstreamFactory::new(ports, ClientImplementation::new("weir", "0.1.0"));
    factory.build(settings).unwrap()
}
