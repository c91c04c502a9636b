//! A call that waits for its client's answer is parked at one weir. It runs once, even if that weir
//! is lost.

use serde_json::{Value, json};
use weir_testkit::mock_server::MockServerBuilder;
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer};
use weir_wire::Revision;

use crate::harness::{CheckedClient, Weir, within_test_timeout};

/// The 32 bytes that all these weirs seal with.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

fn form() -> Value {
    json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } } } })
}

async fn server(builder: MockServerBuilder, asks: MockBehaviour) -> MockServer {
    builder.tool("ask", asks).start().await
}

fn config(server: &MockServer) -> Value {
    json!({ "upstreams": { "shop": { "url": server.url() } }, "keys": [{ "id": 1, "secret": KEY }] })
}

async fn client(weir: &Weir) -> CheckedClient {
    CheckedClient::with_capabilities(
        &weir.url("/mcp"),
        Revision::MODERN,
        json!({ "elicitation": {} }),
    )
    .await
}

/// Returns the params of the retry, with an answer.
fn again(asked: &ClientAnswer) -> Value {
    let result = asked.result();
    assert_eq!(result["resultType"], "input_required", "{}", asked.last());
    let key = result["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    let answer = json!({ key: { "action": "accept", "content": { "name": "Ada" } } });
    json!({ "name": "shop__ask", "arguments": {}, "inputResponses": answer, "requestState": result["requestState"] })
}

// Proves R184.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_that_reaches_another_node_fails_cleanly_and_one_that_reaches_its_own_goes_on() {
    let server = server(
        MockServer::legacy(Revision::NEWEST_LEGACY),
        MockBehaviour::ask("elicitation/create", form()),
    )
    .await;
    let (owner, other) = (
        Weir::with_config(config(&server)),
        Weir::with_config(config(&server)),
    );
    let (here, there) = (client(&owner).await, client(&other).await);
    let asked = here.call("shop__ask", json!({})).await;
    let retry = again(&asked);
    let lost = |answer: &ClientAnswer| {
        let error = answer.result()["_meta"]["dev.weir/error"].clone();
        assert_eq!(
            (&answer.result()["isError"], &error["reason"]),
            (&json!(true), &json!("result_unknown")),
            "{error}"
        );
    };
    lost(&there.ask("tools/call", retry.clone()).await);
    assert_eq!(
        (server.executions("ask"), server.counts("ask").cancelled),
        (1, 0),
        "where it waits it goes on waiting"
    );
    let gone_on = here.ask("tools/call", retry.clone()).await;
    assert_eq!(gone_on.text(), "{}", "{}", gone_on.last());
    assert_eq!(server.executions("ask"), 1);
    // The owner is killed while a second call is parked there.
    let asked = here.call("shop__ask", json!({})).await;
    owner.process.signal("KILL");
    let given_up =
        |server: &MockServer| server.counts("ask").cancelled + server.counts("ask").abandoned == 1;
    within_test_timeout(
        "the call's end",
        server.wait_until("the call was given up", given_up),
    )
    .await;
    lost(&there.ask("tools/call", again(&asked)).await);
    assert_eq!(server.executions("ask"), 2, "no call was made twice");
}

/// A modern server's own state leads on from any node: no call is parked.
// Proves R184.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rounds_of_modern_servers_go_on_at_any_node() {
    let asks = MockBehaviour::input_required(
        json!({ "q": { "method": "elicitation/create", "params": form() } }),
        Some("s"),
    );
    let server = server(MockServer::modern(), asks).await;
    let (one, other) = (
        Weir::with_config(config(&server)),
        Weir::with_config(config(&server)),
    );
    let asked = client(&one).await.call("shop__ask", json!({})).await;
    drop(one);
    let asked = client(&other).await.ask("tools/call", again(&asked)).await;
    assert_eq!(
        asked.result()["resultType"],
        "input_required",
        "it asks again, whatever it is told"
    );
    let last = server.requests_of("tools/call").pop().unwrap();
    assert_eq!(last.message["params"]["requestState"], "s");
    assert_eq!(
        last.message["params"]["inputResponses"]["q"]["content"],
        json!({ "name": "Ada" })
    );
}
