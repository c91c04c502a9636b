//! Tasks of a 2025-11-25 server that wait for input: weir holds a request for the result of each,
//! because such a server asks on that request's stream.

use std::sync::Arc;

use serde_json::{Value, json};
use weir_core::call::{Call, CallCapabilities, TaskMode};
use weir_core::names::EndpointId;
use weir_core::reply::{ReplyEnd, ReplyEvent};
use weir_core::upstream::{OutboundCall, Upstream};
use weir_core::{CapabilityClass, Principal};
use weir_testkit::{MockBehaviour, MockServer};
use weir_upstream::{UpstreamBounds, UpstreamSettings};
use weir_wire::method::Method;
use weir_wire::{Params, Revision};

use crate::fixtures::{build, call, failure, next, outbound, outcome, principal, settings, text};

/// The most held requests of one principal.
const MAX_OF_A_PRINCIPAL: usize = 64;

async fn server() -> MockServer {
    MockServer::legacy(Revision::V2025_11_25)
        .with_tasks()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await
}

fn capabilities() -> CallCapabilities {
    CallCapabilities {
        class: CapabilityClass::ELICITATION_FORM.with(CapabilityClass::TASKS),
        raw: None,
    }
}

async fn of(principal: &Principal, native: &str, call: Call) -> OutboundCall {
    OutboundCall {
        principal: principal.clone(),
        ..outbound(native, call).await
    }
}

/// Begins a task that asks its client; returns the server's id of it.
async fn begin(upstream: &Arc<dyn Upstream>, principal: &Principal) -> String {
    let call = Call {
        task_mode: TaskMode::Wanted { ttl_ms: None },
        capabilities: capabilities(),
        ..call("task_asks", json!({}))
    };
    let outbound = of(principal, "task_asks", call).await;
    let mut reply = upstream.clone().call(outbound).await;
    let ReplyEvent::End(ReplyEnd::Task(task)) = next(&mut reply).await else {
        panic!("no task");
    };
    let task: Value = serde_json::from_slice(&task).unwrap();
    task["taskId"].as_str().unwrap().to_owned()
}

async fn request(
    upstream: &Arc<dyn Upstream>,
    principal: &Principal,
    method: Method,
    params: Value,
) -> weir_core::Reply {
    request_with(upstream, principal, method, params, None).await
}

/// The same with JSON-RPC errors by which the client refuses questions.
async fn request_with(
    upstream: &Arc<dyn Upstream>,
    principal: &Principal,
    method: Method,
    params: Value,
    refusals: Option<Value>,
) -> weir_core::Reply {
    let mut call = Call::new(
        EndpointId::new("/mcp"),
        method,
        Params::parse(Some(&params.to_string().into())).unwrap(),
        weir_core::call::RequestName::from_bits(2),
    );
    call.capabilities = capabilities();
    call.input_refusals = refusals.map(|refusals| refusals.to_string().into());
    let task = params["taskId"].as_str().unwrap();
    let outbound = of(principal, task, call).await;
    upstream.clone().call(outbound).await
}

async fn request_state(
    upstream: &Arc<dyn Upstream>,
    principal: &Principal,
    task: &str,
) -> weir_core::Reply {
    let params = json!({ "taskId": task });
    request(upstream, principal, Method::TasksGet, params).await
}

/// Polls the task until it waits for input; returns the key of weir's question, if it has one.
async fn poll_until_asked(
    upstream: &Arc<dyn Upstream>,
    principal: &Principal,
    task: &str,
) -> Option<String> {
    for _ in 0..20 {
        let reply = request_state(upstream, principal, task).await;
        let state = outcome(reply).await.end.unwrap();
        if state["status"] == "input_required" {
            let questions = state["inputRequests"].as_object().unwrap();
            return questions.keys().next().cloned();
        }
    }
    panic!("the task never asks");
}

async fn answer(
    upstream: &Arc<dyn Upstream>,
    principal: &Principal,
    task: &str,
    key: &str,
) -> weir_core::Reply {
    let answers = json!({ key: { "action": "accept", "content": { "name": "Ada" } } });
    let params = json!({ "taskId": task, "inputResponses": answers });
    request(upstream, principal, Method::TasksUpdate, params).await
}

#[tokio::test]
async fn calls_go_on_while_more_tasks_wait_for_input_than_calls_may_be_in_flight() {
    let mock = server().await;
    let bounds = UpstreamBounds {
        in_flight: 1,
        ..UpstreamBounds::default()
    };
    let upstream = build(UpstreamSettings {
        bounds,
        ..settings(&mock.url())
    });
    let asked = principal(Some("asked")).await;
    for _ in 0..2 {
        let task = begin(&upstream, &asked).await;
        poll_until_asked(&upstream, &asked, &task).await;
    }
    let other = principal(Some("other")).await;
    let outbound = of(&other, "echo", call("echo", json!({ "n": 1 }))).await;
    assert_eq!(
        text(upstream.clone().call(outbound).await).await,
        r#"{"n":1}"#
    );
    assert_eq!(upstream.health().in_flight, 0, "no call is running");
}

#[tokio::test]
async fn one_principal_with_many_waiting_tasks_leaves_room_for_those_of_others() {
    let mock = server().await;
    let upstream = build(settings(&mock.url()));
    let many = principal(Some("many")).await;
    for _ in 0..MAX_OF_A_PRINCIPAL {
        let task = begin(&upstream, &many).await;
        poll_until_asked(&upstream, &many, &task).await;
    }
    let further = begin(&upstream, &many).await;
    // The first state of a task says that it works.
    let first = request_state(&upstream, &many, &further).await;
    outcome(first).await.end.unwrap();
    let refused = failure(request_state(&upstream, &many, &further).await).await;
    assert_eq!(refused.reason(), "busy");
    assert!(refused.message().contains("your tasks"), "{refused:?}");

    let other = principal(Some("other")).await;
    let task = begin(&upstream, &other).await;
    poll_until_asked(&upstream, &other, &task).await;
}

#[tokio::test]
async fn answer_to_a_question_of_an_earlier_process_is_refused_until_the_server_asks_again() {
    let mock = server().await;
    let earlier = build(settings(&mock.url()));
    let somebody = principal(Some("somebody")).await;
    let task = begin(&earlier, &somebody).await;
    let key = poll_until_asked(&earlier, &somebody, &task).await.unwrap();

    let upstream = build(settings(&mock.url()));
    let refused = failure(answer(&upstream, &somebody, &task, &key).await).await;
    assert_eq!(refused.reason(), "invalid_params");

    let key = poll_until_asked(&upstream, &somebody, &task).await.unwrap();
    let taken = answer(&upstream, &somebody, &task, &key).await;
    assert_eq!(outcome(taken).await.end.unwrap(), json!({}));
    for _ in 0..20 {
        let state = outcome(request_state(&upstream, &somebody, &task).await).await;
        if state.end.unwrap()["status"] == "completed" {
            let late = answer(&upstream, &somebody, &task, &key).await;
            assert_eq!(outcome(late).await.end.unwrap(), json!({}), "it is over");
            return;
        }
    }
    panic!("the task does not end");
}

#[tokio::test]
async fn task_whose_server_does_not_ask_again_still_waits_for_input() {
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .with_tasks()
        .with_rule("tasks/result", MockBehaviour::hang())
        .start()
        .await;
    let upstream = build(settings(&mock.url()));
    let somebody = principal(Some("somebody")).await;
    let task = begin(&upstream, &somebody).await;
    let key = poll_until_asked(&upstream, &somebody, &task).await;
    assert_eq!(key, None);
    let refused = failure(answer(&upstream, &somebody, &task, "input-0-1").await).await;
    assert_eq!(refused.reason(), "invalid_params");
}

#[tokio::test]
async fn refusal_of_a_tasks_question_reaches_the_server_as_an_error() {
    let mock = server().await;
    let upstream = build(settings(&mock.url()));
    let somebody = principal(Some("somebody")).await;
    let task = begin(&upstream, &somebody).await;
    let key = poll_until_asked(&upstream, &somebody, &task).await.unwrap();
    let error = json!({ "code": -1, "message": "User rejected the request" });
    let (params, refusals) = (json!({ "taskId": task }), json!({ key: error }));
    let method = Method::TasksUpdate;
    let taken = request_with(&upstream, &somebody, method, params, Some(refusals)).await;
    assert_eq!(outcome(taken).await.end.unwrap(), json!({}));
    mock.wait_until("the refusal", |mock| {
        mock.answers().iter().any(|answer| answer["error"] == error)
    })
    .await;
}

#[tokio::test]
async fn status_of_waiting_tasks_is_read_without_requests_for_their_results() {
    let mock = server().await;
    let upstream = build(settings(&mock.url()));
    let somebody = principal(Some("somebody")).await;
    // More than may be asked about at the same time.
    for _ in 0..=MAX_OF_A_PRINCIPAL {
        let task = begin(&upstream, &somebody).await;
        let mut status = json!(null);
        while status != "input_required" {
            let mut call = Call::new(
                EndpointId::new("/mcp"),
                Method::TasksGet,
                Params::parse(Some(&json!({ "taskId": task }).to_string().into())).unwrap(),
                weir_core::call::RequestName::from_bits(2),
            );
            call.capabilities = capabilities();
            call.wants_status_only = true;
            let outbound = of(&somebody, &task, call).await;
            let state = outcome(upstream.clone().call(outbound).await).await;
            status = state.end.unwrap()["status"].take();
        }
    }
    assert!(mock.requests_of("tasks/result").is_empty());
}
