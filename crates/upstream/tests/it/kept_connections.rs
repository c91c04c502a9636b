//! Tests of kept connections: messages on them that belong to no request of weir's answer no call
//! and prove no state.

use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::ScriptedServer;
use weir_testkit::scripted_server::{
    ScriptedRequest, ServerAct, json_answer, modern_answer, text_answer,
};
use weir_testkit::{MockBehaviour, MockServer};
use weir_upstream::UpstreamProtocol;
use weir_wire::Revision;

use crate::fixtures::*;

fn error(id: &Value, code: i64) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": "of another", "data": { "secret": "of-another" } } })
}

fn own(request: &ScriptedRequest) -> Vec<ServerAct> {
    modern_answer(request, &["t"]).unwrap_or_else(|| vec![text_answer(request, "own")])
}

/// Writes to all connections. The next request comes later than that: for a tenth of a millisecond
/// after a response the pool asks the runtime alone if a connection is quiet.
async fn write_late(server: &ScriptedServer, bytes: &[u8]) {
    server.write_to_all(bytes).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test]
async fn a_late_error_without_an_id_is_never_the_next_callers_answer() {
    let server = ScriptedServer::start(own).await;
    let upstream = upstream(&server.url());
    for status in [200, 400, 500] {
        let ServerAct::Write(late) = json_answer(status, &error(&Value::Null, -32603)) else {
            panic!("an answer is written")
        };
        for round in 0..15 {
            assert_eq!(
                text(call_anonymously(&upstream, "t", json!({})).await).await,
                "own",
                "{status} {round}"
            );
            write_late(&server, &late).await;
        }
    }
}

/// On the stream of one call it says why the stream ends without the response, as the body of a
/// refusal does: messages there "SHOULD relate to the originating client request" (2025-11-25,
/// Transports, "Sending Messages to the Server").
#[tokio::test]
async fn an_error_without_an_id_in_a_200_answers_no_call_and_on_a_stream_explains_its_end() {
    for (form, reason) in [
        ("json", "bad_answer"),
        ("events", "upstream_error"),
        ("both", ""),
    ] {
        let server = ScriptedServer::start(move |request| {
            modern_answer(request, &["t"]).unwrap_or_else(|| {
                let foreign = error(&Value::Null, -32603);
                let own = json!({ "jsonrpc": "2.0", "id": request.id(), "result": { "resultType": "complete",
                    "content": [{ "type": "text", "text": "own" }] } });
                let events = match form {
                    "json" => return vec![json_answer(200, &foreign)],
                    "events" => format!("data: {foreign}\n\n"),
                    _ => format!("data: {foreign}\n\ndata: {own}\n\n"),
                };
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
                vec![ServerAct::Write((head.to_owned() + &events).into()), ServerAct::Close]
            })
        })
        .await;
        let outcome =
            outcome(call_anonymously(&upstream(&server.url()), "t", json!({})).await).await;
        match outcome.end {
            Ok(result) => assert_eq!(
                (form, &result["content"][0]["text"]),
                ("both", &json!("own"))
            ),
            Err(failure) => {
                assert_eq!(failure.reason(), reason, "{form}: {failure:?}");
                let is_shown = format!("{failure:?}").contains("of another");
                assert_eq!(is_shown, form == "events", "{failure:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_without_an_id_answers_its_own_post_and_is_no_proof_on_a_kept_connection() {
    // Modern servers say -32022 with HTTP 400 to a request that they have not run.
    for (id, is_kept, sent) in [(None, true, 1), (Some(()), true, 2), (None, false, 2)] {
        let server = ScriptedServer::start(move |request| {
            modern_answer(request, &["t"]).unwrap_or_else(|| {
                if request.tool() == "warm" {
                    return vec![text_answer(request, "warm")];
                }
                let named = id.map_or(Value::Null, |()| request.id().clone());
                let mut body = error(&named, -32022);
                body["error"]["data"] =
                    json!({ "supported": ["2026-07-28"], "requested": "2026-07-28" });
                vec![json_answer(400, &body)]
            })
        })
        .await;
        let upstream = pinned(&server.url(), UpstreamProtocol::Modern);
        text(call_anonymously(&upstream, "warm", json!({})).await).await;
        if !is_kept {
            // Its connection is closed as soon as the extra bytes are seen.
            write_late(&server, b"x").await;
        }
        let failure = failure(call_anonymously(&upstream, "t", json!({})).await).await;
        assert_eq!(failure.reason(), "upstream_error", "{id:?}: {failure:?}");
        let calls = server
            .requests_of("tools/call")
            .iter()
            .filter(|request| request.tool() == "t")
            .count();
        assert_eq!(calls, sent, "{id:?} {is_kept}");
    }
}

#[tokio::test]
async fn a_refusal_that_names_another_request_answers_none() {
    let server = ScriptedServer::start(|request| {
        modern_answer(request, &["t"])
            .unwrap_or_else(|| vec![json_answer(400, &error(&json!(999_999), -32602))])
    })
    .await;
    let failure = failure(call_anonymously(&upstream(&server.url()), "t", json!({})).await).await;
    assert!(
        !format!("{failure:?}").contains("of-another"),
        "{failure:?}"
    );
    assert_eq!(failure.reason(), "bad_answer");
}

/// The servers of the SDKs name no request in 400 and 404.
#[tokio::test]
async fn era_and_lost_sessions_are_read_from_400_and_404_that_name_no_request() {
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let nameless = |code: i64| {
        let body = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": "no session" } });
        MockBehaviour::status(
            if code == -32001 { 404 } else { 400 },
            "application/json",
            &body.to_string(),
        )
    };
    mock.add_rule("server/discover", 1, nameless(-32000));
    let upstream = upstream(&mock.url());
    outcome(call_anonymously(&upstream, "echo", json!({})).await)
        .await
        .end
        .unwrap();
    assert_eq!(upstream.health().revision, Some("2025-11-25"));
    // The call goes over a kept connection, the proof that the session is gone over another.
    mock.add_rule("tools/call", 1, nameless(-32001));
    mock.add_rule("ping", 1, nameless(-32001));
    outcome(call_anonymously(&upstream, "echo", json!({})).await)
        .await
        .end
        .unwrap();
    assert_eq!(mock.requests_of("initialize").len(), 2, "in a new session");
    assert_eq!(mock.executions("echo"), 2);
    // Without that proof it is not sent again.
    mock.add_rule("tools/call", 1, nameless(-32001));
    let failure = failure(call_anonymously(&upstream, "echo", json!({})).await).await;
    assert_eq!(mock.executions("echo"), 2, "{failure:?}");
}

// Proves E17.
#[tokio::test]
async fn a_server_that_closes_after_each_answer_fails_no_call_and_keeps_its_era() {
    let server = ScriptedServer::start(|request| {
        let mut acts = own(request);
        acts.push(ServerAct::Close);
        acts
    })
    .await;
    let upstream = upstream(&server.url());
    for round in 0..100 {
        assert_eq!(
            text(call_anonymously(&upstream, "t", json!({})).await).await,
            "own",
            "{round}"
        );
        if round % 10 == 0 {
            upstream
                .clone()
                .watch(weir_core::CapabilityClass::BASE)
                .await
                .unwrap();
        }
    }
    assert_eq!(upstream.health().revision, Some("2026-07-28"));
    assert_eq!(server.requests_of("initialize").len(), 0);
    assert_eq!(server.requests_of("tools/call").len(), 100);
}

// Proves E17.
#[tokio::test]
async fn a_lost_probe_is_made_again() {
    let server = ScriptedServer::start(|request| {
        if request.method() == "server/discover" && request.connection < 2 {
            vec![ServerAct::Close]
        } else {
            own(request)
        }
    })
    .await;
    let upstream = upstream(&server.url());
    assert_eq!(
        text(call_anonymously(&upstream, "t", json!({})).await).await,
        "own"
    );
    assert_eq!(upstream.health().revision, Some("2026-07-28"));
    assert_eq!(server.requests_of("initialize").len(), 0);
}

#[tokio::test]
async fn unsolicited_408_answers_no_call() {
    const TIMEOUT: &[u8] =
        b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let server = ScriptedServer::start(own).await;
    let upstream = upstream(&server.url());
    for round in 0..15 {
        assert_eq!(
            text(call_anonymously(&upstream, "t", json!({})).await).await,
            "own",
            "{round}"
        );
        write_late(&server, TIMEOUT).await;
    }
    // A 408 that crosses with a request on a kept connection: the state of the call is unknown, and
    // it is not sent again.
    let crossing = ScriptedServer::start(|request| {
        if request.nth > 1 && request.method() == "tools/call" {
            return vec![ServerAct::Write(TIMEOUT.into()), ServerAct::Close];
        }
        own(request)
    })
    .await;
    let upstream = crate::fixtures::upstream(&crossing.url());
    assert_eq!(
        text(call_anonymously(&upstream, "t", json!({})).await).await,
        "own"
    );
    let failure = failure(call_anonymously(&upstream, "t", json!({})).await).await;
    assert_eq!(failure.reason(), "result_unknown", "{failure:?}");
    assert_eq!(crossing.requests_of("tools/call").len(), 2);
}
