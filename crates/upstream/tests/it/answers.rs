//! Tests of bad responses: each ends its call with a precise failure, and never reaches another
//! call.

use std::time::Duration;

use serde_json::json;
use weir_core::FailureKind;
use weir_testkit::mock_server::{AnswerStep, CallGate};
use weir_testkit::{MockBehaviour, MockServer};
use weir_upstream::{UpstreamBounds, UpstreamSettings};
use weir_wire::Revision;

use crate::fixtures::*;

fn raw(text: &str) -> MockBehaviour {
    MockBehaviour::steps([AnswerStep::Raw(text.to_owned())]).as_json()
}

// Proves E08.
#[tokio::test]
async fn bad_answers_are_named_and_never_an_empty_success() {
    let cases = [
        ("truncated", raw(r#"{"jsonrpc":"2.0","id":"#), "bad_answer"),
        ("not json", raw("hello"), "bad_answer"),
        ("empty", raw(""), "bad_answer"),
        ("null", raw("null"), "bad_answer"),
        ("bad", MockBehaviour::bad_json(), "bad_answer"),
        (
            "html",
            MockBehaviour::status(200, "text/html", "<html>"),
            "bad_answer",
        ),
        (
            "no content",
            MockBehaviour::status(204, "text/plain", ""),
            "bad_answer",
        ),
        (
            "accepted",
            MockBehaviour::status(202, "text/plain", ""),
            "bad_answer",
        ),
        (
            "redirect",
            MockBehaviour::redirect("http://127.0.0.1:1/"),
            "bad_answer",
        ),
        (
            "500",
            MockBehaviour::status(500, "text/plain", "oops"),
            "bad_answer",
        ),
        (
            "502",
            MockBehaviour::status(502, "text/html", "<html>"),
            "result_unknown",
        ),
        ("503", MockBehaviour::status(503, "text/plain", ""), "busy"),
        ("401", MockBehaviour::unauthorized(), "unavailable"),
        (
            "403",
            MockBehaviour::status(403, "text/plain", "no"),
            "unavailable",
        ),
        ("other id", MockBehaviour::wrong_id(), "bad_answer"),
        ("no answer", MockBehaviour::no_answer(), "result_unknown"),
        (
            "odd type",
            MockBehaviour::result(json!({"resultType": "odd"})),
            "bad_answer",
        ),
        (
            "result is no object",
            raw(r#"{"jsonrpc":"2.0","id":1,"result":[]}"#),
            "bad_answer",
        ),
    ];
    for (name, behaviour, reason) in cases {
        let mock = MockServer::modern().tool("t", behaviour).start().await;
        let upstream = upstream(&mock.url());
        let failure = failure(call_anonymously(&upstream, "t", json!({})).await).await;
        assert_eq!(failure.reason(), reason, "{name}: {failure:?}");
        assert_eq!(mock.requests_of("tools/call").len(), 1, "{name}: sent once");
    }
}

// Proves E08.
#[tokio::test]
async fn bad_answers_of_a_legacy_server_are_named_too() {
    let cases = [
        ("truncated", raw(r#"{"jsonrpc":"2.0","id":"#), "bad_answer"),
        (
            "html",
            MockBehaviour::status(200, "text/html", "<html>"),
            "bad_answer",
        ),
        (
            "accepted",
            MockBehaviour::status(202, "text/plain", ""),
            "bad_answer",
        ),
        (
            "500",
            MockBehaviour::status(500, "text/plain", "oops"),
            "bad_answer",
        ),
        ("other id", MockBehaviour::wrong_id(), "bad_answer"),
        ("no answer", MockBehaviour::no_answer(), "result_unknown"),
    ];
    for (name, behaviour, reason) in cases {
        let mock = MockServer::legacy(Revision::V2025_11_25)
            .tool("t", behaviour)
            .start()
            .await;
        let upstream = upstream(&mock.url());
        let failure = failure(call_anonymously(&upstream, "t", json!({})).await).await;
        assert_eq!(failure.reason(), reason, "{name}: {failure:?}");
        assert_eq!(mock.requests_of("tools/call").len(), 1, "{name}: sent once");
    }
}

// Proves E12.
#[tokio::test]
async fn refused_credentials_advise_the_operator() {
    let mock = MockServer::modern()
        .tool("t", MockBehaviour::unauthorized())
        .start()
        .await;
    let failure = failure(call_anonymously(&upstream(&mock.url()), "t", json!({})).await).await;
    assert_eq!(
        *failure.kind(),
        FailureKind::Unavailable,
        "not the client's 401"
    );
    assert!(
        failure.message().contains("weir's credentials"),
        "{failure}"
    );
}

// Proves E13.
#[tokio::test]
async fn retry_after_is_passed_on() {
    for (status, kind) in [(429, FailureKind::Limit), (503, FailureKind::Busy)] {
        let mock = MockServer::modern()
            .tool("t", MockBehaviour::retry_after(status, 7))
            .start()
            .await;
        let failure = failure(call_anonymously(&upstream(&mock.url()), "t", json!({})).await).await;
        assert_eq!(*failure.kind(), kind);
        assert_eq!(failure.retry_delay(), Some(Duration::from_secs(7)));
        assert_eq!(mock.requests_of("tools/call").len(), 1);
    }
}

// Proves E13.
#[tokio::test]
async fn retry_after_date_uses_the_servers_clock() {
    let later = MockBehaviour::status(503, "text/plain", "later")
        .with_header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
        .with_header("retry-after", "Sun, 06 Nov 1994 08:49:44 GMT");
    let mock = MockServer::modern().tool("t", later).start().await;
    let failure = failure(call_anonymously(&upstream(&mock.url()), "t", json!({})).await).await;
    assert_eq!(
        (failure.kind(), failure.retry_delay()),
        (&FailureKind::Busy, Some(Duration::from_secs(7)))
    );
}

// Proves E07.
#[tokio::test]
async fn giant_answers_are_cut_at_the_cap() {
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"XXXXXXXX"}}"#;
    let endless = (0..20_000).map(|_| AnswerStep::Send(log.replace("XXXXXXXX", &"x".repeat(200))));
    let mock = MockServer::modern()
        .tool("json", MockBehaviour::huge(8 << 20))
        .tool("sse", MockBehaviour::huge(8 << 20).as_events())
        .tool(
            "endless",
            MockBehaviour::steps(endless.chain([AnswerStep::Echo])),
        )
        .start()
        .await;
    let bounds = UpstreamBounds {
        max_reply: 1 << 20,
        ..UpstreamBounds::default()
    };
    let upstream = build(UpstreamSettings {
        bounds,
        ..settings(&mock.url())
    });
    for tool in ["json", "sse", "endless"] {
        let failure = failure(call_anonymously(&upstream, tool, json!({})).await).await;
        assert_eq!(failure.reason(), "bad_answer", "{tool}: {failure:?}");
    }
}

// Proves E09.
#[tokio::test]
async fn first_valid_response_wins_and_foreign_messages_are_dropped() {
    for (era, builder) in [
        ("modern", MockServer::modern()),
        ("legacy", MockServer::legacy(Revision::V2025_11_25)),
    ] {
        let mock = builder
            .tool("two", MockBehaviour::two_responses())
            .tool("token", MockBehaviour::wrong_progress_token())
            .tool("late", MockBehaviour::late_progress())
            .tool(
                "unasked",
                MockBehaviour::steps([AnswerStep::Progress(1, 2), AnswerStep::Echo]),
            )
            .start()
            .await;
        let upstream = upstream(&mock.url());
        assert_eq!(
            text(call_anonymously(&upstream, "two", json!({})).await).await,
            "first",
            "{era}"
        );
        for tool in ["token", "late", "unasked"] {
            let mut call = call(tool, json!({}));
            call.wants_progress = tool != "unasked";
            let outcome = outcome(upstream.clone().call(outbound(tool, call).await).await).await;
            assert_eq!(
                outcome.notes.len(),
                0,
                "{era} {tool}: nothing of it was this call's"
            );
            outcome.end.unwrap();
        }
    }
}

// Proves E09.
#[tokio::test]
async fn progress_of_parallel_calls_is_never_crossed() {
    for (era, builder) in [
        ("modern", MockServer::modern()),
        ("legacy", MockServer::legacy(Revision::V2025_11_25)),
    ] {
        let gate = CallGate::new();
        let mock = builder
            .tool("wait", MockBehaviour::gated_after_progress(&gate))
            .start()
            .await;
        let upstream = upstream(&mock.url());
        let one = async |n: u32| {
            let mut call = call("wait", json!({"n": n}));
            call.wants_progress = true;
            outcome(upstream.clone().call(outbound("wait", call).await).await).await
        };
        let opened = async {
            mock.wait_until("three run", |mock| mock.executions("wait") == 3)
                .await;
            gate.open();
        };
        let (a, b, c, ()) = tokio::join!(one(1), one(2), one(3), opened);
        for (n, outcome) in [a, b, c].into_iter().enumerate() {
            assert_eq!(outcome.notes.len(), 1, "{era}");
            assert_eq!(
                outcome.end.unwrap()["structuredContent"]["n"],
                n + 1,
                "{era}"
            );
        }
        let tokens: Vec<_> = mock
            .requests_of("tools/call")
            .iter()
            .map(|request| request.meta()["progressToken"].clone())
            .collect();
        assert!(
            tokens[0] != tokens[1] && tokens[1] != tokens[2],
            "{era}: {tokens:?}"
        );
    }
}

// Proves R103.
#[tokio::test]
async fn batches_are_split() {
    let mock = MockServer::legacy(Revision::V2025_03_26)
        .tool("json", MockBehaviour::batch().as_json())
        .tool("sse", MockBehaviour::batch().as_events())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    for tool in ["json", "sse"] {
        let mut call = call(tool, json!({}));
        call.wants_progress = true;
        let outcome = outcome(upstream.clone().call(outbound(tool, call).await).await).await;
        assert_eq!(outcome.notes.len(), 1, "{tool}");
        assert_eq!(
            outcome.end.unwrap()["content"][0]["text"],
            "from a batch",
            "{tool}"
        );
    }
}

// Proves R105, E21.
#[tokio::test]
async fn a_legacy_server_that_asks_gets_its_answer_and_the_call_goes_on() {
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .tool("ping", MockBehaviour::ask("ping", json!({})))
        .tool(
            "sample",
            MockBehaviour::ask(
                "sampling/createMessage",
                json!({"messages": [], "maxTokens": 1}),
            ),
        )
        .start()
        .await;
    let upstream = upstream(&mock.url());
    for tool in ["ping", "sample"] {
        outcome(call_anonymously(&upstream, tool, json!({})).await)
            .await
            .end
            .unwrap();
    }
    let answers = mock.answers();
    assert_eq!(answers[0]["result"], json!({}));
    assert_eq!(answers[1]["error"]["code"], -32601);
}

#[tokio::test]
async fn words_of_a_refusal_reach_the_operator() {
    let host =
        r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Invalid Host header"},"id":null}"#;
    let cases = [
        (
            MockBehaviour::status(403, "application/json", host),
            "HTTP 403, saying \"Invalid Host header\"; write credentials",
        ),
        (
            MockBehaviour::status(421, "text/plain", "Invalid Host header\nsecond line"),
            "it says \"Invalid Host header\"",
        ),
        (
            MockBehaviour::status(404, "text/plain", "no such page"),
            "it says \"no such page\"; correct the path",
        ),
        (
            MockBehaviour::status(500, "text/plain", "out of paper"),
            "it says \"out of paper\"; see the log",
        ),
        (
            MockBehaviour::status(
                413,
                "text/html",
                "<html><head><TITLE>413 Too Large</TITLE></head></html>",
            ),
            "the call did not run: it says \"413 Too Large\"; raise the largest request body",
        ),
    ];
    for (behaviour, words) in cases {
        let mock = MockServer::modern().tool("t", behaviour).start().await;
        let upstream = upstream(&mock.url());
        let refused = failure(call_anonymously(&upstream, "t", json!({})).await).await;
        let causes = weir_core::chain(&refused);
        assert!(causes.contains(words), "{causes}");
    }
}

#[tokio::test]
async fn an_error_of_the_servers_transport_with_a_text_as_id_is_an_explanation() {
    let error = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Not Acceptable: X"}}"#;
    for status in [400, 404, 406] {
        let mock = MockServer::modern()
            .tool(
                "t",
                MockBehaviour::status(status, "application/json", error),
            )
            .start()
            .await;
        let upstream = upstream(&mock.url());
        let refused = failure(call_anonymously(&upstream, "t", json!({})).await).await;
        assert_eq!(refused.reason(), "bad_answer", "{status}");
        let causes = weir_core::chain(&refused);
        assert!(causes.contains("it says \"Not Acceptable: X\""), "{causes}");
        assert!(!causes.contains("No MCP server"), "{causes}");
    }
    // The number of another request makes it that request's error.
    let foreign = error.replace(r#""server-error""#, "987654321");
    let mock = MockServer::modern()
        .tool(
            "t",
            MockBehaviour::status(406, "application/json", &foreign),
        )
        .start()
        .await;
    let upstream = upstream(&mock.url());
    let refused = failure(call_anonymously(&upstream, "t", json!({})).await).await;
    assert!(!weir_core::chain(&refused).contains("Not Acceptable"));
}

#[tokio::test]
async fn weir_accepts_no_compressed_answers_and_names_the_coding_of_one() {
    for answer in [MockBehaviour::echo(), MockBehaviour::echo().as_events()] {
        let mock = MockServer::modern()
            .tool("t", answer.with_header("content-encoding", "gzip"))
            .start()
            .await;
        let upstream = upstream(&mock.url());
        let refused = failure(call_anonymously(&upstream, "t", json!({})).await).await;
        assert_eq!(refused.reason(), "bad_answer");
        assert!(refused.message().contains("compressed (gzip)"), "{refused}");
        for request in mock.requests() {
            assert_eq!(request.header("accept-encoding"), Some("identity"));
        }
    }
}

#[tokio::test]
async fn a_server_of_mcp_is_not_looked_for_at_http_sse() {
    let error = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Missing session ID"}}"#;
    let refuses = MockBehaviour::status(400, "application/json", error);
    let mock = MockServer::legacy(Revision::V2025_06_18)
        .tool("t", MockBehaviour::echo())
        .with_rule("server/discover", refuses)
        .start()
        .await;
    text(call_anonymously(&upstream(&mock.url()), "t", json!({})).await).await;
    let gets = mock.requests_of("GET");
    assert!(gets.iter().all(|get| get.session().is_some()));
}
