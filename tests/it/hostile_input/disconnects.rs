//! Clients that leave: with a FIN, with a reset, or silently (A22 to A24), and weir that leaves
//! first (A26).

use serde_json::json;
use weir_testkit::mock_server::{CallGate, MockTool};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::WeirWithUpstream;
use super::raw_connection::{RawConnection, good_request, post};
use super::weir_with_upstream::usual_tools;
use crate::harness::wait_until;

/// Starts a stage whose upstream takes one call at a time, so that a call that is not cancelled
/// blocks the next one.
async fn stage_with_one_permit(hang: MockBehaviour) -> WeirWithUpstream {
    let upstream = usual_tools(MockServer::modern())
        .with(MockTool::new("hang").does(hang))
        .start()
        .await;
    let config = json!({
        "upstreams": { "up": { "url": upstream.url(), "limits": { "in_flight": 1 } } },
        "endpoints": { "/mcp": { "upstream": "up" } },
    });
    WeirWithUpstream::with_running_upstream(upstream, config).await
}

/// Asserts that the log has no error after a client left.
fn logs_no_error(stage: &WeirWithUpstream) {
    let said = stage.weir.process.output();
    let blamed = said
        .lines()
        .find(|line| line.contains("\"level\":\"ERROR\"") || line.contains(" ERROR "));
    assert_eq!(blamed, None);
}

// Proves A24.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_in_a_modern_call_cancels_it_at_the_upstream() {
    for hang in [MockBehaviour::hang(), MockBehaviour::hang_after_progress()] {
        let mut stage = stage_with_one_permit(hang).await;
        let mut line = RawConnection::to(&stage).await;
        line.write(good_request(&stage, "tools/call", Some("hang"), false).as_bytes())
            .await
            .unwrap();
        stage
            .up
            .wait_until("the call to run", |up| up.executions("hang") == 1)
            .await;
        line.stream.set_zero_linger().unwrap();
        drop(line);
        stage
            .up
            .wait_until("the call to be given up", |up| {
                up.counts("hang").abandoned == 1
            })
            .await;
        assert_eq!(stage.take_client_requests().len(), 1);
        // Its permit is free again: there is only one.
        stage.assert_still_serving("a reset").await;
        logs_no_error(&stage);
    }
}

/// A client that closes its sending side counts as one that left. In the modern revision a close is
/// the cancel signal, and a half-closed connection looks like a closed one until weir writes to it.
// Proves A22.
#[tokio::test(flavor = "multi_thread")]
async fn half_close_in_a_modern_call_cancels_it() {
    let mut stage = stage_with_one_permit(MockBehaviour::hang()).await;
    let mut line = RawConnection::to(&stage).await;
    line.write(good_request(&stage, "tools/call", Some("hang"), false).as_bytes())
        .await
        .unwrap();
    stage
        .up
        .wait_until("the call to run", |up| up.executions("hang") == 1)
        .await;
    tokio::io::AsyncWriteExt::shutdown(&mut line.stream)
        .await
        .unwrap();
    stage
        .up
        .wait_until("the call to be given up", |up| {
            up.counts("hang").abandoned == 1
        })
        .await;
    assert_eq!(
        line.replies().await,
        [],
        "nothing is sent for a cancelled request"
    );
    assert_eq!(stage.take_client_requests().len(), 1);
    stage.assert_still_serving("a FIN").await;
    logs_no_error(&stage);
}

// Proves A22, R091.
#[tokio::test(flavor = "multi_thread")]
async fn a_fin_in_a_legacy_call_does_not_cancel_it() {
    let gate = CallGate::new();
    let upstream = usual_tools(MockServer::modern()).tool("hang", MockBehaviour::gated(&gate));
    let mut stage = WeirWithUpstream::with_upstream(upstream, json!({})).await;
    let client = stage.legacy_client(Revision::V2025_11_25).await;
    let session = format!("Mcp-Session-Id: {}", client.session().unwrap());
    let body =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang","arguments":{}}}"#;
    let mut line = RawConnection::to(&stage).await;
    line.write(post(&stage, &[&session], body).as_bytes())
        .await
        .unwrap();
    stage
        .up
        .wait_until("the call to run", |up| up.executions("hang") == 1)
        .await;
    tokio::io::AsyncWriteExt::shutdown(&mut line.stream)
        .await
        .unwrap();
    drop(line);
    // weir has noticed once its connection count is zero; the call is still running.
    wait_until("weir to see the connection go", || {
        open_connections(&stage).filter(|open| *open == 0)
    });
    assert_eq!(stage.up.counts("hang").abandoned, 0);
    gate.open();
    stage
        .up
        .wait_until("the call to complete", |up| {
            up.counts("hang").completed == 1
        })
        .await;
    assert_eq!(stage.take_client_requests().len(), 1);
    stage.assert_still_serving("a FIN in a legacy call").await;
    assert_eq!(stage.up.executions("hang"), 1);
    logs_no_error(&stage);
}

fn open_connections(stage: &WeirWithUpstream) -> Option<i64> {
    let metrics = stage.weir.get_admin_page("/metrics");
    let line = metrics.lines().find(|line| {
        line.starts_with("weir_connections{") || line.starts_with("weir_connections ")
    })?;
    line.rsplit(' ')
        .next()?
        .parse::<f64>()
        .ok()
        .map(|open| open as i64)
}

/// On loopback no peer vanishes silently, so this checks the mechanism that would notice: the
/// kernel's keep-alive timer on weir's end of an idle stream (`timer:(keepalive,..)` of ss; timer 2
/// in /proc/net/tcp).
// Proves A23.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_stream_is_watched_by_tcp_keep_alive() {
    let mut stage = WeirWithUpstream::with_limits(json!({ "keep_alive": "1h" })).await;
    let mut listening = stage
        .modern_client()
        .listen(json!({ "toolsListChanged": true }))
        .await
        .unwrap();
    let first = listening.next_message().await.unwrap().unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    let port: u16 = stage
        .authority()
        .rsplit(':')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let own = format!("0100007F:{port:04X}");
    wait_until("the keep-alive timer", || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let watched = table.lines().filter_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            // The local address, the state 01 (established), the timer.
            (fields[1] == own && fields[3] == "01").then(|| fields[5].starts_with("02:"))
        });
        let watched: Vec<_> = watched.collect();
        (!watched.is_empty() && watched.iter().all(|watched| *watched)).then_some(())
    });
    stage.assert_still_serving("an idle stream").await;
}

// Proves A23.
#[tokio::test(flavor = "multi_thread")]
async fn streams_of_clients_that_left_are_freed() {
    let mut stage = WeirWithUpstream::with_limits(json!({ "streams": 20 })).await;
    for round in 0..4 {
        let mut open = Vec::new();
        for _ in 0..20 {
            let mut listening = stage
                .modern_client()
                .listen(json!({ "toolsListChanged": true }))
                .await
                .unwrap();
            assert_eq!(listening.status, 200, "round {round}");
            assert!(listening.next_message().await.unwrap().is_some());
            open.push(listening);
        }
        let over = stage
            .modern_client()
            .listen(json!({ "toolsListChanged": true }))
            .await
            .unwrap();
        assert_ne!(over.status, 200, "the cap holds");
        drop((open, over));
        wait_until("the streams to be freed", || {
            let metrics = stage.weir.get_admin_page("/metrics");
            let open = metrics
                .lines()
                .filter(|line| line.starts_with("weir_streams"));
            open.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
                .all(|open| open == 0.0)
                .then_some(())
        });
    }
    stage.assert_still_serving("streams that were left").await;
}

/// A request that is in flight while weir drains is answered, and its response announces the close
/// of the connection.
// Proves A26.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_on_a_kept_connection_is_not_lost_to_a_drain() {
    let gate = CallGate::new();
    let upstream = usual_tools(MockServer::modern())
        .tool("gated", MockBehaviour::gated(&gate))
        .start()
        .await;
    let config = json!({
        "upstreams": { "up": { "url": upstream.url() } },
        "endpoints": { "/mcp": { "upstream": "up" } },
        "limits": { "drain_idle": "30s" },
    });
    let mut stage = WeirWithUpstream::with_running_upstream(upstream, config).await;
    let whole = good_request(&stage, "tools/call", Some("echo"), false);
    let mut kept = RawConnection::to(&stage).await;
    kept.write(whole.as_bytes()).await.unwrap();
    assert_eq!(kept.reply().await.unwrap().status, 200);
    // One call is running, so that weir cannot have stopped before the other connection sends its
    // next request.
    let mut running = RawConnection::to(&stage).await;
    running
        .write(good_request(&stage, "tools/call", Some("gated"), false).as_bytes())
        .await
        .unwrap();
    stage
        .up
        .wait_until("the call to run", |up| up.executions("gated") == 1)
        .await;
    stage.weir.process.signal("TERM");
    wait_until("weir to stop listening", || {
        std::net::TcpStream::connect(stage.authority()).err()
    });
    kept.write(whole.as_bytes()).await.unwrap();
    let last = kept.reply().await.unwrap();
    assert_eq!(
        (last.status, last.header("connection")),
        (200, Some("close")),
        "{last:?}"
    );
    gate.open();
    let answered = running.reply().await.unwrap();
    assert_eq!(
        (answered.status, answered.header("connection")),
        (200, Some("close")),
        "{answered:?}"
    );
    assert_eq!(kept.replies().await, []);
    assert_eq!(stage.weir.process.wait_for_exit(), Some(0));
    assert_eq!(
        (stage.up.executions("echo"), stage.up.executions("gated")),
        (3, 1)
    );
}
