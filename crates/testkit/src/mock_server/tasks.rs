//! Tasks of a mock server, in the form of its revision. A task proceeds with each request about it,
//! so that no test waits for a time.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};
use weir_wire::{Revision, error_code, meta};

use crate::mock_server::behaviour::{AnswerStep, MockBehaviour};
use crate::mock_server::breakable_stream::ResetSwitch;
use crate::mock_server::mock_call::MockCall;
use crate::mock_server::mock_response::{MockBody, error, json_text};
use crate::mock_server::mock_task::{MockTask, failure, form};
use crate::mock_server::mock_tool::MockTool;
use crate::mock_server::player::play;
use crate::mock_server::recorded_request::RecordedRequest;
use crate::mock_server::state::{MockChange, MockState};

/// The extension's name.
const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The tools and the outcome of their tasks. `task_done` returns its arguments, `task_asks` asks
/// for a name first, `task_fails` ends with a JSON-RPC error, `task_errs` with a tool's own error.
/// `task_waits` never ends, and `task_only` is like the first but must be a task. Called without a
/// task, each echoes.
const TOOLS: [(&str, &str); 6] = [
    ("task_done", "optional"),
    ("task_asks", "optional"),
    ("task_fails", "optional"),
    ("task_errs", "optional"),
    ("task_waits", "optional"),
    ("task_only", "required"),
];

/// The tools of a server with tasks.
pub(super) fn tools(revision: Revision) -> Vec<MockTool> {
    let one = |(name, support): (&str, &str)| {
        let tool = MockTool::new(name);
        if revision.is_modern() {
            tool
        } else {
            tool.with("execution", json!({"taskSupport": support}))
        }
    };
    TOOLS.into_iter().map(one).collect()
}

/// The capability of a server with tasks.
pub(super) fn declare(capabilities: &mut Value, revision: Revision) {
    if revision.is_modern() {
        capabilities["extensions"] = json!({EXTENSION: {}});
    } else if revision.has_task_param() {
        capabilities["tasks"] =
            json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
    }
}

/// Reports if a request is about a task, or a call that becomes one.
pub(super) fn is_of_tasks(
    shared: &MockState,
    request: &RecordedRequest,
    revision: Revision,
) -> bool {
    let own = request
        .tool()
        .is_some_and(|tool| TOOLS.iter().any(|(name, _)| *name == tool));
    let wanted = if revision.is_modern() {
        declares_tasks(request)
    } else {
        request.message["params"].get("task").is_some()
    };
    let only = request.tool() == Some("task_only");
    shared.settings.tasks
        && (revision.is_modern() || revision.has_task_param())
        && (request.method().starts_with("tasks/") || own && (wanted || only))
}

/// Answers such a request.
pub(super) async fn answer(
    shared: &Arc<MockState>,
    request: &RecordedRequest,
    revision: Revision,
    switch: &ResetSwitch,
) -> Response<MockBody> {
    let (id, params) = (&request.message["id"], &request.message["params"]);
    if revision.is_modern() && !declares_tasks(request) {
        let data = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
        let error = json!({"code": error_code::MISSING_REQUIRED_CLIENT_CAPABILITY, "message": "tasks only", "data": data});
        return json_text(
            StatusCode::BAD_REQUEST,
            json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string(),
        );
    }
    if request.tool().is_some() {
        if !revision.is_modern() && params.get("task").is_none() {
            return error(
                StatusCode::OK,
                id,
                error_code::METHOD_NOT_FOUND,
                "this is a task only",
            );
        }
        return task_response(id, create(shared, request, revision));
    }
    if request.method() == "tasks/list" {
        let all: Vec<_> = shared
            .lock()
            .tasks
            .iter()
            .map(|(id, task)| task.brief(id, revision))
            .collect();
        return task_response(id, json!({"tasks": all}));
    }
    let name = params["taskId"].as_str().unwrap_or_default();
    let Some(task) = advance_task(shared, name, request) else {
        return error(
            StatusCode::OK,
            id,
            error_code::INVALID_PARAMS,
            "no such task",
        );
    };
    match (request.method(), revision.is_modern()) {
        ("tasks/get", false) => task_response(id, task.brief(name, revision)),
        ("tasks/get", true) => task_response(id, task.detailed(name)),
        ("tasks/cancel" | "tasks/update", true) => {
            task_response(id, json!({"resultType": "complete"}))
        }
        ("tasks/cancel", false) if task.cancelled => task_response(id, task.brief(name, revision)),
        ("tasks/cancel", false) => {
            error(StatusCode::OK, id, error_code::INVALID_PARAMS, "it is over")
        }
        ("tasks/result", false) => {
            let behaviour = result(name, &task);
            let call = MockCall {
                tool: None,
                ..MockCall::of(request, revision)
            };
            play(shared, behaviour, call, switch).await
        }
        _ => error(
            StatusCode::OK,
            id,
            error_code::METHOD_NOT_FOUND,
            "no such method",
        ),
    }
}

fn declares_tasks(request: &RecordedRequest) -> bool {
    request.meta()[meta::CLIENT_CAPABILITIES]["extensions"]
        .get(EXTENSION)
        .is_some()
}

fn create(shared: &MockState, request: &RecordedRequest, revision: Revision) -> Value {
    let task = MockTask {
        tool: request.tool().unwrap_or_default().to_owned(),
        arguments: request.message["params"]["arguments"].clone(),
        request_count: 0,
        cancelled: false,
        answer: None,
        progress: request
            .session()
            .map(str::to_owned)
            .zip(request.meta().get("progressToken").cloned()),
    };
    let (name, task) = shared.change(|inner| {
        inner.numbers += 1;
        let name = format!("task-{}", inner.numbers);
        inner.tasks.insert(name.clone(), task.clone());
        inner.counts.entry(task.tool.clone()).or_default().started += 1;
        (name, task)
    });
    let mut created = task.brief(&name, revision);
    if !revision.is_modern() {
        return json!({"task": created});
    }
    created["resultType"] = json!("task");
    created
}

/// The state that the server notifies for a task.
pub(super) fn task_notification_params(shared: &MockState, name: &str) -> Value {
    let task = shared.lock().tasks.get(name).cloned();
    let mut state = task.map(|task| task.detailed(name)).unwrap_or_default();
    state
        .as_object_mut()
        .map(|state| state.remove("resultType"));
    state
}

/// Lets the task of this name proceed; returns its new state.
fn advance_task(shared: &MockState, name: &str, request: &RecordedRequest) -> Option<MockTask> {
    let before = shared.lock().tasks.get(name).map(MockTask::status);
    let task = apply_task_request(shared, name, request)?;
    if let Some((session, token)) = &task.progress {
        let params = json!({"progressToken": token, "progress": task.request_count});
        let told = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        let _ = shared.changes.send(MockChange::SessionMessage(
            session.clone(),
            told.to_string(),
        ));
    }
    if before != Some(task.status()) {
        // An error means that there is no listener.
        let _ = shared.changes.send(MockChange::Task(name.to_owned()));
    }
    Some(task)
}

fn apply_task_request(
    shared: &MockState,
    name: &str,
    request: &RecordedRequest,
) -> Option<MockTask> {
    shared.change(|inner| {
        let given = inner.answers.iter().rev().map(|answer| &answer["result"]);
        // Over `tasks/result` the input is among the answers to the server's own requests.
        let elicited = given
            .into_iter()
            .find(|result| result["action"].is_string())
            .cloned();
        let task = inner.tasks.get_mut(name)?;
        task.request_count += 1;
        match request.method() {
            "tasks/cancel" if !task.is_over() => task.cancelled = true,
            "tasks/update" => {
                task.answer = request.message["params"]["inputResponses"]
                    .get("name")
                    .cloned()
                    .or(task.answer.take());
            }
            // It blocks until its task is over, so this one lets the task end.
            "tasks/result" => task.request_count += 2,
            _ => {}
        }
        if task.tool == "task_asks" && task.answer.is_none() {
            task.answer = elicited;
        }
        Some(task.clone())
    })
}

/// The behaviour of the answer to `tasks/result`: it asks for input first, if the task needs any.
fn result(name: &str, task: &MockTask) -> MockBehaviour {
    let related = json!({meta::RELATED_TASK: {"taskId": name}});
    if task.tool == "task_waits" && !task.cancelled {
        return MockBehaviour::hang();
    }
    if task.tool == "task_fails" || task.cancelled {
        let failure = failure();
        return MockBehaviour::steps([AnswerStep::Error(failure)]);
    }
    let mut result = task.outcome();
    result["_meta"] = related.clone();
    if task.tool != "task_asks" || task.answer.is_some() {
        return MockBehaviour::result(result);
    }
    let mut params = form();
    params["_meta"] = related;
    MockBehaviour::steps([
        AnswerStep::Ask {
            method: "elicitation/create",
            params,
        },
        AnswerStep::Result(result),
    ])
}

fn task_response(id: &Value, mut result: Value) -> Response<MockBody> {
    result
        .as_object_mut()
        .map(|result| result.entry("x-unknown").or_insert(json!(1)));
    json_text(
        StatusCode::OK,
        json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string(),
    )
}
