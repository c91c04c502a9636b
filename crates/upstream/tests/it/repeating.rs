//! Tests of repetitions after a broken connection with an unknown outcome: only calls that do no
//! harm twice, once, and within a budget (invariant 9).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use weir_core::call::{Call, CallResumption, RequestName, TaskMode};
use weir_core::names::EndpointId;
use weir_core::upstream::{ListKind, OutboundCall, Upstream};
use weir_core::{CapabilityClass, Failure};
use weir_testkit::mock_server::{AnswerStep, MockServerBuilder};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::method::Method;
use weir_wire::{Params, Revision};

use crate::child;
use crate::fixtures::*;

fn eras() -> [(&'static str, MockServerBuilder); 2] {
    let eras = [
        ("modern", MockServer::modern()),
        ("legacy", MockServer::legacy(Revision::V2025_11_25)),
    ];
    eras.map(|(era, builder)| {
        (
            era,
            builder.with_library().tool("echo", MockBehaviour::echo()),
        )
    })
}

/// The reads of the mock's library: method, target, and params.
fn reads() -> [(Method, &'static str, Value); 3] {
    let reference = json!({ "type": "ref/prompt", "name": "greet" });
    [
        (Method::ResourcesRead, "memo:1", json!({ "uri": "memo:1" })),
        (
            Method::PromptsGet,
            "greet",
            json!({ "name": "greet", "arguments": { "who": "you" } }),
        ),
        (
            Method::CompletionComplete,
            "greet",
            json!({ "ref": reference, "argument": { "name": "who", "value": "y" } }),
        ),
    ]
}

async fn reading(method: Method, native: &str, params: &Value) -> OutboundCall {
    let params = Params::parse(Some(&Bytes::from(params.to_string()))).unwrap();
    let call = Call::new(
        EndpointId::new("/mcp"),
        method,
        params,
        RequestName::from_bits(1),
    );
    outbound(native, call).await
}

/// A call of a tool that its operator declares safe to repeat.
async fn safe(tool: &str, arguments: Value) -> OutboundCall {
    OutboundCall {
        safe_to_repeat: true,
        ..outbound(tool, call(tool, arguments)).await
    }
}

async fn end(upstream: &Arc<dyn Upstream>, outbound: OutboundCall) -> Result<Value, Failure> {
    outcome(upstream.clone().call(outbound).await).await.end
}

/// Breaks the connection after so many bytes of the response.
fn broken(at: usize) -> MockBehaviour {
    MockBehaviour::steps([
        AnswerStep::ResetAfter(at),
        AnswerStep::Result(json!({ "contents": [], "messages": [] })),
    ])
}

#[tokio::test]
async fn read_is_retried_once_with_a_new_id_after_a_lost_connection() {
    for (era, builder) in eras() {
        let mock = builder.start().await;
        let upstream = upstream(&mock.url());
        for (method, native, params) in reads() {
            for at in [0, 20, 150] {
                let before = mock.requests_of(method.as_str()).len();
                mock.add_rule(method.as_str(), 1, broken(at));
                let result = end(&upstream, reading(method, native, &params).await).await;
                result
                    .unwrap_or_else(|failure| panic!("{era} {method:?} at byte {at}: {failure:?}"));
                let requests = mock.requests_of(method.as_str()).split_off(before);
                assert_eq!(requests.len(), 2, "{era} {method:?} at byte {at}");
                assert_ne!(
                    requests[0].message["id"], requests[1].message["id"],
                    "{era}: a new request"
                );
            }
        }
    }
    for (era, builder) in eras() {
        let mock = builder.start().await;
        let upstream = upstream(&mock.url());
        for (method, native, params) in reads() {
            mock.add_rule(method.as_str(), 9, broken(0));
            let failure = end(&upstream, reading(method, native, &params).await)
                .await
                .unwrap_err();
            assert_eq!(failure.reason(), "result_unknown", "{era} {method:?}");
            assert_eq!(
                mock.requests_of(method.as_str()).len(),
                2,
                "{era} {method:?}: once"
            );
            mock.clear_rules();
        }
    }
}

#[tokio::test]
async fn an_answer_that_never_came_on_a_stream_is_asked_for_again() {
    for (era, builder) in eras() {
        let mock = builder.start().await;
        mock.add_rule("resources/read", 1, MockBehaviour::no_answer());
        let upstream = upstream(&mock.url());
        let [(method, native, params), ..] = reads();
        let result = end(&upstream, reading(method, native, &params).await)
            .await
            .unwrap();
        assert!(result["contents"].is_array(), "{era}");
        assert_eq!(mock.requests_of("resources/read").len(), 2, "{era}");
    }
}

#[tokio::test]
async fn http_error_or_html_response_to_a_read_is_not_retried() {
    for (status, body) in [
        (500, "broken"),
        (502, "bad gateway"),
        (503, "busy"),
        (200, "<html>"),
    ] {
        let mock = MockServer::modern().with_library().start().await;
        mock.add_rule(
            "resources/read",
            1,
            MockBehaviour::status(status, "text/plain", body),
        );
        let upstream = upstream(&mock.url());
        let [(method, native, params), ..] = reads();
        end(&upstream, reading(method, native, &params).await)
            .await
            .unwrap_err();
        assert_eq!(mock.requests_of("resources/read").len(), 1, "{status}");
    }
}

#[tokio::test]
async fn tool_call_is_repeated_only_if_declared_safe() {
    for (era, builder) in eras() {
        let mock = builder.start().await;
        let upstream = upstream(&mock.url());
        for at in [0, 40, 200] {
            mock.add_rule("tools/call", 1, MockBehaviour::reset_after(at));
            let result = end(&upstream, safe("echo", json!({ "n": at })).await)
                .await
                .unwrap();
            assert_eq!(
                result["structuredContent"]["n"], at,
                "{era}: an answer is whole"
            );
        }
        assert_eq!(mock.requests_of("tools/call").len(), 6, "{era}");
        mock.add_rule("tools/call", 1, MockBehaviour::reset_after(0));
        let failure = end(&upstream, outbound("echo", call("echo", json!({}))).await)
            .await
            .unwrap_err();
        assert_eq!(
            (failure.reason(), mock.requests_of("tools/call").len()),
            ("result_unknown", 7),
            "{era}"
        );
    }
}

#[tokio::test]
async fn nothing_that_answers_a_question_or_becomes_a_task_is_sent_again() {
    let base = || call("echo", json!({}));
    let with = |name: &str, value: Value| {
        let params = json!({ "name": "mock__echo", "arguments": {}, name: value });
        Call {
            params: Params::parse(Some(&Bytes::from(params.to_string()))).unwrap(),
            ..base()
        }
    };
    let calls = [
        with("inputResponses", json!({ "a": {} })),
        with("requestState", json!("state")),
        Call {
            input_responses: Some(Bytes::from_static(b"{}")),
            ..base()
        },
        Call {
            resume: Some(CallResumption::Upstream("state".to_owned())),
            ..base()
        },
        Call {
            task_mode: TaskMode::Wanted { ttl_ms: None },
            ..base()
        },
    ];
    for call in calls {
        let mock = MockServer::modern()
            .tool("echo", MockBehaviour::echo())
            .start()
            .await;
        let upstream = upstream(&mock.url());
        mock.add_rule("tools/call", 1, MockBehaviour::reset_after(0));
        let call = OutboundCall {
            safe_to_repeat: true,
            ..outbound("echo", call).await
        };
        end(&upstream, call).await.unwrap_err();
        assert_eq!(mock.requests_of("tools/call").len(), 1);
    }
}

/// The calls of clients without tasks, for whom weir would wait for a task.
#[tokio::test]
async fn safe_call_of_a_client_without_tasks_is_sent_again() {
    let mock = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    mock.add_rule("tools/call", 1, MockBehaviour::reset_after(0));
    let base = safe("echo", json!({})).await;
    let call = OutboundCall {
        call: Arc::new(Call {
            task_mode: TaskMode::AwaitedByWeir,
            ..Call::clone(&base.call)
        }),
        ..base
    };
    end(&upstream, call).await.unwrap();
}

#[tokio::test]
async fn forwarded_events_are_not_repeated() {
    for (era, builder) in eras() {
        let told = MockBehaviour::steps([
            AnswerStep::Progress(1, 2),
            AnswerStep::Wait(Duration::from_millis(50)),
            AnswerStep::ResetAfter(0),
        ]);
        let mock = builder.tool("tells", told.as_events()).start().await;
        let upstream = upstream(&mock.url());
        let call = Call {
            wants_progress: true,
            ..call("tells", json!({}))
        };
        let outbound = OutboundCall {
            safe_to_repeat: true,
            ..outbound("tells", call).await
        };
        let outcome = outcome(upstream.clone().call(outbound).await).await;
        assert_eq!(
            (outcome.notes.len(), outcome.end.unwrap_err().reason()),
            (1, "result_unknown"),
            "{era}"
        );
        assert_eq!(mock.requests_of("tools/call").len(), 1, "{era}");
    }
}

#[tokio::test]
async fn a_server_that_breaks_every_connection_gets_a_tenth_more_of_calls() {
    let builder = MockServer::modern().with_library();
    let mock = builder.tool("echo", MockBehaviour::echo()).start().await;
    let upstream = upstream(&mock.url());
    let [(method, native, params), ..] = reads();
    mock.add_rule("resources/read", 1000, broken(0));
    const CALLS: usize = 200;
    let mut all = 0;
    for nth in 0..CALLS {
        end(&upstream, reading(method, native, &params).await)
            .await
            .unwrap_err();
        all += 1;
        if nth % 2 == 1 {
            // Between the failures, so that the breaker stays closed.
            text(call_anonymously(&upstream, "echo", json!({})).await).await;
            all += 1;
        }
    }
    let more = mock.requests_of("resources/read").len() - CALLS;
    // The few free repetitions let calls to a quiet server be repeated at all.
    assert!((all / 10..=all / 10 + 12).contains(&more), "{more}");
}

#[tokio::test]
async fn list_page_is_requested_again_once() {
    for (era, builder) in eras() {
        let mock = builder.tools(30).page_size(10).start().await;
        let upstream = upstream(&mock.url());
        let mut watch = upstream.clone().watch(CapabilityClass::BASE).await.unwrap();
        mock.add_rule("tools/list", 1, broken(0));
        let page = watch.list(ListKind::Tools, None).await.unwrap();
        assert_eq!(
            (page.items.len(), mock.requests_of("tools/list").len()),
            (10, 2),
            "{era}"
        );
        mock.add_rule("tools/list", 2, broken(0));
        let failure = watch
            .list(ListKind::Tools, page.next_cursor)
            .await
            .unwrap_err();
        assert_eq!(
            (failure.reason(), mock.requests_of("tools/list").len()),
            ("result_unknown", 4),
            "{era}"
        );
    }
}

/// Returns the path of a file that does not exist yet.
fn no_file() -> String {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let nth = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    std::env::temp_dir()
        .join(format!("weir-repeat-{}-{nth}", std::process::id()))
        .display()
        .to_string()
}

#[tokio::test]
async fn a_process_that_ends_during_a_read_is_replaced_and_asked_again() {
    for manner in ["modern", "legacy"] {
        let upstream = build(child::settings(manner));
        text(call_anonymously(&upstream, "echo", json!({})).await).await;
        let file = no_file();
        let read = reading(Method::ResourcesRead, &file, &json!({ "uri": file })).await;
        let result = end(&upstream, read)
            .await
            .unwrap_or_else(|failure| panic!("{manner}: {failure:?}"));
        assert!(result["contents"].is_array(), "{manner}: {result}");
        std::fs::remove_file(file).unwrap();

        let upstream = build(child::settings(manner));
        let file = no_file();
        let call = safe("crash_once", json!({ "file": file })).await;
        assert_eq!(
            end(&upstream, call).await.unwrap()["content"][0]["text"],
            "recovered",
            "{manner}"
        );
        std::fs::remove_file(&file).unwrap();

        let upstream = build(child::settings(manner));
        let lost =
            failure(call_anonymously(&upstream, "crash_once", json!({ "file": file })).await).await;
        assert_eq!(
            lost.reason(),
            "result_unknown",
            "{manner}: without its operator's word"
        );
        std::fs::remove_file(file).unwrap();
    }
}
