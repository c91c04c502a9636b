//! URL elicitation: the principal that it belongs to, and the content of the URL.

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, MockBehaviour, MockServerBuilder, MockTool};
use weir_testkit::{ClientAnswer, MockServer};
use weir_wire::Revision;

use super::{BOTH, both_eras};
use crate::harness::{CheckedClient, Weir, within_test_timeout};
use crate::tenant_isolation::{TENANTS, Tenant};

/// The credential that weir sends to the server, and that no other party may see.
const SECRET: &str = "key-of-weir-0123456789";

fn able() -> Value {
    json!({ "elicitation": { "form": {}, "url": {} } })
}

/// Starts a server with a tool that asks for a URL to be visited.
async fn server(modern: bool, builder: MockServerBuilder, url: &str) -> MockServer {
    let mut params = json!({ "mode": "url", "message": "Sign in", "url": url });
    let visit = if modern {
        let request = json!({ "visit": { "method": "elicitation/create", "params": params } });
        MockTool::new("visit").does_in_turn([
            MockBehaviour::input_required(request, Some("its own")),
            MockBehaviour::echo(),
        ])
    } else {
        params["elicitationId"] = json!("own-1");
        MockTool::new("visit").does(MockBehaviour::steps([
            AnswerStep::Ask {
                method: "elicitation/create",
                params,
            },
            AnswerStep::Echo,
        ]))
    };
    builder.with(visit).start().await
}

fn config(server: &MockServer) -> Value {
    let key = json!({ "x-service-key": SECRET });
    let asks = ["elicitation", "elicitation_url"];
    json!({
        "upstreams": { "shop": { "url": server.url(), "headers": key, "asks": asks } },
        "auth": { "mode": "required", "api_keys": TENANTS.each_ref().map(Tenant::api_key) },
    })
}

async fn client(weir: &Weir, tenant: &Tenant, revision: Revision) -> CheckedClient {
    CheckedClient::with_capabilities_and_header(
        &weir.url("/mcp/shop"),
        revision,
        able(),
        tenant.header(),
    )
    .await
}

/// Returns the params of a modern client's next round.
fn again(asked: &ClientAnswer) -> Value {
    let result = asked.result();
    let key = result["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    let answers = json!({ key: { "action": "accept" } });
    json!({ "name": "visit", "arguments": {}, "inputResponses": answers, "requestState": result["requestState"] })
}

// Proves R191.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn question_to_one_principal_cannot_be_answered_by_another() {
    for (upstream, builder) in both_eras() {
        let server = server(upstream.is_modern(), builder, "https://idp.example/").await;
        let weir = Weir::with_config(config(&server));
        let told = |server: &MockServer| {
            let rounds = server.requests_of("tools/call").len();
            rounds + server.answers().len()
        };
        // A modern client's round cannot be taken over by another principal.
        let (ada, bob) = (&TENANTS[0], &TENANTS[1]);
        let (hers, his) = (
            client(&weir, ada, BOTH[1]).await,
            client(&weir, bob, BOTH[1]).await,
        );
        let asked = hers.call("visit", json!({})).await;
        let before = told(&server);
        let refused = his.ask("tools/call", again(&asked)).await;
        assert_eq!(
            (refused.code(), told(&server)),
            (-32602, before),
            "{}",
            refused.last()
        );
        assert_eq!(hers.ask("tools/call", again(&asked)).await.text(), "{}");
        // An answer to a legacy client's question is accepted in its own session alone.
        let (hers, his) = (
            client(&weir, ada, BOTH[0]).await,
            client(&weir, bob, BOTH[0]).await,
        );
        if upstream.is_modern() {
            // Its tool asks once.
            continue;
        }
        let mut call = hers.start_call("visit", json!({}), None).await;
        let asked = call.next().await.unwrap();
        assert_eq!(asked["params"]["mode"], "url", "{asked}");
        let before = told(&server);
        let taken = his
            .raw()
            .respond(&asked["id"], json!({ "action": "accept" }))
            .await
            .unwrap();
        assert_eq!(taken.status, 202, "it is told nothing about what there is");
        his.call("visit_nothing", json!({})).await;
        assert_eq!(told(&server), before);
        hers.raw()
            .respond(&asked["id"], json!({ "action": "decline" }))
            .await
            .unwrap();
        assert_eq!(
            call.next().await.unwrap()["result"]["content"][0]["text"],
            "{}"
        );
        assert_eq!(
            server.answers().last().unwrap()["result"],
            json!({ "action": "decline" })
        );
    }
}

// Proves R192.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elicitation_url_passes_unchanged_without_secrets_and_is_never_opened() {
    for (upstream, builder) in both_eras() {
        // A visit would be recorded here.
        let page = MockServer::modern().start().await;
        let url = format!("{}/sign-in?state=x%20y&next=%2F#part", page.url());
        let server = server(upstream.is_modern(), builder, &url).await;
        let weir = Weir::with_config(config(&server));
        for (nth, revision) in BOTH.into_iter().enumerate() {
            if upstream.is_modern() && nth > 0 {
                continue;
            }
            let client = client(&weir, &TENANTS[0], revision).await;
            let (said, asked) = if revision.is_modern() {
                let asked = client.call("visit", json!({})).await;
                let result = asked.result();
                let request = result["inputRequests"]
                    .as_object()
                    .unwrap()
                    .values()
                    .next()
                    .unwrap()
                    .clone();
                assert_eq!(client.ask("tools/call", again(&asked)).await.text(), "{}");
                (asked.last().to_string(), request)
            } else {
                let mut call = client.start_call("visit", json!({}), None).await;
                let asked = call.next().await.unwrap();
                client
                    .raw()
                    .respond(&asked["id"], json!({ "action": "accept" }))
                    .await
                    .unwrap();
                while within_test_timeout("the end", call.next()).await.is_some() {}
                (asked.to_string(), asked)
            };
            assert_eq!(asked["params"]["url"], url, "byte for byte");
            for secret in [SECRET, TENANTS[0].header().1] {
                assert!(!said.contains(secret), "{secret} in {said}");
            }
            // The short name is sought as a word: a random hexadecimal identifier can contain it.
            assert!(
                said.split(|letter: char| !letter.is_alphanumeric())
                    .all(|word| word != TENANTS[0].name),
                "{} in {said}",
                TENANTS[0].name
            );
        }
        assert_eq!(
            page.connections(),
            0,
            "weir opens no URL that a server wants visited"
        );
    }
}
