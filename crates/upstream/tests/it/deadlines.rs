//! Time limits, and the bound of calls in flight.

use std::time::{Duration, Instant};

use serde_json::json;
use weir_core::CapabilityClass;
use weir_core::upstream::ListKind;
use weir_testkit::mock_server::CallGate;
use weir_testkit::{MockBehaviour, MockServer};
use weir_upstream::{OwnDeadlines, UpstreamBounds, UpstreamProtocol, UpstreamSettings};
use weir_wire::Revision;

use crate::fixtures::*;

// Proves E03, E04, E20.
#[tokio::test]
async fn silent_dripping_or_comment_only_call_times_out_and_is_cancelled_upstream() {
    for (era, builder) in [
        ("modern", MockServer::modern()),
        ("legacy", MockServer::legacy(Revision::V2025_11_25)),
    ] {
        let drip = MockBehaviour::echo().dripping(1, Duration::from_millis(60));
        let mock = builder
            .tool("hang", MockBehaviour::hang())
            .tool("hang-sse", MockBehaviour::hang_after_progress())
            .tool("drip", drip.clone().as_json())
            .tool("drip-sse", drip.as_events())
            .tool(
                "comments",
                MockBehaviour::endless_comments(Duration::from_millis(20)),
            )
            .tool("ready", MockBehaviour::echo())
            .start()
            .await;
        let upstream = upstream(&mock.url());
        text(call_anonymously(&upstream, "ready", json!({})).await).await;
        for tool in ["hang", "hang-sse", "drip", "drip-sse", "comments"] {
            let failure = failure(hurried(&upstream, tool).await).await;
            assert_eq!(failure.reason(), "timed_out", "{era} {tool}");
            assert_eq!(
                upstream.health().in_flight,
                0,
                "{era} {tool}: its place is free"
            );
            if era == "legacy" {
                let id = mock.requests_of("tools/call").last().unwrap().message["id"].clone();
                let told = |mock: &MockServer| {
                    mock.requests_of("notifications/cancelled")
                        .iter()
                        .any(|r| r.message["params"]["requestId"] == id)
                };
                mock.wait_until("the server is told", told).await;
            } else {
                mock.wait_until("the connection is closed", |mock| {
                    mock.open_connections() == 0
                })
                .await;
            }
        }
    }
}

// Proves R143.
#[tokio::test]
async fn call_with_endless_progress_ends_at_the_hard_limit() {
    let endless = MockBehaviour::endless_progress(Duration::from_millis(20));
    let mock = MockServer::modern()
        .tool("endless", endless)
        .tool("ready", MockBehaviour::echo())
        .start()
        .await;
    let upstream = upstream(&mock.url());
    text(call_anonymously(&upstream, "ready", json!({})).await).await;
    let endless = outcome(hurried(&upstream, "endless").await).await;
    assert!(!endless.notes.is_empty());
    assert_eq!(endless.end.unwrap_err().reason(), "timed_out");
    mock.wait_until("the connection is closed", |mock| {
        mock.open_connections() == 0
    })
    .await;
}

#[tokio::test]
async fn reply_is_returned_without_an_event_after_a_second() {
    let gate = CallGate::new();
    let mock = MockServer::modern()
        .tool("wait", MockBehaviour::gated(&gate))
        .start()
        .await;
    let upstream = upstream(&mock.url());
    let reply = call_anonymously(&upstream, "wait", json!({"n": 5})).await;
    assert!(!reply.is_ended());
    mock.wait_until("it runs", |mock| mock.counts("wait").started == 1)
        .await;
    gate.open();
    assert!(text(reply).await.contains('5'));
}

// Proves E02.
#[tokio::test]
async fn a_connection_that_is_never_made_is_unavailable_at_its_limit() {
    // A listener with a full queue that never accepts.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(
        Duration::from_millis(100),
        tokio::net::TcpStream::connect(address),
    )
    .await
    {
        queue.push(stream);
    }
    let url = format!("http://{address}/mcp");
    let connect = Duration::from_millis(100);
    let upstream = build(UpstreamSettings {
        connect,
        protocol: UpstreamProtocol::Modern,
        ..settings(&url)
    });
    let failure = failure(call_anonymously(&upstream, "t", json!({})).await).await;
    assert_eq!(failure.reason(), "unavailable");
}

#[tokio::test]
async fn calls_beyond_the_bound_are_refused_as_busy_and_errors_of_tools_do_not_count_as_failures() {
    let gate = CallGate::new();
    let mock = MockServer::modern()
        .tool("wait", MockBehaviour::gated(&gate))
        .tool("bad", MockBehaviour::error(-32603, "broken", json!({})))
        .start()
        .await;
    let bounds = UpstreamBounds {
        in_flight: 3,
        ..UpstreamBounds::default()
    };
    let upstream = build(UpstreamSettings {
        bounds,
        ..settings(&mock.url())
    });
    for _ in 0..20 {
        assert_eq!(
            failure(call_anonymously(&upstream, "bad", json!({})).await)
                .await
                .reason(),
            "upstream_error"
        );
    }
    assert!(!upstream.health().down);
    let running: Vec<_> = (0..3)
        .map(|_| {
            let upstream = upstream.clone();
            tokio::spawn(async move {
                outcome(call_anonymously(&upstream, "wait", json!({})).await)
                    .await
                    .end
                    .unwrap()
            })
        })
        .collect();
    mock.wait_until("three run", |mock| mock.executions("wait") == 3)
        .await;
    assert_eq!(upstream.health().in_flight, 3);
    assert_eq!(
        failure(call_anonymously(&upstream, "wait", json!({})).await)
            .await
            .reason(),
        "busy"
    );
    gate.open();
    for call in running {
        call.await.unwrap();
    }
    assert_eq!(upstream.health().in_flight, 0);
}

#[tokio::test]
async fn lists_and_probes_have_deadlines_of_their_own() {
    // The default of both is 10 s.
    let (brief, long) = (Duration::from_secs(2), Duration::from_secs(9));
    for (era, builder) in [
        ("modern", MockServer::modern()),
        ("legacy", MockServer::legacy(Revision::V2025_11_25)),
    ] {
        let mock = builder.tools(1).start().await;
        let own = OwnDeadlines {
            list: brief,
            ..OwnDeadlines::default()
        };
        let upstream = build(UpstreamSettings {
            own_deadlines: own,
            ..settings(&mock.url())
        });
        let mut watch = upstream.clone().watch(CapabilityClass::BASE).await.unwrap();
        mock.add_rule("tools/list", 1, MockBehaviour::hang());
        let began = Instant::now();
        let failure = watch.list(ListKind::Tools, None).await.unwrap_err();
        assert_eq!(failure.reason(), "timed_out", "{era}");
        assert!(
            (brief..long).contains(&began.elapsed()),
            "{era}: {:?}",
            began.elapsed()
        );
    }
    for (protocol, probe) in [
        (UpstreamProtocol::Modern, "server/discover"),
        (UpstreamProtocol::Legacy, "initialize"),
    ] {
        let mock = MockServer::dual()
            .tool("echo", MockBehaviour::echo())
            .start()
            .await;
        mock.add_rule(probe, 99, MockBehaviour::hang());
        let own = OwnDeadlines {
            probe: brief,
            ..OwnDeadlines::default()
        };
        let upstream = build(UpstreamSettings {
            protocol,
            own_deadlines: own,
            ..settings(&mock.url())
        });
        let began = Instant::now();
        let opened = upstream
            .clone()
            .watch(CapabilityClass::BASE)
            .await
            .map(drop);
        assert!(
            (brief..long).contains(&began.elapsed()),
            "{probe}: {opened:?}"
        );
    }
}
