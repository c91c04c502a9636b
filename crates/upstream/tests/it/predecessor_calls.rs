//! The calls of the process before this one, after a graceful restart.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use weir_core::upstream::Upstream;
use weir_testkit::mock_server::CallGate;
use weir_testkit::{MockBehaviour, MockServer};
use weir_upstream::{UpstreamBounds, UpstreamSettings};
use weir_wire::Revision;

use crate::fixtures::{
    build, call, call_anonymously, call_in_session, outbound, outcome, settings, text,
};

/// The time in which unused sessions are looked for several times.
const SWEEPS: Duration = Duration::from_millis(400);
/// The time that a retired upstream gives its calls.
const GRACE: Duration = Duration::from_secs(60);

/// An upstream of this server that ends sessions soon after their use.
fn upstream_of(mock: &MockServer) -> Arc<dyn Upstream> {
    let bounds = UpstreamBounds {
        session_idle: Duration::from_millis(80),
        ..UpstreamBounds::default()
    };
    build(UpstreamSettings {
        bounds,
        ..settings(&mock.url())
    })
}

#[tokio::test]
async fn session_of_a_call_of_the_previous_process_is_used_until_that_has_ended() {
    let gate = CallGate::new();
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .tool("wait", MockBehaviour::gated(&gate))
        .start()
        .await;
    let (before, after) = (upstream_of(&mock), upstream_of(&mock));
    let calling = tokio::spawn({
        let before = before.clone();
        let wait = outbound("wait", call_in_session("wait")).await;
        async move { outcome(before.call(wait).await).await }
    });
    mock.wait_until("the call", |mock| mock.executions("wait") == 1)
        .await;
    after.set_predecessor_running(true);
    for session in before.clone().export_sessions().await {
        after.clone().import_session(session).await;
    }
    // Its first call finds out that the server has sessions.
    let echo = outbound("echo", call("echo", json!({}))).await;
    text(after.clone().call(echo).await).await;
    tokio::time::sleep(SWEEPS).await;
    assert_eq!(mock.sessions(), 1, "its own session is unused");
    assert!(after.health().predecessor_runs);

    let running_out = after.clone().run_out(GRACE);
    assert!(tokio::time::timeout(SWEEPS, running_out).await.is_err());
    let retiring = tokio::spawn(after.clone().retire(GRACE));
    tokio::time::sleep(SWEEPS).await;
    assert_eq!(mock.sessions(), 1, "the call runs");
    gate.open();
    calling.await.unwrap().end.unwrap();

    after.set_predecessor_running(false);
    let ended = tokio::time::timeout(Duration::from_secs(20), retiring).await;
    ended.expect("the end").unwrap();
    assert_eq!(mock.sessions(), 0);
}

#[tokio::test]
async fn call_of_the_previous_process_has_no_more_than_the_grace() {
    let mock = MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let upstream = build(settings(&mock.url()));
    upstream.set_predecessor_running(true);
    text(call_anonymously(&upstream, "echo", json!({})).await).await;
    let retiring = upstream.clone().retire(Duration::from_millis(50));
    let ended = tokio::time::timeout(Duration::from_secs(20), retiring).await;
    ended.expect("the end");
    assert_eq!(mock.sessions(), 0);
    assert!(!upstream.health().predecessor_runs);
}
