//! Calls that continue something go to the instance that began it: tasks, `requestState`.

use serde_json::{Value, json};
use weir_core::CapabilityClass;
use weir_core::call::{Call, CallResumption, TaskMode};
use weir_core::reply::{Payload, ReplyEnd, ReplyEvent};
use weir_core::upstream::OutboundCall;
use weir_testkit::MockServer;
use weir_wire::method::Method;

use super::*;

async fn end(upstream: &Arc<dyn Upstream>, outbound: OutboundCall) -> ReplyEnd {
    let mut reply = upstream.clone().call(outbound).await;
    loop {
        if let ReplyEvent::End(end) = reply.next().await.unwrap() {
            return end;
        }
    }
}

/// Returns the text that a member of an object has.
fn member(object: &[u8], name: &str) -> String {
    let object: Value = serde_json::from_slice(object).unwrap();
    object[name].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn answer_goes_to_the_instance_that_asked() {
    let requests = json!({"a": {"method": "roots/list", "params": {}}});
    for state in [Some("their own"), None] {
        let asks = || {
            let asking = MockBehaviour::input_required(requests.clone(), state);
            MockServer::modern().tool("asks", asking)
        };
        let mocks: [MockServer; 3] = super::start(asks).await;
        let upstream = upstream_of(&mocks);
        let mut asked = call("asks", json!({}));
        asked.capabilities.class = CapabilityClass::ROOTS;
        let first = end(&upstream, outbound("asks", asked.clone()).await).await;
        let ReplyEnd::InputRequired(Payload::Whole(result)) = first else {
            panic!("{first:?}")
        };
        let resumed = member(&result, "requestState");
        let home = mocks
            .iter()
            .position(|mock| mock.executions("asks") == 1)
            .unwrap();
        for _ in 0..6 {
            let call = Call {
                resume: Some(CallResumption::Upstream(resumed.clone())),
                ..asked.clone()
            };
            end(&upstream, outbound("asks", call).await).await;
        }
        assert_eq!(mocks[home].executions("asks"), 7);
        let last = mocks[home].requests_of("tools/call").pop().unwrap();
        assert_eq!(last.message["params"]["requestState"], json!(state));

        // A single URL, and one that is configured no more.
        let alone = super::upstream(&mocks[home].url());
        let call = Call {
            resume: Some(CallResumption::Upstream(resumed)),
            ..asked.clone()
        };
        end(&alone, outbound("asks", call.clone()).await).await;
        assert_eq!(mocks[home].executions("asks"), 8);
        let others: Vec<_> = (0..3).filter(|at| *at != home).collect();
        let rest = build(weighted(&[(&mocks[others[0]], 1), (&mocks[others[1]], 1)]));
        let refused = failure(rest.call(outbound("asks", call).await).await).await;
        assert_eq!(refused.reason(), "unavailable");
        assert!(refused.message().contains("not configured any more"));
    }
}

async fn about_task(method: Method, native: &str) -> OutboundCall {
    let mut about = Call {
        method,
        ..call("task_slow", json!({}))
    };
    about.capabilities.class = CapabilityClass::TASKS;
    OutboundCall {
        native: native.into(),
        ..outbound("task", about).await
    }
}

#[tokio::test]
async fn requests_about_a_task_go_to_its_instance() {
    for revision in [Revision::MODERN, Revision::V2025_11_25] {
        let builder = || match revision.is_modern() {
            true => MockServer::modern().with_tasks(),
            false => MockServer::legacy(revision).with_tasks(),
        };
        let mocks: [MockServer; 3] = super::start(builder).await;
        let upstream = upstream_of(&mocks);
        let mut names = Vec::new();
        for _ in 0..6 {
            let mut begins = call("task_waits", json!({}));
            begins.capabilities.class = CapabilityClass::TASKS;
            begins.task_mode = TaskMode::Wanted { ttl_ms: None };
            let ended = end(&upstream, outbound("task_waits", begins).await).await;
            let ReplyEnd::Task(created) = ended else {
                panic!("{ended:?}")
            };
            names.push(member(&created, "taskId"));
        }
        let order: Vec<_> = [1, 2, 0].iter().map(|at| (&mocks[*at], 1)).collect();
        let reordered = build(weighted(&order));
        for upstream in [&upstream, &reordered] {
            for name in &names {
                let state = end(upstream, about_task(Method::TasksGet, name).await).await;
                let ReplyEnd::Complete(Payload::Whole(state)) = state else {
                    panic!("{revision:?} {state:?}")
                };
                assert_eq!(member(&state, "status"), "working");
            }
        }
        let asked: usize = mocks
            .iter()
            .map(|mock| mock.requests_of("tasks/get").len())
            .sum();
        assert_eq!(asked, 12, "no instance was asked about another's task");
        for mock in &mocks {
            let begun = mock.requests_of("tools/call").len();
            assert_eq!(mock.requests_of("tasks/get").len(), 2 * begun);
            for request in mock.requests_of("tasks/get") {
                let id = request.message["params"]["taskId"].as_str().unwrap();
                assert!(!id.contains("weir-url"), "the server's own id: {id}");
            }
        }
        let cancelled = end(&upstream, about_task(Method::TasksCancel, &names[0]).await).await;
        assert!(matches!(cancelled, ReplyEnd::Complete(_)), "{cancelled:?}");
    }
}
