//! Tests of large results. A result is held within a bound until its id and type are known. Past
//! the bound, a result that turns out to be another request's, or no result, never ends well.

use std::sync::Arc;

use bytes::BytesMut;
use serde_json::{Value, json};
use weir_core::hold::HoldLimits;
use weir_core::reply::{Payload, Reply, ReplyEnd, ReplyEvent};
use weir_core::upstream::{OutboundCall, Upstream};
use weir_core::{CapabilityClass, Failure};
use weir_testkit::mock_server::{AnswerStep, CallGate};
use weir_testkit::scripted_server::{LargeAnswer as Large, ServerAct, modern_answer, text_answer};
use weir_testkit::{MockBehaviour, MockServer, ScriptedServer};
use weir_upstream::{ClientImplementation, UpstreamFactory, UpstreamProtocol};

use crate::fixtures::*;

const KIB_100: usize = 100 << 10;
const MIB_5: usize = 5 << 20;
const MIB_50: usize = 50 << 20;

async fn serving(answer: Large) -> (ScriptedServer, Arc<dyn Upstream>) {
    let server = ScriptedServer::start(move |request| {
        modern_answer(request, &["t"]).unwrap_or_else(|| {
            if request.tool() == "small" {
                vec![text_answer(request, "own")]
            } else {
                answer.acts(request)
            }
        })
    })
    .await;
    let upstream = upstream(&server.url());
    (server, upstream)
}

/// Returns the given bytes of a call's result, and its end.
async fn drained(mut reply: Reply) -> (BytesMut, Result<&'static str, Failure>) {
    let mut given = BytesMut::new();
    loop {
        let (payload, word) = match reply.next().await.unwrap() {
            ReplyEvent::Note(_) | ReplyEvent::Ask(_) => continue,
            ReplyEvent::End(ReplyEnd::Failed(failure)) => return (given, Err(*failure)),
            ReplyEvent::End(ReplyEnd::Complete(payload)) => (payload, "complete"),
            ReplyEvent::End(ReplyEnd::InputRequired(payload)) => (payload, "input_required"),
            ReplyEvent::End(end) => panic!("{end:?}"),
        };
        match payload {
            Payload::Whole(bytes) | Payload::Cleaned { result: bytes, .. } => {
                given.extend_from_slice(&bytes)
            }
            Payload::Stream(mut source) => {
                while let Some(chunk) = std::future::poll_fn(|cx| source.poll_chunk(cx)).await {
                    match chunk {
                        Ok(chunk) => given.extend_from_slice(&chunk),
                        Err(failure) => return (given, Err(failure)),
                    }
                }
            }
        }
        return (given, Ok(word));
    }
}

async fn assert_arrives(answer: Large) {
    let (_server, upstream) = serving(answer.clone()).await;
    let (given, end) = drained(call_anonymously(&upstream, "t", json!({})).await).await;
    assert_eq!(
        end.unwrap_or_else(|failure| panic!("{answer:?}: {failure:?}")),
        "complete"
    );
    let result: Value = serde_json::from_slice(&given).unwrap();
    assert_eq!(
        result["content"][0]["text"].as_str().unwrap().len(),
        answer.size,
        "{answer:?}"
    );
    for (name, value) in &answer.members {
        assert_eq!(&result[name], value, "{answer:?}");
    }
}

#[tokio::test]
async fn large_results_arrive_whatever_the_order_of_their_members() {
    let members: [&[(&str, Value)]; 2] = [
        &[
            ("resultType", json!("complete")),
            ("_meta", json!({ "a/b": [1, { "c": 2 }] })),
        ],
        &[],
    ];
    for events in [false, true] {
        for members in members {
            for (id_first, members_first) in
                [(true, true), (true, false), (false, true), (false, false)]
            {
                let answer = Large {
                    id_first,
                    members_first,
                    ..Large::new(events, KIB_100).members(members)
                };
                assert_arrives(answer).await;
            }
        }
        assert_arrives(Large::new(events, MIB_5)).await;
        assert_arrives(Large::new(events, MIB_5).last()).await;
    }
}

#[tokio::test]
#[ignore = "hundreds of mebibytes pass through an unoptimized parser: cargo xtask prove runs it"]
async fn results_of_50_mib_arrive_whatever_the_order_of_their_members() {
    for events in [false, true] {
        assert_arrives(Large::new(events, MIB_50)).await;
        assert_arrives(Large::new(events, MIB_50).last()).await;
        let foreign = Large::new(events, MIB_50).of(json!(999_999));
        for answer in [
            Large {
                id_first: false,
                ..foreign
            },
            Large::new(events, MIB_50).last().members(&dangerous()),
        ] {
            let case = format!("{events} {:?}", answer.id);
            let (_server, upstream) = serving(answer).await;
            let (given, end) = drained(call_anonymously(&upstream, "t", json!({})).await).await;
            end.unwrap_err();
            assert_harmless(&given, &case);
        }
    }
}

/// Results that only clients with the capability may see, or that are the server's alone.
fn dangerous() -> Vec<(&'static str, Value)> {
    let ask = json!({ "a": { "method": "elicitation/create", "params": { "mode": "url", "url": "https://evil.example/",
        "message": "m", "elicitationId": "e" } } });
    vec![
        ("resultType", json!("input_required")),
        ("inputRequests", ask),
        ("requestState", json!("raw-state")),
    ]
}

fn assert_harmless(given: &[u8], case: &str) {
    let text = String::from_utf8_lossy(given);
    for word in [
        "inputRequests",
        "evil.example",
        "raw-state",
        "resultType",
        "input_required",
    ] {
        assert!(!text.contains(word), "{case}: `{word}` went on");
    }
    // Without its last byte the forwarded part is no valid JSON.
    assert!(
        serde_json::from_slice::<Value>(given).is_err(),
        "{case}: it ended well"
    );
}

#[tokio::test]
async fn a_question_behind_much_content_reaches_no_client_that_cannot_be_asked() {
    for events in [false, true] {
        for (size, members_first) in [
            (70 << 10, true),
            (70 << 10, false),
            (MIB_5, true),
            (MIB_5, false),
        ] {
            let case = format!("{events} {size} {members_first}");
            let answer = Large {
                members_first,
                ..Large::new(events, size).members(&dangerous())
            };
            let (_server, upstream) = serving(answer).await;
            let (given, end) = drained(call_anonymously(&upstream, "t", json!({})).await).await;
            assert_eq!(end.unwrap_err().reason(), "bad_answer", "{case}");
            assert_harmless(&given, &case);
            assert_eq!(
                given.is_empty(),
                size < MIB_5 || members_first,
                "{case}: {} bytes went on",
                given.len()
            );
        }
    }
}

#[tokio::test]
async fn a_question_behind_some_content_reaches_the_client_that_can_be_asked() {
    for events in [false, true] {
        let answer = Large {
            members_first: false,
            ..Large::new(events, 70 << 10).members(&dangerous())
        };
        let (_server, upstream) = serving(answer).await;
        let mut call = call("t", json!({}));
        call.capabilities.class = CapabilityClass::ELICITATION_URL;
        let (given, end) = drained(upstream.clone().call(outbound("t", call).await).await).await;
        assert_eq!(end.unwrap(), "input_required");
        let result: Value = serde_json::from_slice(&given).unwrap();
        assert_eq!(result["requestState"], "raw-state");
    }
}

#[tokio::test]
async fn tasks_and_unknown_types_behind_content_are_no_results() {
    for result_type in [json!("task"), json!("odd"), json!(7), json!(null)] {
        for (size, members_first) in [(70 << 10, false), (MIB_5, true), (MIB_5, false)] {
            let members = [
                ("resultType", result_type.clone()),
                ("taskId", json!("their-own")),
            ];
            let answer = Large {
                members_first,
                ..Large::new(false, size).members(&members)
            };
            let (_server, upstream) = serving(answer).await;
            let (given, end) = drained(call_anonymously(&upstream, "t", json!({})).await).await;
            assert_eq!(
                end.unwrap_err().reason(),
                "bad_answer",
                "{result_type} {size}"
            );
            assert!(
                !String::from_utf8_lossy(&given).contains("their-own"),
                "{result_type} {size}"
            );
            assert!(
                serde_json::from_slice::<Value>(&given).is_err(),
                "{result_type} {size}"
            );
        }
    }
}

#[tokio::test]
async fn another_requests_large_answer_reaches_no_caller_whole_and_within_the_hold_not_at_all() {
    for events in [false, true] {
        for (size, id_first, may_begin) in [
            (KIB_100, true, false),
            (KIB_100, false, false),
            (MIB_5, true, false),
            (MIB_5, false, true),
        ] {
            let case = format!("{events} {size} {id_first}");
            let answer = Large {
                id_first,
                ..Large::new(events, size).of(json!(999_999))
            };
            let (server, upstream) = serving(answer).await;
            text(call_anonymously(&upstream, "small", json!({})).await).await;
            let before = server.accepted();
            let (given, end) = drained(call_anonymously(&upstream, "t", json!({})).await).await;
            let reason = end.unwrap_err().reason();
            assert!(
                ["bad_answer", "result_unknown"].contains(&reason),
                "{case}: {reason}"
            );
            assert_eq!(
                !given.is_empty(),
                may_begin,
                "{case}: {} bytes went on",
                given.len()
            );
            assert!(
                serde_json::from_slice::<Value>(&given).is_err(),
                "{case}: it ended well"
            );
            // The next messages of such a server may belong to any request.
            text(call_anonymously(&upstream, "small", json!({})).await).await;
            assert_eq!(
                server.accepted(),
                before + 1,
                "{case}: its connection is not used again"
            );
        }
    }
}

#[tokio::test]
async fn over_http2_a_late_fault_takes_its_connection_out_of_use_and_no_other_stream_with_it() {
    for (id, result_type) in [(json!(999_999), "complete"), (json!(null), "task")] {
        let text = "x".repeat(MIB_5);
        let late = format!(
            r#"{{"result":{{"content":[{{"type":"text","text":"{text}"}}],"resultType":"{result_type}"}},"id":{id},"jsonrpc":"2.0"}}"#
        );
        let gate = CallGate::new();
        let mock = MockServer::modern()
            .http2()
            .tool("small", MockBehaviour::text("own"))
            .tool(
                "late",
                MockBehaviour::steps([AnswerStep::Raw(late)]).as_json(),
            )
            .tool("gated", MockBehaviour::gated(&gate))
            .start()
            .await;
        let upstream = over_http2(&mock.url(), UpstreamProtocol::Auto);
        let case = format!("{id} {result_type}");
        assert_eq!(text_of(&upstream, "small").await, "own", "{case}");
        assert_eq!(mock.connections(), 1, "{case}");
        let gated = tokio::spawn({
            let upstream = upstream.clone();
            async move {
                outcome(call_anonymously(&upstream, "gated", json!({})).await)
                    .await
                    .end
                    .unwrap()
            }
        });
        mock.wait_until("the other stream", |mock| {
            mock.requests_of("tools/call").len() == 2
        })
        .await;
        let (given, end) = drained(call_anonymously(&upstream, "late", json!({})).await).await;
        end.unwrap_err();
        assert!(
            serde_json::from_slice::<Value>(&given).is_err(),
            "{case}: it ended well"
        );
        assert_eq!(text_of(&upstream, "small").await, "own", "{case}");
        assert_eq!(
            mock.connections(),
            2,
            "{case}: what such a server says next may be anybody's"
        );
        gate.open();
        gated.await.unwrap();
        mock.wait_until("the end of the connection", |mock| {
            mock.open_connections() == 1
        })
        .await;
    }
}

async fn text_of(upstream: &Arc<dyn Upstream>, tool: &str) -> String {
    text(call_anonymously(upstream, tool, json!({})).await).await
}

#[tokio::test]
async fn large_response_to_another_request_is_skipped() {
    for size in [KIB_100, MIB_5] {
        let server = ScriptedServer::start(move |request| {
            modern_answer(request, &["t"]).unwrap_or_else(|| {
                let foreign = Large::new(true, size).of(json!(999_999)).acts(request);
                let own = json!({ "jsonrpc": "2.0", "id": request.id(), "result": { "resultType": "complete",
                    "content": [{ "type": "text", "text": "own" }] } });
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
                let ServerAct::Write(first) = &foreign[0] else { panic!("it begins with its head") };
                let at = first.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
                let mut acts = vec![ServerAct::Write(head.into()), ServerAct::Write(first.slice(at..))];
                acts.extend_from_slice(&foreign[1..]);
                acts.extend([ServerAct::Write(format!("data: {own}\n\n").into()), ServerAct::Close]);
                acts
            })
        })
        .await;
        assert_eq!(
            text(call_anonymously(&upstream(&server.url()), "t", json!({})).await).await,
            "own",
            "{size}"
        );
    }
}

#[tokio::test]
async fn result_that_is_needed_whole_comes_whole_or_fails() {
    for (size, fits) in [(1 << 20, true), (MIB_5, false)] {
        let (_server, upstream) = serving(Large::new(false, size)).await;
        let outbound = OutboundCall {
            whole: true,
            ..outbound("t", call("t", json!({}))).await
        };
        let mut reply = upstream.clone().call(outbound).await;
        match reply.next().await.unwrap() {
            ReplyEvent::End(ReplyEnd::Complete(Payload::Whole(result))) => {
                assert!(fits && result.len() > size)
            }
            ReplyEvent::End(ReplyEnd::Failed(failure)) => {
                assert!(!fits && failure.reason() == "bad_answer", "{failure:?}")
            }
            event @ (ReplyEvent::Note(_) | ReplyEvent::Ask(_) | ReplyEvent::End(_)) => {
                panic!("{event:?}")
            }
        }
    }
}

#[tokio::test]
async fn server_is_not_read_without_memory_for_held_bytes() {
    let server = ScriptedServer::start(|request| {
        modern_answer(request, &["t"]).unwrap_or_else(|| match request.tool() {
            "small" => vec![text_answer(request, "own")],
            "stuck" => {
                let mut acts = Large::new(false, KIB_100).last().acts(request);
                acts.pop();
                acts
            }
            _ => Large::new(false, KIB_100).last().acts(request),
        })
    })
    .await;
    let ports = ports();
    ports.budgets.hold.set_limits(HoldLimits {
        per_call: 1 << 20,
        total: 1 << 20,
    });
    let upstream = UpstreamFactory::new(ports, ClientImplementation::new("weir", "0.1.0"))
        .build(settings(&server.url()))
        .unwrap();
    text(call_anonymously(&upstream, "small", json!({})).await).await;
    let run = |tool: &'static str| {
        let upstream = upstream.clone();
        Box::pin(async move { drained(call_anonymously(&upstream, tool, json!({})).await).await })
    };
    let (mut stuck, mut waiting) = (run("stuck"), run("t"));
    // The call with the memory is under way, and the waiting one has been sent, while others are
    // answered.
    for round in 0..40 {
        tokio::select! {
            biased;
            _ = &mut stuck => panic!("its end never comes"),
            _ = &mut waiting, if round >= 20 => panic!("there is no room for it"),
            answer = call_anonymously(&upstream, "small", json!({})) => assert_eq!(text(answer).await, "own"),
        }
    }
    assert_eq!(
        server
            .requests_of("tools/call")
            .iter()
            .filter(|request| request.tool() == "t")
            .count(),
        1
    );
    drop(stuck);
    assert_eq!(waiting.await.1.unwrap(), "complete");
}
