//! Tasks of a mock server, in the form of its revision. A task proceeds with each request about it,
//! so that no test waits for a time.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};
use weir_wire::{Revision, code, meta};

use super::behaviour::{Behaviour, Step};
use super::breakable::Switch;
use super::catalog::Tool;
use super::play::{Body, Call, play};
use super::record::Recorded;
use super::server::{call, error, json_text};
use super::state::{News, Shared};

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

/// One task.
#[derive(Clone, Debug)]
pub(super) struct Task {
    tool: String,
    arguments: Value,
    looks: usize,
    cancelled: bool,
    /// The answer to its request for input.
    answer: Option<Value>,
    /// The session that began it, and its progress token.
    progress: Option<(String, Value)>,
}

/// The tools of a server with tasks.
pub(super) fn tools(revision: Revision) -> Vec<Tool> {
    let one = |(name, support): (&str, &str)| {
        let tool = Tool::new(name);
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
pub(super) fn is_of_tasks(shared: &Shared, request: &Recorded, revision: Revision) -> bool {
    let own = request
        .tool()
        .is_some_and(|tool| TOOLS.iter().any(|(name, _)| *name == tool));
    let wanted = if revision.is_modern() {
        takes(request)
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
    shared: &Arc<Shared>,
    request: &Recorded,
    revision: Revision,
    switch: &Switch,
) -> Response<Body> {
    let (id, params) = (&request.message["id"], &request.message["params"]);
    if revision.is_modern() && !takes(request) {
        let data = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
        let error = json!({"code": code::MISSING_REQUIRED_CLIENT_CAPABILITY, "message": "tasks only", "data": data});
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
                code::METHOD_NOT_FOUND,
                "this is a task only",
            );
        }
        return said(id, create(shared, request, revision));
    }
    if request.method() == "tasks/list" {
        let all: Vec<_> = shared
            .lock()
            .tasks
            .iter()
            .map(|(id, task)| brief(id, task, revision))
            .collect();
        return said(id, json!({"tasks": all}));
    }
    let name = params["taskId"].as_str().unwrap_or_default();
    let Some(task) = look(shared, name, request) else {
        return error(StatusCode::OK, id, code::INVALID_PARAMS, "no such task");
    };
    match (request.method(), revision.is_modern()) {
        ("tasks/get", false) => said(id, brief(name, &task, revision)),
        ("tasks/get", true) => said(id, detailed(name, &task)),
        ("tasks/cancel" | "tasks/update", true) => said(id, json!({"resultType": "complete"})),
        ("tasks/cancel", false) if task.cancelled => said(id, brief(name, &task, revision)),
        ("tasks/cancel", false) => error(StatusCode::OK, id, code::INVALID_PARAMS, "it is over"),
        ("tasks/result", false) => {
            let behaviour = result(name, &task);
            let call = Call {
                tool: None,
                ..call(request, revision)
            };
            play(shared, behaviour, call, switch).await
        }
        _ => error(StatusCode::OK, id, code::METHOD_NOT_FOUND, "no such method"),
    }
}

fn takes(request: &Recorded) -> bool {
    request.meta()[meta::CLIENT_CAPABILITIES]["extensions"]
        .get(EXTENSION)
        .is_some()
}

fn create(shared: &Shared, request: &Recorded, revision: Revision) -> Value {
    let task = Task {
        tool: request.tool().unwrap_or_default().to_owned(),
        arguments: request.message["params"]["arguments"].clone(),
        looks: 0,
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
    let mut created = brief(&name, &task, revision);
    if !revision.is_modern() {
        return json!({"task": created});
    }
    created["resultType"] = json!("task");
    created
}

/// The state that the server notifies for a task.
pub(super) fn told(shared: &Shared, name: &str) -> Value {
    let task = shared.lock().tasks.get(name).cloned();
    let mut state = task.map(|task| detailed(name, &task)).unwrap_or_default();
    state
        .as_object_mut()
        .map(|state| state.remove("resultType"));
    state
}

/// Lets the task of this name proceed; returns its new state.
fn look(shared: &Shared, name: &str, request: &Recorded) -> Option<Task> {
    let before = shared.lock().tasks.get(name).map(status);
    let task = go_on(shared, name, request)?;
    if let Some((session, token)) = &task.progress {
        let params = json!({"progressToken": token, "progress": task.looks});
        let told = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        let _ = shared
            .changes
            .send(News::Said(session.clone(), told.to_string()));
    }
    if before != Some(status(&task)) {
        // An error means that there is no listener.
        let _ = shared.changes.send(News::Task(name.to_owned()));
    }
    Some(task)
}

fn go_on(shared: &Shared, name: &str, request: &Recorded) -> Option<Task> {
    shared.change(|inner| {
        let given = inner.answers.iter().rev().map(|answer| &answer["result"]);
        // Over `tasks/result` the input is among the answers to the server's own requests.
        let elicited = given
            .into_iter()
            .find(|result| result["action"].is_string())
            .cloned();
        let task = inner.tasks.get_mut(name)?;
        task.looks += 1;
        match request.method() {
            "tasks/cancel" if !is_over(task) => task.cancelled = true,
            "tasks/update" => {
                task.answer = request.message["params"]["inputResponses"]
                    .get("name")
                    .cloned()
                    .or(task.answer.take());
            }
            // It blocks until its task is over, so this one lets the task end.
            "tasks/result" => task.looks += 2,
            _ => {}
        }
        if task.tool == "task_asks" && task.answer.is_none() {
            task.answer = elicited;
        }
        Some(task.clone())
    })
}

fn status(task: &Task) -> &'static str {
    match &*task.tool {
        _ if task.cancelled => "cancelled",
        "task_waits" => "working",
        "task_asks" if task.answer.is_none() => {
            if task.looks > 1 {
                "input_required"
            } else {
                "working"
            }
        }
        _ if task.looks < 2 => "working",
        "task_fails" => "failed",
        _ => "completed",
    }
}

fn is_over(task: &Task) -> bool {
    matches!(status(task), "completed" | "failed" | "cancelled")
}

fn brief(name: &str, task: &Task, revision: Revision) -> Value {
    let failed = task.tool == "task_errs" && status(task) == "completed" && !revision.is_modern();
    let (ttl, interval) = if revision.is_modern() {
        ("ttlMs", "pollIntervalMs")
    } else {
        ("ttl", "pollInterval")
    };
    json!({
        "taskId": name,
        "status": if failed { "failed" } else { status(task) },
        "statusMessage": format!("looked at {} times", task.looks),
        "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:01Z",
        ttl: 60_000,
        interval: 50,
    })
}

fn detailed(name: &str, task: &Task) -> Value {
    let mut state = brief(name, task, Revision::MODERN);
    state["resultType"] = json!("complete");
    match status(task) {
        "completed" => state["result"] = outcome(task),
        "failed" => state["error"] = failure(),
        "input_required" => {
            state["inputRequests"] =
                json!({"name": {"method": "elicitation/create", "params": form()}});
        }
        _ => {}
    }
    state
}

/// The behaviour of the answer to `tasks/result`: it asks for input first, if the task needs any.
fn result(name: &str, task: &Task) -> Behaviour {
    let related = json!({meta::RELATED_TASK: {"taskId": name}});
    if task.tool == "task_waits" && !task.cancelled {
        return Behaviour::hang();
    }
    if task.tool == "task_fails" || task.cancelled {
        let failure = failure();
        return Behaviour::steps([Step::Error(failure)]);
    }
    let mut result = outcome(task);
    result["_meta"] = related.clone();
    if task.tool != "task_asks" || task.answer.is_some() {
        return Behaviour::result(result);
    }
    let mut params = form();
    params["_meta"] = related;
    Behaviour::steps([
        Step::Ask {
            method: "elicitation/create",
            params,
        },
        Step::Result(result),
    ])
}

fn outcome(task: &Task) -> Value {
    let given = task.answer.as_ref().unwrap_or(&task.arguments);
    let mut result = json!({"content": [{"type": "text", "text": given.to_string()}]});
    if task.tool == "task_errs" {
        result["isError"] = json!(true);
    }
    result
}

fn failure() -> Value {
    json!({"code": 4242, "message": "sold out", "data": {"left": 0}})
}

fn form() -> Value {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    json!({"mode": "form", "message": "Your name?", "requestedSchema": schema})
}

fn said(id: &Value, mut result: Value) -> Response<Body> {
    result
        .as_object_mut()
        .map(|result| result.entry("x-unknown").or_insert(json!(1)));
    json_text(
        StatusCode::OK,
        json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string(),
    )
}
