//! Tasks that are unknown to this process, but maybe not to the one that it replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use weir_core::port::{Fut, ReplicaId};
use weir_listen::{BodyError, ForwardError, ForwardedBody, ForwardedRequest, RequestForwarder};
use weir_testkit::ModernEnvelope;
use weir_wire::Revision;

use crate::test_front::{TestFront, settings};

/// The process before, which answers each request with its method.
#[derive(Default)]
pub(crate) struct AnsweringPredecessor {
    pub(crate) has_ended: AtomicBool,
}

impl RequestForwarder for AnsweringPredecessor {
    fn forward<'a>(
        &'a self,
        _to: &'a ReplicaId,
        request: ForwardedRequest,
    ) -> Fut<'a, Result<Response<ForwardedBody>, ForwardError>> {
        let asked: Value = serde_json::from_slice(&request.body).unwrap();
        let result = json!({ "method": asked["method"] });
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result });
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
async fn unknown_task_is_asked_about_in_the_process_before_until_that_has_ended() {
    let predecessor = Arc::new(AnsweringPredecessor::default());
    let world = TestFront::with_predecessor(settings(), predecessor.clone()).await;
    let modern = world.client().modern_with(ModernEnvelope {
        capabilities: json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }),
        ..ModernEnvelope::default()
    });
    let legacy = world.client().legacy(Revision::V2025_11_25);
    let legacy = legacy.initialize().await.unwrap();
    let about = json!({ "taskId": "task" });
    let requests = [
        ("tasks/get", &modern),
        ("tasks/cancel", &modern),
        ("tasks/get", &legacy),
        ("tasks/cancel", &legacy),
        ("tasks/result", &legacy),
    ];
    for (method, client) in requests {
        let answer = client.ask(method, about.clone()).await.unwrap();
        assert_eq!(answer.result()["method"], method, "{}", answer.last());
    }
    predecessor.has_ended.store(true, Ordering::Relaxed);
    for (method, client) in requests {
        let answer = client.ask(method, about.clone()).await.unwrap();
        assert_eq!(answer.last()["error"]["code"], -32602, "{}", answer.last());
        let text = &answer.last()["error"]["message"];
        assert_eq!(text, "Unknown task: task", "{method}");
    }
}
