//! The cancellation of tasks at a server that refuses it.

use std::sync::Arc;

use serde_json::{Value, json};
use weir_core::call::{Call, CallCapabilities, RequestName, TaskMode};
use weir_core::names::EndpointId;
use weir_core::reply::{Reply, ReplyEnd, ReplyEvent};
use weir_core::upstream::{OutboundCall, Upstream};
use weir_core::{CapabilityClass, FailureKind, Principal};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Params;
use weir_wire::method::Method;

use crate::fixtures::{build, call, failure, next, outbound, outcome, principal, settings};

fn capabilities() -> CallCapabilities {
    CallCapabilities {
        class: CapabilityClass::TASKS,
        raw: None,
    }
}

/// Begins a task; returns the server's id of it.
async fn begin(upstream: &Arc<dyn Upstream>, principal: &Principal, tool: &str) -> String {
    let call = Call {
        task_mode: TaskMode::Allowed,
        capabilities: capabilities(),
        ..call(tool, json!({}))
    };
    let outbound = OutboundCall {
        principal: principal.clone(),
        ..outbound(tool, call).await
    };
    let mut reply = upstream.clone().call(outbound).await;
    let ReplyEvent::End(ReplyEnd::Task(created)) = next(&mut reply).await else {
        panic!("no task")
    };
    let created: Value = serde_json::from_slice(&created).unwrap();
    created["taskId"].as_str().unwrap().to_owned()
}

async fn request(
    upstream: &Arc<dyn Upstream>,
    principal: &Principal,
    method: Method,
    task: &str,
) -> Reply {
    let params = json!({ "taskId": task }).to_string().into();
    let mut call = Call::new(
        EndpointId::new("/mcp"),
        method,
        Params::parse(Some(&params)).unwrap(),
        RequestName::from_bits(2),
    );
    call.capabilities = capabilities();
    let outbound = OutboundCall {
        principal: principal.clone(),
        ..outbound(task, call).await
    };
    upstream.clone().call(outbound).await
}

#[tokio::test]
async fn modern_server_that_refuses_to_cancel_a_finished_task_is_no_error() {
    let refusal = MockBehaviour::error(-32602, "it is over", json!(null));
    let mock = MockServer::modern()
        .with_tasks()
        .with_rule("tasks/cancel", refusal)
        .start()
        .await;
    let upstream = build(settings(&mock.url()));
    let principal = principal(Some("owner")).await;

    let finished = begin(&upstream, &principal, "task_done").await;
    let is_over = async || {
        let state = request(&upstream, &principal, Method::TasksGet, &finished).await;
        outcome(state).await.end.unwrap()["status"] == "completed"
    };
    while !is_over().await {}
    let cancelled = request(&upstream, &principal, Method::TasksCancel, &finished).await;
    assert_eq!(outcome(cancelled).await.end.unwrap(), json!({}));

    let running = begin(&upstream, &principal, "task_waits").await;
    let refused = request(&upstream, &principal, Method::TasksCancel, &running).await;
    let refused = failure(refused).await;
    assert!(
        matches!(refused.kind(), FailureKind::Upstream(error) if error.message == "it is over"),
        "{refused:?}"
    );
}
