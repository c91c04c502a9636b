//! Two keys of one subject in different groups: both are one principal, and each sees what its own
//! groups allow.

use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, MockServer, RawClient};
use weir_wire::Revision;

use super::names;
use crate::auth::api_key;
use crate::harness::{Weir, wait_until_async};

const RULES: &str = r#"
permit(principal in Group::"wide", action, resource);
permit(principal, action, resource)
unless { resource.native == "tool_0000" || resource.native == "task_waits" };
"#;

/// Returns the code of a refusal; zero for a result.
fn code(answer: &ClientAnswer) -> i64 {
    answer.last()["error"]["code"].as_i64().unwrap_or_default()
}

async fn listed(client: &RawClient) -> Vec<Value> {
    let answer = client.ask("tasks/list", json!({})).await.unwrap();
    answer.result()["tasks"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_hidden_tools_are_unknown_and_stay_in_the_list_of_their_owner() {
    let ((wide, mut wide_entry), (narrow, narrow_entry)) = (api_key("robot"), api_key("robot"));
    wide_entry["groups"] = json!(["wide"]);
    let upstream = MockServer::modern().tools(1).with_tasks().start().await;
    let weir = Weir::with_config(json!({
        "auth": { "mode": "required", "api_keys": [wide_entry, narrow_entry] },
        "upstreams": { "one": { "url": upstream.url() } },
        "endpoints": { "/mcp": { "upstreams": ["one"] } },
        "policy": { "inline": RULES },
    }));
    let wide = RawClient::new(&weir.url("/mcp"))
        .with_header("x-api-key", &wide)
        .legacy(Revision::V2025_11_25)
        .initialize()
        .await
        .unwrap();
    let narrow = wide.clone().with_header("x-api-key", &narrow);
    let seen =
        async |client: &RawClient| names(&client.ask("tools/list", json!({})).await.unwrap());
    wait_until_async("the list", async || {
        seen(&wide)
            .await
            .contains(&"one__task_waits".to_owned())
            .then_some(())
    })
    .await;
    assert!(!seen(&narrow).await.contains(&"one__task_waits".to_owned()));
    let mut tasks = Vec::new();
    // The first one stays at its server, the second one is over and kept by weir.
    for tool in ["one__task_waits", "one__tool_0000"] {
        let call = json!({ "name": tool, "arguments": {}, "task": { "ttl": 60_000 } });
        let begun = wide.ask("tools/call", call).await.unwrap();
        let task = begun.result()["task"]["taskId"].as_str();
        tasks.push(json!({ "taskId": task.unwrap() }));
    }
    for task in &tasks {
        assert_eq!(code(&wide.ask("tasks/get", task.clone()).await.unwrap()), 0);
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            let refused = narrow.ask(method, task.clone()).await.unwrap();
            assert_eq!(code(&refused), -32602, "{method}: {}", refused.last());
        }
    }
    assert_eq!(listed(&narrow).await, [] as [Value; 0]);
    assert_eq!(listed(&wide).await.len(), 2);
    let result = wide.ask("tasks/result", tasks[1].clone()).await.unwrap();
    assert_eq!(code(&result), 0, "{}", result.last());
}
