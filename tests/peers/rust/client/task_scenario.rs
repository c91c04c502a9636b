//! A call that becomes a task of the extension, polled until it is over. The SDK has no tasks of
//! 2025-11-25.

use std::time::Duration;

use anyhow::{Context as _, bail};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CreateMessageRequestParams, ElicitRequestParams,
    GetTaskParams, UpdateTaskParams,
};
use serde_json::{Map, Value, json};

use super::{ConnectedClient, print, question_answers};

/// The default pause between two polls.
const BETWEEN: Duration = Duration::from_millis(50);

/// Calls the tool; answers the questions of its task, and prints its states and its result.
pub(super) async fn run(
    client: &ConnectedClient,
    tool: &str,
    arguments: &Value,
) -> anyhow::Result<()> {
    let mut params = CallToolRequestParams::new(tool.to_owned());
    params.arguments = arguments.as_object().cloned();
    let CallToolResponse::Task(created) = client.call_tool_once(params).await? else {
        bail!("the call became no task")
    };
    let name = json!(created)["taskId"]
        .as_str()
        .context("a task without an id")?
        .to_owned();
    let mut before = Value::Null;
    loop {
        let state = json!(client.get_task(GetTaskParams::new(name.clone())).await?);
        if state["status"] != before {
            print(&json!({ "event": "task", "status": state["status"] }));
            before = state["status"].clone();
        }
        match state["status"].as_str() {
            Some("completed") => {
                print(&json!({ "event": "result", "result": state["result"] }));
                return Ok(());
            }
            Some("working") => {}
            Some("input_required") => {
                let asked = state["inputRequests"]
                    .as_object()
                    .context("it asks nothing")?;
                let answered = asked
                    .iter()
                    .map(|(key, request)| Ok((key.clone(), answer(request)?)));
                let answered = answered.collect::<anyhow::Result<Map<_, _>>>()?;
                let update = json!({ "taskId": name, "inputResponses": answered });
                client
                    .update_task(serde_json::from_value::<UpdateTaskParams>(update)?)
                    .await?;
            }
            _ => bail!("the task ended so: {state}"),
        }
        tokio::time::sleep(
            state["pollIntervalMs"]
                .as_u64()
                .map_or(BETWEEN, Duration::from_millis),
        )
        .await;
    }
}

fn answer(request: &Value) -> anyhow::Result<Value> {
    let params = || request["params"].clone();
    Ok(match request["method"].as_str() {
        Some("elicitation/create") => {
            json!(question_answers::elicit(&serde_json::from_value::<
                ElicitRequestParams,
            >(params())?)?)
        }
        Some("sampling/createMessage") => {
            json!(question_answers::sample(&serde_json::from_value::<
                CreateMessageRequestParams,
            >(params())?)?)
        }
        _ => json!(question_answers::roots()?),
    })
}
