//! Questions that are declined, withdrawn or sent outside of tool calls, and questions of prompts
//! and resources.

use serde_json::{Value, json};
use weir_testkit::MockBehaviour;
use weir_testkit::mock_server::AnswerStep;
use weir_wire::Revision;

use super::pairing::PairingTransport;
use super::server_questions::{QuestionPairing, converse_about, form};
use super::support_report::FeatureSupport;
use crate::harness::{CheckedClient, within_test_timeout};

/// Returns the behaviours of an answer that waits for another answer first.
fn first_asking(world: &QuestionPairing, result: Value) -> Vec<MockBehaviour> {
    if world.upstream.is_modern() {
        let request = json!({ "question": { "method": "elicitation/create", "params": form() } });
        return vec![
            MockBehaviour::input_required(request, Some("its own")),
            MockBehaviour::result(result),
        ];
    }
    let ask = AnswerStep::Ask {
        method: "elicitation/create",
        params: form(),
    };
    vec![MockBehaviour::steps([ask, AnswerStep::Result(result)])]
}

// Proves R166.
pub async fn prompts_and_resources_ask_as_tools_do_and_nothing_else_does(
    world: &QuestionPairing,
) -> FeatureSupport {
    if !world.has(Revision::V2025_06_18) {
        return FeatureSupport::NotInRevision;
    }
    let client = world.able("/mcp").await;
    let message = json!({ "role": "user", "content": { "type": "text", "text": "Hello Ada" } });
    let contents = json!([{ "uri": "memo:1", "text": "for Ada" }]);
    let (prompt, memo) = (
        json!({ "name": "shop__greet", "arguments": { "who": "a" } }),
        json!({ "uri": "shop+memo:1" }),
    );
    let mut read = json!({ "contents": contents });
    if world.upstream.is_modern() {
        (read["ttlMs"], read["cacheScope"]) = (json!(0), json!("private"));
    }
    for (method, params, result) in [
        ("prompts/get", prompt, json!({ "messages": [message] })),
        ("resources/read", memo, read),
    ] {
        for behaviour in first_asking(world, result) {
            world.mock_server.add_rule(method, 1, behaviour);
        }
        let (asked, last) = converse_about(&client, method, params).await;
        assert_eq!(asked.len(), 1, "{method}: {last}");
        assert_eq!(asked[0].1["message"], "[shop] Who are you?", "{method}");
        assert!(
            last["result"].to_string().contains("Ada"),
            "{method}: {last}"
        );
    }
    // A completion may not ask, so no client is asked. A legacy server gets an error for its
    // question (not one about a missing capability); a modern server's answer becomes an error.
    let completed = json!({ "completion": { "values": ["x"] } });
    world.mock_server.add_rule(
        "completion/complete",
        1,
        first_asking(world, completed).remove(0),
    );
    let reference = json!({ "type": "ref/prompt", "name": "shop__greet" });
    let params = json!({ "ref": reference, "argument": { "name": "who", "value": "a" } });
    let (asked, last) = converse_about(&client, "completion/complete", params).await;
    assert_eq!(asked, [], "{last}");
    if world.upstream.is_modern() {
        assert!(last["error"].is_object(), "{last}");
    } else {
        assert_eq!(
            last["result"]["completion"]["values"],
            json!(["x"]),
            "{last}"
        );
        assert_eq!(
            world.mock_server.answers().last().unwrap()["error"]["code"],
            -32602
        );
    }
    FeatureSupport::Carried
}

/// Makes a call and answers every question with an error.
async fn decline(client: &CheckedClient, tool: &str) -> Value {
    let mut call = client
        .start("tools/call", json!({ "name": tool, "arguments": {} }))
        .await;
    loop {
        let message = call.next().await.unwrap();
        if message.get("method").is_none() {
            return message;
        }
        if let Some(id) = message.get("id") {
            let error = json!({ "code": -1, "message": "User rejected it" });
            let (headers, _) = client.raw().envelope("ping", Value::Null);
            let body = json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string();
            assert_eq!(
                client
                    .raw()
                    .send(http::Method::POST, headers, body)
                    .await
                    .unwrap()
                    .status,
                202
            );
        }
    }
}

// Proves R181.
pub async fn declined_question_is_reported_to_the_server_and_not_repeated(
    world: &QuestionPairing,
) -> FeatureSupport {
    if world.client.is_modern() || !world.has(Revision::V2025_06_18) {
        // A modern client has no error for an answer: it declines in the form, or does not retry.
        return FeatureSupport::NotInRevision;
    }
    let client = world.able("/shop").await;
    let told = decline(&client, "declined").await;
    if world.upstream.is_modern() {
        // For a form the server gets the action `cancel`.
        assert_eq!(told["result"]["content"][0]["text"], "{}", "{told}");
        let last = world.mock_server.requests_of("tools/call").pop().unwrap();
        assert_eq!(
            last.message["params"]["inputResponses"]["question"],
            json!({ "action": "cancel" })
        );
        // A sampling result has no such value.
        let told = decline(&client, "unsampled").await;
        assert_eq!(told["result"]["isError"], true, "{told}");
        assert!(
            told["result"]["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains("User rejected it"),
            "{told}"
        );
        assert_eq!(
            world.mock_server.executions("unsampled"),
            1,
            "the call was not made again"
        );
    } else {
        assert_eq!(
            world.mock_server.answers().last().unwrap()["error"]["message"],
            "User rejected it"
        );
        assert!(
            told["result"]["content"].is_array(),
            "the server goes on: {told}"
        );
    }
    FeatureSupport::Carried
}

pub async fn withdrawn_server_request_reaches_no_client_or_is_cancelled_there(
    world: &QuestionPairing,
) -> FeatureSupport {
    if world.upstream.is_modern() || !world.has(Revision::V2025_06_18) {
        return FeatureSupport::NotInRevision;
    }
    let client = world.able("/shop").await;
    let (asked, last) = converse_about(
        &client,
        "tools/call",
        json!({ "name": "hasty", "arguments": {} }),
    )
    .await;
    assert_eq!(last["result"]["content"][0]["text"], "{}", "{last}");
    let methods: Vec<_> = asked.iter().map(|(method, _)| method.as_str()).collect();
    // A session's client may have been asked by then: it gets a cancellation, unless its answer was
    // quicker.
    let told = [
        &[][..],
        &["elicitation/create"],
        &["elicitation/create", "notifications/cancelled"],
    ];
    let may = if world.client.is_modern() {
        &told[..1]
    } else {
        &told[..]
    };
    assert!(may.contains(&&methods[..]), "{methods:?}");
    FeatureSupport::Carried
}

/// Whoever wants the answer, the client need not ask its user any more.
pub async fn cancelled_call_withdraws_its_question(world: &QuestionPairing) -> FeatureSupport {
    if world.client.is_modern() || !world.has(Revision::V2025_06_18) {
        return FeatureSupport::NotInRevision;
    }
    let client = world.able("/shop").await;
    let mut call = client.start_call("given_up", json!({}), None).await;
    let asked = call.next().await.unwrap();
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    let rest = client.cancel(call).await.unwrap().read_rest().await;
    let told: Vec<_> = rest
        .iter()
        .map(|message| (&message["method"], &message["params"]["requestId"]))
        .collect();
    assert_eq!(
        told,
        [(&json!("notifications/cancelled"), &asked["id"])],
        "{rest:?}"
    );
    FeatureSupport::Carried
}

// Proves R193.
pub async fn a_session_of_a_clients_own_hears_of_its_roots_and_ends_with_it(
    world: &QuestionPairing,
) -> FeatureSupport {
    if world.client.is_modern() {
        return FeatureSupport::NotInRevision;
    }
    let client = world.able("/shop").await;
    assert!(
        client
            .call("tool_0000", json!({}))
            .await
            .result()
            .is_object()
    );
    let roots = "notifications/roots/list_changed";
    // A process that served another client of this principal was notified of this client's roots
    // before.
    let before = world.mock_server.requests_of(roots).len();
    let told = client.raw().notify(roots, json!({})).await.unwrap();
    assert_eq!(told.status, 202);
    if world.upstream.is_modern() {
        assert!(
            client
                .call("tool_0000", json!({}))
                .await
                .result()
                .is_object()
        );
        assert!(
            world.mock_server.requests_of(roots).is_empty(),
            "it knows no such words"
        );
        return FeatureSupport::Refused;
    }
    let heard =
        |mock_server: &weir_testkit::MockServer| mock_server.requests_of(roots).len() > before;
    world
        .mock_server
        .wait_until("the server hears of other roots", heard)
        .await;
    if world.transport == PairingTransport::Stdio {
        // One process serves all sessions of a principal, and outlives each of them.
        return FeatureSupport::Carried;
    }
    assert_eq!(world.mock_server.requests_of(roots).len(), 1);
    let own = world.mock_server.requests_of(roots)[0]
        .session()
        .unwrap()
        .to_owned();
    assert!(client.raw().delete().await.unwrap().status.is_success());
    let gone = |mock_server: &weir_testkit::MockServer| {
        mock_server
            .requests_of("DELETE")
            .iter()
            .any(|end| end.session() == Some(&own))
    };
    within_test_timeout(
        "the end of its session",
        world
            .mock_server
            .wait_until("the session at the server ends", gone),
    )
    .await;
    FeatureSupport::Carried
}
