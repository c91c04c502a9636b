//! Tests of calls that are sent again, and of those that never are (invariant 9).

use std::time::Duration;

use serde_json::json;
use weir_testkit::{FaultProxy, MockBehaviour, MockServer, ProxyDirection, Toxic};
use weir_upstream::UpstreamProtocol;
use weir_wire::Revision;

use crate::fixtures::*;

// Proves R018, R118.
#[tokio::test]
async fn header_mismatch_is_answered_by_the_newest_schema_once() {
    let definition = r#"{"name":"m","inputSchema":{"type":"object","properties":{
        "region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"Count"}}}}"#;
    let mock = MockServer::modern()
        .tools(30)
        .page_size(10)
        .tool_json(definition)
        .start()
        .await;
    let mismatch = MockBehaviour::error(-32020, "headers", json!({})).with_status(400);
    mock.add_rule("tools/call", 1, mismatch.clone());
    let upstream = upstream(&mock.url());
    let reply = call_anonymously(&upstream, "m", json!({"region": "eu", "n": null})).await;
    outcome(reply).await.end.unwrap();
    let requests = mock.requests_of("tools/call");
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].header("mcp-param-region"), None);
    assert_eq!(requests[1].header("mcp-param-region"), Some("eu"));
    assert_eq!(
        requests[1].header("mcp-param-count"),
        None,
        "null has no header"
    );
    assert_ne!(
        requests[0].message["id"], requests[1].message["id"],
        "a request sent again has a new id"
    );

    mock.add_rule("tools/call", 9, mismatch);
    let failure = failure(call_anonymously(&upstream, "m", json!({})).await).await;
    assert_eq!(failure.reason(), "upstream_error");
    assert_eq!(
        mock.requests_of("tools/call").len(),
        4,
        "once for each reason"
    );
    assert_eq!(mock.executions("m"), 1);
}

// Proves R070.
#[tokio::test]
async fn unsupported_version_is_renegotiated_without_initialize() {
    let mock = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let unsupported = MockBehaviour::error(-32022, "version", json!({"supported": ["2026-07-28"]}))
        .with_status(400);
    mock.add_rule("tools/call", 1, unsupported);
    let upstream = upstream(&mock.url());
    outcome(call_anonymously(&upstream, "echo", json!({})).await)
        .await
        .end
        .unwrap();
    assert_eq!(mock.requests_of("server/discover").len(), 2);
    assert_eq!(mock.requests_of("initialize").len(), 0);
    assert_eq!(mock.executions("echo"), 1);
}

// Proves R142.
#[tokio::test]
async fn an_error_of_another_code_or_status_is_not_sent_again() {
    for (code, status) in [
        (-32020, 200),
        (-32022, 500),
        (-32021, 400),
        (-32603, 400),
        (-32602, 400),
    ] {
        let mock = MockServer::modern()
            .tool("echo", MockBehaviour::echo())
            .start()
            .await;
        mock.add_rule(
            "tools/call",
            1,
            MockBehaviour::error(code, "no", json!({})).with_status(status),
        );
        let upstream = upstream(&mock.url());
        let failure = failure(call_anonymously(&upstream, "echo", json!({})).await).await;
        assert_eq!(failure.reason(), "upstream_error", "{code} {status}");
        assert_eq!(mock.requests_of("tools/call").len(), 1, "{code} {status}");
    }
}

// Proves E06.
#[tokio::test]
async fn a_reset_at_any_byte_of_the_answer_executes_once_and_never_succeeds_empty() {
    for (era, mock) in [
        (
            "modern",
            MockServer::modern()
                .tool("echo", MockBehaviour::echo())
                .start()
                .await,
        ),
        (
            "legacy",
            MockServer::legacy(Revision::V2025_11_25)
                .tool("echo", MockBehaviour::echo())
                .start()
                .await,
        ),
    ] {
        let upstream = upstream(&mock.url());
        outcome(call_anonymously(&upstream, "echo", json!({})).await)
            .await
            .end
            .unwrap();
        let (mut resets, mut whole, mut at) = (0, 0, 0);
        while whole < 3 {
            // Between the failures, so that the breaker stays closed.
            let good = outcome(call_anonymously(&upstream, "echo", json!({})).await).await;
            good.end.unwrap();
            let before = mock.executions("echo");
            mock.add_rule("tools/call", 1, MockBehaviour::reset_after(at));
            let outcome =
                outcome(call_anonymously(&upstream, "echo", json!({"n": at})).await).await;
            match outcome.end {
                Ok(result) => {
                    assert_eq!(
                        result["structuredContent"]["n"], at,
                        "{era}: an answer is whole"
                    );
                    whole += 1;
                }
                Err(failure) => {
                    assert_eq!(
                        failure.reason(),
                        "result_unknown",
                        "{era} at byte {at}: {failure:?}"
                    );
                    resets += 1;
                }
            }
            assert!(
                mock.executions("echo") <= before + 1,
                "{era} at byte {at}: executed twice"
            );
            mock.clear_rules();
            at += 1;
        }
        assert!(resets > 100, "{era}: {resets}");
        let sent = mock.requests_of("tools/call").len();
        let all = 2 * (resets + whole) + 1;
        assert_eq!(sent, all, "{era}: nothing was sent again");
    }
}

// Proves E06.
#[tokio::test]
async fn a_reset_at_any_byte_of_the_request_executes_at_most_once() {
    let mock = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let mut length = 0;
    for at in (0..).step_by(7) {
        let proxy = FaultProxy::start(mock.address()).await;
        proxy.add_toxic(ProxyDirection::Up, Toxic::ResetAfter(at));
        let upstream = pinned(&proxy.url("/mcp"), UpstreamProtocol::Modern);
        let before = mock.executions("echo");
        let outcome = outcome(call_anonymously(&upstream, "echo", json!({"n": at})).await).await;
        let ran = mock.executions("echo") - before;
        assert!(ran <= 1, "at byte {at}: executed {ran} times");
        match outcome.end {
            Ok(_) => {
                length = at;
                break;
            }
            Err(failure) => assert_eq!(failure.reason(), "result_unknown", "at byte {at}"),
        }
    }
    assert!(length > 200, "{length}");
}

// Proves E05.
#[tokio::test]
async fn a_connection_that_died_while_unused_is_not_noticed_by_a_call() {
    let mut mock = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    for round in 0..5 {
        outcome(call_anonymously(&upstream, "echo", json!({})).await)
            .await
            .end
            .unwrap_or_else(|failure| panic!("{round}: {failure}"));
        mock.restart().await;
        // The client's side learns of the end when its connection task runs.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(mock.executions("echo"), 5);
}

// Proves E01.
#[tokio::test]
async fn a_refused_connection_is_unavailable_and_says_nothing_ran() {
    let mut mock = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    outcome(call_anonymously(&upstream, "echo", json!({})).await)
        .await
        .end
        .unwrap();
    mock.stop().await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let failure = failure(call_anonymously(&upstream, "echo", json!({})).await).await;
    assert_eq!(failure.reason(), "unavailable");
    assert!(upstream.health().down);
    assert_eq!(
        failure.upstream().map(ToString::to_string).as_deref(),
        Some("mock")
    );
    assert!(
        !failure.message().contains("127.0.0.1"),
        "no address is shown"
    );
    mock.restart().await;
    // The pace lets the next probe through at once or within its first 100 ms.
    let mut again = outcome(call_anonymously(&upstream, "echo", json!({})).await)
        .await
        .end;
    for _ in 0..100 {
        if again.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        again = outcome(call_anonymously(&upstream, "echo", json!({})).await)
            .await
            .end;
    }
    again.unwrap();
    assert!(!upstream.health().down);
}
