//! URL elicitation of servers that cannot tell weir's callers apart: they see weir's own
//! credential.

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, MockTool};
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer};
use weir_wire::Revision;

use super::own_error;
use crate::harness::{CheckedClient, Weir};
use crate::tenant_isolation::TENANTS;

const PAGE: &str = "https://idp.example/";

fn form() -> Value {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    json!({ "message": "Who?", "requestedSchema": schema })
}

/// Starts a server that asks by URL, in all the ways of its revision, even if no client declared
/// it.
async fn server(revision: Revision) -> MockServer {
    let url = json!({ "mode": "url", "message": "Sign in", "url": PAGE });
    if revision.is_modern() {
        let asks = |params: &Value| {
            let request =
                json!({ "question": { "method": "elicitation/create", "params": params } });
            [
                MockBehaviour::input_required(request, Some("s")),
                MockBehaviour::echo(),
            ]
        };
        let needed = json!({ "requiredCapabilities": { "elicitation": { "url": {} } } });
        return MockServer::modern()
            .with(MockTool::new("visit").does_in_turn(asks(&url)))
            .with(MockTool::new("fill").does_in_turn(asks(&form())))
            .tool(
                "sign_in",
                MockBehaviour::error(-32021, "Declare `elicitation.url`", needed).with_status(400),
            )
            .start()
            .await;
    }
    let mut named = url;
    named["elicitationId"] = json!("own-1");
    let asks = |params: Value| {
        MockBehaviour::steps([
            AnswerStep::Ask {
                method: "elicitation/create",
                params,
            },
            AnswerStep::Echo,
        ])
    };
    let refused =
        json!({ "code": -32042, "message": "Not yet", "data": { "elicitations": [named] } });
    MockServer::legacy(revision)
        .tool("visit", asks(named))
        .tool("fill", asks(form()))
        .tool(
            "sign_in",
            MockBehaviour::steps([AnswerStep::Error(refused)]),
        )
        .start()
        .await
}

/// Starts weir, which knows its callers and sends the server one credential for all of them.
fn weir(server: &MockServer, asks: Option<Value>) -> Weir {
    let headers = json!({ "Authorization": "Bearer of-the-operator" });
    let mut upstream = json!({ "url": server.url(), "headers": headers });
    if let Some(asks) = asks {
        upstream["asks"] = asks;
    }
    Weir::with_config(json!({
        "auth": { "mode": "required", "api_keys": TENANTS.each_ref().map(|tenant| tenant.api_key()) },
        "upstreams": { "shop": upstream },
        "endpoints": { "/shop": { "upstream": "shop" } },
    }))
}

async fn client(weir: &Weir, revision: Revision) -> CheckedClient {
    let able = json!({ "elicitation": { "form": {}, "url": {} } });
    CheckedClient::with_capabilities_and_header(
        &weir.url("/shop"),
        revision,
        able,
        TENANTS[0].header(),
    )
    .await
}

/// Returns the elicitation capability that the server got, in the last call or its session.
fn declared(server: &MockServer) -> Value {
    let call = server.requests_of("tools/call").pop().unwrap();
    if !call.meta()["io.modelcontextprotocol/protocolVersion"].is_null() {
        return call.meta()["io.modelcontextprotocol/clientCapabilities"]["elicitation"].clone();
    }
    let told = server
        .requests_of("initialize")
        .into_iter()
        .map(|greeting| greeting.message["params"]["capabilities"]["elicitation"].clone());
    told.filter(Value::is_object).last().unwrap_or_default()
}

/// Reports if a call asks the client a question.
async fn asks(client: &CheckedClient, tool: &str) -> bool {
    let mut call = client
        .start("tools/call", json!({ "name": tool, "arguments": {} }))
        .await;
    let first = call.next().await.unwrap();
    first["method"] == "elicitation/create" || first["result"]["resultType"] == "input_required"
}

const UPSTREAMS: [Revision; 2] = [Revision::NEWEST_LEGACY, Revision::MODERN];
const CLIENTS: [Revision; 2] = UPSTREAMS;

fn is_refused(answer: &ClientAnswer) {
    assert_eq!(
        own_error(answer)["reason"],
        "bad_answer",
        "{}",
        answer.last()
    );
    assert!(
        !String::from_utf8_lossy(&answer.body).contains(PAGE),
        "{}",
        answer.last()
    );
}

// Proves R191.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_credential_upstream_cannot_elicit_by_url() {
    for revision in UPSTREAMS {
        for own in CLIENTS {
            let server = server(revision).await;
            let weir = weir(&server, None);
            let client = client(&weir, own).await;
            assert!(
                asks(&client, "fill").await,
                "forms are asked: {own:?} at {revision:?}"
            );
            assert_eq!(
                declared(&server),
                json!({ "form": {} }),
                "{own:?} at {revision:?}"
            );
            // The server asks all the same.
            let answer = client.call("visit", json!({ "n": 1 })).await;
            if revision.is_modern() {
                is_refused(&answer);
            } else {
                assert_eq!(
                    answer.text(),
                    r#"{"n":1}"#,
                    "the call goes on: {}",
                    answer.last()
                );
                assert_eq!(server.answers().last().unwrap()["error"]["code"], -32602);
            }
            is_refused(&client.call("sign_in", json!({})).await);
        }
    }
}

// Proves R191.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_credential_upstream_elicits_by_url_if_configured() {
    for revision in UPSTREAMS {
        for own in CLIENTS {
            let server = server(revision).await;
            let weir = weir(&server, Some(json!(["elicitation", "elicitation_url"])));
            let client = client(&weir, own).await;
            assert!(asks(&client, "visit").await, "{own:?} at {revision:?}");
            assert_eq!(
                declared(&server),
                json!({ "form": {}, "url": {} }),
                "{own:?} at {revision:?}"
            );
        }
    }
}
