//! Secrets planted at every entrance: a token, a key, headers and a query of clients, the config,
//! an upstream's own. Then the test uses every feature of weir, also the refused ones. None of the
//! secrets is in any request, answer, log line at the finest level, or metric of weir.

use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, IdentityProvider, MockBehaviour, MockServer, RawClient};
use weir_wire::Revision;

use crate::harness::{Weir, wait_until_async, within_test_timeout};
use crate::telemetry::RawCollector;

const KEY: &str = "weir_ci_CANARYkey23456789abcdefghijklmnopqrstuvwxyzABCDEFG";
const KEY_DIGEST: &str = "37abc6ca9418af68f72c54d559ee7c39e15776a4693eb18d5d38a8e9bcf1fd77";
const SEALING: &str = "Q0FOQVJZc2VhbGluZ2tleTAxMjM0NTY3ODlhYmNkZWY";
/// The header that the config gives to the upstream `two` alone.
const FOR_TWO: &str = "text-for-two-alone";
/// The header that the config gives to the collector.
const FOR_COLLECTOR: &str = "text-for-the-collector-alone";
const CLIENT_HEADERS: [(&str, &str); 4] = [
    ("x-secret", "CANARY-client-header"),
    ("cookie", "session=CANARY-cookie"),
    ("proxy-authorization", "Basic CANARY-proxy"),
    ("x-forwarded-authorization", "CANARY-forwarded"),
];

/// A name and a text that must not be found.
type PlantedSecret = (&'static str, String);

struct CanaryWorld {
    idp: IdentityProvider,
    one: MockServer,
    two: MockServer,
    weir: Weir,
    collector: RawCollector,
    secrets: Vec<PlantedSecret>,
    answers: Vec<ClientAnswer>,
}

impl CanaryWorld {
    async fn start() -> Self {
        let (idp, collector) = (IdentityProvider::start().await, RawCollector::start());
        let one = MockServer::legacy(Revision::NEWEST_LEGACY)
            .tools(3)
            .tool("slow", MockBehaviour::progress(3))
            .start()
            .await;
        let two = MockServer::modern()
            .tools(3)
            .tool("broken", MockBehaviour::bad_json())
            .start()
            .await;
        let config = json!({
            "upstreams": {
                "one": { "url": one.url() },
                "two": { "url": two.url(), "headers": { "x-service-key": FOR_TWO } },
            },
            "auth": {
                "mode": "oauth",
                "issuers": [{ "issuer": idp.issuer() }],
                "api_keys": [{ "id": "ci", "sha256": KEY_DIGEST, "subject": "ci" }],
            },
            "keys": [{ "id": 1, "secret": SEALING }],
            "telemetry": {
                "traces": { "sample": 1.0 },
                "otlp": { "endpoint": collector.url(), "interval": "200ms", "headers": { "x-collector": FOR_COLLECTOR } },
            },
        });
        let weir = Weir::with_log_filter(config, "trace");
        let mut secrets: Vec<PlantedSecret> = vec![
            ("the API key", KEY.to_owned()),
            ("the sealing key", SEALING.to_owned()),
            ("a header for upstream two", FOR_TWO.to_owned()),
            ("a header for the collector", FOR_COLLECTOR.to_owned()),
        ];
        secrets.extend(CLIENT_HEADERS.map(|(name, value)| (name, value.to_owned())));
        Self {
            idp,
            one,
            two,
            weir,
            collector,
            secrets,
            answers: Vec::new(),
        }
    }

    /// Returns a token that counts as a secret from now on: the whole of it, and its signature.
    fn token(&mut self, what: &'static str, change: impl FnOnce(&mut Value)) -> String {
        let mut claims = self.idp.claims("ada", &self.weir.url("/mcp"));
        change(&mut claims);
        let token = self.idp.signer().token(&claims);
        let signature = token.rsplit('.').next().unwrap().to_owned();
        self.secrets
            .extend([(what, token.clone()), (what, signature)]);
        token
    }

    fn client(&self, credentials: (&str, &str)) -> RawClient {
        let client =
            RawClient::new(&self.weir.url("/mcp")).with_header(credentials.0, credentials.1);
        CLIENT_HEADERS.iter().fold(client, |client, (name, value)| {
            client.with_header(name, value)
        })
    }

    /// Runs every method, and its failures.
    async fn everything(&mut self, client: &RawClient) {
        let calls = [
            "one__tool_0000",
            "two__tool_0001",
            "one__slow",
            "two__broken",
            "no_such_tool",
        ];
        for tool in calls {
            let params =
                json!({ "name": tool, "arguments": { "n": 1 }, "_meta": { "progressToken": "t" } });
            self.keep(client.ask("tools/call", params).await);
        }
        let others = [
            ("server/discover", json!({})),
            ("tools/list", json!({})),
            ("tools/list", json!({ "cursor": "nonsense" })),
            ("prompts/list", json!({})),
            ("prompts/get", json!({ "name": "nothing" })),
            ("resources/list", json!({})),
            ("resources/templates/list", json!({})),
            ("resources/read", json!({ "uri": "one+file:///nothing" })),
            (
                "completion/complete",
                json!({ "ref": { "type": "ref/prompt", "name": "x" }, "argument": { "name": "a", "value": "" } }),
            ),
            ("logging/setLevel", json!({ "level": "debug" })),
            ("ping", json!({})),
            ("tasks/get", json!({ "taskId": "x" })),
            ("no/such/method", json!({})),
        ];
        for (method, params) in others {
            self.keep(client.ask(method, params).await);
        }
        for body in [
            "",
            "{",
            "[]",
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
        ] {
            let (headers, _) = client.envelope("ping", json!({}));
            self.keep(
                client
                    .send(http::Method::POST, headers, body)
                    .await
                    .unwrap()
                    .finish()
                    .await,
            );
        }
    }

    fn keep(&mut self, answer: std::io::Result<ClientAnswer>) {
        self.answers.push(answer.unwrap());
    }

    /// Returns all outputs that may contain a secret, by name.
    fn places(&self) -> Vec<(String, String)> {
        let requests = |upstream: &MockServer| {
            upstream
                .requests()
                .iter()
                .map(|seen| format!("{} {:?} {:?}", seen.path, seen.headers, seen.body))
                .collect()
        };
        let answers = self
            .answers
            .iter()
            .map(|seen| format!("{:?} {:?}", seen.headers, seen.body))
            .collect();
        vec![
            ("requests to one".to_owned(), requests(&self.one)),
            ("requests to two".to_owned(), requests(&self.two)),
            ("answers to clients".to_owned(), answers),
            ("the log".to_owned(), self.weir.process.output()),
            (
                "the metrics".to_owned(),
                self.weir.get_admin_page("/metrics"),
            ),
            (
                "spans and metrics at the collector".to_owned(),
                self.collector.got(),
            ),
        ]
    }
}

// Proves R250, C20.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_goes_where_it_does_not_belong() {
    let mut world = CanaryWorld::start().await;
    let good = world.token("a good token", |_| {});
    let (bearer, key) = (format!("Bearer {good}"), KEY);
    for credentials in [("authorization", bearer.as_str()), ("x-api-key", key)] {
        let modern = world.client(credentials).modern();
        wait_until_async("the tools to be listed", async || {
            let listed = within_test_timeout("a list", modern.ask("tools/list", json!({})))
                .await
                .unwrap();
            listed
                .last()
                .to_string()
                .contains("two__broken")
                .then_some(())
        })
        .await;
        world.everything(&modern).await;
        drop(
            modern
                .listen(json!({ "notifications": { "toolsListChanged": true } }))
                .await
                .unwrap(),
        );
        let legacy = world.client(credentials).legacy(Revision::NEWEST_LEGACY);
        let legacy = legacy.initialize().await.unwrap();
        world.everything(&legacy).await;
        drop(legacy.get_stream().await.unwrap());
        world.keep(legacy.delete().await);
    }
    assert!(world.one.total_executions() > 0 && world.two.total_executions() > 0);
    refused(&mut world).await;
    sick(&mut world, &bearer).await;

    let told = [
        "tools/call one__tool_0000",
        "tools/list",
        "mcp.server.operation.duration",
    ];
    wait_until_async("all to be told", async || {
        let got = world.collector.got();
        told.iter().all(|text| got.contains(text)).then_some(())
    })
    .await;
    assert!(
        world.weir.process.output().contains("TRACE"),
        "the log is as fine as it gets"
    );
    for (place, text) in world.places() {
        assert!(!text.is_empty(), "{place} saw nothing");
        for (what, secret) in &world.secrets {
            let allowed = place == "requests to two" && secret == FOR_TWO;
            assert!(
                allowed || !text.contains(secret.as_str()),
                "{what} is in {place}"
            );
        }
    }
    let two = world.two.requests();
    assert!(
        two.iter()
            .all(|request| request.header("x-service-key") == Some(FOR_TWO)),
        "the header does reach two"
    );
}

/// Sends credentials that are refused. They are secrets as well, because they may be valid
/// elsewhere.
async fn refused(world: &mut CanaryWorld) {
    let over = world.token("a token that is over", |claims| {
        claims["exp"] = json!(1_000_000_000)
    });
    let foreign = world.token("a token for another", |claims| {
        claims["aud"] = json!("https://other.example/mcp")
    });
    let stranger = world.token("a token of another issuer", |claims| {
        claims["iss"] = json!("https://evil.example")
    });
    let odd = format!("{over}x");
    for token in [over.as_str(), &foreign, &stranger, &odd, "CANARY-garbage"] {
        for scheme in ["Bearer", "Basic", "DPoP"] {
            let client = world
                .client(("authorization", &format!("{scheme} {token}")))
                .modern();
            let answer = client.ask("tools/list", json!({})).await.unwrap();
            assert_eq!(answer.status, 401, "{scheme}");
            world.keep(Ok(answer));
        }
    }
    world
        .secrets
        .push(("a token that is none", "CANARY-garbage".to_owned()));
    let client = RawClient::new(&format!(
        "{}?access_token=CANARY-query",
        world.weir.url("/mcp")
    ))
    .modern();
    let answer = client.ask("tools/list", json!({})).await.unwrap();
    assert!(
        answer.status.is_client_error(),
        "R244: a token in the query is none: {}",
        answer.status
    );
    world.keep(Ok(answer));
    world
        .secrets
        .push(("a token in the query", "CANARY-query".to_owned()));
}

/// Collects weir's answers when upstreams and the provider fail.
async fn sick(world: &mut CanaryWorld, bearer: &str) {
    let client = world.client(("authorization", bearer)).modern();
    world.one.drop_sessions();
    world
        .two
        .add_rule("tools/call", 2, MockBehaviour::unauthorized());
    for tool in ["one__tool_0000", "two__tool_0000"] {
        world.keep(
            client
                .ask("tools/call", json!({ "name": tool, "arguments": {} }))
                .await,
        );
    }
    world.one.stop().await;
    world.idp.stop();
    let unknown = world.token("a token that nobody can check", |claims| {
        claims["sub"] = json!("bob")
    });
    let bob = world
        .client(("authorization", &format!("Bearer {unknown}")))
        .modern();
    for client in [client, bob] {
        world.keep(
            client
                .ask(
                    "tools/call",
                    json!({ "name": "one__tool_0000", "arguments": {} }),
                )
                .await,
        );
        world.keep(client.ask("tools/list", json!({})).await);
    }
}
