//! Tasks of a server that we did not write: the reference server's research, whose calls are tasks and ask in between.

use serde_json::{Value, json};
use weir_wire::Revision;

use crate::harness::{Checked, Server, Weir, needs_peers};

const TOOL: &str = "simulate-research-query";

fn behind(mut upstream: Value) -> Weir {
    upstream["session"] = json!("principal");
    let weir = Weir::over(json!({ "peer": upstream }));
    weir.until_listed("/mcp/peer", &[TOOL]);
    weir
}

fn answer() -> Value {
    json!({ "action": "accept", "content": { "interpretation": "snake" } })
}

fn says(result: &Value) {
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no report: {result}"));
    assert!(text.contains("snake"), "{text}");
}

/// Is told of the task until it is over, and answers what it asks.
async fn modern(weir: &Weir) {
    let able = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let client = Checked::with_capabilities(&weir.url("/mcp/peer"), Revision::MODERN, able).await;
    let begun = client.call(TOOL, json!({ "topic": "python", "ambiguous": true })).await;
    let name = begun.result()["taskId"].clone();
    let filter = json!({ "notifications": { "taskIds": [name] } });
    let mut stream = client.start("subscriptions/listen", filter).await;
    loop {
        let message = stream.next().await.unwrap();
        let state = &message["params"];
        match state["status"].as_str() {
            Some("completed") => return says(&state["result"]),
            Some("input_required") => {
                let key = state["inputRequests"].as_object().unwrap().keys().next().unwrap();
                client.ask("tasks/update", json!({ "taskId": name, "inputResponses": { key: answer() } })).await;
            }
            // It runs, or this is the acknowledgment.
            Some("working") | None => {}
            _ => panic!("{state}"),
        }
    }
}

/// Waits for the result, and is asked on the way.
async fn legacy(weir: &Weir) {
    let able = json!({ "elicitation": {} });
    let client = Checked::with_capabilities(&weir.url("/mcp/peer"), Revision::V2025_11_25, able).await;
    let arguments = json!({ "topic": "python", "ambiguous": true });
    let params = json!({ "name": TOOL, "arguments": arguments, "task": { "ttl": 60_000 } });
    let begun = client.ask("tools/call", params).await;
    let name = begun.result()["task"]["taskId"].clone();
    let mut stream = client.start("tasks/result", json!({ "taskId": name })).await;
    loop {
        let message = stream.next().await.unwrap();
        match message["method"].as_str() {
            Some("elicitation/create") => {
                let taken = client.raw().respond(&message["id"], answer()).await.unwrap();
                assert_eq!(taken.status.as_u16(), 202);
            }
            Some(_) => {}
            None => return says(&message["result"]),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r230_r232_tasks_of_server_everything_over_http() {
    if needs_peers() {
        let (_running, url) = Server::Everything.over_http();
        let weir = behind(json!({ "url": url }));
        tokio::join!(modern(&weir), legacy(&weir));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r230_r232_tasks_of_server_everything_over_stdio() {
    if needs_peers() {
        let weir = behind(Server::Everything.as_child());
        tokio::join!(modern(&weir), legacy(&weir));
    }
}
