//! Tasks of servers of other projects: the reference server's research and an SDK's example, whose
//! calls are tasks and ask in between. And the SDKs' own clients of tasks, of both forms, in front
//! of servers of both forms.

use serde_json::{Value, json};
use weir_wire::Revision;

use crate::harness::{CheckedClient, ForeignClient, ForeignServer, Weir, peers_are_enabled};

/// A tool that makes its calls tasks and asks for input in them.
struct TaskTry {
    tool: &'static str,
    arguments: Value,
    /// The answer to its question.
    content: Value,
    /// A part of its result.
    says: &'static str,
}

fn research() -> TaskTry {
    let arguments = json!({ "topic": "python", "ambiguous": true });
    let content = json!({ "interpretation": "snake" });
    TaskTry {
        tool: "simulate-research-query",
        arguments,
        content,
        says: "snake",
    }
}

fn delete() -> TaskTry {
    let (arguments, content) = (
        json!({ "filename": "notes.txt" }),
        json!({ "confirm": true }),
    );
    TaskTry {
        tool: "confirm_delete",
        arguments,
        content,
        says: "Deleted 'notes.txt'",
    }
}

impl TaskTry {
    fn behind(&self, mut upstream: Value) -> Weir {
        upstream["session"] = json!("principal");
        let weir = Weir::with_upstreams(json!({ "peer": upstream }));
        weir.wait_until_listed("/mcp/peer", &[self.tool]);
        weir
    }

    fn answer(&self) -> Value {
        json!({ "action": "accept", "content": self.content })
    }

    fn holds(&self, result: &Value) {
        let text = result["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("no report: {result}"));
        assert!(text.contains(self.says), "{text}");
    }

    async fn both(&self, upstream: Value) {
        let weir = self.behind(upstream);
        tokio::join!(Box::pin(modern(&weir, self)), Box::pin(legacy(&weir, self)));
    }
}

/// Follows the notifications of the task until it is over, and answers its question.
async fn modern(weir: &Weir, asked: &TaskTry) {
    let able = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let client =
        CheckedClient::with_capabilities(&weir.url("/mcp/peer"), Revision::MODERN, able).await;
    let begun = client.call(asked.tool, asked.arguments.clone()).await;
    let name = begun.result()["taskId"].clone();
    let filter = json!({ "notifications": { "taskIds": [name] } });
    let mut stream = client.start("subscriptions/listen", filter).await;
    loop {
        let message = stream.next().await.unwrap();
        let state = &message["params"];
        match state["status"].as_str() {
            Some("completed") => return asked.holds(&state["result"]),
            Some("input_required") => {
                let key = state["inputRequests"]
                    .as_object()
                    .unwrap()
                    .keys()
                    .next()
                    .unwrap();
                client
                    .ask(
                        "tasks/update",
                        json!({ "taskId": name, "inputResponses": { key: asked.answer() } }),
                    )
                    .await;
            }
            // A task that runs, or the acknowledgement of the subscription.
            Some("working") | None => {}
            _ => panic!("{state}"),
        }
    }
}

/// Waits for the result, and answers the question meanwhile.
async fn legacy(weir: &Weir, asked: &TaskTry) {
    let able = json!({ "elicitation": {} });
    let client =
        CheckedClient::with_capabilities(&weir.url("/mcp/peer"), Revision::V2025_11_25, able).await;
    let params =
        json!({ "name": asked.tool, "arguments": asked.arguments, "task": { "ttl": 60_000 } });
    let begun = client.ask("tools/call", params).await;
    let name = begun.result()["task"]["taskId"].clone();
    let mut stream = client
        .start("tasks/result", json!({ "taskId": name }))
        .await;
    loop {
        let message = stream.next().await.unwrap();
        match message["method"].as_str() {
            Some("elicitation/create") => {
                let taken = client
                    .raw()
                    .respond(&message["id"], asked.answer())
                    .await
                    .unwrap();
                assert_eq!(taken.status.as_u16(), 202);
            }
            Some(_) => {}
            None => return asked.holds(&message["result"]),
        }
    }
}

// Proves R230, R232.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_server_everything_over_http() {
    if peers_are_enabled() {
        let (_running, url) = ForeignServer::Everything.over_http();
        research().both(json!({ "url": url })).await;
    }
}

// Proves R230, R232.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_server_everything_over_stdio() {
    if peers_are_enabled() {
        research().both(ForeignServer::Everything.as_child()).await;
    }
}

// Proves R230, R232.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_an_example_server() {
    if peers_are_enabled() {
        let (_running, url) = ForeignServer::Example("simpleTaskInteractive", "PORT").over_http();
        delete().both(json!({ "url": url })).await;
    }
}

/// The official clients that can make a call a task, and their forms: that of 2025-11-25 in the
/// SDKs 1.x of TypeScript and Python, the extension in the Rust SDK, both in npm's `ext-tasks` on
/// the TypeScript SDK 2.x. The Python SDK 2.x has no tasks, and the Rust SDK none of 2025-11-25.
const CLIENTS: [ForeignClient; 5] = [
    ForeignClient::TypeScript1,
    ForeignClient::TypeScript2("legacy"),
    ForeignClient::Python1,
    ForeignClient::TypeScript2("modern"),
    ForeignClient::Rmcp("modern"),
];

/// Runs a task that asks, if its client can answer.
fn by_sdks(server: ForeignServer, clients: &[ForeignClient]) {
    if !peers_are_enabled() {
        return;
    }
    let (_running, url) = server.over_http();
    let weir = Weir::with_upstreams(json!({ "peer": { "url": url, "session": "principal" } }));
    weir.wait_until_listed("/mcp/peer", &["confirm_delete", "slow_compute"]);
    let url = weir.url("/mcp");
    for client in clients {
        // `ext-tasks` reads the result of a task of 2025-11-25 only after its end, so that such a
        // task cannot ask it.
        let (tool, arguments, says) = if *client == ForeignClient::TypeScript2("legacy") {
            (
                "peer__slow_compute",
                json!({ "seconds": 0.2, "label": "pi" }),
                "pi",
            )
        } else {
            (
                "peer__confirm_delete",
                json!({ "filename": "notes.txt" }),
                "notes.txt",
            )
        };
        let seen = client.run(&url, &["task", tool, &arguments.to_string(), "--asks"]);
        assert!(!seen.lines_of("task").is_empty(), "{client:?}: {seen:?}");
        let asked = seen
            .lines_of("asked")
            .iter()
            .any(|line| line["method"] == "elicitation/create");
        assert_eq!(
            asked,
            tool == "peer__confirm_delete",
            "{client:?}: {seen:?}"
        );
        let result = &seen.only_line("result")["result"];
        assert!(
            result["content"].to_string().contains(says),
            "{client:?}: {result}"
        );
    }
}

// Proves R230, R232.
#[test]
fn clients_of_every_sdk_with_tasks_before_tasks_of_2025_11_25() {
    by_sdks(ForeignServer::Fixture("legacy"), &CLIENTS);
}

// Proves R230, R232.
#[test]
fn clients_of_every_sdk_with_tasks_before_tasks_of_the_extension() {
    by_sdks(ForeignServer::Fixture("modern"), &CLIENTS);
}

// Proves R230, R232.
#[test]
fn clients_of_every_sdk_with_tasks_before_a_server_of_both_forms() {
    by_sdks(ForeignServer::DualTypeScript, &CLIENTS);
}

/// In its legacy era the Rust SDK's server has no tasks, so that clients of that era find none.
// Proves R230.
#[test]
fn clients_of_the_extension_before_the_rust_sdks_server() {
    by_sdks(ForeignServer::DualRust, &CLIENTS[3..]);
}
