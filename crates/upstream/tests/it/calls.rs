//! Good calls, over every era and framing.

use serde_json::{Value, json};
use weir_core::CapabilityClass;
use weir_core::call::LogMessages;
use weir_core::reply::{NoteKind, Payload, ReplyEnd, ReplyEvent};
use weir_testkit::mock_server::{AnswerStep, CallGate};
use weir_testkit::{MockBehaviour, MockServer};
use weir_upstream::{
    HttpUpstreamSettings, SecretHeader, TransportSettings, UpstreamProtocol, UpstreamSettings,
};
use weir_wire::{LogLevel, Revision};

use crate::fixtures::*;

async fn eras() -> Vec<(&'static str, MockServer)> {
    let fill = |builder: weir_testkit::mock_server::MockServerBuilder| {
        let ticks = (1..=3).map(|at| AnswerStep::Progress(at, 3));
        let logs =
            [LogLevel::Debug, LogLevel::Info, LogLevel::Error].map(|level| AnswerStep::Log {
                level,
                unasked: true,
            });
        builder
            .tool("echo", MockBehaviour::echo())
            .tool("echo-sse", MockBehaviour::echo().as_events())
            .tool("progress", MockBehaviour::progress(3))
            .tool(
                "talk",
                MockBehaviour::steps(ticks.chain(logs).chain([AnswerStep::Echo])),
            )
            .tool("big", MockBehaviour::huge(50 << 20))
            .tool("big-sse", MockBehaviour::huge(50 << 20).as_events())
            .tool(
                "error",
                MockBehaviour::error(-32602, "no such thing", json!({"x": 1})),
            )
    };
    vec![
        ("modern", fill(MockServer::modern()).start().await),
        (
            "2025-11-25",
            fill(MockServer::legacy(Revision::V2025_11_25))
                .start()
                .await,
        ),
        (
            "2025-06-18",
            fill(MockServer::legacy(Revision::V2025_06_18))
                .start()
                .await,
        ),
        (
            "2025-03-26",
            fill(MockServer::legacy(Revision::V2025_03_26))
                .start()
                .await,
        ),
        (
            "no session",
            fill(MockServer::legacy(Revision::V2025_11_25).without_sessions())
                .start()
                .await,
        ),
    ]
}

// Proves R071, R073, R075.
#[tokio::test]
async fn calls_succeed_in_every_era_and_framing() {
    for (era, mock) in eras().await {
        let upstream = upstream(&mock.url());
        for tool in ["echo", "echo-sse"] {
            let reply = call_anonymously(&upstream, tool, json!({"n": 1, "s": "é\n"})).await;
            let result = outcome(reply)
                .await
                .end
                .unwrap_or_else(|failure| panic!("{era} {tool}: {failure:?}"));
            let text = result["content"][0]["text"].as_str().unwrap();
            assert_eq!(
                serde_json::from_str::<Value>(text).unwrap(),
                json!({"n": 1, "s": "é\n"}),
                "{era} {tool}"
            );
        }
        let failure = failure(call_anonymously(&upstream, "error", json!({})).await).await;
        let weir_core::FailureKind::Upstream(error) = failure.kind() else {
            panic!("{era}: {failure:?}")
        };
        assert_eq!(
            (error.code, error.message.as_str()),
            (-32602, "no such thing"),
            "{era}"
        );
        assert_eq!(error.data.as_deref(), Some(&br#"{"x":1}"#[..]), "{era}");
        assert_eq!(mock.executions("echo"), 1, "{era}");
    }
}

// Proves R207.
#[tokio::test]
async fn progress_and_logs_reach_their_call_at_the_level_asked_for() {
    for (era, mock) in eras().await {
        let upstream = upstream(&mock.url());
        let mut call = call("talk", json!({}));
        call.wants_progress = true;
        call.log_messages = LogMessages::From(LogLevel::Info);
        let outcome = outcome(upstream.clone().call(outbound("talk", call).await).await).await;
        let kinds: Vec<_> = outcome.notes.iter().map(|note| note.kind).collect();
        let (p, log) = (NoteKind::Progress, NoteKind::Log);
        assert_eq!(
            kinds,
            [p, p, p, log(LogLevel::Info), log(LogLevel::Error)],
            "{era}"
        );
        outcome.end.unwrap();
        let silent = call_anonymously(&upstream, "talk", json!({})).await;
        assert_eq!(
            crate::fixtures::outcome(silent).await.notes.len(),
            0,
            "{era}: nobody asked"
        );
        let levels = mock.requests_of("logging/setLevel").len();
        assert_eq!(levels, usize::from(era != "modern"), "{era}");
    }
}

#[tokio::test]
async fn a_result_of_50_mib_streams_through_with_backpressure() {
    for (era, mock) in eras().await {
        let upstream = upstream(&mock.url());
        for tool in ["big", "big-sse"] {
            let mut reply = call_anonymously(&upstream, tool, json!({})).await;
            let Some(ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(mut source)))) =
                reply.next().await
            else {
                panic!("{era} {tool}: such a result is not held")
            };
            let (mut total, mut largest, mut edges) = (0, 0, (0, 0));
            while let Some(chunk) = std::future::poll_fn(|cx| source.poll_chunk(cx)).await {
                let chunk = chunk.unwrap();
                if total == 0 {
                    edges.0 = chunk[0];
                }
                edges.1 = chunk[chunk.len() - 1];
                total += chunk.len();
                largest = largest.max(chunk.len());
            }
            assert!(total > 50 << 20, "{era} {tool}: {total}");
            assert!(
                largest <= 1 << 20,
                "{era} {tool}: a piece of {largest} bytes"
            );
            assert_eq!(edges, (b'{', b'}'), "{era} {tool}");
        }
    }
}

// Proves R071.
#[tokio::test]
async fn every_modern_request_carries_its_meta_and_matching_headers() {
    let mock = MockServer::modern()
        .tool("a b é", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    text(call_anonymously(&upstream, "a b é", json!({})).await).await;
    let mut watch = upstream.clone().watch(CapabilityClass::BASE).await.unwrap();
    watch
        .list(weir_core::upstream::ListKind::Tools, None)
        .await
        .unwrap();
    let requests = mock.requests();
    let methods: Vec<_> = requests
        .iter()
        .map(weir_testkit::mock_server::RecordedRequest::method)
        .collect();
    let expected = [
        "server/discover",
        "tools/call",
        "server/discover",
        "subscriptions/listen",
        "tools/list",
    ];
    assert_eq!(methods, expected);
    for request in &requests {
        let meta = request.meta();
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"],
            "2026-07-28"
        );
        assert_eq!(
            meta["io.modelcontextprotocol/clientInfo"],
            json!({"name": "weir", "version": "0.1.0"}),
            "r072"
        );
        assert_eq!(
            meta["io.modelcontextprotocol/clientCapabilities"],
            json!({})
        );
        assert_eq!(request.header("mcp-protocol-version"), Some("2026-07-28"));
        assert_eq!(request.header("mcp-method"), Some(request.method()));
        assert_eq!(
            request.header("accept"),
            Some("application/json, text/event-stream"),
            "r073"
        );
        assert_eq!(request.header("content-type"), Some("application/json"));
    }
    assert_eq!(requests[1].header("mcp-name"), Some("=?base64?YSBiIMOp?="));
    assert_eq!(
        requests[1].tool(),
        Some("a b é"),
        "the server's own name, not the one clients see"
    );
}

// Proves A19.
#[tokio::test]
async fn only_the_operators_headers_reach_a_server() {
    let mock = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let secret = SecretHeader::new("Bearer operator".parse().unwrap());
    let accept = SecretHeader::new("text/html".parse().unwrap());
    let coding = SecretHeader::new("gzip".parse().unwrap());
    let http = HttpUpstreamSettings {
        instances: Vec::new(),
        url: mock.url().parse().unwrap(),
        headers: vec![
            (http::header::AUTHORIZATION, secret),
            (http::header::ACCEPT, accept),
            (http::header::ACCEPT_ENCODING, coding),
        ],
        auth: None,
        ca_file: None,
        h2c: false,
    };
    let upstream = build(UpstreamSettings {
        transport: TransportSettings::Http(http),
        ..settings(&mock.url())
    });
    text(call_anonymously(&upstream, "echo", json!({})).await).await;
    let request = &mock.requests_of("tools/call")[0];
    let mut names: Vec<_> = request
        .headers
        .keys()
        .map(|name| name.as_str().to_owned())
        .collect();
    names.sort();
    let expected = [
        "accept",
        "accept-encoding",
        "authorization",
        "content-length",
        "content-type",
        "host",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "user-agent",
    ];
    assert_eq!(names, expected);
    assert_eq!(request.header("authorization"), Some("Bearer operator"));
    assert_eq!(
        request.header("accept"),
        Some("application/json, text/event-stream"),
        "the protocol's own stays"
    );
    assert_eq!(request.header("accept-encoding"), Some("identity"));
}

#[tokio::test]
async fn calls_succeed_over_http2_with_prior_knowledge_side_by_side_on_one_connection() {
    let gate = CallGate::new();
    let mock = MockServer::modern()
        .http2()
        .tool("wait", MockBehaviour::gated(&gate))
        .start()
        .await;
    let upstream = over_http2(&mock.url(), UpstreamProtocol::Modern);
    let both = tokio::join!(
        async { text(call_anonymously(&upstream, "wait", json!({"n": 1})).await).await },
        async { text(call_anonymously(&upstream, "wait", json!({"n": 2})).await).await },
        async {
            mock.wait_until("both run", |mock| mock.executions("wait") == 2)
                .await;
            gate.open();
        }
    );
    assert!(both.0.contains('1') && both.1.contains('2'));
    assert_eq!(mock.connections(), 1);
}

#[tokio::test]
async fn input_required_passes_where_the_client_can_be_asked_and_the_state_goes_back_as_it_came() {
    let requests =
        json!({"q": {"method": "elicitation/create", "params": {"mode": "form", "message": "?"}}});
    let asks = MockBehaviour::input_required(requests, Some("their state"));
    let mock = MockServer::modern().tool("ask", asks).start().await;
    let upstream = upstream(&mock.url());
    let mut able = call("ask", json!({}));
    able.capabilities.class = CapabilityClass::ELICITATION_FORM;
    able.capabilities.raw = Some(bytes::Bytes::from_static(
        br#"{"elicitation":{"form":{"x":1}},"tasks":{}}"#,
    ));
    able.resume = Some(weir_core::CallResumption::Upstream("their state".into()));
    let asked = outcome(upstream.clone().call(outbound("ask", able).await).await).await;
    assert!(asked.input_required);
    assert_eq!(asked.end.unwrap()["requestState"], "their state");
    let request = &mock.requests_of("tools/call")[0];
    let told = &request.meta()["io.modelcontextprotocol/clientCapabilities"];
    assert_eq!(*told, json!({"elicitation": {"form": {"x": 1}}}));
    assert_eq!(request.message["params"]["requestState"], "their state");

    let unable = failure(call_anonymously(&upstream, "ask", json!({})).await).await;
    assert_eq!(
        unable.reason(),
        "bad_answer",
        "r079: it asked who cannot be asked"
    );
    assert!(
        mock.requests_of("tools/call")[1].message["params"]
            .get("requestState")
            .is_none()
    );
}

#[tokio::test]
async fn events_of_other_types_than_message_are_ignored() {
    let large = "x".repeat(200 << 10);
    let steps = [
        AnswerStep::Raw("event: ping\ndata: {}\n\n".to_owned()),
        AnswerStep::Raw("data: alive\nevent: heartbeat\n\n".to_owned()),
        AnswerStep::Raw(format!("event: state\ndata: {large}\n\n")),
        AnswerStep::Echo,
    ];
    let behaviour = || MockBehaviour::steps(steps.clone()).as_events();
    for server in [
        MockServer::modern(),
        MockServer::legacy(Revision::NEWEST_LEGACY),
    ] {
        let mock = server.tool("echo", behaviour()).start().await;
        let upstream = upstream(&mock.url());
        let reply = call_anonymously(&upstream, "echo", json!({ "n": 7 })).await;
        assert!(text(reply).await.contains("\"n\":7"));
    }
}
