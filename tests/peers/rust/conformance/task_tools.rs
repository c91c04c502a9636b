//! Tools that run as tasks if the client takes tasks, on the SDK's own task manager.

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock,
    CreateTaskResult, InputRequest, Tool,
};
use rmcp::service::RequestContext;
use rmcp::task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use super::plain_tools::{said, tool};
use super::question_tools::{accepted, form, required};
use super::typed;

pub(super) const NAMES: [&str; 7] = [
    "greet",
    "slow_compute",
    "failing_job",
    "protocol_error_job",
    "confirm_delete",
    "multi_input",
    "test_tool_with_task",
];

/// The tools that answer only by a task.
const TASK_ALONE: [&str; 4] = [
    "failing_job",
    "confirm_delete",
    "multi_input",
    "test_tool_with_task",
];

pub(super) fn tools() -> Vec<Tool> {
    let text = || json!({ "type": "string" });
    vec![
        tool(
            "greet",
            "Answers at once, never as a task",
            json!({ "name": text() }),
        ),
        tool(
            "slow_compute",
            "Takes as long as it is told",
            json!({ "seconds": { "type": "number" } }),
        ),
        tool("failing_job", "Fails, inside its result", json!({})),
        tool("protocol_error_job", "Fails by an error", json!({})),
        tool(
            "confirm_delete",
            "Asks once while it runs",
            json!({ "filename": text() }),
        ),
        tool(
            "multi_input",
            "Asks twice at the same time while it runs",
            json!({}),
        ),
        tool(
            "test_tool_with_task",
            "Asks, then runs as a task",
            json!({}),
        ),
    ]
}

pub(super) async fn call(
    tasks: &TaskManager,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let takes_tasks = context
        .client_capabilities()
        .is_some_and(|able| able.supports_tasks());
    if !takes_tasks && TASK_ALONE.contains(&&*request.name) {
        let needed = ClientCapabilities::builder().enable_tasks().build();
        return Err(ErrorData::missing_required_client_capability(needed));
    }
    let arguments = json!(request.arguments);
    let text = |name: &str| arguments[name].as_str().unwrap_or("nobody").to_owned();
    let seconds = Duration::from_secs_f64(
        arguments["seconds"]
            .as_f64()
            .unwrap_or(1.0)
            .clamp(0.0, 60.0),
    );
    let options = TaskOptions::default();
    let task = match &*request.name {
        "greet" => return Ok(said(format!("Hello, {}!", text("name"))).into()),
        "slow_compute" if !takes_tasks => {
            tokio::time::sleep(seconds).await;
            return Ok(said("computed").into());
        }
        "protocol_error_job" if !takes_tasks => return Err(failure()),
        "slow_compute" => tasks.spawn(options, move |task| Box::pin(compute(task, seconds))),
        "failing_job" => tasks.spawn(options, |_task| {
            Box::pin(async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(CallToolResult::error(vec![ContentBlock::text(
                    "It fails, as it is meant to",
                )]))
            })
        }),
        "protocol_error_job" => tasks.spawn(options, |_task| {
            Box::pin(async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                Err(TaskExit::Error(failure()))
            })
        }),
        "confirm_delete" => tasks.spawn(options, move |task| {
            Box::pin(confirm(task, text("filename")))
        }),
        "multi_input" => tasks.spawn(options, |task| Box::pin(two_questions(task))),
        "test_tool_with_task" => {
            let Some(name) = accepted(request.input_responses.as_ref(), "user_name", "name") else {
                return Ok(required(
                    json!({ "user_name": form("What is your name?", "name", "string") }),
                    None,
                )?
                .into());
            };
            let greeting = format!("Hello, {}!", name.as_str().unwrap_or_default());
            tasks.spawn(options, |_task| {
                Box::pin(async {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    Ok(said(greeting))
                })
            })
        }
        other => return Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
    };
    Ok(CreateTaskResult::new(task).into())
}

fn failure() -> ErrorData {
    ErrorData::internal_error("It fails by an error, as it is meant to", None)
}

async fn compute(task: TaskContext, seconds: Duration) -> Result<CallToolResult, TaskExit> {
    tokio::select! {
        () = task.cancelled() => Err(TaskExit::Cancelled),
        () = tokio::time::sleep(seconds) => Ok(said("computed")),
    }
}

async fn confirm(task: TaskContext, filename: String) -> Result<CallToolResult, TaskExit> {
    let answer = ask(&task, "confirm", &format!("Delete {filename}?"), "boolean").await?;
    Ok(said(format!("{filename}: {answer}")))
}

async fn two_questions(task: TaskContext) -> Result<CallToolResult, TaskExit> {
    let (first, second) = tokio::try_join!(
        ask(&task, "first", "One?", "string"),
        ask(&task, "second", "Two?", "string")
    )?;
    Ok(said(format!("{first} and {second}")))
}

/// Parks the task until its client has answered; the field of the form is named like the question.
async fn ask(task: &TaskContext, key: &str, message: &str, kind: &str) -> Result<Value, TaskExit> {
    let question: InputRequest = typed(form(message, key, kind))?;
    let answer = task.request_input(key, question).await?;
    Ok(answer["content"][key].clone())
}
