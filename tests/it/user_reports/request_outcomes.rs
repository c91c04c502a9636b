//! The metric of requests counts outcomes, not statuses: nearly all are HTTP 200.

use std::collections::HashMap;

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, MockTool};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::{BOTH, weir_over};
use crate::harness::{CheckedClient, Weir, wait_until};

fn failed(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "isError": true })
}

/// Returns the number of requests of a method and an era with this outcome.
fn counted(weir: &Weir, revision: Revision, method: &str, outcome: &str) -> f64 {
    let era = if revision.is_modern() {
        "modern"
    } else {
        "legacy"
    };
    let labels = [
        format!("mcp_method_name=\"{method}\""),
        format!("era=\"{era}\""),
        format!("outcome=\"{outcome}\""),
    ];
    weir.metric(
        "mcp_server_operation_duration_seconds_count",
        &labels.each_ref().map(String::as_str),
    )
}

async fn upstream() -> MockServer {
    let strict = json!({ "type": "object", "required": ["n"] });
    MockServer::modern()
        .tool("fine", MockBehaviour::echo())
        .tool("told", MockBehaviour::progress(2))
        .tool("fails", MockBehaviour::result(failed("the disk is full")))
        .tool(
            "fails_late",
            MockBehaviour::steps([
                AnswerStep::Progress(1, 2),
                AnswerStep::Result(failed("the disk is full")),
            ]),
        )
        .tool(
            "fails_long",
            MockBehaviour::result(failed(&"full ".repeat(200_000))),
        )
        .tool("long", MockBehaviour::huge(1_000_000))
        .tool("error", MockBehaviour::error(4242, "sold out", json!({})))
        .tool("garbage", MockBehaviour::bad_json())
        .tool("stuck", MockBehaviour::hang_after_progress())
        .with(MockTool::new("strict").with("inputSchema", strict))
        .start()
        .await
}

const WORDS: [&str; 6] = [
    "ok",
    "tool_error",
    "protocol_error",
    "refused",
    "failed",
    "cancelled",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_counted_by_how_it_ended() {
    let upstream = upstream().await;
    let weir = weir_over(&[("one", &upstream)]);
    for revision in BOTH {
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        let mut expected = HashMap::from(WORDS.map(|word| (word, 0.0)));
        let mut one_more = |method: &str, outcome: &'static str| {
            let count = expected.entry(outcome).or_default();
            *count += 1.0;
            wait_until(&format!("{revision:?}: one more {outcome}"), || {
                (counted(&weir, revision, method, outcome) == *count).then_some(())
            });
        };
        for (tool, outcome) in [
            ("fine", "ok"),
            ("told", "ok"),
            ("long", "ok"),
            ("fails", "tool_error"),
            ("fails_late", "tool_error"),
            ("fails_long", "tool_error"),
            ("error", "protocol_error"),
            ("nothing", "protocol_error"),
            ("strict", "refused"),
            ("garbage", "failed"),
        ] {
            client
                .call_with_token(&format!("one__{tool}"), json!({}), &json!("t"))
                .await;
            one_more("tools/call", outcome);
        }
        let mut stuck = client
            .start_call("one__stuck", json!({}), Some(&json!("t")))
            .await;
        stuck.next().await.unwrap();
        drop(stuck);
        one_more("tools/call", "cancelled");
        for word in WORDS {
            assert_eq!(
                counted(&weir, revision, "tools/call", word),
                expected[word],
                "{revision:?}: {word}, each once"
            );
        }
        client.ask("shop/sweep", json!({})).await;
        let unknown = counted(&weir, revision, "other", "protocol_error");
        assert_eq!(
            (unknown, counted(&weir, revision, "other", "ok")),
            (1.0, 0.0),
            "{revision:?}: an unknown method"
        );
    }
    // A request that is refused by its head alone has neither method nor era.
    assert_eq!(
        weir_testkit::RawClient::new(&weir.url("/mcp"))
            .delete()
            .await
            .unwrap()
            .status,
        405
    );
    let refused = ["mcp_method_name=\"none\"", "outcome=\"refused\""];
    wait_until("the refusal to be counted", || {
        (weir.metric("mcp_server_operation_duration_seconds_count", &refused) == 1.0).then_some(())
    });
}

/// A call that weir refuses says nothing of the upstream: neither its metrics nor its state for
/// operators have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_weir_refuses_are_no_calls_of_the_upstream() {
    let strict = json!({ "type": "object", "required": ["n"] });
    let upstream = MockServer::modern()
        .tool("fine", MockBehaviour::echo())
        .tool("error", MockBehaviour::error(4242, "sold out", json!({})))
        .with(MockTool::new("strict").with("inputSchema", strict))
        .start()
        .await;
    let weir = weir_over(&[("one", &upstream)]);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    for tool in ["strict", "fine", "error"] {
        client.call(&format!("one__{tool}"), json!({})).await;
    }
    let calls =
        |labels: &[&str]| weir.metric("mcp_client_operation_duration_seconds_count", labels);
    let tools = "mcp_method_name=\"tools/call\"";
    wait_until("the calls to be counted", || {
        let sent = ["complete", "upstream_error"].map(|end| format!("outcome=\"{end}\""));
        let all = sent.iter().all(|end| calls(&[tools, end]) == 1.0);
        all.then_some(())
    });
    assert_eq!(calls(&[tools]), 2.0, "those that were sent");
    assert_eq!(
        counted(&weir, Revision::MODERN, "tools/call", "refused"),
        1.0
    );
    let page = weir.get_admin_page("/admin/upstreams/one");
    let (_head, body) = page.split_once("\r\n\r\n").unwrap();
    let shown: Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        (&shown["calls"]["recent"], &shown["calls"]["failed"]),
        (&json!(2), &json!(1)),
        "{shown}"
    );
}
