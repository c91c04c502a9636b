//! Calls of several rounds: their user is asked once, their answers are checked, their progress
//! increases, and they are charged once.

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, CallGate, MockBehaviour, MockTool};
use weir_testkit::{ClientAnswer, MockServer};
use weir_wire::Revision;

use super::{BOTH, weir_over};
use crate::harness::{CheckedClient, Weir, within_test_timeout};

fn able() -> Value {
    json!({ "sampling": {}, "elicitation": { "form": {}, "url": {} } })
}

async fn client(weir: &Weir, revision: Revision) -> CheckedClient {
    CheckedClient::with_capabilities(&weir.url("/mcp"), revision, able()).await
}

/// The behaviour of a server of 2025-11-25 that serves a call only after a visit of this page.
fn requires(page: &str) -> MockBehaviour {
    let visit = json!({
        "mode": "url",
        "message": "Sign in",
        "url": format!("https://idp.example/{page}"),
        "elicitationId": page,
    });
    let error =
        json!({ "code": -32042, "message": "Not yet", "data": { "elicitations": [visit] } });
    MockBehaviour::steps([AnswerStep::Error(error)])
}

/// The end of a modern server's call that asks one question.
fn asks(key: &str, method: &str, params: &Value) -> Value {
    let requests = json!({ (key): { "method": method, "params": params } });
    json!({ "resultType": "input_required", "inputRequests": requests, "requestState": key })
}

fn form() -> Value {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    json!({ "message": "Who?", "requestedSchema": schema })
}

/// The next round of a modern client's call, with these answers.
async fn answer(
    client: &CheckedClient,
    tool: &str,
    asked: &ClientAnswer,
    with: Value,
) -> ClientAnswer {
    let state = &asked.result()["requestState"];
    let params =
        json!({ "name": tool, "arguments": {}, "inputResponses": with, "requestState": state });
    client.ask("tools/call", params).await
}

/// Makes a call of a legacy client and answers every question with this; returns the questions and
/// the last message.
async fn call_answering(client: &CheckedClient, tool: &str, answer: &Value) -> (Vec<Value>, Value) {
    let mut call = client.start_call(tool, json!({}), None).await;
    let mut asked = Vec::new();
    loop {
        let message = within_test_timeout("the next message", call.next())
            .await
            .unwrap();
        if message["method"].is_null() {
            return (asked, message);
        }
        if message.get("id").is_some() {
            client
                .raw()
                .respond(&message["id"], answer.clone())
                .await
                .unwrap();
            asked.push(message["params"].clone());
        }
    }
}

// Proves R105.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_a_server_whose_question_waits_are_answered_at_once() {
    let question =
        json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form() });
    for revision in [Revision::V2025_06_18, Revision::V2025_11_25] {
        let gate = CallGate::new();
        let request = |method| AnswerStep::Ask {
            method,
            params: json!({}),
        };
        let steps = [
            AnswerStep::Send(question.to_string()),
            AnswerStep::Gate(gate.clone()),
            request("ping"),
            request("tasks/list"),
            request("ping"),
            AnswerStep::Result(json!({ "content": [{ "type": "text", "text": "gone on" }] })),
        ];
        let server = MockServer::legacy(revision)
            .tool("asks", MockBehaviour::steps(steps))
            .start()
            .await;
        let weir = weir_over(&[("shop", &server)]);
        let client = client(&weir, Revision::MODERN).await;
        let asked = client.call("shop__asks", json!({})).await;
        assert_eq!(asked.result()["resultType"], "input_required");
        gate.open();
        server
            .wait_until("the answers to the requests", |server| {
                server.answers().len() == 3
            })
            .await;
        let answers = server.answers();
        assert_eq!(answers[0]["result"], json!({}));
        assert_eq!(answers[1]["error"]["code"], -32601);
        assert_eq!(answers[2]["result"], json!({}));
        // The server went on without the answer of its client.
        let accept = json!({ "input-1": { "action": "cancel" } });
        let last = answer(&client, "shop__asks", &asked, accept).await;
        assert_eq!(last.text(), "gone on", "{}", last.last());
    }
}

// Proves R187, R190.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn required_visit_is_asked_once_and_awaited() {
    let [page, other] = ["one", "other"].map(requires);
    let server = MockServer::legacy(Revision::V2025_11_25)
        .with(MockTool::new("visit").does_in_turn([
            page.clone(),
            page.clone(),
            page.clone(),
            page.clone(),
            MockBehaviour::text("signed in"),
        ]))
        .with(MockTool::new("two").does_in_turn([
            page.clone(),
            page,
            other.clone(),
            other,
            MockBehaviour::text("signed in twice"),
        ]))
        .start()
        .await;
    let weir = weir_over(&[("shop", &server)]);
    let client = client(&weir, Revision::MODERN).await;
    let asked = client.call("shop__visit", json!({})).await;
    let accept = json!({ "visit-1": { "action": "accept" } });
    let with = &asked.result()["inputRequests"]["visit-1"]["params"];
    assert_eq!(
        (&with["message"], &with["url"]),
        (&json!("[shop] Sign in"), &json!("https://idp.example/one"))
    );
    let last = answer(&client, "shop__visit", &asked, accept.clone()).await;
    assert_eq!(last.text(), "signed in", "{}", last.last());
    // Another URL is another question, and the first is not asked for again.
    let first = client.call("shop__two", json!({})).await;
    let second = answer(&client, "shop__two", &first, accept.clone()).await;
    let requests = second.result()["inputRequests"].as_object().unwrap();
    assert_eq!(requests.len(), 1, "{}", second.last());
    assert_eq!(
        requests["visit-1"]["params"]["url"],
        "https://idp.example/other"
    );
    let last = answer(&client, "shop__two", &second, accept).await;
    assert_eq!(last.text(), "signed in twice", "{}", last.last());
}

/// A server may name a new URL in each refusal, until the user has visited the first one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reported_visit_has_the_call_repeated_instead_of_another_visit_asked() {
    let rounds = ["one", "other"].map(requires).into_iter();
    let server = MockServer::legacy(Revision::V2025_11_25)
        .with(MockTool::new("visit").does_in_turn(rounds.chain([MockBehaviour::text("signed in")])))
        .start()
        .await;
    let weir = weir_over(&[("shop", &server)]);
    let client = client(&weir, Revision::MODERN).await;
    let asked = client.call("shop__visit", json!({})).await;
    let accept = json!({ "visit-1": { "action": "accept" } });
    let (last, ()) = tokio::join!(answer(&client, "shop__visit", &asked, accept), async {
        server
            .wait_until("the second refusal", |server| {
                server.executions("visit") == 2
            })
            .await;
        let calls = server.requests_of("tools/call");
        let session = calls.last().unwrap().session().unwrap().to_owned();
        let method = "notifications/elicitation/complete";
        let params = json!({ "elicitationId": "one" });
        let done = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        server.send_on_get_stream(&session, &done);
    });
    assert_eq!(last.text(), "signed in", "{}", last.last());
    assert_eq!(server.executions("visit"), 3);
}

// Proves R187.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn declined_visit_ends_the_call() {
    let server = MockServer::legacy(Revision::V2025_11_25)
        .tool("visit", requires("one"))
        .start()
        .await;
    let weir = weir_over(&[("shop", &server)]);
    let client = client(&weir, Revision::MODERN).await;
    let asked = client.call("shop__visit", json!({})).await;
    for action in ["decline", "cancel"] {
        let with = json!({ "visit-1": { "action": action } });
        let last = answer(&client, "shop__visit", &asked, with).await;
        assert_eq!(last.result()["isError"], true, "{}", last.last());
        assert!(last.text().contains("did not agree"), "{}", last.text());
    }
    for malformed in [json!({ "action": "maybe" }), json!({}), json!(5)] {
        let last = answer(
            &client,
            "shop__visit",
            &asked,
            json!({ "visit-1": malformed }),
        )
        .await;
        assert_eq!(last.code(), -32602, "{}", last.last());
    }
    assert_eq!(
        server.executions("visit"),
        1,
        "the server gets none of them"
    );
    let again = answer(&client, "shop__visit", &asked, json!({})).await;
    assert!(
        again.result()["inputRequests"]["visit-1"].is_object(),
        "an answer is missing"
    );
}

// Proves R179, R188.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn legacy_client_is_asked_once_for_a_url_that_a_modern_server_repeats() {
    let visit = json!({ "mode": "url", "message": "Sign in", "url": "https://idp.example/" });
    let rounds = (0..4)
        .map(|nth| MockBehaviour::result(asks(&nth.to_string(), "elicitation/create", &visit)));
    let server = MockServer::modern()
        .with(MockTool::new("visit").does_in_turn(rounds.chain([MockBehaviour::text("signed in")])))
        .start()
        .await;
    let weir = weir_over(&[("shop", &server)]);
    let client = client(&weir, Revision::V2025_11_25).await;
    let (asked, last) =
        call_answering(&client, "shop__visit", &json!({ "action": "accept" })).await;
    assert_eq!(last["result"]["content"][0]["text"], "signed in", "{last}");
    assert_eq!(asked.len(), 1, "{asked:?}");
    let calls = server.requests_of("tools/call");
    for (nth, call) in calls.iter().skip(1).enumerate() {
        let params = &call.message["params"];
        let expected = json!({ (nth.to_string()): { "action": "accept" } });
        assert_eq!(params["inputResponses"], expected, "of its own question");
        assert_eq!(params["requestState"], nth.to_string());
    }
}

// Proves R178.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_answers_of_legacy_clients_are_not_passed_to_modern_servers() {
    let prompt = json!({ "messages": [], "maxTokens": 1 });
    let server = MockServer::modern()
        .with(MockTool::new("fill").does_in_turn([
            MockBehaviour::result(asks("q", "elicitation/create", &form())),
            MockBehaviour::text("done"),
        ]))
        .tool(
            "sample",
            MockBehaviour::result(asks("q", "sampling/createMessage", &prompt)),
        )
        .start()
        .await;
    let weir = weir_over(&[("shop", &server)]);
    let client = client(&weir, Revision::V2025_11_25).await;
    let malformed = json!({ "action": "maybe", "roots": 5 });
    let (_, last) = call_answering(&client, "shop__fill", &malformed).await;
    assert_eq!(last["result"]["content"][0]["text"], "done", "{last}");
    let round = server.requests_of("tools/call").pop().unwrap();
    assert_eq!(
        round.message["params"]["inputResponses"],
        json!({ "q": { "action": "cancel" } })
    );
    let (_, last) = call_answering(&client, "shop__sample", &malformed).await;
    assert_eq!(last["result"]["isError"], true, "{last}");
    assert_eq!(server.executions("sample"), 1);
}

// Proves R208.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_increases_over_all_rounds_of_a_call() {
    let round = |last: u64, end: Value| {
        let progress = (1..=last).map(|at| AnswerStep::Progress(at, 9));
        MockBehaviour::steps(progress.chain([AnswerStep::Result(end)]))
    };
    let done = json!({ "content": [] });
    let server = MockServer::modern()
        .with(MockTool::new("fill").does_in_turn([
            round(2, asks("q", "elicitation/create", &form())),
            round(2, asks("r", "elicitation/create", &form())),
            round(5, done),
        ]))
        .start()
        .await;
    let weir = Weir::with_config(json!({
        "upstreams": { "shop": { "url": server.url() } },
        "limits": { "progress_interval": "0s" },
    }));
    let client = client(&weir, Revision::V2025_11_25).await;
    let token = json!("mine");
    let mut call = client
        .start_call("shop__fill", json!({}), Some(&token))
        .await;
    let mut reported = Vec::new();
    loop {
        let message = within_test_timeout("the next message", call.next())
            .await
            .unwrap();
        match message["method"].as_str() {
            None => break,
            Some("notifications/progress") => {
                reported.push(message["params"]["progress"].as_u64().unwrap());
            }
            Some(_) => {
                let declined = json!({ "action": "decline" });
                client
                    .raw()
                    .respond(&message["id"], declined)
                    .await
                    .unwrap();
            }
        }
    }
    assert_eq!(reported, (1..=9).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rounds_of_one_call_are_charged_once() {
    let questions = || (0..3).map(|nth| asks(&nth.to_string(), "elicitation/create", &form()));
    let later = (0..3).map(
        |nth| json!({ "resultType": "input_required", "requestState": format!("later {nth}") }),
    );
    let behaviours = |ends: Vec<Value>| {
        let rounds = ends.into_iter().map(MockBehaviour::result);
        rounds
            .chain([MockBehaviour::text("done")])
            .collect::<Vec<_>>()
    };
    let modern = MockServer::modern()
        .with(MockTool::new("fill").does_in_turn(behaviours(questions().collect())))
        .with(MockTool::new("wait").does_in_turn(behaviours(later.collect())))
        .start()
        .await;
    let ask = AnswerStep::Ask {
        method: "elicitation/create",
        params: form(),
    };
    let fill = [ask.clone(), ask.clone(), ask, AnswerStep::Echo];
    let legacy = MockServer::legacy(Revision::V2025_11_25)
        .tool("ask", MockBehaviour::steps(fill))
        .start()
        .await;
    let weir = Weir::with_config(json!({
        "upstreams": { "modern": { "url": modern.url() }, "legacy": { "url": legacy.url() } },
        "rates": { "tools": { "*/fill": { "rate": "1/h", "daily": 1 }, "*/wait": { "daily": 1 }, "*/ask": { "rate": "1/h" } } },
    }));
    let [old, new] = [client(&weir, BOTH[0]).await, client(&weir, BOTH[1]).await];
    let declined = json!({ "action": "decline" });
    for (tool, questions) in [("modern__fill", 3), ("modern__wait", 0)] {
        let (asked, last) = call_answering(&old, tool, &declined).await;
        assert_eq!(asked.len(), questions);
        assert_eq!(last["result"]["content"][0]["text"], "done", "{last}");
    }
    let mut said = new.call("legacy__ask", json!({})).await;
    let mut rounds = 0;
    while let Some(requests) = said.result()["inputRequests"].as_object() {
        rounds += 1;
        let answers: Value = requests
            .keys()
            .map(|key| (key.clone(), declined.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        said = answer(&new, "legacy__ask", &said, answers).await;
    }
    assert_eq!((rounds, said.text()), (3, "{}"), "{}", said.last());
    let next = new.call("legacy__ask", json!({})).await;
    assert_eq!(
        next.result()["isError"],
        true,
        "the rate holds: {}",
        next.last()
    );
}
