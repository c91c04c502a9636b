//! Tasks that are unknown to this process, but maybe not to the one that it replaced, or to the one
//! that replaces it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_core::port::{BoxFuture, ReplicaId};
use weir_listen::{
    BodyError, ForwardError, ForwardedBody, ForwardedRequest, OtherProcess, RequestForwarder,
};
use weir_testkit::ModernEnvelope;
use weir_wire::Revision;

use crate::test_front::{TestFront, settings};

/// The task that runs in the other process. Any other is over.
const RUNNING: &str = "runs";

/// Another process, which answers each request about a task with its state, and every other one
/// with its method.
#[derive(Debug, Default)]
pub(crate) struct AnsweringProcess {
    pub(crate) has_ended: AtomicBool,
    /// True if it answers that the stream of a message is not there.
    pub(crate) has_no_stream: AtomicBool,
    /// The requests so far, each with its credentials.
    pub(crate) requests: Mutex<Vec<(Value, Option<HeaderValue>)>>,
}

/// The state of a task.
fn state(name: &Value) -> Value {
    let mut state = json!({
        "resultType": "complete", "taskId": name, "status": "working", "ttlMs": 60_000,
        "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:01Z",
    });
    if name != RUNNING {
        state["status"] = json!("completed");
        let text = json!({ "type": "text", "text": "from there" });
        state["result"] = json!({ "resultType": "complete", "content": [text] });
    }
    state
}

impl RequestForwarder for AnsweringProcess {
    fn forward<'a>(
        &'a self,
        _to: &'a ReplicaId,
        request: ForwardedRequest,
    ) -> BoxFuture<'a, Result<Response<ForwardedBody>, ForwardError>> {
        let asked: Value = serde_json::from_slice(&request.body).unwrap();
        let result = if asked["method"] == "tasks/get" {
            state(&asked["params"]["taskId"])
        } else {
            json!({ "method": asked["method"] })
        };
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result });
        let credentials = request.head.headers.get(header::AUTHORIZATION).cloned();
        self.requests.lock().push((asked, credentials));
        if self.has_no_stream.load(Ordering::Relaxed) {
            let own = ReplicaId([0; 8]);
            return Box::pin(std::future::ready(Err(ForwardError::NotOwner(Some(own)))));
        }
        let body = Full::new(Bytes::from(answer.to_string()));
        let body = body.map_err(|never| -> BodyError { match never {} });
        let answer = Response::builder()
            .header("content-type", "application/json")
            .body(Box::pin(body) as ForwardedBody)
            .unwrap();
        Box::pin(std::future::ready(Ok(answer)))
    }

    fn takes_requests(&self) -> bool {
        !self.has_ended.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn unknown_task_is_asked_about_in_the_process_before_or_after_until_that_has_ended() {
    for which in [OtherProcess::Predecessor, OtherProcess::Successor] {
        assert_is_asked(which).await;
    }
}

async fn assert_is_asked(which: OtherProcess) {
    let process = Arc::new(AnsweringProcess::default());
    let world = TestFront::with_process(settings(), which, process.clone()).await;
    let modern = world.client().modern_with(ModernEnvelope {
        capabilities: json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }),
        ..ModernEnvelope::default()
    });
    let legacy = world.client().legacy(Revision::V2025_11_25);
    let legacy = legacy.initialize().await.unwrap();
    let about = |name: &str| json!({ "taskId": name });
    for client in [&modern, &legacy] {
        let answer = client.ask("tasks/get", about(RUNNING)).await.unwrap();
        assert_eq!(answer.last()["result"]["status"], "working");
    }
    let answer = modern.ask("tasks/get", about("task")).await.unwrap();
    let result = &answer.last()["result"]["result"];
    assert_eq!(result["content"][0]["text"], "from there", "{result}");
    let answer = modern.ask("tasks/cancel", about(RUNNING)).await.unwrap();
    assert!(answer.last()["result"].is_object(), "{}", answer.last());
    let answer = legacy.ask("tasks/cancel", about(RUNNING)).await.unwrap();
    assert_eq!(answer.result()["status"], "cancelled");
    let cancelled = |(asked, _): &&(Value, _)| asked["method"] == "tasks/cancel";
    let cancellations = process.requests.lock().iter().filter(cancelled).count();
    assert_eq!(cancellations, 2);
    let answer = legacy.ask("tasks/result", about("task")).await.unwrap();
    assert_eq!(answer.text(), "from there", "{}", answer.last());

    process.has_ended.store(true, Ordering::Relaxed);
    let requests = [
        ("tasks/get", &modern),
        ("tasks/cancel", &modern),
        ("tasks/get", &legacy),
        ("tasks/cancel", &legacy),
        ("tasks/result", &legacy),
    ];
    for (method, client) in requests {
        let answer = client.ask(method, about("task")).await.unwrap();
        assert_eq!(answer.last()["error"]["code"], -32602, "{}", answer.last());
        let text = &answer.last()["error"]["message"];
        assert_eq!(text, "Unknown task: task", "{method}");
    }
}
