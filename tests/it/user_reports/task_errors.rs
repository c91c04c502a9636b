//! Tasks that fail with errors of the server's own, and tasks that send their clients to URLs.

use serde_json::{Value, json};
use weir_testkit::MockServer;
use weir_testkit::mock_server::{AnswerStep, MockBehaviour};
use weir_wire::Revision;

use crate::harness::{CheckedClient, Weir, within_test_timeout};
use crate::tenant_isolation::TENANTS;

/// A URL elicitation under the server's own id.
fn visit(id: &str) -> Value {
    json!({ "mode": "url", "message": "Sign in", "url": "https://idp.example/", "elicitationId": id })
}

/// The error of a server that requires a visit first.
fn visit_first(id: &str) -> Value {
    let data = json!({ "elicitations": [visit(id)] });
    json!({ "code": -32042, "message": "Sign in first", "data": data })
}

/// A task's state in the members that both forms have.
fn failed() -> Value {
    json!({
        "taskId": "task-1", "status": "failed", "ttl": null, "ttlMs": null,
        "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:01Z",
    })
}

/// A server of this revision with tasks that failed with this error.
async fn failing_server(revision: Revision, error: &Value) -> MockServer {
    let mut state = failed();
    let server = if revision.is_modern() {
        state["error"] = error.clone();
        MockServer::modern()
    } else {
        MockServer::legacy(revision)
    };
    let ended = MockBehaviour::steps([AnswerStep::Error(error.clone())]);
    server
        .with_tasks()
        .with_rule("tasks/get", MockBehaviour::result(state))
        .with_rule("tasks/result", ended)
        .start()
        .await
}

/// The capabilities of a client of this revision.
fn able(revision: Revision) -> Value {
    let mut able = json!({ "elicitation": { "form": {}, "url": {} } });
    if revision.is_modern() {
        able["extensions"] = json!({ "io.modelcontextprotocol/tasks": {} });
    }
    able
}

async fn client(weir: &Weir, revision: Revision) -> CheckedClient {
    CheckedClient::with_capabilities(&weir.url("/shop"), revision, able(revision)).await
}

fn weir(server: &MockServer) -> Weir {
    Weir::with_config(json!({
        "upstreams": { "shop": { "url": server.url() } },
        "endpoints": { "/shop": { "upstream": "shop" } },
    }))
}

/// Makes a call that becomes a task; returns the client's name of the task.
async fn begin(client: &CheckedClient, tool: &str) -> Value {
    let mut params = json!({ "name": tool, "arguments": {} });
    if !client.revision.is_modern() {
        params["task"] = json!({ "ttl": 60_000 });
    }
    let answer = client.ask("tools/call", params).await;
    let result = answer.result();
    let task = result.get("task").unwrap_or(result);
    task["taskId"].clone()
}

/// Sends the notification that a URL was visited, in the session in which the task began.
fn complete_visit(server: &MockServer, id: &str) {
    let calls = server.requests_of("tools/call");
    let session = calls.last().unwrap().session().unwrap().to_owned();
    let params = json!({ "elicitationId": id });
    let method = "notifications/elicitation/complete";
    let done = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    server.send_on_get_stream(&session, &done);
}

// Proves R049, R187.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modern_client_gets_the_error_of_a_failed_task_with_a_code_of_its_revision() {
    let gone = json!({ "code": -32002, "message": "gone", "data": { "uri": "x://1" } });
    for revision in [Revision::MODERN, Revision::V2025_11_25] {
        for (error, code, text) in [
            (visit_first("own-1"), -32603, "https://idp.example/"),
            (gone.clone(), -32602, "gone"),
            (
                json!({ "code": 4242, "message": "sold out" }),
                4242,
                "sold out",
            ),
        ] {
            let server = failing_server(revision, &error).await;
            let weir = weir(&server);
            let client = client(&weir, Revision::MODERN).await;
            let task = begin(&client, "task_waits").await;
            let state = client.ask("tasks/get", json!({ "taskId": task })).await;
            let seen = &state.result()["error"];
            assert_eq!(seen["code"], code, "{seen}");
            assert!(seen["message"].as_str().unwrap().contains(text), "{seen}");
            assert!(!seen.to_string().contains("own-1"), "{seen}");

            let filter = json!({ "notifications": { "taskIds": [task] } });
            let mut stream = client.start("subscriptions/listen", filter).await;
            stream.next().await.unwrap();
            let told = stream.next().await.unwrap();
            assert_eq!(&told["params"]["error"], seen, "{told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_task_with_an_error_that_no_client_may_get_has_an_error_of_weirs() {
    let missing = json!({ "requiredCapabilities": { "sampling": {} } });
    let errors = [
        visit_first("own-1"),
        json!({ "code": -32021, "message": "own-1", "data": missing }),
        json!({ "message": "own-1" }),
    ];
    for revision in [Revision::MODERN, Revision::V2025_11_25] {
        for error in &errors {
            let server = failing_server(revision, error).await;
            // The server cannot tell its callers apart, and may ask them for a form alone.
            let weir = Weir::with_config(json!({
                "upstreams": { "shop": {
                    "url": server.url(),
                    "headers": { "x-service-key": "of-the-operator" },
                    "asks": ["elicitation"],
                } },
                "endpoints": { "/shop": { "upstream": "shop" } },
                "auth": { "mode": "required", "api_keys": [TENANTS[0].api_key()] },
            }));
            let client = CheckedClient::with_capabilities_and_header(
                &weir.url("/shop"),
                Revision::MODERN,
                able(Revision::MODERN),
                TENANTS[0].header(),
            )
            .await;
            let task = begin(&client, "task_waits").await;
            let state = client.ask("tasks/get", json!({ "taskId": task })).await;
            let state = state.result();
            assert_eq!(state["status"], "failed", "{state}");
            let seen = &state["error"];
            assert_eq!(seen["code"], 1003, "{seen}");
            assert!(
                seen["message"]
                    .as_str()
                    .unwrap()
                    .starts_with("The upstream "),
                "{seen}"
            );
            for withheld in ["idp.example", "own-1"] {
                assert!(!seen.to_string().contains(withheld), "{seen}");
            }
        }
    }
}

// Proves R186.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn url_elicitation_of_a_task_completes_under_the_id_that_the_client_was_asked_with() {
    let server = MockServer::legacy(Revision::V2025_11_25)
        .with_tasks()
        .start()
        .await;
    let asking = MockBehaviour::steps([
        AnswerStep::Ask {
            method: "elicitation/create",
            params: visit("own-1"),
        },
        AnswerStep::Result(json!({ "content": [] })),
    ]);
    server.add_rule("tasks/result", 1, asking);
    let weir = weir(&server);
    let client = client(&weir, Revision::V2025_11_25).await;
    let mut beside = client.open_change_stream().await;
    let task = begin(&client, "task_asks").await;
    let mut waiting = client
        .start("tasks/result", json!({ "taskId": task }))
        .await;
    let asked = loop {
        let message = waiting.next().await.unwrap();
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    let ours = &asked["params"]["elicitationId"];
    assert!(ours.as_str().unwrap().starts_with("weir-"), "{ours}");
    complete_visit(&server, "own-1");
    let told = within_test_timeout("the visit", beside.next())
        .await
        .unwrap();
    assert_eq!(&told["params"]["elicitationId"], ours, "{told}");
}

// Proves R186, R187.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn url_elicitation_required_by_a_task_completes_under_the_id_of_the_error() {
    let server = failing_server(Revision::V2025_11_25, &visit_first("own-2")).await;
    let weir = weir(&server);
    let client = client(&weir, Revision::V2025_11_25).await;
    let mut beside = client.open_change_stream().await;
    let task = begin(&client, "task_waits").await;
    let refused = client.ask("tasks/result", json!({ "taskId": task })).await;
    assert_eq!(refused.code(), -32042, "{}", refused.last());
    let ours = &refused.error()["data"]["elicitations"][0]["elicitationId"];
    complete_visit(&server, "own-2");
    let told = within_test_timeout("the visit", beside.next())
        .await
        .unwrap();
    assert_eq!(&told["params"]["elicitationId"], ours, "{told}");
}
