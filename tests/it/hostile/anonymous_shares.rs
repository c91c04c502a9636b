//! Clients without an identity that take all they can get: others get their share.

use serde_json::{Value, json};
use weir_testkit::{MockServer, RawClient};

use crate::harness::Weir;

/// Opens a legacy session from behind a trusted proxy, as this address; returns the status.
async fn open(weir: &Weir, address: &str) -> u16 {
    let client = RawClient::new(&weir.url("/mcp")).with_header("X-Forwarded-For", address);
    let info = json!({ "name": "t", "version": "0" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
    client
        .ask("initialize", params)
        .await
        .unwrap()
        .status
        .as_u16()
}

fn config(upstream: &MockServer, sessions: usize) -> Value {
    json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "trusted_proxies": ["127.0.0.0/8"],
        "limits": { "sessions": sessions },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anonymous_network_leaves_sessions_to_others() {
    let upstream = MockServer::modern().tools(1).start().await;
    // `sessions_per_principal` has the default of 100.
    for sessions in [2, 3, 20, 100] {
        let weir = Weir::with_config(config(&upstream, sessions));
        let mut opened = 0;
        while open(&weir, &format!("192.0.2.{}", opened % 250 + 1)).await == 200 {
            opened += 1;
            assert!(opened < sessions, "one network has all {sessions} sessions");
        }
        assert!(opened >= sessions / 2, "{opened} of {sessions}");
        assert_eq!(open(&weir, "192.0.2.9").await, 429, "{sessions}");
        assert_eq!(open(&weir, "198.51.100.1").await, 200, "{sessions}");
        assert_eq!(
            open(&weir, "2001:db8::1").await,
            if sessions - opened > 1 { 200 } else { 503 },
            "{sessions}"
        );
    }
}
